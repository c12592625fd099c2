// Two jobs on the links of one cluster, against closed forms: flows that share a link get equal
// shares of it.
#include "experiment/two_jobs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/run.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

TwoJobs together(const std::string& first, const std::string& second,
                 std::size_t most_operations = 8'000'000) {
  // d0 and d1 share the port of one machine, d2 and d3 that of the other.
  const Cluster cluster = topologies::load_cluster(
      "nodes:2x2,device=v100-sxm2,intra=1000GB/s,inter=1GB/s,latency=1ns", "cluster");
  const auto cost = sim::make_constant_efficiency(cluster);
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  return simulate_together(testing::dag_of(first).dag, testing::dag_of(second).dag, cluster, *cost,
                           options, most_operations);
}

bool near(Seconds a, double b) { return std::abs(a.count() - b) < 1e-6; }

TEST_CASE("two jobs: two flows that share a link get half of it each") {
  const TwoJobs jobs = together("transfer d0->d2 100MB", "transfer d1->d3 100MB");
  CHECK(near(jobs.first.alone, 0.1));
  CHECK(near(jobs.second.alone, 0.1));
  CHECK(near(jobs.first.together, 0.2));
  CHECK(near(jobs.second.together, 0.2));
  CHECK(std::abs(jobs.first.loss() - 1) < 1e-6);
}

TEST_CASE("two jobs: the shorter step is repeated, and every one of them has half of the link") {
  const TwoJobs jobs = together("transfer d0->d2 100MB", "transfer d1->d3 20MB");
  CHECK(near(jobs.first.together, 0.2));
  CHECK(near(jobs.second.alone, 0.02));
  CHECK(near(jobs.second.together, 0.04));
  CHECK(jobs.second.steps == 5);
  const TwoJobs turned = together("transfer d1->d3 20MB", "transfer d0->d2 100MB");
  CHECK(near(turned.first.together, 0.04));
  CHECK(near(turned.second.together, 0.2));
}

TEST_CASE("two jobs: the shorter step is repeated to the end of the longer one") {
  const std::string longer = "transfer d0->d2 1000MB", shorter = "transfer d1->d3 2MB";
  const TwoJobs jobs = together(longer, shorter);
  CHECK(jobs.first.together.count() == testing::approx(2).epsilon(1e-3));
  CHECK(jobs.second.together.count() == testing::approx(0.004).epsilon(1e-3));
  CHECK(jobs.second.steps >= 499);
  // 100 of the 500 steps: the link is shared for 0.4 s, in which the longer step loses 0.2 s.
  const TwoJobs few = together(longer, shorter, 100);
  CHECK(few.second.steps == 100);
  CHECK(few.first.together.count() == testing::approx(2).epsilon(1e-3));
  CHECK(jobs.assumed().empty());
  CHECK(few.assumed().find("(100 steps of ") != std::string::npos);
}

TEST_CASE("two jobs: what is computed, and links that only one uses, take as long as alone") {
  const TwoJobs apart = together("transfer d0->d1 100MB", "transfer d2->d3 50MB");
  CHECK(std::abs(apart.first.loss()) < 1e-6);
  CHECK(std::abs(apart.second.loss()) < 1e-6);
  const TwoJobs in_turn = together("compute d0 50ms; a: transfer d0->d2 50MB",
                                   "a: compute d1 50ms; b: transfer d1->d3 50MB after a");
  // Both in one step of 100 ms alone: the first sends at once, the second after its kernel.
  CHECK(near(in_turn.first.alone, 0.05));
  CHECK(near(in_turn.second.alone, 0.1));
  // First: steps of 50 ms while the second computes, then the link is shared for what is left:
  // 50 MB at half of the rate take 100 ms.
  CHECK(near(in_turn.second.together, 0.15));
  CHECK(in_turn.first.steps == 2);
  CHECK(near(in_turn.first.together, 0.075));
}

