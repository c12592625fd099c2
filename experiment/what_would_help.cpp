#include "experiment/what_would_help.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/timeline.hpp"
#include "sim/sim.hpp"

namespace parsim::experiment {

namespace {

bool inside_a_machine(const Cluster& cluster, const Link& link) {
  const auto node = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  return node(link.a).valid() && node(link.a) == node(link.b);
}

}  // namespace

std::vector<Help> what_would_help(const Experiment& experiment, const Run& run) {
  constexpr std::int64_t most_operations = 3'000'000, most_simulated = 1'000'000;
  constexpr double faster = 2;
  const Cluster& cluster = experiment.cluster;
  const std::vector<DeviceResult>& devices = run.result.devices;
  if (run.result.operations > most_operations || run.result.simulated_operations > most_simulated) {
    return {};
  }
  sim::SimOptions options = experiment.step_options();
  options.engine = sim::Engine::fast;  // equal to SimGrid up to 1e-6
  const auto step_with = [&](const Cluster& changed, const CostModel& cost) {
    return makespan(sim::make_simulator(changed, cost, options)->run(run.dag));
  };
  std::vector<Help> helps;
  for (std::size_t m = 0; m < cluster.models.size(); ++m) {
    std::vector<double> factors(devices.size(), 1.0);
    bool computes = false;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (cluster.devices[d].model != static_cast<std::int32_t>(m)) continue;
      factors[d] = 1 / faster;
      computes |= devices[d].use.compute > Seconds{};
    }
    if (!computes) continue;
    const auto cost = sim::make_slowed(experiment.step_cost(), factors);
    helps.push_back({cluster.models[m].name + " twice as fast", step_with(cluster, *cost)});
  }
  if (helps.size() > 1) {
    const auto cost = sim::make_scaled(experiment.step_cost(), 1 / faster);
    helps.push_back({"all GPUs twice as fast", step_with(cluster, *cost)});
  }
  // A message may need both: where one is faster, the other limits it.
  using Which = bool (*)(bool inside);
  constexpr std::pair<std::string_view, Which> kinds[] = {
      {"links between machines twice as fast", [](bool inside) { return !inside; }},
      {"links inside machines twice as fast", [](bool inside) { return inside; }},
      {"all links twice as fast", [](bool) { return true; }}};
  std::size_t known = 0;  // links that changed last time
  for (const auto& [change, which] : kinds) {
    if (run.timeline.hop_bytes.empty() || run.result.messages == 0) break;
    Cluster changed = cluster;
    std::size_t count = 0;
    for (Link& link : changed.links) {
      if (!which(inside_a_machine(cluster, link))) continue;
      link.rate = faster * link.rate;
      ++count;
    }
    if (count == 0 || count == known) continue;
    known = count == cluster.links.size() ? count : known;
    helps.push_back({std::string(change), step_with(changed, experiment.step_cost())});
  }
  std::stable_sort(helps.begin(), helps.end(),
                   [](const Help& a, const Help& b) { return a.step < b.step; });
  return helps;
}

}  // namespace parsim::experiment
