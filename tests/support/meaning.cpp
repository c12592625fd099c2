#include "tests/support/meaning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "tests/support/interpreter.hpp"
#include "tests/support/reference.hpp"

namespace parsim::testing {
namespace {

constexpr double tolerance = 1e-9;

class Comparison {
 public:
  Comparison(const Plan& plan, const ExecDag& dag, const Step& reference, Memory& memory)
      : plan_(plan), dag_(dag), reference_(reference), memory_(memory) {
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const Op op = dag.op(OpId{i});
      const auto* kept = std::get_if<Local>(&op);
      if (kept != nullptr && kept->kind == LocalKind::add && kept->to.role == Role::activation) {
        shares_[{dag.tensor(kept->to.tensor).index, kept->device}].insert(
            dag.region(kept->to.region));  // what others send of it has come
      }
      const auto* sum = std::get_if<Collective>(&op);
      if (sum == nullptr || sum->kind != CollectiveKind::reduce_scatter ||
          sum->target.role != Role::activation) {
        continue;
      }
      const std::vector<DeviceId>& group = dag.group(sum->group);
      for (std::size_t d = 0; d < group.size(); ++d) {
        shares_[{dag.tensor(sum->slice.tensor).index, group[d]}].insert(
            dag.region(dag.shares(OpId{i}).regions[d]));
      }
    }
  }

  /// The first difference, in the order in which a step computes things.
  [[nodiscard]] std::string run() {
    const Network& network = dag_.network;
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      each_cell(LayerId{l}, Role::activation, reference_.activations[l]);
    }
    const std::vector<bool> trains = leads_to_parameters(network);
    for (std::size_t l = network.layers.size(); l-- > 0;) {
      if (trains[l] && network.layers[l].kind.as<Loss>() == nullptr) {
        each_cell(LayerId{l}, Role::gradient, reference_.gradients[l]);
      }
    }
    updates();
    weights();
    return found_;
  }

 private:
  void compare(const StoreKey& key, const Region& box, const Block& whole_tensor,
               std::int64_t first_sample) {
    if (!found_.empty() || box.empty()) return;
    Region global = box;
    const bool has_samples = key.tensor.kind != Tensor::Kind::parameter;
    if (has_samples) global[0] = {box[0].begin + first_sample, box[0].end + first_sample};
    Block expected(box);
    expected.values() = whole_tensor.piece(global).values();
    const double error = relative_error(memory_.read(key, box), expected);
    if (error < tolerance) return;
    found_ = fmt::format("{} over {} is off by {:.3g}", describe(dag_, key), to_text(box), error);
  }

  void each_cell(LayerId id, Role role, const Block& whole_tensor) {
    if (dag_.network[id].kind.as<Input>() != nullptr) return;
    const bool copies = plan_.layers[id.index()].token_parts > 0 &&
                        dag_.network[id].out.region_axis(Dim::token) == 0;
    for (const Cell& cell : cells(dag_.network, id, plan_.layers[id.index()], memory_.samples())) {
      const auto shares = shares_.find({id.value, cell.device});
      const bool scattered = role == Role::activation && shares != shares_.end();
      for (std::int32_t m = 0; m < memory_.micro_batches(); ++m) {
        const auto check = [&](const Region& box) {
          compare({cell.device, {Tensor::Kind::output, id.value, -1}, role, m}, box, whole_tensor,
                  m * memory_.samples());
        };
        // Of copies for parts of the tokens each has the gradient of its own.
        if (role == Role::gradient && copies) continue;
        if (!scattered) check(cell.part.out);
        for (const Region& share : scattered ? shares->second : std::set<Region>{}) check(share);
      }
    }
  }

  /// The gradient of every update is that of the whole batch, and its weight the new one.
  void updates() {
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      const Op op = dag_.op(OpId{i});
      const auto* update = std::get_if<Update>(&op);
      if (update == nullptr) continue;
      const Tensor& tensor = dag_.tensor(update->slice.tensor);
      const auto one = [&](ParameterId parameter, const Region& region) {
        const Tensor learned{Tensor::Kind::parameter, parameter.value, -1};
        compare({update->device, learned, Role::weight_gradient, 0}, region,
                reference_.weight_gradients[parameter.index()], 0);
        compare({update->device, learned, Role::weight, 0}, region,
                reference_.weights[parameter.index()], 0);
      };
      if (tensor.kind == Tensor::Kind::bucket) {
        for (const auto& [parameter, part] :
             dag_.bucket_parts(tensor.index, update->slice.region)) {
          one(parameter, part);
        }
      } else {
        one(ParameterId{tensor.index}, dag_.region(update->slice.region));
      }
    }
  }

  /// Whoever computes with a weight has its new value at the end, but for those that are split: of
  /// a shared weight, as its first layer's plan says.
  void weights() {
    const Network& network = dag_.network;
    std::vector<const LayerPlan*> first(network.parameters.size());
    for (std::size_t l = network.layers.size(); l-- > 0;) {
      for (const ParameterId id : network.layers[l].parameters) {
        first[id.index()] = &plan_.layers[l];
      }
    }
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const Layer& layer = network.layers[l];
      const std::vector<Shape> shapes = input_shapes(network, LayerId{l});
      for (const Cell& cell : cells(network, LayerId{l}, plan_.layers[l], memory_.samples())) {
        for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
          const ParameterId id = layer.parameters[p];
          const std::int32_t stage = first[id.index()]->zero.stage;
          const ReduceEvery every = plan_.schedule.reduce_every;
          if (stage == 3 || (stage == 2 && every != ReduceEvery::automatic) ||
              (stage == 1 && every == ReduceEvery::step)) {
            continue;
          }
          compare({cell.device, {Tensor::Kind::parameter, id.value, -1}, Role::weight, 0},
                  parameter_region(layer.kind, shapes, layer.out, p, cell.part),
                  reference_.weights[id.index()], 0);
        }
      }
    }
  }

  const Plan& plan_;
  const ExecDag& dag_;
  const Step& reference_;
  Memory& memory_;
  /// What devices keep of a sum of partial sums that is scattered, by layer and device.
  std::map<std::pair<std::int32_t, DeviceId>, std::set<Region>> shares_;
  std::string found_;
};

}  // namespace

std::string difference(const Plan& plan, const ExecDag& dag, std::uint64_t seed) {
  std::vector<std::int32_t> zigzag;
  for (const LayerPlan& layer : plan.layers) zigzag.push_back(layer.zigzag);
  const Step reference = train_step(dag.network, dag.batch, statistic_groups(dag.network, plan),
                                    initial_parameters(dag.network), zigzag);
  try {
    Memory in_order = interpret(dag, issue_order(dag));
    std::string found = Comparison(plan, dag, reference, in_order).run();
    if (!found.empty()) return "in issue order: " + found;
    const std::vector<std::string> conflicts = races(dag, in_order);
    if (!conflicts.empty()) return "race: " + conflicts[0];
    Memory shuffled = interpret(dag, random_order(dag, seed));
    found = Comparison(plan, dag, reference, shuffled).run();
    if (!found.empty()) return "in random order: " + found;
  } catch (const std::logic_error& broken) {
    return broken.what();
  }
  return {};
}

}  // namespace parsim::testing