TEST_CASE("two jobs: collectives of one keep their groups and sizes") {
  // Rings of two devices: an all-reduce sends half of it twice each way, the others once. Two at a
  // time have half of the port each.
  const TwoJobs jobs = together("all-reduce d0,d2 40MB",
                                "a: all-gather d1,d3 40MB; reduce-scatter d1,d3 40MB after a");
  CHECK(near(jobs.first.alone, 0.04));
  CHECK(near(jobs.second.alone, 0.04));
  CHECK(near(jobs.first.together, 0.08));
  CHECK(near(jobs.second.together, 0.08));
}

TEST_CASE("two jobs: a plan's parts of the tokens have the slots that it was made with") {
  const testing::TemporaryFolder folder;
  Request request;
  // 3 slots of each of 5 experts for a sample's 8 tokens, 4 for those of two parts.
  request.network =
      "gpt:layers=1,hidden=8,heads=4,seq_length=8,vocab_size=5,experts=5,capacity=0.7";
  request.cluster = "nvswitch:4,device=a100-sxm4-80,rate=300GB/s";
  request.batch = 2;
  request.tensor_parallel = request.pipeline_parallel = request.data_parallel = 1;
  request.context_parallel = request.expert_parallel = 2;
  request.sim.engine = sim::Engine::fast;
  const Experiment experiment(request);
  Plan plan = make_plan(experiment, strategies::strategy("tensor", "test")).plan;
  Request again;
  again.plan_file = folder.write("plan.json", to_json(plan));
  again.sim.engine = sim::Engine::fast;
  const Experiment read_back(again);
  CHECK(read_back.network == experiment.network);
  CHECK(run_plan(read_back, {*read_back.plan, {}, {}}).result.step_time ==
        run_plan(experiment, {plan, {}, {}}).result.step_time);
  // The same step on the other two devices takes as long.
  for (LayerPlan& layer : plan.layers) {
    for (DeviceId& device : layer.devices.edit()) device = DeviceId{device.index() + 2};
  }
  for (RankList& list : plan.schedule.rank_lists) {
    for (DeviceId& device : list.devices) device = DeviceId{device.index() + 2};
  }
  const TwoJobs jobs =
      run_with_job(experiment, *read_back.plan, folder.write("other.json", to_json(plan)));
  CHECK(jobs.second.alone == jobs.first.alone);
}

/// A step of a tensor-parallel group of two of four devices, and the same on the other two.
struct TwoPlans {
  Experiment experiment;
  Plan first, second;
  explicit TwoPlans(const Request& request)
      : experiment(request),
        first(make_plan(experiment, strategies::strategy("tensor", "test")).plan),
        second(first) {
    for (LayerPlan& layer : second.layers) {
      for (DeviceId& device : layer.devices.edit()) device = DeviceId{device.index() + 2};
    }
    for (RankList& list : second.schedule.rank_lists) {
      for (DeviceId& device : list.devices) device = DeviceId{device.index() + 2};
    }
  }
};

Request on_two_of_four(std::string network, std::string device) {
  Request request;
  request.network = std::move(network);
  request.cluster = "star:4,device=" + device + ",rate=10GB/s,latency=1us";
  request.batch = 4;
  request.sim.engine = sim::Engine::fast;
  request.tensor_parallel = 2;
  request.pipeline_parallel = request.data_parallel = 1;
  return request;
}

TEST_CASE("two jobs: a plan file keeps the network's dimensions that were given") {
  const testing::TemporaryFolder folder;
  Request request = on_two_of_four("llama-3-8b:layers=1", "a100-sxm4-80");
  request.dims = {{"seq_length", 16}};
  const TwoPlans plans(request);
  const Seconds alone = run_plan(plans.experiment, {plans.first, {}, {}}).result.step_time;
  Request again;
  again.plan_file = folder.write("plan.json", to_json(plans.first));
  again.sim.engine = sim::Engine::fast;
  const Experiment read_back(again);
  CHECK(read_back.network == plans.experiment.network);
  CHECK(run_plan(read_back, {*read_back.plan, {}, {}}).result.step_time == alone);
  const TwoJobs jobs = run_with_job(plans.experiment, plans.first,
                                    folder.write("other.json", to_json(plans.second)));
  CHECK(jobs.second.alone == jobs.first.alone);
  // The same is no contradiction, anything else is.
  again.dims = request.dims;
  CHECK(Experiment(again).network == plans.experiment.network);
  again.dims["seq_length"] = 32;
  CHECK_THROWS_WITH_AS(Experiment{again},
                       ("--dim: seq_length=32, but " + again.plan_file +
                        " is a plan for seq_length=16; accepted: no --dim, or the plan's")
                           .c_str(),
                       InputError);
}

