// Steps of many plans for one cluster, folded: which devices are alike is found once.
#pragma once

#include <cstdint>
#include <memory>

#include "lowering/lower.hpp"

namespace parsim::lowering {

/// The plan with its first `count` micro-batches only, each with as many samples as before; with
/// several model chunks on a device a multiple of the pipeline's devices.
[[nodiscard]] Plan shortened(const Plan& plan, std::int32_t count);

/// run_folded() of plan after plan. Refers to network, cluster and cost model.
class FoldedRuns {
 public:
  FoldedRuns(const Network& network, const Cluster& cluster, const CostModel& cost);
  ~FoldedRuns();
  FoldedRuns(const FoldedRuns&) = delete;
  FoldedRuns& operator=(const FoldedRuns&) = delete;
  [[nodiscard]] PlanRun run(const Plan& plan, Executor& engine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace parsim::lowering
