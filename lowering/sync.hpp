// Which gradients must be summed over which devices: found once for all strategies, from the
// regions of the parameters that the cells of a plan use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "core/shared_list.hpp"

namespace parsim::lowering {

/// Parameters whose gradients are summed together over the same devices, and updated together.
struct SyncGroup {
  std::vector<DeviceId> devices;  ///< ascending; one device: nothing to sum
  /// Holders that belong to further replicas and do not sum for themselves: under a parameter
  /// server, which sends them the new weights, or where groups of different size share the layer,
  /// so that only the first replica has all contributions. They get its sum.
  std::vector<DeviceId> mirrors;
  std::size_t summing = 0;  ///< devices that sum: more than `devices` of one unit of AlikeUnits
  Sync sync;
  std::int32_t zero_stage =
      0;  ///< sharded among the devices: 1 optimizer states, 2 also gradients, 3 also weights
  /// If something is split: the groups that split it, each ascending and of as many devices, in
  /// the order of their first ones. The groups' sums are summed by all that hold the same share.
  std::vector<std::vector<DeviceId>> zero_groups;
  bool summed_twice = false;  ///< within several ZeRO groups, then over them
  /// By device: its group, and which of that group's shares it has.
  struct Seat {
    std::size_t zero_group = 0, rank = 0;
  };
  std::vector<Seat> seats;
  SharedList<std::int64_t> shards;  ///< elements, by rank
  std::vector<std::pair<ParameterId, Region>> contents;
  std::vector<LayerId> layers;  ///< that contribute, ascending
  /// If devices have the parameters for different layers (tied embeddings on the first and the last
  /// stage): those that have them for the same ones, each ascending. States are split within each,
  /// and whole gradients are summed over them, as trainers do (Megatron-LM,
  /// megatron/core/distributed/finalize_model_grads.py, _allreduce_word_embedding_grads; DeepSpeed,
  /// deepspeed/runtime/pipe/module.py, allreduce_tied_weight_gradients).
  std::vector<std::vector<DeviceId>> apart;

  /// The number of one of the devices.
  [[nodiscard]] std::size_t index_of(DeviceId device) const;
  /// The same, or the number of devices if it is no member.
  [[nodiscard]] std::size_t find(DeviceId device) const;
  /// Elements of a device's share, if something is split.
  [[nodiscard]] std::int64_t shard_of(DeviceId device) const {
    return shards[seats[index_of(device)].rank];
  }
  /// The devices that hold a share, by ZeRO group; those at one place of each of `apart`.
  [[nodiscard]] std::vector<DeviceId> holders_of(std::size_t rank) const;
  /// Elements of a share that such holders sum.
  [[nodiscard]] std::int64_t summed_elements(std::size_t rank) const {
    return apart.empty() ? shards[rank]
                         : std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
  }
  /// Whether whole gradients are summed within each of `apart`, then over these.
  [[nodiscard]] bool sums_apart() const {
    if (zero_stage > 0 || apart.empty() || !mirrors.empty() || served()) return false;
    const std::size_t size = apart[0].size();
    return size > 1 && std::all_of(apart.begin(), apart.end(),
                                   [&](const auto& part) { return part.size() == size; });
  }
  /// Gradients go to a parameter server; otherwise every device updates for itself.
  [[nodiscard]] bool served() const {
    return sync.kind == Sync::Kind::server && (devices.size() > 1 || !mirrors.empty());
  }
};

/// Those of the devices, ascending, that split states; empty if they are not alike in number.
[[nodiscard]] std::vector<std::vector<DeviceId>> zero_groups(std::span<const DeviceId> devices,
                                                             const ZeroGroup& how,
                                                             const Cluster& cluster);
/// How such devices are refused: what was found, what is accepted.
struct ZeroGroupRefusal {
  std::string found, accepted;
};
[[nodiscard]] ZeroGroupRefusal zero_group_refusal(std::span<const DeviceId> devices,
                                                  const ZeroGroup& how, const Cluster& cluster);

/// The group's stage of sharding in a schedule: weights that layers of several stages use stay
/// whole, for stages would wait for each other whenever one of them gathers what both use. Where
/// every micro-batch's gradients are summed, 1 is 2: a device gets its share of each sum alone.
[[nodiscard]] std::int32_t zero_stage_of(const SyncGroup& group, const Schedule& schedule);

/// Layers by parameter, ascending.
[[nodiscard]] std::vector<std::vector<LayerId>> users_of_parameters(const Network& network);

/// The parameters that are summed together, in this order: the plan's buckets, then each parameter
/// in no bucket alone, last layers first.
[[nodiscard]] std::vector<std::vector<ParameterId>> bucket_order(const Network& network,
                                                                 const Plan& plan);

/// A group whose states are not split yet: `zero_stage` and `shards` are the plan's.
struct UnsplitGroup {
  SyncGroup group;
  ZeroGroup how;
};
/// The groups of one bucket. `users` as above; `cells_of` and `plan_of` return a layer's cells and
/// plan. Throws as sync_groups does.
[[nodiscard]] std::vector<UnsplitGroup> bucket_groups(
    const Network& network, std::span<const ParameterId> bucket,
    const std::vector<std::vector<LayerId>>& users,
    const std::function<std::span<const Cell>(LayerId)>& cells_of,
    const std::function<const LayerPlan&(LayerId)>& plan_of);
/// Splits the states of a group, all of whose devices sum. Throws as sync_groups does.
void split_states(const Network& network, const Cluster& cluster, const ZeroGroup& how,
                  SyncGroup& group);

/// The groups of a plan in the order of its buckets, then by parameter. Weights that layers of
/// several stages use are not split. Different devices may hold
/// different parts of a parameter; each part forms its own group. Replicas are not summed with each
/// other: each has the full gradient already, or is a mirror.
///
/// Throws InputError if tied parameters are replicated differently by their layers, if states are
/// to be split into shares for another number of devices or in groups that are not alike, or for a
/// parameter server that is a mirror.
[[nodiscard]] std::vector<SyncGroup> sync_groups(const Network& network, const Cluster& cluster,
                                                 const Plan& plan);

}  // namespace parsim::lowering
