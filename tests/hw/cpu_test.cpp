// Cores of this machine as devices. What steps take is not compared with anything: tests share
// them.
#include <doctest/doctest.h>
#include <sched.h>

#include "core/errors.hpp"
#include "hw/calibrate.hpp"
#include "hw/cpu_executor.hpp"
#include "hw/tensor_slices.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/executors.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// Whether two devices can be had here; says so if not.
bool has_two_cores() {
  cpu_set_t cores;
  const bool two = ::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 1;
  if (!two) MESSAGE("SKIPPED: a second core");
  return two;
}

/// A plan of this strategy on two devices.
ExecDag step_of(const Network& network, const std::string& strategy, std::int64_t batch) {
  const Cluster cluster = star_of(2, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  if (strategy == "pipeline") input.micro_batches = 2;
  if (strategy == "tensor") input.tensor_parallel = 2;
  return lowering::lower(network, cluster,
                         plan_on_all_devices(strategies::strategy(strategy, "test"), input));
}

const std::vector<std::string> strategies_on_two{"data", "pipeline", "tensor", "model"};

}  // namespace

TEST_CASE("cpu: a CNN's and a GPT's numbers equal float64's on two devices by every strategy") {
  if (!has_two_cores()) return;
  hw::CpuExecutor cpu({1, 1});
  const Network gpt = networks::load_network(
      "gpt:layers=2,hidden=32,heads=4,seq_length=16,vocab_size=64", {}, "test");
  for (const Network& network :
       {tiny_network("residual"), networks::load_network("lenet5", {}, "test"), gpt}) {
    for (const std::string& strategy : strategies_on_two) {
      CAPTURE(network.name);
      CAPTURE(strategy);
      CHECK(cpu.check(step_of(network, strategy, 4)) == "");
    }
  }
}

TEST_CASE("cpu: every tiny network's numbers equal float64's on one device of all cores") {
  hw::CpuExecutor cpu({});
  for (const Network& network : tiny_networks()) {
    if (!runs_on_hardware(network)) continue;
    CAPTURE(network.name);
    CHECK(cpu.check(lowering::lower(network, star_of(1, "10 GB/s", "1us"),
                                    single_device_plan(network, 8))) == "");
  }
}

TEST_CASE("cpu: any valid plan on two devices computes what float64 computes") {
  if (!has_two_cores()) return;
  hw::CpuExecutor cpu({1, 1});
  const std::vector<Network> networks = tiny_networks();
  for (std::uint64_t seed = 0; seed < 2 * networks.size(); ++seed) {
    const Network& network = networks[seed % networks.size()];
    if (!runs_on_hardware(network)) continue;
    const ExecDag dag =
        lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, seed));
    if (hw::stores(dag).devices > 2) continue;
    CAPTURE(network.name);
    CAPTURE(seed);
    CHECK(cpu.check(dag) == "");
  }
}

TEST_CASE("cpu: a step keeps the order of the DAG") {
  if (!has_two_cores()) return;
  hw::CpuExecutor cpu({1, 1});
  std::vector<ExecDag> dags{step_for_executors(2)};
  for (const std::string& strategy : strategies_on_two)
    dags.push_back(step_of(tiny_network("residual"), strategy, 8));
  for (const ExecDag& dag : dags) {
    const std::vector<Seconds> least(dag.size(), Seconds{1e-15});
    static_cast<void>(expect_step(cpu, dag, least));
  }
}

TEST_CASE("cpu: a profile has every kernel, copy and message, lines of links and common memory") {
  if (!has_two_cores()) return;
  hw::CpuExecutor cpu({1, 1});
  const ExecDag dag = step_of(tiny_network("residual"), "data", 8);
  const Profile profile = hw::calibrate(cpu, {dag}, 2);
  CHECK(profile.machine.backend == "cpu");
  CHECK(profile.kernels.size() > 5);
  CHECK(profile.memory.size() > 0);
  CHECK(profile.links.size() == 2);
  CHECK(profile.interference_samples.size() > 0);
  REQUIRE(profile.common_memory.size() == 1);
  CHECK(profile.common_memory[0].parts.size() == 2);
  hw::Calibration known(profile.machine);
  const std::vector<OpId> ops = known.unknown(dag);
  CHECK(ops.size() < dag.size());  // equal kernels are measured once
  for (const Spread& time : cpu.alone(dag, ops, 2)) {
    CHECK(time.median >= Seconds{});
    CHECK(time.samples == 2);
  }
  const Measurement measured = cpu.step(dag, 5);
  CHECK(measured.step.median > Seconds{});
  CHECK(measured.timeline.spans.size() == dag.size());
}

TEST_CASE("cpu: other precisions, more cores than there are and more devices are refused") {
  CHECK_THROWS_WITH_AS(hw::CpuExecutor({100'000}), doctest::Contains("--partition: more than "),
                       InputError);
  hw::CpuExecutor cpu({1});
  const Network network = tiny_network("plain");
  Plan plan = single_device_plan(network, 8);
  plan.precision = Precision::tf32;
  CHECK_THROWS_WITH_AS(
      static_cast<void>(cpu.run(lowering::lower(network, star_of(1, "10 GB/s", "1us"), plan))),
      "--precision: tf32 with --hw-backend cpu; accepted there: fp32", InputError);
  CHECK_THROWS_AS(static_cast<void>(cpu.run(step_of(network, "data", 8))), hw::HardwareError);
}

}  // namespace parsim::testing
