// The degrees of parallelism of a plan, found from its cuts, devices and order alone, not from
// the strategy that made it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Absent where a plan has no such number: where layers or stages differ in it.
struct Degrees {
  std::optional<std::int64_t> tp;  ///< devices that share a replica's layers, of its tokens, if cp
  std::optional<std::int64_t> pp;  ///< groups of devices that have different stages
  std::optional<std::int64_t> dp;  ///< replicas with samples of their own
  std::optional<std::int64_t> cp;  ///< parts of the tokens of layers with weights
  std::optional<std::int64_t> ep;
  std::optional<std::int64_t> etp;          ///< devices that split each expert
  std::optional<std::int64_t> vp;           ///< stages of a device
  std::int64_t micro_batches = 1;           ///< of a step
  std::optional<std::int64_t> micro_batch;  ///< samples of a replica in one of them
  std::optional<std::int32_t> zero;
  std::optional<ZeroGroup> zero_group;  ///< absent: among all replicas
  std::optional<Recompute> recompute;
  std::optional<bool> sequence_parallel;
  std::optional<bool> tensor_overlap;        ///< of products in chunks, see LayerPlan::overlap
  std::optional<PipelineSchedule> schedule;  ///< of several stages
  /// Of several stages whose backward pass is split, in none of these orders.
  bool ordered_by_time = false;
  std::optional<Bytes> bucket;  ///< of gradients; absent: see bucket_size_of
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

struct StageSummary {
  std::vector<LayerId> layers;                  ///< ascending
  std::optional<std::vector<Interval>> blocks;  ///< if the stage has whole blocks (blocks.hpp)
  std::vector<DeviceId> devices;  ///< that work on it, in the order of the layers' parts
  std::optional<std::int64_t> tp, dp, cp;
  std::optional<std::int64_t> micro_batch;  ///< samples of each replica, if equal
  bool sequence_parallel = false;           ///< devices share tokens between the layers they split
  friend bool operator==(const StageSummary&, const StageSummary&) = default;
};

/// By stage. `plan` must be valid.
[[nodiscard]] std::vector<StageSummary> stages_of(const Network& network, const Plan& plan);

[[nodiscard]] Degrees degrees_of(const Network& network, const Plan& plan);
/// The same, where `stages_of` of the plan is known.
[[nodiscard]] Degrees degrees_of(const Network& network, const Plan& plan,
                                 const std::vector<StageSummary>& stages);

/// As --zero-group says it: "node", or a number.
[[nodiscard]] std::optional<std::string> zero_group_text(const Degrees& degrees);

/// "tp 1 x pp 8 x dp 2, mb 32, zero 3 by node": what is known of them and more than nothing;
/// "mixed" for layers of different degrees.
[[nodiscard]] std::string short_text(const Degrees& degrees);

/// 16 hexadecimal digits, equal for plans in which every device does the same work in the same
/// order; strategy names and notes do not count.
[[nodiscard]] std::string plan_id(const Network& network, const Plan& plan);

}  // namespace parsim::strategies
