#include "lowering/memory.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/fp8.hpp"
#include "lowering/kept_activations.hpp"
#include "lowering/plan_fragments.hpp"
#include "lowering/recompute.hpp"
#include "lowering/zero_schedule.hpp"

namespace parsim::lowering {

namespace {

constexpr std::int64_t single = 4;  // bytes of a number in FP32

/// Bytes that one micro-batch keeps on a device until its backward, by stage.
struct Kept {
  std::map<std::int32_t, std::int64_t> by_stage;
  /// If backward is split: what stays until the weight gradients.
  std::map<std::int32_t, std::int64_t> for_weights;
  std::vector<std::int64_t> outputs;  ///< by layer, dropped ones too; empty if no plan drops any
  std::int64_t largest_gradient = 0;
  std::int64_t largest_arrival = 0;
};

class Accounting {
 public:
  explicit Accounting(const PlanFragments& parts)
      : parts_(parts),
        network_(parts.network),
        plan_(*parts.plan),
        element_(element_bytes(plan_.precision)),
        gradient_(gradient_bytes(plan_.precision, plan_.reduce_precision)),
        dropped_(parts.dropped),
        drops_(std::find(dropped_.begin(), dropped_.end(), true) != dropped_.end()),
        stays_(outputs_stay(plan_)),
        bytes_(kept_bytes(network_, plan_.precision, stays_)),
        in_fp8_(network_, plan_.precision),
        kept_(parts.cluster.devices.size()),
        use_(parts.cluster.devices.size()),
        scores_(network_.layers.size()) {
    for (const Layer& layer : network_.layers) {
      if (layer.kind.as<Loss>() == nullptr || of_megatron(plan_.framework)) continue;
      scores_[layer.inputs[0].index()] = true;
    }
  }

  std::vector<MemoryUse> run() {
    keep_what_is_made_again_from();
    if (plan_.schedule.split_backward) find_what_weights_need();
    activations();
    states();
    for (const RankList& list : plan_.schedule.rank_lists) {
      for (const DeviceId device : list.devices) in_flight(list, device);
    }
    return std::move(use_);
  }

 private:
  void activations();
  void own_data(LayerId id);
  void received(const FanOut::Arrival& arrival, LayerId producer, LayerId reader);
  void sent_away(const Movement& movement, LayerId id);
  void keep_what_is_made_again_from();
  void find_what_weights_need();
  void count_output(LayerId id, std::int32_t stage, Kept& kept, std::int64_t elements) const;
  void add_output(Kept& kept, LayerId id, std::int64_t bytes) const;
  void states();
  [[nodiscard]] std::int64_t cast_bytes(const SyncGroup& group, DeviceId device) const;
  void add_gathered_and_scattered(const std::vector<SyncGroup>& groups, bool lets_go);
  [[nodiscard]] std::int64_t backward_peak(const Kept& kept, std::int32_t stage) const;
  void in_flight(const RankList& list, DeviceId device);

