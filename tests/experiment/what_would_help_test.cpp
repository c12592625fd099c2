#include "experiment/what_would_help.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "experiment/faster_links.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

Request asked(const std::string& cluster) {
  Request request;
  request.network = "mlp";
  request.cluster = cluster;
  return request;
}

Run run_of(const Experiment& experiment) {
  for (const strategies::Strategy& row : strategies::all()) {
    if (row.name == "data") return run_plan(experiment, make_plan(experiment, row));
  }
  return {};
}

double step_with(const std::vector<Help>& helps, const std::string& change) {
  const auto found = std::find_if(helps.begin(), helps.end(),
                                  [&](const Help& help) { return help.change == change; });
  REQUIRE(found != helps.end());
  return found->step.count();
}

TEST_CASE("what would help: one GPU twice as fast takes half as long, and there are no links") {
  const Experiment experiment(asked("star:1,device=v100-sxm2,rate=10GB/s,latency=1us"));
  const Run run = run_of(experiment);
  const std::vector<Help> helps = what_would_help(experiment, run);
  REQUIRE(helps.size() == 1);
  CHECK(helps[0].change == "v100-sxm2 twice as fast");
  CHECK(helps[0].step.count() == testing::approx(run.result.step_time.count() / 2).epsilon(1e-6));
}

TEST_CASE("what would help: equal to a cluster that has such links, and the shortest step first") {
  const std::string rest = ",intra=100GB/s,latency=1us";
  const std::string mix = "nodes:2x2,device=p100-sxm2*2+v100-sxm2*2,inter=";
  const Experiment experiment(asked(mix + "1GB/s" + rest)), faster(asked(mix + "2GB/s" + rest));
  const Run run = run_of(experiment);
  const std::vector<Help> helps = what_would_help(experiment, run);
  REQUIRE(helps.size() == 6);
  CHECK(std::is_sorted(helps.begin(), helps.end(),
                       [](const Help& a, const Help& b) { return a.step < b.step; }));
  // The same operations on the same GPUs with a network of twice the rate.
  sim::SimOptions options = faster.step_options();
  options.engine = sim::Engine::fast;
  const Seconds there =
      makespan(sim::make_simulator(faster.cluster, experiment.step_cost(), options)->run(run.dag));
  CHECK(step_with(helps, "links between machines twice as fast") ==
        testing::approx(there.count()).epsilon(1e-9));
  CHECK(there < 0.8 * run.result.step_time);  // 1 GB/s bounds it
  CHECK(step_with(helps, "all links twice as fast") ==
        testing::approx(
            step_on_faster_links(run.dag, experiment.cluster, experiment.step_cost(), options)
                .count())
            .epsilon(1e-9));
  CHECK(step_with(helps, "all GPUs twice as fast") < run.result.step_time.count());
  CHECK(step_with(helps, "p100-sxm2 twice as fast") <= run.result.step_time.count() * (1 + 1e-6));
}

}  // namespace
}  // namespace parsim::experiment
