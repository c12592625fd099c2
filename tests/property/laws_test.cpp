// Laws that hold for every network, cluster and strategy, tried on random ones: from a generator
// call to a checked result, as the program does it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "core/timeline.hpp"
#include "experiment/faster_links.hpp"
#include "experiment/run.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"

namespace parsim {
namespace {

/// rc::check with fewer cases: each forks simulations, which is slow with sanitizers.
template <class Law>
bool holds(Law law, int cases = 15) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::min(params.maxSuccess, cases);
  const auto result = rc::detail::checkTestable(std::move(law), rc::detail::TestMetadata(), params);
  if (!result.template is<rc::detail::SuccessResult>()) {
    rc::detail::printResultMessage(result, std::cerr);
    std::cerr << '\n';
  }
  return result.template is<rc::detail::SuccessResult>();
}

/// A star of 1 to 5 devices of two types with any rate and latency, or two nodes of two.
std::string any_cluster() {
  const int rate = *rc::gen::inRange(1, 200);
  const int latency = *rc::gen::inRange(0, 50);
  if (*rc::gen::arbitrary<bool>()) {
    return fmt::format("nodes:2x2,device=v100-sxm2*2+t4*2,intra={}GB/s,inter={}GB/s,latency={}us",
                       rate, *rc::gen::inRange(1, rate + 1), latency);
  }
  const int devices = *rc::gen::inRange(1, 6);
  const int first = *rc::gen::inRange(0, devices + 1);
  std::string mix = first > 0 ? fmt::format("p100-sxm2*{}", first) : "";
  if (first < devices) {
    mix += fmt::format("{}v100-sxm2*{}", first > 0 ? "+" : "", devices - first);
  }
  return fmt::format("star:{},device={},rate={}GB/s,latency={}us", devices, mix, rate, latency);
}

experiment::Request any_request() {
  experiment::Request request;
  request.verb = "simulate";
  request.network = *rc::gen::element<std::string>("lenet5", "mlp");
  request.cluster = any_cluster();
  request.batch = 8 * *rc::gen::inRange(1, 9);
  request.precision = *rc::gen::element(Precision::fp32, Precision::fp16);
  request.optimizer = *rc::gen::element(Optimizer::sgd, Optimizer::adam);
  request.sync = *rc::gen::element(Sync::Kind::ring, Sync::Kind::server);
  request.bucket = Bytes{*rc::gen::inRange(0, 1 << 20)};
  RC_LOG() << request.network << " on " << request.cluster << ", batch " << *request.batch << "\n";
  return request;
}

const strategies::Strategy& any_strategy() {
  const std::size_t index = *rc::gen::inRange<std::size_t>(0, strategies::all().size());
  RC_LOG() << "strategy " << strategies::all()[index].name << "\n";
  return strategies::all()[index];
}

TEST_CASE("laws: every strategy keeps every bound, and a device's time adds up to the step") {
  CHECK(holds([] {
    const experiment::Experiment experiment(any_request());
    const experiment::Planned planned = experiment::make_plan(experiment, any_strategy());
    const experiment::RunResult result =
        experiment::run_plan(experiment, planned).result;  // throws if a bound is broken
    RC_ASSERT(result.checks.starts_with("self-checks passed: "));
    for (const experiment::DeviceResult& device : result.devices) {
      const Seconds sum = device.use.compute + device.use.exposed_communication + device.use.idle;
      RC_ASSERT(std::abs((sum - result.step_time).count()) <= 1e-9 * result.step_time.count());
    }
  }));
}

TEST_CASE("laws: the same input gives the same plan and the same timeline, bit for bit") {
  CHECK(holds([] {
    const experiment::Request request = any_request();
    const strategies::Strategy& strategy = any_strategy();
    const experiment::Experiment first(request);
    const experiment::Experiment second(request);
    const experiment::Planned plan = experiment::make_plan(first, strategy);
    RC_ASSERT(plan.plan == experiment::make_plan(second, strategy).plan);
    RC_ASSERT(experiment::run_plan(first, plan).timeline ==
              experiment::run_plan(second, plan).timeline);
  }));
}

TEST_CASE("laws: names of devices and links change nothing") {
  CHECK(holds([] {
    const experiment::Request request = any_request();
    const strategies::Strategy& strategy = any_strategy();
    experiment::Experiment plain(request);
    experiment::Experiment renamed(request);
    for (std::size_t i = 0; i < renamed.cluster.devices.size(); ++i) {
      renamed.cluster.devices[i].name = fmt::format("{}", 1000 - i);  // other order, too
    }
    for (std::size_t i = 0; i < renamed.cluster.links.size(); ++i) {
      renamed.cluster.links[i].name = fmt::format("l{}", 1000 - i);
    }
    const experiment::Planned planned = experiment::make_plan(plain, strategy);
    Plan other = experiment::make_plan(renamed, strategy).plan;
    other.notes = planned.plan.notes;  // they tell names
    RC_ASSERT(planned.plan == other);
    RC_ASSERT(experiment::run_plan(plain, planned).timeline ==
              experiment::run_plan(renamed, planned).timeline);
  }));
}

TEST_CASE("laws: links twice as fast never slow a step whose flows do not compete") {
  CHECK(holds(
      [] {
        experiment::Request request = any_request();
        request.sim.engine = sim::Engine::fast;
        request.sim.collectives =
            *rc::gen::element(sim::CollectiveCost::ideal, sim::CollectiveCost::nccl);
        const experiment::Experiment experiment(request);
        const experiment::Planned planned = experiment::make_plan(experiment, any_strategy());
        const auto steps = [&](sim::Fidelity fidelity) {
          sim::SimOptions options = experiment.step_options();
          options.fidelity = fidelity;
          const ExecDag dag = lowering::lower(experiment.network, experiment.cluster, planned.plan);
          const auto simulator =
              sim::make_simulator(experiment.cluster, experiment.step_cost(), options);
          return std::pair(makespan(simulator->run(dag)).count(),
                           experiment::step_on_faster_links(dag, experiment.cluster,
                                                            experiment.step_cost(), options)
                               .count());
        };
        // Without contention never. With it: where it takes as long as without, flows do not
        // compete.
        const auto [alone, alone_faster] = steps(sim::Fidelity::analytic);
        RC_ASSERT(alone_faster <= alone * (1 + 1e-9));
        const auto [step, faster] = steps(sim::Fidelity::hops);
        const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-6 * b; };
        if (same(step, alone) && same(faster, alone_faster)) RC_ASSERT(faster <= step * (1 + 1e-6));
      },
      40));
}

