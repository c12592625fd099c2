#include "tests/support/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "tests/support/dropping.hpp"
#include "tests/support/reference.hpp"

namespace parsim::testing {
namespace {

struct Place {
  StoreKey key;
  Region region;
};

/// Where a slice lies on a device: one place, or the parts of a bucket. `narrowed` replaces the
/// slice's region (shares of collectives).
std::vector<Place> places(const ExecDag& dag, DeviceId device, const Slice& slice,
                          std::optional<RegionId> narrowed = {}) {
  const Tensor& tensor = dag.tensor(slice.tensor);
  if (tensor.kind != Tensor::Kind::bucket) {
    return {{{device, tensor, slice.role, slice.micro_batch},
             dag.region(narrowed.value_or(slice.region))}};
  }
  std::vector<Place> all;
  for (const auto& [parameter, region] :
       dag.bucket_parts(tensor.index, narrowed.value_or(slice.region))) {
    all.push_back(
        {{device, {Tensor::Kind::parameter, parameter.value, -1}, slice.role, slice.micro_batch},
         region});
  }
  return all;
}

class Interpreter {
 public:
  Interpreter(const ExecDag& dag, Memory& memory)
      : dag_(dag), memory_(memory), trains_(leads_to_parameters(dag.network)) {}

  void place_weights();
  void run(OpId id) {
    memory_.log_as(id);
    const Op op = dag_.op(id);
    if (const auto* collective = std::get_if<Collective>(&op)) {
      run_collective(*collective, dag_.shares(id));
    } else {
      std::visit([this](const auto& o) { run_op(o); }, op);
    }
  }

 private:
  void run_op(const Compute& op);
  void run_op(const Update& op);
  void run_op(const Local& op);
  void run_op(const Transfer& op);
  void run_op(const Collective&) {}
  void run_op(const Delay&) {}
  void run_collective(const Collective& op, const Shares& shares);
  void all_reduce(const Collective& op, const std::vector<DeviceId>& group);

  [[nodiscard]] std::vector<Place> parameter_places(const Compute& op) const;
  void give_weights(const std::vector<Place>& where);
  void take_gathered_weights();
  /// Adds to a step of ring attention what the device has of earlier steps: the keys and values
  /// that it has attended to, in place of the sums over them that a kernel keeps.
  void remember_keys(const Compute& op, PartInput& input);
  /// Of a loss with a share of the classes.
  void loss_pass(const Compute& op, PartInput& input);
  void forward_pass(const Compute& op, const PartInput& input);
  void backward_pass(const Compute& op, const PartInput& input, std::size_t operands);

  struct Attended {
    std::vector<Interval> keys;
    Block key, value;
  };

  const ExecDag& dag_;
  Memory& memory_;
  std::vector<bool> trains_;
  std::map<std::pair<StoreKey, Region>, Attended> attended_;  ///< by output
};

std::vector<Place> Interpreter::parameter_places(const Compute& op) const {
  const Work& work = dag_.work(op.work);
  const Layer& layer = dag_.network[work.layer];
  const std::vector<Shape> shapes = input_shapes(dag_.network, work.layer);
  std::vector<Place> all;
  for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
    all.push_back(
        {{op.device, {Tensor::Kind::parameter, layer.parameters[p].value, -1}, Role::weight, 0},
         parameter_region(layer.kind, shapes, layer.out, p, dag_.part(op.work))});
  }
  return all;
}

void Interpreter::give_weights(const std::vector<Place>& where) {
  for (const Place& place : where) {
    const std::int32_t index = place.key.tensor.index;
    const auto& extents = dag_.network.parameters[static_cast<std::size_t>(index)].extents;
    StoreKey key = place.key;
    key.role = Role::weight;
    memory_.write(key, initial_parameter(index, extents).piece(place.region));
  }
}

/// Whoever gathers weights before they are updated has but a share of them before.
void Interpreter::take_gathered_weights() {
  std::set<std::int32_t> updated;  // tensors
  for (std::size_t i = 0; i < dag_.size(); ++i) {
    const Op op = dag_.op(OpId{i});
    if (const auto* update = std::get_if<Update>(&op)) updated.insert(update->slice.tensor.value);
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != CollectiveKind::all_gather ||
        collective->slice.role != Role::weight || updated.contains(collective->slice.tensor.value))
      continue;
    const std::vector<DeviceId>& group = dag_.group(collective->group);
    for (std::size_t m = 0; m < group.size(); ++m) {
      for (const Place& place : places(dag_, group[m], collective->slice)) {
        memory_.forget(place.key, place.region);
      }
      give_weights(places(dag_, group[m], collective->slice, dag_.shares(OpId{i}).regions[m]));
    }
  }
}

