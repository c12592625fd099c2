#include "lowering/memory.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "lowering/recompute.hpp"
#include "lowering/reshard.hpp"
#include "lowering/sync.hpp"
#include "lowering/zero_schedule.hpp"

namespace parsim::lowering {

namespace {

/// Bytes that one micro-batch keeps on a device until its backward, by stage.
struct Kept {
  std::map<std::int32_t, std::int64_t> by_stage;
  std::vector<std::int64_t> outputs;  ///< by layer, dropped ones too; empty if no plan drops any
  std::int64_t largest_gradient = 0;
  std::int64_t largest_arrival = 0;
};

class Accounting {
 public:
  Accounting(const Network& network, const Cluster& cluster, const Plan& plan)
      : network_(network),
        cluster_(cluster),
        plan_(plan),
        element_(element_bytes(plan.precision)),
        gradient_(gradient_bytes(plan.precision, plan.reduce_precision)),
        dropped_(dropped_outputs(network, plan)),
        drops_(std::find(dropped_.begin(), dropped_.end(), true) != dropped_.end()),
        bytes_(kept_bytes(network, element_)),
        kept_(cluster.devices.size()),
        use_(cluster.devices.size()) {}

  std::vector<MemoryUse> run() {
    keep_what_is_made_again_from();
    activations();
    const bool splits = std::any_of(plan_.layers.begin(), plan_.layers.end(),
                                    [](const LayerPlan& layer) { return zero_stage(layer) >= 2; });
    if (drops_ || splits) find_visits();
    states();
    for (const RankList& list : plan_.schedule.rank_lists) {
      for (const DeviceId device : list.devices) in_flight(list, device);
    }
    return std::move(use_);
  }

 private:
  void activations();
  void keep_what_is_made_again_from();
  void count_output(LayerId id, std::int32_t stage, Kept& kept, std::int64_t elements) const;
  void states();
  void add_gathered_and_scattered(const std::vector<SyncGroup>& groups, bool lets_go);
  void find_visits();
  [[nodiscard]] std::int64_t backward_peak(const Kept& kept, std::int32_t stage) const;
  void in_flight(const RankList& list, DeviceId device);

  const Network& network_;
  const Cluster& cluster_;
  const Plan& plan_;
  std::int64_t element_, gradient_;  ///< bytes of an element, of a parameter's gradient
  std::vector<bool> dropped_;
  bool drops_;
  std::vector<std::int64_t> bytes_;  ///< of an element that stays, by layer
  /// By stage, backward and forward; only if outputs are dropped or states sharded.
  std::vector<std::vector<LayerVisit>> visits_, forward_visits_;
  std::vector<TensorLayout> layouts_;
  std::vector<Kept> kept_;
  std::vector<MemoryUse> use_;
};

/// The inputs from which dropped outputs are recomputed stay, too.
void Accounting::keep_what_is_made_again_from() {
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    if (!dropped_[l]) continue;
    for (const LayerId producer : network_.layers[l].inputs) {
      if (!dropped_[producer.index()]) {
        bytes_[producer.index()] = std::max(bytes_[producer.index()], element_);
      }
    }
  }
}

void Accounting::count_output(LayerId id, std::int32_t stage, Kept& kept,
                              std::int64_t elements) const {
  if (works_in_place(network_[id].kind)) {
    // Its memory is its producer's, unless it stays and that is dropped.
    const bool stays = !dropped_[id.index()] && dropped_[network_[id].inputs[0].index()];
    if (!stays) return;
  }
  const std::int64_t bytes = elements * bytes_[id.index()];
  if (!dropped_[id.index()]) kept.by_stage[stage] += bytes;
  if (!drops_) return;
  kept.outputs.resize(network_.layers.size());
  kept.outputs[id.index()] += bytes;
}

void Accounting::activations() {
  const std::int64_t samples = plan_.batch / plan_.schedule.micro_batches;
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network_[id];
    const LayerPlan& plan = plan_.layers[l];
    const std::int32_t stage = plan_.schedule.stage_of_layer[l];
    layouts_.emplace_back(cells(network_, id, plan, samples));
    const std::vector<Cell>& all = layouts_.back().cells();
    const bool source = layer.kind.as<Input>() != nullptr;
    const std::vector<Shape> inputs = input_shapes(network_, id);
    if (!source) {
      for (std::size_t c = 0; c < all.size(); ++c) {
        // Parts of the contraction on one device add up in one store.
        const bool again =
            all[c].contraction > 0 &&
            std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(c),
                        [&](const Cell& other) {
                          return other.device == all[c].device && other.part.out == all[c].part.out;
                        });
        if (again) continue;
        const std::int64_t bytes = all[c].part.out.volume() * element_;
        Kept& kept = kept_[all[c].device.index()];
        kept.largest_gradient = std::max(kept.largest_gradient, 2 * bytes);  // of output and input
        count_output(id, stage, kept, all[c].part.out.volume());
      }
    }
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const std::size_t producer = layer.inputs[i].index();
      std::vector<Need> needs;
      for (const Cell& cell : all) {
        needs.push_back(
            {cell.device, input_region(layer.kind, inputs, layer.out, i, cell.part), cell.replica});
      }
      if (network_.layers[producer].kind.as<Input>() != nullptr) {  // its own copy of the data
        for (const Need& need : needs)
          kept_[need.device.index()].by_stage[stage] += need.region.volume() * element_;
        continue;
      }
      const std::size_t known = layouts_[producer].arrivals().size();
      (void)layouts_[producer].bring(needs, cluster_);
      for (std::size_t a = known; a < layouts_[producer].arrivals().size(); ++a) {
        const Movement& movement = layouts_[producer].arrivals()[a];
        std::int64_t moved = 0;
        for (const Region& region : movement.regions) moved += region.volume();
        for (std::size_t d = 0; d < movement.devices.size(); ++d) {
          std::int64_t received = moved;
          if (movement.pattern == Pattern::all_gather) received -= movement.regions[d].volume();
          if (movement.pattern == Pattern::all_to_all) {
            received = movement.needs[d].volume() -
                       intersect(movement.needs[d], movement.regions[d]).volume();
          }
          const bool sender_only =
              d == 0 && movement.legs.empty() &&
              (movement.pattern == Pattern::broadcast || !is_collective(movement.pattern));
          if (sender_only) continue;
          Kept& kept = kept_[movement.devices[d].index()];
          kept.by_stage[stage] += received * element_;
          kept.largest_arrival = std::max(kept.largest_arrival, received * element_);
        }
      }
    }
  }
}

