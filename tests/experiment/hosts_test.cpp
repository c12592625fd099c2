#include "experiment/hosts.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "experiment/precision.hpp"
#include "experiment/run.hpp"
#include "lowering/lower.hpp"
#include "lowering/machine_reads.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

/// What the machines of a plan read.
std::vector<MachineReads> reads_of(const std::string& strategy, const std::string& cluster,
                                   std::int64_t batch, strategies::StrategyOptions options = {}) {
  Request request;
  request.network = "resnet18";
  request.cluster = cluster;
  request.batch = batch;
  static_cast<strategies::StrategyOptions&>(request) = std::move(options);
  const Experiment experiment(request);
  const Planned planned = make_plan(experiment, strategies::strategy(strategy, "test"));
  const auto reads = lowering::machine_reads(experiment.network, experiment.cluster, planned.plan);
  CHECK(lowering::lower(experiment.network, experiment.cluster, planned.plan).reads == reads);
  return reads;
}

TEST_CASE("hosts: a machine reads the samples of its devices, each once, by hand") {
  using Reads = std::vector<MachineReads>;
  CHECK(reads_of("data", "nodes:4x2,device=v100-pcie", 80) == Reads{{2, 20}});
  CHECK(reads_of("data", "star:8,device=v100-pcie", 80) == Reads{{8, 80}});
  CHECK(reads_of("data", "nodes:2x4,device=v100-pcie,placement=1+3", 80) ==
        Reads{{1, 20}, {3, 60}});
  // A pipeline's first stage reads all, filters of one sample read it together.
  strategies::StrategyOptions two;
  two.micro_batches = 4;
  CHECK(reads_of("pipeline", "nodes:2x1,device=v100-pcie", 80, two) == Reads{{1, 80}});
  strategies::StrategyOptions groups;
  groups.tensor_parallel = 2;
  groups.pipeline_parallel = 1;
  CHECK(reads_of("tensor", "nodes:2x2,device=v100-pcie", 80, groups) == Reads{{2, 40}});
}

TEST_CASE("hosts: no step is shorter than its input, and devices wait for the difference") {
  Request request;
  request.network = "resnet50";
  request.cluster = "nodes:2x2,device=v100-pcie";
  request.strategies = {"data"};
  request.batch = 128;
  const auto step = [&](double rate) {
    request.input_rate = rate;
    const Experiment experiment(request);
    const Planned planned = make_plan(experiment, strategies::strategy("data", "test"));
    CHECK(simulated_step(experiment, planned.plan) ==
          run_plan(experiment, planned).result.step_time);
    return run_plan(experiment, planned, Operations::folded).result;
  };
  const RunResult fast = step(1e6), slow = step(100);
  CHECK(fast.step_time == step(0).step_time);
  CHECK(slow.step_time.count() == testing::approx(128 / 200.0));
  CHECK(slow.samples_per_second == testing::approx(200));
  CHECK(mean_use(slow).compute.count() == testing::approx(mean_use(fast).compute.count()));
  CHECK((mean_use(slow).idle - mean_use(fast).idle).count() ==
        testing::approx((slow.step_time - fast.step_time).count()));
  request.input_rate = 3000;
  CHECK(hosts_summary(request) == "; hosts feed 3000 samples/s each");
}

TEST_CASE("hosts: the slowest one counts, and what measured rows add is by machine") {
  Request request;
  request.network = "resnet50";
  request.cluster = "nodes:2x4,device=v100-pcie,placement=1+3";
  request.strategies = {"data"};
  request.batch = 128;
  request.input_rate = 100;
  CHECK(simulated_step(Experiment(request),
                       make_plan(Experiment(request), strategies::strategy("data", "test")).plan)
            .count() == testing::approx(96 / 100.0));
  request.input_rate = 0;
  const auto step = [&] {
    const Experiment experiment(request);
    const Planned planned = make_plan(experiment, strategies::strategy("data", "test"));
    return run_plan(experiment, planned).result.step_time;
  };
  const Seconds alone = step();
  FittedStep row;
  row.device = "v100-pcie";
  row.network = "ResNet-50";
  row.kernels = 1;
  row.host = 1e-3;
  row.devices = 1;
  request.fitted = {row};
  // 32 samples of a device, two devices of its machine beyond the one of the row.
  CHECK((step() - alone).count() == testing::approx(2 * 32 * 1e-3));
}

TEST_CASE("hosts: results say what each machine has to feed, unless something says what it can") {
  Request request;
  request.network = "resnet50";
  request.cluster = "nodes:2x8,device=v100-pcie,placement=8+4";
  RunResult result;
  result.samples_per_second = 1200;
  result.read_by_host = 800;
  const auto line = [&] { return input_line(Experiment(request), std::array{result}); };
  CHECK(line() == "hosts: assumed to keep up with 800 samples/s from each machine (--input-rate)");
  FittedStep row;
  row.device = "v100-pcie";
  row.network = "ResNet-50";
  request.fitted = {row};
  CHECK(line() == "hosts: assumed to keep up with 800 samples/s from each machine (--input-rate)");
  request.fitted[0].host = 1e-6;
  CHECK(line().empty());
  request.fitted.clear();
  result.read_by_host = 1200;
  CHECK(line() == "hosts: assumed to keep up with 1200 samples/s from one machine (--input-rate)");
  request.cluster = "nodes:1x3,device=v100-pcie";
  CHECK(line() == "hosts: assumed to keep up with 1200 samples/s from the machine (--input-rate)");
  request.input_rate = 1e4;
  CHECK(line().empty());
  request.input_rate = 0;
  request.network = "gpt:layers=1,hidden=64,heads=1,attention=eager";
  CHECK(line().empty());
}

TEST_CASE(
    "hosts: where launches bound the step 'best' is no slower than the plans that it starts from") {
  const auto step = [](const std::string& strategy, std::int32_t zero) {
    Request request;
    request.network = "googlenet";
    request.cluster = "nodes:2x4,device=h100-sxm5,inter=12GB/s,nics=4";
    request.batch = 16;
    request.zero_stage = zero;
    request.sim.launch_interval = Seconds{40e-6};
    request.given = {"--launch-interval", "--zero"};
    request.sim.engine = sim::Engine::fast;
    const Experiment experiment(request);
    const Planned planned = make_plan(experiment, strategies::strategy(strategy, "test"));
    return run_plan(experiment, planned).result.step_time;
  };
  for (const std::int32_t zero : {0, 3}) {
    CAPTURE(zero);
    CHECK(step("best", zero) <= step("pipeline", zero) * (1 + 1e-9));
  }
}

TEST_CASE("profile: one without kernels of the run's precision is said") {
  const Cluster cluster = topologies::load_cluster("mixed-p100-v100", "test");
  Profile profile;
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    KernelSample& sample = profile.kernels.emplace_back();
    sample.device = "v100-sxm2";
    sample.precision = precision;
  }
  CHECK(profile_warnings(profile, "p.json", cluster, Precision::fp16).empty());
  CHECK(profile_warnings(profile, "p.json", cluster, Precision::bf16) ==
        std::vector<std::string>{
            "p.json: no kernels of v100-sxm2 in bf16: they take the model's times"});
  CHECK(profile_warnings({}, "p.json", cluster, Precision::bf16).empty());  // refused elsewhere
}

}  // namespace
}  // namespace parsim::experiment
