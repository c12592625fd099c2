// Random plans with replicas, on clusters where some of these are equal.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "strategies/plan_support.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "strategies/tensor/degrees.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {

inline constexpr std::int64_t units_batch = 32;

/// Plans of the tensor strategy's degrees with random options; some with samples that are shared
/// unevenly.
class ReplicatedPlans {
 public:
  ReplicatedPlans(const World& world, std::uint64_t seed) : world_(world), random_(seed) {}

  Plan next() {
    strategies::StrategyInput input = world_.input(units_batch);
    input.sequence_parallel = chance(3);
    input.schedule = static_cast<strategies::PipelineSchedule>(random_() % 3);
    input.pipeline_sends = static_cast<strategies::PipelineSends>(random_() % 2);
    input.bucket = Bytes{static_cast<std::int64_t>(random_() % 3) * 2000};
    input.granularity = strategies::Granularity::layer;
    const std::vector<DeviceId> devices = strategies::workers(input);
    const std::vector<strategies::tensor::ParallelDegrees> all =
        strategies::tensor::every_degrees(input, devices);
    strategies::tensor::ParallelDegrees degrees = all[random_() % all.size()];
    for (int i = 0; i < 8 && degrees.data == 1; ++i) degrees = all[random_() % all.size()];
    strategies::tensor::Arranging arranging(input);
    strategies::tensor::Arrangement arrangement = arranging.arrange(
        degrees, strategies::tensor::in_groups(input, devices, degrees.tensor, degrees.context));
    if (chance(6) && arrangement.shares.size() > 1 && arrangement.shares[0] > 1) {
      const std::size_t to = 1 + random_() % (arrangement.shares.size() - 1);
      --arrangement.shares[0];
      ++arrangement.shares[to];
    }
    Plan plan = arranging.plan_of(arrangement);
    input.zero_stage = static_cast<std::int32_t>(random_() % 4);
    input.zero_group.node = chance(3);
    input.recompute = static_cast<strategies::Recompute>(random_() % 6);
    plan = strategies::with_memory_options(input, std::move(plan));
    plan.schedule.blocking_sends = input.pipeline_sends == strategies::PipelineSends::blocking;
    return plan;
  }

 private:
  bool chance(std::uint64_t of) { return random_() % of == 0; }
  const World& world_;
  std::mt19937_64 random_;
};

inline std::vector<std::string> clusters_with_replicas() {
  return {
      "nodes:4x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s",
      "nodes:2x4,device=p100-sxm2*4+v100-sxm2*4,intra=50GB/s,inter=10GB/s",
      "nodes:8x2,device=p100-sxm2*8+v100-sxm2*8,intra=20GB/s,inter=1GB/s",
      "star:8,device=p100-sxm2,rate=10GB/s,latency=1us",
      "star:12,device=p100-sxm2*4+v100-sxm2*8,rate=10GB/s,latency=1us",
      "mixed-p100-v100",
      "dgx-v100",
      "rail:8x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s,unit=2",
      "rail:6x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s,unit=3,oversubscription=3",
  };
}

}  // namespace parsim::testing