TEST_CASE("laws: on one device every strategy takes the sum of its kernels and moves nothing") {
  CHECK(holds([] {
    experiment::Request request = any_request();
    request.cluster =
        *rc::gen::element<std::string>("star:1,device=p100-sxm2,rate=25GB/s,latency=1us",
                                       "star:1,device=t4,rate=1GB/s,latency=0us");
    request.sync = Sync::Kind::ring;
    const experiment::Experiment experiment(request);
    const experiment::Run run =
        experiment::run_plan(experiment, experiment::make_plan(experiment, any_strategy()));
    const std::vector<Seconds> times =
        experiment::durations(run.dag, experiment.cluster, *experiment.cost).times;
    const Seconds sum = std::accumulate(times.begin(), times.end(), Seconds{});
    const Seconds tolerance = Seconds{1e-9} * static_cast<double>(run.dag.size());
    RC_ASSERT(run.result.moved == Bytes{});
    RC_ASSERT(std::abs((run.result.step_time - sum).count()) <= tolerance.count());
  }));
}

TEST_CASE("laws: a ring moves 2(G-1)P bytes, a parameter server 2GP, on any cluster") {
  CHECK(holds([] {
    const experiment::Request request = any_request();
    const experiment::Experiment experiment(request);
    const auto devices = static_cast<std::int64_t>(experiment.cluster.devices.size());
    RC_PRE(experiment.batch >= devices);
    const experiment::Run run = experiment::run_plan(
        experiment, experiment::make_plan(experiment, strategies::strategy("data", "test")));
    const std::int64_t parameters = parameter_count(experiment.network);
    const Bytes gradients{parameters * element_bytes(request.reduce_precision)};
    const Bytes weights{parameters * element_bytes(request.precision)};
    const std::int64_t copies = request.sync == Sync::Kind::ring ? devices - 1 : devices;
    // A single device has no peer to agree with.
    // A ring carries sums on their way twice, a server returns weights.
    const Bytes moved = gradients + (request.sync == Sync::Kind::ring ? gradients : weights);
    RC_ASSERT(run.result.moved == (devices == 1 ? Bytes{} : moved * copies));
  }));
}

TEST_CASE("laws: a plan read back from its file is the plan, and gives the same timeline") {
  CHECK(holds([] {
    const experiment::Experiment experiment(any_request());
    const experiment::Planned planned = experiment::make_plan(experiment, any_strategy());
    const Plan again = plan_from_json(to_json(planned.plan), "test");
    RC_ASSERT(again == planned.plan);
    RC_ASSERT(experiment::run_plan(experiment, {again, {}}).timeline ==
              experiment::run_plan(experiment, planned).timeline);
  }));
}

}  // namespace
}  // namespace parsim
