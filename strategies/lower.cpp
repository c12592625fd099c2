#include "strategies/lower.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "strategies/lowering.hpp"

namespace parsim {

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  return Lowering(network, cluster, plan).run();
}

Lowering::Lowering(const Network& network, const Cluster& cluster, const Plan& plan)
    : network_(network),
      cluster_(cluster),
      plan_(plan),
      samples_(plan.batch / plan.schedule.micro_batches),
      dag_(network, plan.batch, plan.precision, plan.optimizer) {
  dag_.strategy = plan.strategy;
  dag_.cluster = plan.cluster;
}

ExecDag Lowering::run() {
  refuse_what_is_not_lowered();
  analyse();
  walk_schedule();
  finish();
  return std::move(dag_);
}

void Lowering::refuse_what_is_not_lowered() const {
  for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
    const LayerPlan& layer = plan_.layers[l];
    const std::string where = fmt::format("plan: layer '{}'", network_.layers[l].name);
    for (const StatePlacement* state : {&layer.weights, &layer.gradients, &layer.optimizer}) {
      if (state->kind == StatePlacement::Kind::sharded) {
        throw InputError(where, "sharded states cannot be lowered in this version",
                         "replicated states");
      }
    }
    const bool contraction = std::any_of(layer.cuts.begin(), layer.cuts.end(),
                                         [](const Cut& cut) { return cut.dim == Dim::in_channel; });
    if (layer.recompute && contraction) {
      throw InputError(where, "recompute of a layer whose contraction is cut", "one or the other");
    }
  }
}

