#include "hw/tensor_slices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/errors.hpp"
#include "hw/math/gather.hpp"
#include "hw/math/pointwise.hpp"

namespace parsim::hw {

namespace {

Tensor parameter_tensor(ParameterId id) { return {Tensor::Kind::parameter, id.value, -1}; }
Tensor output_tensor(LayerId id) { return {Tensor::Kind::output, id.value, -1}; }
constexpr std::int32_t statistics_input = -2;  ///< of an edge that leads from no producer

/// Whether backward passes of a kind look at an operand of the layer, or not.
bool reads_operand(const LayerKind& kind, Pass pass, std::size_t input) {
  if (kind.as<ExpertDispatch>() != nullptr) return input == 1;  // the router's probabilities
  if (pass == Pass::backward_data) return false;                // the layer is linear
  if (const auto* combine = kind.as<Combine>()) {
    return combine->function != "add" && combine->function != "sub";
  }
  if (const auto* pool = kind.as<Pool>()) return pool->kind == PoolKind::max;
  if (const auto* reduce = kind.as<Reduce>()) return reduce->function == "max";
  const auto* activation = kind.as<Activation>();
  const bool linear = activation != nullptr &&
                      (activation->function == "rotary" || activation->function == "identity");
  return !linear && kind.as<Dropout>() == nullptr && kind.as<Flatten>() == nullptr &&
         kind.as<Rearrange>() == nullptr && kind.as<Slicing>() == nullptr &&
         kind.as<Concat>() == nullptr && kind.as<HeadConcat>() == nullptr;
}

class Uses {
 public:
  Uses(const ExecDag& dag, const std::vector<bool>& trained,
       const std::function<void(const TensorSlice&, Use)>& touch)
      : dag_(dag), trained_(trained), touch_(touch) {}

  void visit(const Compute& op, const Shares&) {
    const ComputeSlices p = compute_slices(dag_, op, trained_);
    const bool forward = op.pass == Pass::forward || op.pass == Pass::recompute;
    const LayerKind& kind = dag_.network[dag_.work(op.work).layer].kind;
    for (std::size_t i = 0; i < p.inputs.size(); ++i) {
      touch_(p.inputs[i], forward || reads_operand(kind, op.pass, i) ? Use::reads : Use::names);
    }
    touch(p.parameters, Use::reads);
    if (forward) {
      touch_(p.statistics, Use::overwrites);
      return touch_(p.out, p.adds ? Use::reads : Use::overwrites);
    }
    touch_(p.statistics, Use::reads);
    if (kind.as<Attention>() != nullptr) touch_(p.out, Use::reads);
    if (kind.as<Loss>() != nullptr && p.statistics.key.role == Role::statistics) {
      touch_(p.out, Use::overwrites);
    }
    touch_(p.out_gradient, Use::reads);
    if (op.pass != Pass::backward_weights) touch(p.input_gradients, Use::reads);
    if (op.pass != Pass::backward_data) touch(p.parameter_gradients, Use::reads);
  }
  void visit(const Update& op, const Shares&) {
    for (TensorSlice slice : tensor_slices(dag_, op.device, op.slice)) {
      touch_(slice, Use::reads);
      for (const StateKind state : states(dag_.optimizer, dag_.precision)) {
        TensorSlice kept = slice;
        kept.key.role = Role::optimizer_state;
        kept.key.micro_batch = static_cast<std::int32_t>(state);
        touch_(kept, Use::reads);
      }
      slice.key.role = Role::weight_gradient;
      touch_(slice, Use::reads);
    }
  }
  void visit(const Local& op, const Shares&) {
    const bool reads = op.kind == LocalKind::copy || op.kind == LocalKind::add;
    if (reads) touch(tensor_slices(dag_, op.device, op.from), Use::reads);
    touch(tensor_slices(dag_, op.device, op.to),
          op.kind == LocalKind::add ? Use::reads : Use::overwrites);
  }
  void visit(const Transfer& op, const Shares&) {
    touch(tensor_slices(dag_, op.from, op.slice), Use::reads);
    const bool adds = op.add || op.from == op.to;  // within a device nothing may move
    touch(tensor_slices(dag_, op.to, op.target), adds ? Use::reads : Use::overwrites);
    // A server that receives gradients has the weights.
    for (TensorSlice slice : tensor_slices(dag_, op.to, op.target)) {
      if (slice.key.role != Role::weight_gradient) continue;
      slice.key.role = Role::weight;
      touch_(slice, Use::names);
    }
  }
  void visit(const Collective& op, const Shares& shares) {
    const std::vector<DeviceId>& group = dag_.group(op.group);
    for (std::size_t m = 0; m < group.size(); ++m) {
      if (shares.regions.empty()) {
        touch(tensor_slices(dag_, group[m], op.slice), Use::reads);
        const bool sums = op.slice == op.target || op.kind == CollectiveKind::broadcast;
        touch(tensor_slices(dag_, group[m], op.target), sums ? Use::reads : Use::overwrites);
        continue;
      }
      const bool reads_all = op.kind == CollectiveKind::reduce_scatter;
      const bool writes_all = op.kind == CollectiveKind::all_gather;
      for (std::size_t s = 0; s < group.size(); ++s) {
        if (reads_all || s == m) shared(group[m], op.slice, shares.regions[s]);
        if (writes_all || (reads_all && s == m)) shared(group[m], op.target, shares.regions[s]);
      }
      if (op.kind == CollectiveKind::all_to_all) shared(group[m], op.target, shares.needs[m]);
    }
  }
  void visit(const Delay& op, const Shares&) {
    touch_({{op.device, {}, Role::activation, 0}, Region{{0, 0}}}, Use::names);
  }