  const PlanFragments& parts_;
  const Network& network_;
  const Plan& plan_;
  std::int64_t element_, gradient_;  ///< bytes of an element, of a parameter's gradient
  const std::vector<bool>& dropped_;
  bool drops_;
  StaysFor stays_;
  std::vector<std::int64_t> bytes_;  ///< of an element that stays, by layer
  Fp8Weights in_fp8_;
  std::vector<Kept> kept_;
  std::vector<MemoryUse> use_;
  std::vector<bool> scores_;  ///< by layer, whether a loss makes gradients of its output in FP32
  /// By layer, if backward is split: whether it has a kernel of its own for weight gradients, and
  /// whether its output's memory is an operand of one.
  std::vector<bool> splits_, operand_;
};

/// The inputs from which dropped outputs are recomputed stay, too.
void Accounting::keep_what_is_made_again_from() {
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    if (!dropped_[l]) continue;
    for (const LayerId producer : network_.layers[l].inputs) {
      if (!dropped_[producer.index()] && stays_(producer, LayerId{l})) {
        bytes_[producer.index()] = std::max(bytes_[producer.index()], element_);
      }
    }
  }
}

void Accounting::find_what_weights_need() {
  const std::size_t count = network_.layers.size();
  const std::vector<std::int32_t>& stages = plan_.schedule.stage_of_layer;
  std::vector<std::size_t> owner(count);  // whose memory a layer's output is
  splits_.resize(count);
  operand_.resize(count);
  for (std::size_t l = 0; l < count; ++l) {
    const Layer& layer = network_.layers[l];
    owner[l] = works_in_place(layer.kind) ? owner[layer.inputs[0].index()] : l;
    splits_[l] = parts_.structure.flow.two_kernels[l] && !layer.parameters.empty();
    if (!splits_[l]) continue;
    for (const LayerId producer : layer.inputs) {
      const std::size_t own = owner[producer.index()];
      operand_[own] = operand_[own] || stages[own] == stages[l];
    }
  }
}

/// Of a device whose outputs are all in place none has been added before one is sent away.
void Accounting::add_output(Kept& kept, LayerId id, std::int64_t bytes) const {
  kept.outputs.resize(network_.layers.size());
  kept.outputs[id.index()] += bytes;
}

void Accounting::count_output(LayerId id, std::int32_t stage, Kept& kept,
                              std::int64_t elements) const {
  if (works_in_place(network_[id].kind)) {
    // Its memory is its producer's, unless it stays and that is dropped.
    const bool stays = !dropped_[id.index()] && dropped_[network_[id].inputs[0].index()];
    if (!stays) return;
  }
  const std::int64_t bytes = elements * bytes_[id.index()];
  if (!splits_.empty() && operand_[id.index()]) kept.for_weights[stage] += bytes;
  if (!dropped_[id.index()]) kept.by_stage[stage] += bytes;
  if (drops_) add_output(kept, id, bytes);
}

void Accounting::activations() {
  const std::vector<std::int32_t>& stages = plan_.schedule.stage_of_layer;
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    const LayerId id{l};
    const LayerFragment& fragment = *parts_.layers[l];
    if (parts_.structure.flow.source[l]) continue;
    const std::vector<std::int64_t> stay = elements_kept(fragment, *parts_.fans[l]);
    for (std::size_t c = 0; c < fragment.cells.size(); ++c) {
      // Parts of the contraction on one device add up in one store.
      const Cell& cell = fragment.cells[c];
      if (cell.contraction > 0 && fragment.canonical[c] != static_cast<std::int32_t>(c)) continue;
      const std::int64_t elements = cell.part.out.volume();
      Kept& kept = kept_[cell.device.index()];
      // Of output and input; of scores in FP32.
      const std::int64_t bytes = scores_[l] ? std::max(element_, single) : element_;
      kept.largest_gradient = std::max(kept.largest_gradient, 2 * elements * bytes);
      count_output(id, stages[l], kept, stay[c]);
      if (!splits_.empty() && splits_[l]) kept.for_weights[stages[l]] += elements * element_;
    }
    own_data(id);
    // Two buffers of keys and values, and as many of their gradients.
    for (const Ring& ring : fragment.rings) {
      constexpr std::int64_t buffers = 4;
      const std::int64_t bytes =
          (ring.blocks[0][0].volume() + ring.blocks[1][0].volume()) * element_ * buffers;
      for (std::size_t r = 0; ring.cells.size() > 1 && r < ring.cells.size(); ++r) {
        std::int64_t& largest = kept_[ring.devices[r].index()].largest_arrival;
        largest = std::max(largest, bytes);
      }
    }
    // Others' partial sums of the chunk that a device keeps, side by side.
    for (std::size_t s = 0; s < fragment.sums.size(); ++s) {
      const ScatteredChunks& how = parts_.fans[l]->sums[s].chunks;
      for (const std::int32_t c : how.keepers) {
        const auto cell = static_cast<std::size_t>(c);
        const Chunks& chunks = fragment.chunks[cell];
        const Region own = part_of_chunk(fragment.cells[cell], chunks.tokens[chunks.own]).out;
        const auto others = static_cast<std::int64_t>(how.keepers.size() - 1);
        std::int64_t& largest = kept_[fragment.devices[cell].index()].largest_arrival;
        largest = std::max(largest, others * own.volume() * element_);
      }
    }
    for (const FanOut::Arrival& arrival : parts_.fans[l]->arrivals) {
      const auto edge = static_cast<std::size_t>(arrival.edge);
      const std::size_t reader = parts_.structure.readers[l][edge].layer.index();
      received(arrival, id, LayerId{reader});
      const bool of_experts = network_.layers[l].out.region_axis(Dim::expert) != 0;
      if (of_experts) sent_away(arrival.movement, id);
    }
  }
}

