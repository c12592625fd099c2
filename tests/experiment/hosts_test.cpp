#include "experiment/hosts.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "experiment/precision.hpp"
#include "experiment/run.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

TEST_CASE("hosts: a batch is fed by the machines that have GPUs, by hand") {
  const Cluster four = topologies::load_cluster("nodes:4x2,device=v100-pcie", "test");
  CHECK(input_time(100, 800, four).count() == testing::approx(2));
  CHECK(input_time(100, 800, topologies::load_cluster("star:8,device=v100-pcie", "test")).count() ==
        testing::approx(8));
  CHECK(input_time(0, 800, four).count() == 0);
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

TEST_CASE("hosts: results say what each machine has to feed, unless something says what it can") {
  Request request;
  request.network = "resnet50";
  request.cluster = "nodes:2x8,device=v100-pcie,placement=8+4";
  const auto line = [&] { return input_line(Experiment(request), 1200); };
  CHECK(line() == "hosts: assumed to keep up with 800 samples/s from each machine (--input-rate)");
  FittedStep row;
  row.device = "v100-pcie";
  row.network = "ResNet-50";
  request.fitted = {row};
  CHECK(line() == "hosts: assumed to keep up with 800 samples/s from each machine (--input-rate)");
  request.fitted[0].host = 1e-6;
  CHECK(line().empty());
  request.fitted.clear();
  request.cluster = "star:3,device=v100-pcie";
  CHECK(line() == "hosts: assumed to keep up with 1200 samples/s from the machine (--input-rate)");
  request.input_rate = 1e4;
  CHECK(line().empty());
  request.input_rate = 0;
  request.network = "gpt:layers=1,hidden=64,heads=1,attention=eager";
  CHECK(line().empty());
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
