#include "lowering/lower.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "lowering/issue_order.hpp"
#include "lowering/lowering.hpp"

namespace parsim::lowering {

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  return Lowering(network, cluster, plan).run();
}

Lowering::Lowering(const Network& network, const Cluster& cluster, const Plan& plan)
    : network_(network),
      cluster_(cluster),
      plan_(plan),
      samples_(plan.batch / plan.schedule.micro_batches),
      flow_(gradient_flow(network)),
      dropped_(dropped_outputs(network, plan)),
      scatters_each_micro_batch_(scatters_each_micro_batch(plan.schedule)),
      dag_(network, plan.batch, plan.precision, plan.optimizer, plan.reduce_precision) {
  dag_.strategy = plan.strategy;
  dag_.cluster = plan.cluster;
}

ExecDag Lowering::run() {
  analyse();
  for (const Slot& slot : issue_order(network_, plan_.schedule)) emit(slot);
  finish();
  return std::move(dag_);
}

void Lowering::analyse() {
  const std::size_t count = network_.layers.size();
  layers_.resize(count);
  for (std::size_t l = 0; l < count; ++l) {
    LayerState& state = layers_[l];
    state.layout = TensorLayout(cells(network_, LayerId{l}, plan_.layers[l], samples_));
    state.partial_sums =
        std::any_of(state.cells().begin(), state.cells().end(),
                    [](const Cell& cell) { return !cell.part.contraction.empty(); });
    state.last_backward.resize(state.cells().size());
    if (!is_source(LayerId{l})) {
      state.canonical.resize(state.cells().size());
      state.additions.resize(state.cells().size());
      std::map<std::pair<DeviceId, Region>, std::int32_t> first;
      for (std::size_t c = 0; c < state.cells().size(); ++c) {
        state.canonical[c] = first
                                 .try_emplace({state.cells()[c].device, state.cells()[c].part.out},
                                              static_cast<std::int32_t>(c))
                                 .first->second;
      }
    }
    analyse_edges(LayerId{l});
  }
  const auto readers = consumers(network_);
  for (std::size_t l = 0; l < count; ++l) analyse_returns(LayerId{l}, readers[l]);
  std::vector<std::span<const Cell>> all_cells;
  for (const LayerState& state : layers_) all_cells.emplace_back(state.cells());
  groups_ = sync_groups(network_, plan_, all_cells);
  groups_of_layer_.resize(count);
  split_weights_.resize(count);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState state;
    std::vector<std::pair<ParameterId, RegionId>> contents;
    for (const auto& [parameter, region] : groups_[g].contents)
      contents.emplace_back(parameter, dag_.intern(region));
    state.bucket = dag_.add_bucket(std::move(contents));
    for (const LayerId id : groups_[g].layers) {
      if (!flow_.reaches_loss[id.index()]) continue;
      groups_of_layer_[id.index()].push_back(g);
      state.backward_of_all += adds_shares(g) ? 1 : plan_.schedule.micro_batches;
    }
    state.backward_left = state.backward_of_all;
    group_states_.push_back(std::move(state));
    analyse_shards(g);
  }
  weight_sharding_groups_ = groups_by_devices(groups_, 3);
  gradient_sharding_groups_ = groups_by_devices(groups_, 2);
  micro_.assign(
      count, std::vector<MicroBatchState>(static_cast<std::size_t>(plan_.schedule.micro_batches)));
  for (std::size_t l = 0; l < count; ++l) {
    for (MicroBatchState& m : micro_[l]) {
      m.arrivals.resize(layers_[l].layout.arrivals().size());
    }
    const auto stage = static_cast<std::size_t>(plan_.schedule.stage_of_layer[l]);
    if (stage >= stage_layers_.size()) stage_layers_.resize(stage + 1);
    stage_layers_[stage].emplace_back(l);
  }
}