void Interpreter::place_weights() {
  memory_.log_as({});
  for (std::size_t i = 0; i < dag_.size(); ++i) {
    const Op op = dag_.op(OpId{i});
    if (const auto* compute = std::get_if<Compute>(&op)) give_weights(parameter_places(*compute));
    // Of learned positions a device may compute with a part, but update all.
    if (const auto* update = std::get_if<Update>(&op)) {
      give_weights(places(dag_, update->device, update->slice));
    }
    const auto* transfer = std::get_if<Transfer>(&op);
    if (transfer != nullptr && transfer->target.role == Role::weight_gradient) {
      give_weights(places(dag_, transfer->to, transfer->target));
    }
  }
  take_gathered_weights();
}

void Interpreter::run_op(const Compute& op) {
  const Work& work = dag_.work(op.work);
  const Layer& layer = dag_.network[work.layer];
  const std::vector<Shape> shapes = input_shapes(dag_.network, work.layer);
  const Part part = dag_.part(op.work);
  PartInput input{
      layer.kind, shapes, layer.out,       part, {}, {}, op.micro_batch * memory_.samples(),
      dag_.batch, {},     work.layer.value};
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    const Region region = input_region(layer.kind, shapes, layer.out, i, part);
    if (dag_.network[producer].kind.as<Input>() != nullptr) {
      input.activations.push_back(
          data_block(producer.value, shapes[i], region, input.first_sample));
    } else if (op.pass == Pass::backward_data) {
      input.activations.emplace_back(region);  // not read
    } else {
      input.activations.push_back(memory_.read(
          {op.device, {Tensor::Kind::output, producer.value, -1}, Role::activation, op.micro_batch},
          region));
    }
  }
  for (const Place& place : parameter_places(op)) {
    input.parameters.push_back(memory_.read(place.key, place.region));
  }
  if (layer.kind.as<Attention>() != nullptr && !part.contraction.empty()) remember_keys(op, input);
  if (work.class_parts > 0) return loss_pass(op, input);
  if (op.pass == Pass::forward || op.pass == Pass::recompute) {
    forward_pass(op, input);
  } else {
    backward_pass(op, input, layer.inputs.size());
  }
}

void Interpreter::loss_pass(const Compute& op, PartInput& input) {
  const Work& work = dag_.work(op.work);
  const Tensor output{Tensor::Kind::output, work.layer.value, -1};
  const StoreKey statistics{op.device, output, Role::statistics, op.micro_batch};
  if (op.pass == Pass::forward || op.pass == Pass::recompute) {
    return memory_.write(statistics, loss_share(input, work.class_part));
  }
  input.statistics =
      memory_.read(statistics, loss_statistics(input.inputs[0], input.part, {0, work.class_parts}));
  memory_.write({op.device, output, Role::activation, op.micro_batch}, forward(input));
  backward_pass(op, input, 1);
}

void Interpreter::remember_keys(const Compute& op, PartInput& input) {
  const Work& work = dag_.work(op.work);
  const StoreKey output{
      op.device, {Tensor::Kind::output, work.layer.value, -1}, Role::activation, op.micro_batch};
  Attended& all = attended_[{output, input.part.out}];
  const Interval share = input.part.contraction;
  const bool forwards = op.pass == Pass::forward || op.pass == Pass::recompute;
  const bool again = std::find(all.keys.begin(), all.keys.end(), share) != all.keys.end();
  if (forwards && again) all = {};
  if (all.keys.empty()) {
    Part whole_part = input.part;
    whole_part.contraction = {0, input.inputs[1].axes[0].extent};
    all.key = Block(input_region(input.kind, input.inputs, input.out, 1, whole_part));
    all.value = Block(input_region(input.kind, input.inputs, input.out, 2, whole_part));
  }
  if (forwards) all.keys.push_back(share);
  all.key.paste(input.activations[1]);
  all.value.paste(input.activations[2]);
  input.activations[1] = all.key;
  input.activations[2] = all.value;
  input.keys = all.keys;
}