/// A layer that reads the data has its own copy.
void Accounting::own_data(LayerId id) {
  const Layer& layer = network_[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    if (!parts_.structure.flow.source[layer.inputs[i].index()]) continue;
    const std::vector<Shape> inputs = input_shapes(network_, id);
    const std::int32_t stage = plan_.schedule.stage_of_layer[id.index()];
    for (const Cell& cell : parts_.layers[id.index()]->cells) {
      Kept& kept = kept_[cell.device.index()];
      const std::int64_t bytes =
          input_region(layer.kind, inputs, layer.out, i, cell.part).volume() * element_;
      kept.by_stage[stage] += bytes;
      if (!splits_.empty() && splits_[id.index()]) kept.for_weights[stage] += bytes;
    }
  }
}

void Accounting::received(const FanOut::Arrival& arrival, LayerId producer, LayerId reader) {
  const Movement& movement = arrival.movement;
  const std::int32_t stage = plan_.schedule.stage_of_layer[reader.index()];
  const bool stays = !arrival.again;
  const bool in_its_place = works_in_place(network_[reader].kind);
  const bool for_weights =
      stays && !splits_.empty() &&
      (splits_[reader.index()] || (in_its_place && operand_[producer.index()]));
  const bool once_more = movement.pattern == Pattern::all_gather &&
                         gathers_for_each_pass(network_[reader], plan_.framework);
  const bool with_reader = arrival.again && dropped_[reader.index()] && !once_more;
  std::int64_t moved = 0;
  for (const Region& region : movement.regions) moved += region.volume();
  for (std::size_t d = 0; d < movement.devices.size(); ++d) {
    std::int64_t elements = moved;
    if (movement.pattern == Pattern::all_gather) elements -= movement.regions[d].volume();
    if (movement.pattern == Pattern::all_to_all) {
      elements =
          movement.needs[d].volume() - intersect(movement.needs[d], movement.regions[d]).volume();
    }
    const bool sender_only =
        d == 0 && movement.legs.empty() &&
        (movement.pattern == Pattern::broadcast || !is_collective(movement.pattern));
    if (sender_only) continue;
    Kept& kept = kept_[movement.devices[d].index()];
    const bool whole_loss = movement.pattern == Pattern::all_gather && scores_[producer.index()] &&
                            network_[reader].kind.as<Loss>() != nullptr;
    if (whole_loss) {  // as of scores that are whole where they are made
      const std::int64_t bytes = std::max(element_, single);
      kept.by_stage[stage] += elements * (bytes - element_);
      kept.largest_gradient = std::max(kept.largest_gradient, 2 * moved * bytes);
    }
    if (stays) kept.by_stage[stage] += elements * element_;
    if (for_weights) kept.for_weights[stage] += elements * element_;
    if (with_reader) {
      add_output(kept, reader, elements * element_);
    }
    kept.largest_arrival = std::max(kept.largest_arrival, elements * element_);
  }
}

/// Of tokens that go to experts on other devices, or come back from there, the sender keeps nothing
/// (megatron/core/tensor_parallel/mappings.py, _AllToAll saves no tensor).
void Accounting::sent_away(const Movement& movement, LayerId id) {
  while (works_in_place(network_[id].kind)) id = network_[id].inputs[0];
  const std::int32_t stage = plan_.schedule.stage_of_layer[id.index()];
  const bool together = movement.pattern == Pattern::all_to_all;
  // Two devices send each other pieces.
  const bool piece =
      movement.pattern == Pattern::point_to_point || movement.pattern == Pattern::halo;
  if (!together && !piece) return;
  for (std::size_t d = 0; d < (together ? movement.devices.size() : 1); ++d) {
    const std::int64_t own =
        together ? intersect(movement.needs[d], movement.regions[d]).volume() : 0;
    const std::int64_t bytes = (movement.regions[d].volume() - own) * bytes_[id.index()];
    Kept& kept = kept_[movement.devices[d].index()];
    if (!dropped_[id.index()]) kept.by_stage[stage] -= bytes;
    if (!splits_.empty() && operand_[id.index()]) kept.for_weights[stage] -= bytes;
    if (drops_) add_output(kept, id, -bytes);
  }
}

