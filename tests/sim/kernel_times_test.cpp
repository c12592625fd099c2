#include "core/kernel_times.hpp"

#include <doctest/doctest.h>

#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "sim/slowdowns.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

/// Counts what another model is asked for.
class Counted final : public CostModel {
 public:
  explicit Counted(const CostModel& base) : base_(base) {}
  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    ++asked;
    return base_.compute(network, layer, part, pass, device, precision);
  }
  [[nodiscard]] std::int32_t alike(DeviceId device) const override { return base_.alike(device); }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return base_.memory(device, touched);
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return base_.transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return base_.collective(kind, group, payload);
  }
  [[nodiscard]] std::string summary() const override { return base_.summary(); }
  mutable std::size_t asked = 0;

 private:
  const CostModel& base_;
};

}  // namespace

TEST_CASE("kernel times: equal those of the cost model, on random plans and unlike devices") {
  const Cluster cluster = topologies::load_cluster(
      "star:5,device=p100-sxm2*2+v100-sxm2*3,rate=10GB/s,latency=1us", "test");
  const auto tiles = sim::make_tile_costs(cluster);
  const auto constant = sim::make_constant_efficiency(cluster);
  const auto slowed = sim::make_slowed(*tiles, {1, 1.5, 1, 1, 2});
  for (const CostModel* model : {tiles.get(), constant.get(), slowed.get()}) {
    const Counted cost(*model);
    std::size_t kernels = 0, asked = 0;
    for (const Network& network : tiny_networks()) {
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        Plan plan = random_plan(network, 4, 8, seed);
        plan.reduce_precision = seed % 2 == 0 ? Precision::fp32 : Precision::fp16;
        const ExecDag dag = lowering::lower(network, cluster, plan);
        DeviceTimes times(dag, cost);
        for (std::size_t i = 0; i < dag.size(); ++i) {
          const std::size_t before = cost.asked;
          const Cost time = times.of(OpId{i});
          asked += cost.asked - before;
          if (dag.kind(OpId{i}) == OpKind::compute) ++kernels;
          const Cost expected = device_time(dag, OpId{i}, cost);
          CHECK(time.time == expected.time);
          CHECK(time.origin == expected.origin);
        }
      }
    }
    CHECK(3 * asked < 2 * kernels);
  }
}

}  // namespace parsim::testing