void Interpreter::forward_pass(const Compute& op, const PartInput& input) {
  const Work& work = dag_.work(op.work);
  // Any share of the contraction but the whole one makes a partial sum.
  const bool partial = work.contraction_end > work.contraction_begin && input.keys.empty();
  const StoreKey to{op.device,
                    {Tensor::Kind::output, work.layer.value, -1},
                    partial ? Role::partial_sum : Role::activation,
                    op.micro_batch};
  const bool adds = partial && op.pass == Pass::forward;
  if (!input.keys.empty()) {  // no layer reads a result of a part of the keys
    std::int64_t attended = 0;
    for (const Interval share : input.keys) attended += share.size();
    if (attended < input.inputs[1].axes[0].extent) return;
  }
  adds ? memory_.add(to, forward(input)) : memory_.write(to, forward(input));
}

void Interpreter::backward_pass(const Compute& op, const PartInput& input, std::size_t operands) {
  const Work& work = dag_.work(op.work);
  const Layer& layer = dag_.network[work.layer];
  Block out_gradient;
  if (layer.kind.as<Loss>() == nullptr) {
    out_gradient = memory_.read(
        {op.device, {Tensor::Kind::output, work.layer.value, -1}, Role::gradient, op.micro_batch},
        input.part.out);
  }
  PartGradients gradients = backward(input, out_gradient);
  for (std::size_t i = 1; i < gradients.activations.size() && !input.keys.empty(); ++i) {
    const std::vector<Shape> shapes = input_shapes(dag_.network, work.layer);
    gradients.activations[i] =
        gradients.activations[i].piece(input_region(layer.kind, shapes, layer.out, i, input.part));
  }
  for (std::size_t i = 0; op.pass != Pass::backward_weights && i < operands; ++i) {
    const LayerId producer = layer.inputs[i];
    if (!trains_[producer.index()]) continue;
    const bool travels = ((work.edges_to_partial_sum >> i) & 1U) != 0;
    const Tensor target =
        travels ? Tensor{Tensor::Kind::edge, work.layer.value, static_cast<std::int32_t>(i)}
                : Tensor{Tensor::Kind::output, producer.value, -1};
    memory_.add({op.device, target, travels ? Role::partial_sum : Role::gradient, op.micro_batch},
                gradients.activations[i]);
  }
  if (op.pass == Pass::backward_data) return;
  const std::vector<Place> weights = parameter_places(op);
  for (std::size_t p = 0; p < weights.size(); ++p) {
    StoreKey key = weights[p].key;
    key.role = Role::weight_gradient;
    memory_.add(key, gradients.parameters[p]);
  }
}

void Interpreter::run_op(const Update& op) {
  for (const Place& place : places(dag_, op.device, op.slice)) {
    StoreKey gradient = place.key;
    gradient.role = Role::weight_gradient;
    Block weight = memory_.read(place.key, place.region);
    const Block slope = memory_.read(gradient, place.region);
    for (std::size_t i = 0; i < weight.values().size(); ++i) {
      weight.values()[i] -= learning_rate * slope.values()[i];
    }
    memory_.write(place.key, weight);
  }
}

void Interpreter::run_op(const Local& op) {
  const std::vector<Place> to = places(dag_, op.device, op.to);
  if (op.kind == LocalKind::drop) {
    for (const Place& place : to) memory_.write(place.key, Block(place.region));
    return;
  }
  // As in transfers, the regions are equal.
  const std::vector<Place> from = places(dag_, op.device, op.from);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const Block block = memory_.read(from.at(i).key, to[i].region);
    op.kind == LocalKind::add ? memory_.add(to[i].key, block) : memory_.write(to[i].key, block);
  }
}