void Accounting::states() {
  const std::int64_t states = optimizer_bytes(plan_.precision, plan_.optimizer);
  const std::int64_t travelling = element_bytes(plan_.reduce_precision);
  std::vector<std::vector<std::int64_t>> buckets(use_.size());
  std::vector<std::int64_t> copies(use_.size());  // of gradients, in buckets that stay
  std::vector<SyncGroup> groups;
  for (const SumFragment* sum : parts_.sums) {
    groups.push_back(sum->group);
    // Where each micro-batch's gradients are summed, those of stage 1 are sharded, but stay whole.
    const std::int32_t stage = zero_stage_of(sum->group, plan_.schedule);
    groups.back().zero_stage = std::min(stage, sum->group.zero_stage);
  }
  // Shares of the sums add up, or whole gradients of several micro-batches do.
  const bool scatters = scatters_each_micro_batch(plan_.schedule);
  for (const SyncGroup& group : groups) {
    std::int64_t elements = 0;
    for (const auto& [parameter, region] : group.contents) elements += region.volume();
    const bool served = group.served();
    std::set<DeviceId> holders(group.devices.begin(), group.devices.end());
    holders.insert(group.mirrors.begin(), group.mirrors.end());
    if (served) holders.insert(group.sync.server);
    const bool lets_go = group.zero_stage >= 2 && scatters;
    for (const DeviceId device : holders) {
      MemoryUse& use = use_[device.index()];
      const std::int64_t share = group.zero_stage > 0 ? group.shard_of(device) : elements;
      use.weights += Bytes{(group.zero_stage == 3 ? share : elements) * element_};
      if (group.zero_stage < 3) use.weights += Bytes{cast_bytes(group, device)};
      use.gradients += Bytes{(lets_go ? share : elements) * gradient_};
      if (!served || device == group.sync.server) {
        use.optimizer_state += Bytes{share * states};
      }
      if (std::max(holders.size(), group.summing) < 2 || lets_go) continue;
      buckets[device.index()].push_back(elements * travelling);
      if (group.zero_stage == 0 && !served) copies[device.index()] += elements * travelling;
    }
  }
  // A single bucket of all gradients is summed by parts after the backward pass if its precision
  // does not change, also where parts of it are summed over other devices (an embedding that stages
  // share).
  const bool one_bucket = bucket_order(network_, plan_).size() == 1;
  for (std::size_t d = 0; d < use_.size() && !of_megatron(plan_.framework); ++d) {
    std::sort(buckets[d].rbegin(), buckets[d].rend());
    std::int64_t bytes = 0;
    if ((one_bucket || buckets[d].size() == 1) && travelling == gradient_) {
      bytes = std::min(copies[d], most_flattened * travelling);
    } else {
      for (std::size_t b = 0; b < std::min<std::size_t>(2, buckets[d].size()); ++b)
        bytes += buckets[d][b];
      bytes = std::max(bytes, copies[d]);
    }
    use_[d].communication = Bytes{bytes};
  }
  for (std::size_t d = 0; d < use_.size(); ++d)
    use_[d].communication += Bytes{kept_[d].largest_arrival};
  add_gathered_and_scattered(groups, scatters);
}

/// Of the weights' copies in FP8.
std::int64_t Accounting::cast_bytes(const SyncGroup& group, DeviceId device) const {
  const std::int64_t elements = in_fp8_.elements(group.contents);
  if (elements == 0) return 0;
  return elements * fp8_cast(plan_.precision, parts_.cluster.model(device)).copies;
}

