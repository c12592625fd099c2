#include "experiment/faster_links.hpp"

#include <doctest/doctest.h>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

using namespace testing;
using namespace std::chrono_literals;

sim::SimOptions with(sim::Engine engine, sim::Fidelity fidelity = sim::Fidelity::hops) {
  sim::SimOptions options;
  options.engine = engine;
  options.fidelity = fidelity;
  return options;
}

/// gpu0 waits 1 s for a kernel of gpu1, then for 1 GB, then works 5 s. Three others send it 1 GB
/// each, which nothing waits for, after 2 GB of their own.
ExecDag four_to_one() {
  ExecDag dag = bare_dag();
  const OpId kernel = add_delay(dag, 1, 1s);
  const OpId awaited = add_transfer(dag, 1, 0, 1'000'000'000, {kernel}, Stream::gradient);
  add_delay(dag, 0, 5s, {awaited});
  const Stream streams[] = {Stream::tensor, Stream::pipeline, Stream::pipeline_back};
  for (int i = 0; i < 3; ++i) {
    const OpId own = add_transfer(dag, 5 + i, 2 + i, 2'000'000'000, {}, streams[i]);
    add_transfer(dag, 2 + i, 0, 1'000'000'000, {own}, streams[i]);
  }
  return dag;
}

TEST_CASE("faster links: a step that they slow down, by hand in both engines") {
  // At 1 GB/s the others begin at 2 s, when gpu0 has what it waits for: 7 s. At 2 GB/s they begin
  // at 1 s, with it: 4 GB take 2 s, 8 s in all.
  const Cluster cluster = star(std::vector<double>(8, 1e9), 0s);
  const ExecDag dag = four_to_one();
  const SimpleCost cost(cluster);
  for (const sim::Engine engine : {sim::Engine::simgrid, sim::Engine::fast}) {
    const Seconds step = makespan(sim::make_simulator(cluster, cost, with(engine))->run(dag));
    const Seconds faster = step_on_faster_links(dag, cluster, cost, with(engine));
    CHECK(step.count() == testing::approx(7).epsilon(1e-6));
    CHECK(faster.count() == testing::approx(8).epsilon(1e-6));
    CHECK(faster_links_text(step, faster)
              .starts_with(
                  "anomaly: with every link twice as fast the step would take 8.00 s (+14.29 %)"));
  }
  // Where flows do not compete there is none: 1 + 1/2 + 5 s.
  const Seconds alone = step_on_faster_links(dag, cluster, cost, with({}, sim::Fidelity::analytic));
  CHECK(alone.count() == testing::approx(6.5).epsilon(1e-9));
  CHECK(faster_links_text(7s, alone) == "with every link twice as fast: 6.50 s (-7.14 %)");
}

TEST_CASE("faster links: a run that they slow down says so, others say nothing") {
  const auto said = [](const std::string& cluster, const ExecDag& dag, sim::Fidelity fidelity) {
    Request request;
    request.network = "lenet5";
    request.cluster = cluster;
    request.sim = with(sim::Engine::simgrid, fidelity);
    const Experiment experiment(request);
    Run run;
    run.dag = dag;
    run.timeline =
        sim::make_simulator(experiment.cluster, experiment.step_cost(), experiment.step_options())
            ->run(dag);
    run.result.step_time = makespan(run.timeline);
    run.result.messages = messages(dag);
    return links_anomaly(experiment, run, {});
  };
  const std::string slow = "star:8,device=p100-sxm2,rate=1GB/s,latency=0us";
  CHECK(said(slow, four_to_one(), sim::Fidelity::hops).starts_with("anomaly: "));
  CHECK(said(slow, four_to_one(), sim::Fidelity::analytic).empty());
  ExecDag alone = bare_dag();
  add_transfer(alone, 0, 1, 1'000'000);
  CHECK(said(slow, alone, sim::Fidelity::hops).empty());
}

}  // namespace
}  // namespace parsim::experiment