void Lowering::analyse_edges(LayerId id) {
  LayerState& state = layers_[id.index()];
  const Layer& layer = network_[id];
  std::uint32_t indirect = 0;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    Edge edge;
    edge.producer = layer.inputs[i];
    LayerState& producer = layers_[edge.producer.index()];
    if (!is_source(edge.producer)) {
      const std::vector<Need> needs = needs_of({id, i});
      edge.sources = producer.layout.bring(needs, cluster_);
      edge.gradient = flow_.wants[edge.producer.index()] && flow_.reaches_loss[id.index()];
      if (edge.gradient) edge.back = return_gradients(producer.layout, needs);
      if (edge.gradient && !edge.back.direct) {
        if (i >= 32)
          throw InputError(fmt::format("layer '{}'", layer.name),
                           "a plan that reshards more than 32 operands of one layer",
                           "the same split as its operands");
        indirect |= 1U << i;
      }
    }
    state.edges.push_back(std::move(edge));
  }
  for (const Cell& cell : state.cells()) {
    state.works.push_back(dag_.intern(
        Work{id, dag_.intern(cell.part.out), static_cast<std::int32_t>(cell.part.contraction.begin),
             static_cast<std::int32_t>(cell.part.contraction.end), indirect}));
  }
}

std::vector<Need> Lowering::needs_of(EdgeId edge) const {
  const Layer& layer = network_[edge.reader];
  const std::vector<Shape> inputs = input_shapes(network_, edge.reader);
  std::vector<Need> needs;
  needs.reserve(layers_[edge.reader.index()].cells().size());
  for (const Cell& cell : layers_[edge.reader.index()].cells()) {
    needs.push_back({cell.device,
                     input_region(layer.kind, inputs, layer.out, edge.input, cell.part),
                     cell.replica});
  }
  return needs;
}

void Lowering::analyse_returns(LayerId id, const std::vector<Consumer>& readers) {
  LayerState& producer = layers_[id.index()];
  if (is_source(id)) return;
  std::vector<EdgeId> edges;
  std::vector<Returning> returning;
  for (const Consumer& reader : readers) {
    const Edge& edge = layers_[reader.layer.index()].edges[reader.input];
    if (!edge.gradient || edge.back.direct) continue;
    edges.push_back({reader.layer, reader.input});
    returning.push_back({needs_of(edges.back()), &edge.back});
  }
  producer.joint = joint_return(producer.layout, returning);
  const bool joint = !producer.joint.given.empty();
  if (joint) producer.joint_edges = edges;
  const auto count = [&](const GradientReturn& back) {
    for (const Movement& movement : back.movements) {
      for (const std::int32_t cell : movement.producers) {
        ++producer.additions[static_cast<std::size_t>(
            producer.canonical[static_cast<std::size_t>(cell)])];
      }
    }
  };
  for (const Consumer& reader : readers) {
    const Edge& edge = layers_[reader.layer.index()].edges[reader.input];
    if (!edge.gradient) continue;
    if (edge.back.direct) {
      for (std::int32_t& additions : producer.additions) ++additions;
    } else if (!joint) {
      count(edge.back);
    }
  }
  if (joint) count(producer.joint.back);
}

void Lowering::emit(const Slot& slot) {
  const std::vector<LayerId>& members = stage_layers_[static_cast<std::size_t>(slot.stage)];
  std::vector<LayerVisit> visits;
  const bool forward = slot.direction == Direction::forward;
  if (forward) {
    for (const LayerId id : members) {
      if (!is_source(id)) visits.push_back({id, true});
    }
  } else {
    visits = backward_visits(network_, flow_, dropped_, members);
  }
  if (!forward) begin_backward();
  const std::vector<WeightGather> weights = gathers(slot.stage, visits);
  const std::vector<GradientBufferReuse> gradients =
      forward ? std::vector<GradientBufferReuse>{} : buffer_reuses(visits);
  auto weight = weights.begin();
  auto gradient = gradients.begin();
  for (std::size_t t = 0; t < visits.size(); ++t) {
    for (; weight != weights.end() && weight->visit == t; ++weight) emit_gather(*weight);
    for (; gradient != gradients.end() && gradient->visit == t; ++gradient) {
      const std::vector<OpId>& summed = group_states_[gradient->previous].summed;
      if (!summed.empty()) group_states_[gradient->unit].buffer_free = summed[0];
    }
    if (visits[t].forward) {
      emit_forward(visits[t].layer, slot.micro_batch, forward ? Pass::forward : Pass::recompute);
    } else {
      emit_backward(visits[t].layer, slot.micro_batch);
    }
  }
}

}  // namespace parsim::lowering