TEST_CASE("two jobs: of one network from a file, and with eager attention on old GPUs") {
  const testing::TemporaryFolder folder;
  const std::string config =
      folder.write("config.json",
                   R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 8,
                       "num_key_value_heads": 8, "num_hidden_layers": 1, "intermediate_size": 512,
                       "vocab_size": 512, "max_position_embeddings": 64})");
  for (const auto& [network, device] :
       {std::pair<std::string, std::string>{config, "a100-sxm4-80"},
        {"gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=128", "v100-sxm2"}}) {
    const TwoPlans plans(on_two_of_four(network, device));
    const TwoJobs jobs = run_with_job(plans.experiment, plans.first,
                                      folder.write("other.json", to_json(plans.second)));
    CHECK(jobs.second.alone == jobs.first.alone);
  }
}

TEST_CASE("two jobs: times of layers are those of one network") {
  const testing::TemporaryFolder folder;
  const auto request = [](const char* network) { return on_two_of_four(network, "a100-sxm4-80"); };
  const TwoPlans longer(request("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128"));
  Request measured = request("gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=128");
  measured.profile = folder.write("t.csv",
                                  "device,precision,samples,tp,layers,forward_s,backward_s\n"
                                  "a100-sxm4-80,fp32,4,2,block,0.5,1\n");
  const TwoPlans plans(measured);
  // Before, blocks of any network took as long.
  CHECK_THROWS_WITH_AS(
      run_with_job(plans.experiment, plans.first,
                   folder.write("other.json", to_json(longer.second))),
      "--profile: layer times of another network than the --beside plan's; accepted: a profile of "
      "kernels, or two jobs of one network",
      InputError);
  const TwoJobs jobs = run_with_job(plans.experiment, plans.first,
                                    folder.write("other.json", to_json(plans.second)));
  CHECK(jobs.second.alone == jobs.first.alone);
  CHECK(jobs.second.alone > Seconds{1.5});
}

TEST_CASE("two jobs: options that change kernel times are refused") {
  const testing::TemporaryFolder folder;
  Request request;
  request.network = "lenet5";
  request.cluster = "star:4,device=p100-sxm2,rate=10GB/s,latency=1us";
  request.sim.engine = sim::Engine::fast;
  {
    Request formulas = request;
    formulas.sim.fidelity = sim::Fidelity::analytic;
    const Experiment experiment(formulas);
    const Plan plan = make_plan(experiment, strategies::strategy("data", "test")).plan;
    CHECK_THROWS_WITH_AS(
        run_with_job(experiment, plan, folder.write("other.json", to_json(plan))),
        "--fidelity: analytic together with --beside, but its formulas have no contention; "
        "accepted: p2p, hops or macro",
        InputError);
  }
  for (const char* option : {"--launch-interval", "--jitter"}) {
    request.given = {option};
    const Experiment experiment(request);
    const Plan plan = make_plan(experiment, strategies::strategy("data", "test")).plan;
    const std::string file = folder.write("other.json", to_json(plan));
    CHECK_THROWS_WITH_AS(
        run_with_job(experiment, plan, file),
        (std::string(option) + ": together with --beside, where kernels take as long as alone; "
                               "accepted: one of them")
            .c_str(),
        InputError);
  }
}

}  // namespace
}  // namespace parsim::experiment