void Lowering::analyse() {
  const std::size_t count = network_.layers.size();
  layers_.resize(count);
  const auto readers = consumers(network_);
  for (std::size_t l = count; l-- > 0;) {
    layers_[l].reaches_loss = network_.layers[l].kind.as<Loss>() != nullptr;
    for (const Consumer& reader : readers[l]) {
      layers_[l].reaches_loss =
          layers_[l].reaches_loss || layers_[reader.layer.index()].reaches_loss;
    }
  }
  for (std::size_t l = 0; l < count; ++l) {
    LayerState& state = layers_[l];
    const Layer& layer = network_.layers[l];
    state.layout = TensorLayout(cells(network_, LayerId{l}, plan_.layers[l], samples_));
    state.partial_sums =
        std::any_of(state.cells().begin(), state.cells().end(),
                    [](const Cell& cell) { return !cell.part.contraction.empty(); });
    state.wants_gradient = !layer.parameters.empty();
    for (const LayerId input : layer.inputs) {
      state.wants_gradient = state.wants_gradient || layers_[input.index()].wants_gradient;
    }
    state.wants_gradient = state.wants_gradient && state.reaches_loss;
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
  std::vector<std::span<const Cell>> all_cells;
  for (const LayerState& state : layers_) all_cells.emplace_back(state.cells());
  groups_ = sync_groups(network_, plan_, all_cells);
  groups_of_layer_.resize(count);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState state;
    std::vector<std::pair<ParameterId, RegionId>> contents;
    for (const auto& [parameter, region] : groups_[g].contents)
      contents.emplace_back(parameter, dag_.intern(region));
    state.bucket = dag_.add_bucket(std::move(contents));
    for (const LayerId id : groups_[g].layers) {
      if (!layers_[id.index()].reaches_loss) continue;
      groups_of_layer_[id.index()].push_back(g);
      state.backward_left += plan_.schedule.micro_batches;
    }
    group_states_.push_back(std::move(state));
  }
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
  const std::vector<Shape> inputs = input_shapes(network_, id);
  std::uint32_t indirect = 0;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    Edge edge;
    edge.producer = layer.inputs[i];
    LayerState& producer = layers_[edge.producer.index()];
    if (!is_source(edge.producer)) {
      std::vector<Need> needs;
      needs.reserve(state.cells().size());
      for (const Cell& cell : state.cells()) {
        needs.push_back(
            {cell.device, input_region(layer.kind, inputs, layer.out, i, cell.part), cell.replica});
      }
      edge.sources = producer.layout.bring(needs, cluster_);
      edge.gradient = producer.wants_gradient && state.reaches_loss;
      if (edge.gradient) edge.back = return_gradients(producer.layout, needs);
      if (edge.gradient && edge.back.direct) {
        for (std::int32_t& count : producer.additions) ++count;
      }
      for (const Movement& movement : edge.back.movements) {
        for (const std::int32_t cell : movement.producers) {
          ++producer.additions[static_cast<std::size_t>(
              producer.canonical[static_cast<std::size_t>(cell)])];
        }
      }
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

bool Lowering::can_run(const Slot& slot) const {
  const auto& stage_of = plan_.schedule.stage_of_layer;
  const auto ran = [&](std::int32_t stage, Direction direction) {
    return stage == slot.stage || done_.contains({stage, slot.micro_batch, direction});
  };
  if (slot.direction == Direction::backward &&
      !done_.contains({slot.stage, slot.micro_batch, Direction::forward})) {
    return false;
  }
  // Forward waits for the stages it reads, backward for the stages that read it.
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    for (const LayerId input : network_.layers[l].inputs) {
      const std::int32_t from = stage_of[input.index()], to = stage_of[l];
      if (slot.direction == Direction::forward && to == slot.stage &&
          !ran(from, Direction::forward))
        return false;
      if (slot.direction == Direction::backward && from == slot.stage &&
          !ran(to, Direction::backward))
        return false;
    }
  }
  return true;
}

void Lowering::walk_schedule() {
  const std::vector<Lane>& lanes = plan_.schedule.lanes;
  std::vector<std::size_t> next(lanes.size(), 0);
  // One slot a lane a round: the issue order then resembles the order in time.
  for (bool progress = true; progress;) {
    progress = false;
    std::set<Slot> emitted;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (next[lane] == lanes[lane].slots.size()) continue;
      const Slot slot = lanes[lane].slots[next[lane]];
      if (!emitted.contains(slot)) {
        // A stage spread over several lanes runs when it is every lane's turn.
        const bool turn = std::all_of(lanes.begin(), lanes.end(), [&](const Lane& other) {
          const std::size_t n = next[static_cast<std::size_t>(&other - lanes.data())];
          const bool has = std::find(other.slots.begin() + static_cast<std::ptrdiff_t>(n),
                                     other.slots.end(), slot) != other.slots.end();
          return !has || other.slots[n] == slot;
        });
        if (!turn || !can_run(slot)) continue;
        emit(slot);
        emitted.insert(slot);
      }
      progress = true;
    }
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (next[lane] < lanes[lane].slots.size() && emitted.contains(lanes[lane].slots[next[lane]]))
        ++next[lane];
    }
    done_.insert(emitted.begin(), emitted.end());
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (next[lane] == lanes[lane].slots.size()) continue;
    const Slot slot = lanes[lane].slots[next[lane]];
    throw InputError("plan: schedule",
                     fmt::format("lane {} waits for ever at {} of stage {}, micro-batch {}", lane,
                                 slot.direction == Direction::forward ? "forward" : "backward",
                                 slot.stage, slot.micro_batch),
                     "an order in which every slot comes after the slots it depends on");
  }
}

void Lowering::emit(const Slot& slot) {
  const std::vector<LayerId>& members = stage_layers_[static_cast<std::size_t>(slot.stage)];
  if (slot.direction == Direction::forward) {
    for (const LayerId id : members) {
      if (!is_source(id)) emit_forward(id, slot.micro_batch, Pass::forward);
    }
    return;
  }
  for (const LayerId id : members) {
    if (!is_source(id) && plan_.layers[id.index()].recompute)
      emit_forward(id, slot.micro_batch, Pass::recompute);
  }
  for (auto id = members.rbegin(); id != members.rend(); ++id) {
    if (layers_[id->index()].wants_gradient) emit_backward(*id, slot.micro_batch);
  }
}

}  // namespace parsim
