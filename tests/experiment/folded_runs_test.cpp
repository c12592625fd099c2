// A result is the same whether all operations are run or those of one of several equal replicas.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "experiment/run.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

constexpr auto folded_cluster = "nodes:4x4,device=v100-sxm2,intra=50GB/s,inter=10GB/s";

Request folded_question(const std::string& network) {
  Request request;
  request.network = network;
  request.cluster = folded_cluster;
  request.sim.engine = sim::Engine::fast;
  request.batch = 64;
  return request;
}

void check_same(const Request& request, const std::string& strategy, bool folds) {
  CAPTURE(strategy);
  CAPTURE(request.zero_stage.value_or(0));
  CAPTURE(request.pipeline_parallel.value_or(1));
  const Experiment experiment(request);
  const Planned planned = make_plan(experiment, strategies::strategy(strategy, "test"));
  const Run all = run_plan(experiment, planned);
  const Run folded = run_plan(experiment, planned, Operations::folded);
  CHECK((folded.dag.fold.units != nullptr) == folds);
  const RunResult &a = all.result, &b = folded.result;
  const auto near = [](Seconds x, Seconds y) {
    return x.count() == testing::approx(y.count()).epsilon(1e-9);
  };
  CHECK(near(a.step_time, b.step_time));
  CHECK(simulated_step(experiment, planned.plan) == b.step_time);
  CHECK(a.moved == b.moved);
  CHECK(a.messages == b.messages);
  CHECK(a.operations == b.operations);
  CHECK(a.flops.model == b.flops.model);
  CHECK(a.flops.recomputed.value == testing::approx(b.flops.recomputed.value));
  CHECK(a.flops.peak.value == testing::approx(b.flops.peak.value));
  CHECK(a.checks == b.checks);
  CHECK(a.notes == b.notes);
  for (std::size_t i = 0; i < a.cost_shares.size(); ++i)
    CHECK(a.cost_shares[i] == testing::approx(b.cost_shares[i]));
  for (std::size_t i = 0; i < a.parts.size(); ++i) CHECK(a.parts[i] == testing::approx(b.parts[i]));
  REQUIRE(a.devices.size() == b.devices.size());
  for (std::size_t d = 0; d < a.devices.size(); ++d) {
    CHECK(near(a.devices[d].use.compute, b.devices[d].use.compute));
    CHECK(near(a.devices[d].use.exposed_communication, b.devices[d].use.exposed_communication));
    CHECK(near(a.devices[d].use.idle, b.devices[d].use.idle));
    CHECK(a.devices[d].peak() == b.devices[d].peak());
  }
  CHECK(a.bottleneck.has_value() == b.bottleneck.has_value());
  if (a.bottleneck && b.bottleneck) {
    CHECK(a.bottleneck->link == b.bottleneck->link);
    CHECK(a.bottleneck->utilisation == testing::approx(b.bottleneck->utilisation));
  }
}

TEST_CASE("folded runs: data parallelism, and a slow device that is folded with no other") {
  Request request = folded_question("alexnet");
  check_same(request, "data", true);
  request.stragglers = {"n0.gpu1=1.5"};
  check_same(request, "data", true);
}

TEST_CASE("folded runs: replicas of a transformer, with sharded states, pipelines, recomputation") {
  Request request = folded_question("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128");
  request.zero_stage = 1;
  check_same(request, "data", true);
  request.zero_stage = 0;
  request.tensor_parallel = 4;
  request.pipeline_parallel = 1;
  request.data_parallel = 4;
  request.micro_batches = 2;
  request.recompute = strategies::Recompute::full;
  check_same(request, "tensor", true);
  // Tied embeddings are summed over two stages, by a ring that passes replicas unequally.
  request.pipeline_parallel = 2;
  request.data_parallel = 2;
  check_same(request, "tensor", true);
}

TEST_CASE("folded runs: the rank that adds the biases is a class of its own, tied weights or not") {
  Request request = folded_question("gpt:layers=4,hidden=64,heads=8,seq_length=32,vocab_size=128");
  request.cluster = "nodes:4x8,device=v100-sxm2,intra=50GB/s,inter=10GB/s";
  request.tensor_parallel = 8;
  request.data_parallel = 2;
  request.micro_batches = 4;
  for (const std::int32_t stages : {1, 2}) {
    request.pipeline_parallel = stages;
    check_same(request, "tensor", true);
    const Experiment experiment(request);
    const Planned planned = make_plan(experiment, strategies::strategy("tensor", "test"));
    const Run run = run_plan(experiment, planned, Operations::folded);
    REQUIRE(run.dag.fold.ranks != nullptr);
    const std::vector<std::size_t> others{1, 2, 3, 4, 5, 6, 7};
    CHECK(run.dag.fold.ranks->classes == std::vector<std::vector<std::size_t>>{{0}, others});
  }
}

}  // namespace
}  // namespace parsim::experiment