 private:
  void touch(const std::vector<TensorSlice>& list, Use use) {
    for (const TensorSlice& slice : list) touch_(slice, use);
  }
  void shared(DeviceId device, const Slice& slice, RegionId region) {
    touch(tensor_slices(dag_, device, slice, region), Use::reads);
  }

  const ExecDag& dag_;
  const std::vector<bool>& trained_;
  const std::function<void(const TensorSlice&, Use)>& touch_;
};

}  // namespace

void for_each_use(const ExecDag& dag, OpId id, const std::vector<bool>& trained,
                  const std::function<void(const TensorSlice&, Use)>& visit) {
  std::visit([&](const auto& op) { Uses(dag, trained, visit).visit(op, dag.shares(id)); },
             dag.op(id));
}

std::vector<TensorSlice> tensor_slices(const ExecDag& dag, DeviceId device, const Slice& slice,
                                       std::optional<RegionId> narrowed) {
  const Tensor& tensor = dag.tensor(slice.tensor);
  if (tensor.kind != Tensor::Kind::bucket) {
    return {{{device, tensor, slice.role, slice.micro_batch},
             dag.region(narrowed.value_or(slice.region))}};
  }
  std::vector<TensorSlice> all;
  for (const auto& [parameter, region] :
       dag.bucket_parts(tensor.index, narrowed.value_or(slice.region))) {
    all.push_back({{device, parameter_tensor(parameter), slice.role, slice.micro_batch}, region});
  }
  return all;
}

std::vector<bool> trained_layers(const Network& network) {
  std::vector<bool> trained;
  for (const Layer& layer : network.layers) {
    bool any = !layer.parameters.empty();
    for (const LayerId producer : layer.inputs) any = any || trained[producer.index()];
    trained.push_back(any);
  }
  return trained;
}

ComputeSlices compute_slices(const ExecDag& dag, const Compute& op,
                             const std::vector<bool>& trained) {
  const Work work = dag.work(op.work);
  const Layer& layer = dag.network[work.layer];
  const std::vector<Shape> shapes = input_shapes(dag.network, work.layer);
  const Part part = dag.part(op.work);
  ComputeSlices p;
  const bool some_classes = work.class_parts > 0;
  const bool forward = op.pass == Pass::forward || op.pass == Pass::recompute;
  const bool partial = work.contraction_end > work.contraction_begin && !some_classes;
  p.adds = partial && op.pass == Pass::forward;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    const Region region = input_region(layer.kind, shapes, layer.out, i, part);
    p.inputs.push_back(
        {{op.device, output_tensor(producer), Role::activation, op.micro_batch}, region});
    const bool travels = ((work.edges_to_partial_sum >> i) & 1U) != 0;
    const Tensor edge{Tensor::Kind::edge, work.layer.value, static_cast<std::int32_t>(i)};
    p.input_gradients.push_back({{op.device, travels ? edge : output_tensor(producer),
                                  travels ? Role::partial_sum : Role::gradient, op.micro_batch},
                                 trained[producer.index()] ? region : Region{{0, 0}}});
  }
  for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
    const Region region = parameter_region(layer.kind, shapes, layer.out, i, part);
    const Tensor tensor = parameter_tensor(layer.parameters[i]);
    p.parameters.push_back({{op.device, tensor, Role::weight, 0}, region});
    p.parameter_gradients.push_back({{op.device, tensor, Role::weight_gradient, 0}, region});
  }
  p.out = {{op.device, output_tensor(work.layer), partial ? Role::partial_sum : Role::activation,
            op.micro_batch},
           some_classes && forward ? Region{{0, 0}} : part.out};
  p.out_gradient = {{op.device, output_tensor(work.layer), Role::gradient, op.micro_batch},
                    layer.kind.as<Loss>() == nullptr ? part.out : Region{{0, 0}}};
  p.statistics = {{op.device,
                   {Tensor::Kind::edge, work.layer.value, statistics_input},
                   Role::activation,
                   op.micro_batch},
                  Region{{0, 0}}};
  if (const auto* attention = layer.kind.as<Attention>(); attention != nullptr && !partial) {
    const std::int64_t width = layer.out.axes[1].extent / attention->heads;
    const Interval channels = part.out[2];
    p.statistics.region = {
        part.out[0], {channels.begin / width, (channels.end + width - 1) / width}, part.out[1]};
  }
  if (some_classes) {
    const Interval parts =
        forward ? Interval{work.class_part, work.class_part + 1} : Interval{0, work.class_parts};
    p.statistics = {{op.device, output_tensor(work.layer), Role::statistics, op.micro_batch},
                    loss_statistics(shapes[0], part, parts)};
  }
  return p;
}