void Accounting::states() {
  const std::int64_t states = optimizer_bytes(plan_.precision, plan_.optimizer);
  const std::int64_t travelling = element_bytes(plan_.reduce_precision);
  std::vector<std::vector<std::int64_t>> buckets(use_.size());
  std::vector<std::span<const Cell>> cells;
  for (const TensorLayout& layout : layouts_) cells.emplace_back(layout.cells());
  const std::vector<SyncGroup> groups = sync_groups(network_, plan_, cells);
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
      use.gradients += Bytes{(lets_go ? share : elements) * gradient_};
      if (!served || device == group.sync.server) {
        use.optimizer_state += Bytes{share * states};
      }
      if (holders.size() > 1 && !lets_go) buckets[device.index()].push_back(elements * travelling);
    }
  }
  // A single bucket of all gradients is summed in place if its precision does not change, also
  // where parts of it are summed over other devices (an embedding that stages share).
  const bool one_bucket = bucket_order(network_, plan_).size() == 1;
  for (std::size_t d = 0; d < use_.size(); ++d) {
    std::sort(buckets[d].rbegin(), buckets[d].rend());
    std::int64_t bytes = kept_[d].largest_arrival;
    const bool in_place = (one_bucket || buckets[d].size() == 1) && travelling == gradient_;
    for (std::size_t b = 0; b < std::min<std::size_t>(2, buckets[d].size()) && !in_place; ++b)
      bytes += buckets[d][b];
    use_[d].communication = Bytes{bytes};
  }
  add_gathered_and_scattered(groups, scatters);
}

/// Adds the sharded weights and gradients that are gathered or not yet scattered.
void Accounting::add_gathered_and_scattered(const std::vector<SyncGroup>& groups, bool lets_go) {
  const auto gathered = groups_by_devices(groups, 3), filled = groups_by_devices(groups, 2);
  if (filled.empty()) return;
  std::vector<std::int64_t> weights, gradients;
  for (const SyncGroup& group : groups) {
    std::int64_t elements = 0;
    for (const auto& [parameter, region] : group.contents) elements += region.volume();
    weights.push_back(elements * element_);
    gradients.push_back(elements * gradient_);
  }
  const auto add = [&](const std::vector<std::size_t>& units, std::int64_t whole) {
    for (const DeviceId device : groups[units[0]].devices) {
      use_[device.index()].communication += Bytes{whole};
    }
  };
  for (const std::vector<std::size_t>& units : gathered) {
    for (std::size_t stage = 0; stage < visits_.size(); ++stage) {
      add(units, most_gathered(units_by_visit(forward_visits_[stage], groups, units),
                               units_by_visit(visits_[stage], groups, units), weights));
    }
  }
  if (!lets_go) return;
  std::vector<LayerVisit> back;  // of all stages, as they follow one another with one micro-batch
  for (auto stage = visits_.rbegin(); stage != visits_.rend(); ++stage) {
    back.insert(back.end(), stage->begin(), stage->end());
  }
  for (const std::vector<std::size_t>& units : filled) {
    add(units, most_filled(filled_by_visit(back, groups, units), gradients));
  }
}

void Accounting::find_visits() {
  const GradientFlow flow = gradient_flow(network_);
  std::vector<std::vector<LayerId>> members;
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan_.schedule.stage_of_layer[l]);
    members.resize(std::max(members.size(), stage + 1));
    members[stage].emplace_back(l);
  }
  for (const auto& layers : members) {
    visits_.push_back(backward_visits(network_, flow, dropped_, layers));
    forward_visits_.emplace_back();
    for (const LayerId id : layers) forward_visits_.back().push_back({id, true});
  }
}

/// Peak bytes of a micro-batch during its backward pass through a stage: an output stays until its
/// own layer's backward.
std::int64_t Accounting::backward_peak(const Kept& kept, std::int32_t stage) const {
  const auto known = kept.by_stage.find(stage);
  std::int64_t now = known == kept.by_stage.end() ? 0 : known->second;
  std::int64_t peak = now;
  if (kept.outputs.empty()) return peak;
  for (const LayerVisit& visit : visits_[static_cast<std::size_t>(stage)]) {
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
  for (const Slot& slot : list.slots) {
    const auto stage = kept.by_stage.find(slot.stage);
    const std::int64_t bytes = stage == kept.by_stage.end() ? 0 : stage->second;
    if (slot.direction == Direction::forward) {
      now += bytes;
      peak = std::max(peak, now);
      continue;
    }
    now -= bytes;
    if (!drops_) continue;
    const auto [at, fresh] = backward.try_emplace(slot.stage, 0);
    if (fresh) at->second = backward_peak(kept, slot.stage);
    peak = std::max(peak, now + at->second);
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
  return Accounting(network, cluster, plan).run();
}

}  // namespace parsim::lowering
