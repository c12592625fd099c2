// One DAG through every executor by the one interface; tests/hw/cuda_test.cpp has the GPUs',
// tests/hw/cpu_test.cpp the CPU's.
#include "tests/hw/executors.hpp"

#include "hw/host_executor.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"

namespace parsim::testing {

TEST_CASE("executors: simulated by SimGrid and by the fast engine, a step keeps its order") {
  for (const std::size_t devices : {2U, 4U}) {
    const ExecDag dag = step_for_executors(devices);
    const Cluster cluster = star_of(4, "10 GB/s", "1us");
    const auto cost = sim::make_constant_efficiency(cluster);
    // Messages may share links: no less than alone. Kernels take what they take.
    const std::vector<Seconds> least = durations_alone(dag, *cost);
    std::vector<std::vector<Span>> spans;
    for (const sim::Engine engine : {sim::Engine::simgrid, sim::Engine::fast}) {
      sim::SimOptions options;
      options.engine = engine;
      CAPTURE(devices);
      CAPTURE(static_cast<int>(engine));
      spans.push_back(expect_step(*sim::make_simulator(cluster, *cost, options), dag, least));
    }
    for (std::size_t i = 0; i < dag.size(); ++i) {
      CHECK(spans[0][i].end.count() == testing::approx(spans[1][i].end.count()).epsilon(1e-6));
    }
  }
}

TEST_CASE("executors: on the synthetic host the same step keeps its order, and its durations") {
  for (const std::vector<int>& shares :
       {std::vector{64, 32}, std::vector{64, 64, 64, 64}, std::vector{64, 32, 16, 64}}) {
    const ExecDag dag = step_for_executors(shares.size());
    hw::HostExecutor host(shares);
    std::vector<Seconds> least;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      least.push_back(hw::modelled_duration(dag, OpId{i}, host.hardware().machine));
    }
    const std::vector<Span> spans = expect_step(host, dag, least);
    CHECK(host.step(dag, 3).timeline.spans == spans);
  }
}

}  // namespace parsim::testing
