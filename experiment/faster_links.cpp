#include "experiment/faster_links.hpp"

#include <fmt/format.h>

#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"

namespace parsim::experiment {

namespace {

Cluster with_faster_links(const Cluster& cluster) {
  Cluster faster = cluster;
  for (Link& link : faster.links) link.rate = 2.0 * link.rate;
  return faster;
}

}  // namespace

Seconds step_on_faster_links(const ExecDag& dag, const Cluster& cluster, const CostModel& cost,
                             const sim::SimOptions& options) {
  const Cluster faster = with_faster_links(cluster);
  return makespan(sim::make_simulator(faster, cost, options)->run(dag));
}

std::optional<Seconds> step_on_faster_links(const Experiment& experiment, const Run& run) {
  if (run.timeline.hop_bytes.empty() || run.result.messages == 0) return std::nullopt;
  return step_on_faster_links(run.dag, experiment.cluster, experiment.step_cost(),
                              experiment.step_options());
}

std::string links_anomaly(const Experiment& experiment, const Run& run, const Plan& plan) {
  constexpr std::int64_t most_operations = 300'000, most_simulated = 100'000;
  const sim::SimOptions asked = experiment.step_options();
  if (run.result.operations > most_operations || run.result.simulated_operations > most_simulated ||
      run.timeline.hop_bytes.empty() || run.result.messages == 0 ||
      asked.fidelity == sim::Fidelity::analytic) {
    return {};
  }
  sim::SimOptions options = asked;
  options.engine = sim::Engine::fast;  // equal to SimGrid up to 1e-6
  const Cluster cluster = with_faster_links(experiment.cluster);
  const auto simulator = sim::make_simulator(cluster, experiment.step_cost(), options);
  std::optional<Timeline> timeline =
      run.dag.fold ? simulator->run_folded(run.dag) : simulator->run(run.dag);
  if (!timeline)
    timeline = simulator->run(lowering::lower(experiment.network, experiment.cluster, plan));
  const Seconds faster = makespan(*timeline);
  constexpr double worth_telling = 1e-3;
  const bool slower = faster > (1 + worth_telling) * run.result.step_time;
  return slower ? faster_links_text(run.result.step_time, faster) : std::string();
}

std::string faster_links_text(Seconds step, Seconds on_faster_links) {
  const double change = on_faster_links / step - 1;
  // What engines round is no anomaly.
  constexpr double rounding = 1e-6;
  if (change <= rounding) {
    return fmt::format("with every link twice as fast: {} ({:+.2f} %)", to_text(on_faster_links),
                       100 * change);
  }
  return fmt::format(
      "{}with every link twice as fast the step would take {} ({:+.2f} %): messages compete "
      "and operations keep their order, so that what arrives earlier holds up what matters more",
      links_anomaly_begins, to_text(on_faster_links), 100 * change);
}

}  // namespace parsim::experiment
