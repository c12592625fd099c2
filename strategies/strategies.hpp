// The catalogue of parallelization strategies: each decides, none lowers. Input: a network, a
// cluster, costs. Output: a Plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/executor.hpp"
#include "core/plan.hpp"

namespace parsim {

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };

/// Everything a strategy may look at.
struct StrategyInput {
  const Network& network;
  const Cluster& cluster;
  const CostModel& cost;
  std::int64_t batch = 0;  ///< global
  Precision precision = Precision::fp32;
  Optimizer optimizer = Optimizer::momentum;
  Sync::Kind sync = Sync::Kind::automatic;
  /// Who adds up with Sync::Kind::server; invalid = the first CPU, or the first GPU if there is
  /// none.
  DeviceId server{};
  std::optional<std::int32_t> micro_batches{};  ///< pipelines; chosen if absent
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  Bytes bucket{25 * 1024 * 1024};  ///< gradients travel in buckets of this size; 0 = one per layer
  std::uint64_t seed = 1;
};

struct Strategy {
  std::string name, summary;
  Plan (*plan)(const StrategyInput&);
};

[[nodiscard]] const std::vector<Strategy>& strategies();
/// Throws InputError with a "did you mean" for an unknown name. `where` is the flag or file.
[[nodiscard]] const Strategy& strategy(std::string_view name, std::string_view where);

[[nodiscard]] Plan plan_data(const StrategyInput& input);
[[nodiscard]] Plan plan_model_even(const StrategyInput& input);
[[nodiscard]] Plan plan_owt(const StrategyInput& input);
[[nodiscard]] Plan plan_pipeline(const StrategyInput& input);

}  // namespace parsim