bool holds_statistics(const StoreKey& key) {
  return key.tensor.kind == Tensor::Kind::edge && key.tensor.input == statistics_input;
}

Stores stores(const ExecDag& dag, bool statistics) {
  Stores out;
  const std::vector<bool> trained = trained_layers(dag.network);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for_each_use(dag, OpId{i}, trained, [&](const TensorSlice& slice, Use) {
      out.devices = std::max(out.devices, slice.key.device.value + 1);
      if (slice.region.empty() || (!statistics && holds_statistics(slice.key))) return;
      Store& store = out.all[slice.key];
      store.box = hull(store.box, slice.region);
    });
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    out.micro_batches =
        std::max(out.micro_batches, std::get<Compute>(dag.op(OpId{i})).micro_batch + 1);
  }
  // States lie like their weights, so that one walk serves both; of the first axis only as much as
  // the device updates.
  for (auto& [key, store] : out.all) {
    if (key.role != Role::optimizer_state) continue;
    StoreKey weight = key;
    weight.role = Role::weight;
    weight.micro_batch = 0;
    const auto held = out.all.find(weight);
    if (held == out.all.end()) {
      throw InputError(fmt::format("device {}", key.device.value),
                       "has states of the optimizer for weights that it does not have",
                       "accepted: DAGs as 'parsim plan --dag' writes them");
    }
    const Region updated = std::exchange(store.box, held->second.box);
    if (store.box.rank() > 0) store.box[0] = updated[0];
  }
  return out;
}