/// Adds the sharded weights and gradients that are gathered or not yet scattered.
void Accounting::add_gathered_and_scattered(const std::vector<SyncGroup>& groups, bool lets_go) {
  const auto gathered = groups_by_devices(groups, 3), filled = groups_by_devices(groups, 2);
  if (filled.empty()) return;
  const std::vector<std::int64_t> elements = elements_of(groups);
  std::vector<std::int64_t> weights, gradients;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    weights.push_back(elements[g] * element_ + cast_bytes(groups[g], groups[g].devices.front()));
    gradients.push_back(elements[g] * gradient_);
  }
  const auto add = [&](const std::vector<std::size_t>& units, std::int64_t whole) {
    for (const DeviceId device : groups[units[0]].devices) {
      use_[device.index()].communication += Bytes{whole};
    }
  };
  for (const std::vector<std::size_t>& units : gathered) {
    const UnitsByLayer of_layer = units_by_layer(groups, units);
    for (std::size_t stage = 0; stage < parts_.members.size(); ++stage) {
      add(units, most_gathered(units_by_visit(parts_.forward_visits[stage], of_layer),
                               units_by_visit(parts_.backward_visits[stage], of_layer), elements,
                               weights));
    }
  }
  if (!lets_go) return;
  std::vector<LayerVisit> back;  // of all stages, as they follow one another with one micro-batch
  const auto& visits = parts_.backward_visits;
  for (auto stage = visits.rbegin(); stage != visits.rend(); ++stage) {
    back.insert(back.end(), stage->begin(), stage->end());
  }
  for (const std::vector<std::size_t>& units : filled) {
    // A single bucket leaves by parts, as soon as they are there.
    if (units.size() == 1) {
      add(units, std::min(elements[units[0]], most_flattened) * gradient_);
      continue;
    }
    add(units, most_filled(filled_by_visit(back, units_by_layer(groups, units)), gradients));
  }
}

/// Peak bytes of a micro-batch during its backward pass through a stage: an output stays until its
/// own layer's backward.
std::int64_t Accounting::backward_peak(const Kept& kept, std::int32_t stage) const {
  const auto known = kept.by_stage.find(stage);
  std::int64_t now = known == kept.by_stage.end() ? 0 : known->second;
  std::int64_t peak = now;
  if (kept.outputs.empty()) return peak;
  for (const LayerVisit& visit : parts_.backward_visits[static_cast<std::size_t>(stage)]) {
    const std::int64_t bytes = kept.outputs[visit.layer.index()];
    now += visit.forward ? bytes : -bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

void Accounting::in_flight(const RankList& list, DeviceId device) {
  Kept& kept = kept_[device.index()];
  std::map<std::int32_t, std::int64_t> backward;
  std::int64_t now = 0, peak = 0;
  const auto of = [](const std::map<std::int32_t, std::int64_t>& by_stage, std::int32_t stage) {
    const auto found = by_stage.find(stage);
    return found == by_stage.end() ? 0 : found->second;
  };
  for (const Slot& slot : list.slots) {
    if (slot.direction == Direction::weights) {
      now -= of(kept.for_weights, slot.stage);
      continue;
    }
    const std::int64_t bytes = of(kept.by_stage, slot.stage);
    if (slot.direction == Direction::forward) {
      now += bytes;
      peak = std::max(peak, now);
      continue;
    }
    now -= bytes;
    if (drops_) {
      const auto [at, fresh] = backward.try_emplace(slot.stage, 0);
      if (fresh) at->second = backward_peak(kept, slot.stage);
      peak = std::max(peak, now + at->second);
    }
    now += of(kept.for_weights, slot.stage);  // none unless backward is split
    peak = std::max(peak, now);
  }
  use_[device.index()].activations = Bytes{peak + kept.largest_gradient};
}

}  // namespace

std::int64_t gradient_bytes(Precision precision, Precision reduce) {
  return std::max(element_bytes(precision), element_bytes(reduce));
}

std::int64_t optimizer_bytes(Precision precision, Optimizer optimizer) {
  constexpr std::int64_t state = 4;
  const std::int64_t master = element_bytes(precision) < state ? 1 : 0;
  return state * (state_per_parameter(optimizer) + master);
}

std::vector<MemoryUse> memory_use(const Network& network, const Cluster& cluster,
                                  const Plan& plan) {
  FragmentStore store(network, cluster, nullptr, false);
  UnitFinder finder(cluster, nullptr);
  PlanFragments parts(store, &finder);
  parts.find(plan);
  return memory_use(parts);
}

std::vector<MemoryUse> memory_use(const PlanFragments& parts) {
  std::vector<MemoryUse> uses = Accounting(parts).run();
  if (parts.units != nullptr) parts.units->copy_to_all(uses);
  return uses;
}

}  // namespace parsim::lowering