void Interpreter::run_op(const Transfer& op) {
  const std::vector<Place> from = places(dag_, op.from, op.slice);
  const std::vector<Place> to = places(dag_, op.to, op.target);
  ensure(from.size() == to.size(), "a transfer moves between slices of one extent");
  for (std::size_t i = 0; i < to.size(); ++i) {
    ensure(from[i].region == to[i].region, "the regions of a transfer are equal");
    if (from[i].key == to[i].key) continue;  // a worker and its server share one store
    const Block block = memory_.read(from[i].key, from[i].region);
    op.add ? memory_.add(to[i].key, block) : memory_.write(to[i].key, block);
  }
}

void Interpreter::all_reduce(const Collective& op, const std::vector<DeviceId>& group) {
  std::vector<Block> sums;
  for (const DeviceId device : group) {
    const std::vector<Place> from = places(dag_, device, op.slice);
    sums.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Block block = memory_.read(from[i].key, from[i].region);
      if (sums[i].box() == block.box()) {
        sums[i].add(block);
      } else {
        sums[i] = block;
      }
    }
  }
  for (const DeviceId device : group) {
    const std::vector<Place> to = places(dag_, device, op.target);
    for (std::size_t i = 0; i < to.size(); ++i) {
      memory_.write(to[i].key, sums[i]);
    }
  }
}

void Interpreter::run_collective(const Collective& op, const Shares& shares) {
  const std::vector<DeviceId>& group = dag_.group(op.group);
  ensure(std::set<DeviceId>(group.begin(), group.end()).size() == group.size(),
         "a device is in a group once");
  switch (op.kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(op, group);
    case CollectiveKind::broadcast:
      for (const Place& source : places(dag_, group[0], op.slice)) {
        const Block block = memory_.read(source.key, source.region);
        for (std::size_t i = 1; i < group.size(); ++i) {
          StoreKey key = source.key;
          key.device = group[i];
          key.role = op.target.role;
          memory_.write(key, block);
        }
      }
      return;
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: {
      std::vector<std::vector<Block>> held(group.size());
      for (std::size_t i = 0; i < group.size(); ++i) {
        for (const Place& place : places(dag_, group[i], op.slice, shares.regions[i])) {
          held[i].push_back(memory_.read(place.key, place.region));
        }
      }
      for (std::size_t i = 0; i < group.size(); ++i) {
        for (std::size_t j = 0; j < group.size(); ++j) {
          if (i == j && op.slice == op.target) continue;  // it has its own share already
          const std::vector<Place> to = places(dag_, group[i], op.target, shares.regions[j]);
          for (std::size_t p = 0; p < to.size(); ++p) {
            Region part = held[j][p].box();
            if (op.kind == CollectiveKind::all_to_all) {
              part = intersect(part, dag_.region(shares.needs[i]));
            }
            op.target.role == Role::gradient ? memory_.add(to[p].key, held[j][p].piece(part))
                                             : memory_.write(to[p].key, held[j][p].piece(part));
          }
        }
      }
      return;
    }
    case CollectiveKind::reduce_scatter: {
      std::vector<std::vector<Block>> sums(group.size());
      for (std::size_t i = 0; i < group.size(); ++i) {
        for (const DeviceId device : group) {
          const std::vector<Place> from = places(dag_, device, op.slice, shares.regions[i]);
          for (std::size_t p = 0; p < from.size(); ++p) {
            if (sums[i].size() == p) sums[i].emplace_back(from[p].region);
            sums[i][p].add(memory_.read(from[p].key, from[p].region));
          }
        }
      }
      for (std::size_t i = 0; i < group.size(); ++i) {
        const std::vector<Place> to = places(dag_, group[i], op.target, shares.regions[i]);
        for (std::size_t p = 0; p < to.size(); ++p) {
          const bool writes = op.slice == op.target || op.target.role == Role::activation;
          writes ? memory_.write(to[p].key, sums[i][p]) : memory_.add(to[p].key, sums[i][p]);
        }
      }
    }
  }
}

}  // namespace

Memory interpret(const ExecDag& dag, const std::vector<OpId>& order) {
  Memory memory(dag);
  Interpreter interpreter(dag, memory);
  interpreter.place_weights();
  Dropping dropping(dag, memory);
  for (const OpId id : order) {
    dropping.before(id);
    interpreter.run(id);
    dropping.after(id);
  }
  memory.log_as({});
  return memory;
}

}  // namespace parsim::testing