std::vector<StoreKey> received_gradients(const ExecDag& dag) {
  std::vector<StoreKey> all;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* transfer = std::get_if<Transfer>(&op);
    if (transfer == nullptr || !transfer->add) continue;
    for (const TensorSlice& slice : tensor_slices(dag, transfer->to, transfer->target)) {
      if (slice.key.role == Role::weight_gradient) all.push_back(slice.key);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Bytes> bytes_held(const ExecDag& dag, const Stores& stores) {
  std::vector<Bytes> held(static_cast<std::size_t>(stores.devices));
  for (const auto& [key, store] : stores.all) {
    const std::int64_t each = key.role == Role::optimizer_state ? 4 : dag.element_bytes(key.role);
    held[key.device.index()] += Bytes{store.box.volume() * each};
  }
  return held;
}

std::vector<StateKind> states(Optimizer optimizer, Precision precision) {
  std::vector<StateKind> kept;
  if (optimizer != Optimizer::sgd) kept.push_back(StateKind::first);
  if (optimizer == Optimizer::adam) kept.push_back(StateKind::second);
  if (element_bytes(precision) < 4) kept.push_back(StateKind::master);
  return kept;
}

namespace {

/// Why a kind cannot be computed, or "".
std::string lacks(const LayerKind& kind, const std::vector<Shape>& inputs) {
  constexpr std::array<std::string_view, 10> activations{"identity",  "relu",  "leakyrelu", "clip",
                                                         "sigmoid",   "tanh",  "silu",      "gelu",
                                                         "hardswish", "rotary"};
  constexpr std::array<std::string_view, 6> merges{"add", "sub", "mul", "div", "max", "min"};
  constexpr std::array<std::string_view, 3> folds{"mean", "sum", "max"};
  const auto among = [](const auto& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (const auto* experts = kind.as<ExpertDense>()) {
    if (experts->imbalance != 1) return "experts that are busier than others";
  } else if (const auto* activation = kind.as<Activation>()) {
    const bool learned = activation->parameters > 0;
    if (!learned && !among(activations, activation->function)) return activation->function;
  } else if (const auto* combine = kind.as<Combine>()) {
    if (!among(merges, combine->function)) return combine->function;
    if (inputs.size() > most_operands) return "a combination of more than four operands";
  } else if (const auto* pool = kind.as<Pool>()) {
    if (inputs[0].axes.size() > pool->windows.size() + 1)
      return "a pooling of several channel axes";
    std::int64_t taps = 1;
    for (const Window& window : pool->windows) taps *= window.kernel;
    if (pool->kind == PoolKind::max && taps > 65'535)
      return "a maximum of more than 65,535 elements";
  } else if (const auto* reduce = kind.as<Reduce>()) {
    if (!among(folds, reduce->function)) return "reduction " + reduce->function;
  }
  return {};
}

}  // namespace

void check_runnable(const Network& network, const std::string& where) {
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    std::string what = lacks(layer.kind, input_shapes(network, LayerId{l}));
    if (what.empty() && layer.out.axes.size() + 1 > static_cast<std::size_t>(most_axes)) {
      what = "a tensor of more than five axes";
    }
    if (what.empty()) continue;
    throw InputError(where, fmt::format("layer '{}' ({})", layer.name, what),
                     "real hardware cannot run this yet; simulate it without --hw");
  }
}

void check_runnable(const ExecDag& dag, const std::string& where) {
  check_runnable(dag.network, where);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    const Work work = dag.work(std::get<Compute>(dag.op(OpId{i})).work);
    const Layer& layer = dag.network[work.layer];
    const bool whole = work.contraction_end == work.contraction_begin;
    if (work.zigzag == 0 && (whole || layer.kind.as<Attention>() == nullptr)) continue;
    throw InputError(where,
                     fmt::format("layer '{}' (context parallelism divides its tokens)", layer.name),
                     "real hardware cannot run this yet; simulate it without --hw, or leave out "
                     "--cp");
  }
}

}  // namespace parsim::hw
