#include "experiment/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiment/experiment.hpp"

namespace parsim::experiment {

namespace {

/// GPUs by machine, of those that have some.
std::map<NodeId, std::int64_t> gpus_by_machine(const Cluster& cluster) {
  std::map<NodeId, std::int64_t> counts;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) ++counts[cluster[gpu].node];
  return counts;
}

struct Machines {
  std::int64_t gpus = 0, most = 0;  ///< of all machines, of the fullest
};

Machines machines_of(const Cluster& cluster) {
  Machines machines;
  for (const auto& [machine, count] : gpus_by_machine(cluster)) {
    machines.gpus += count;
    machines.most = std::max(machines.most, count);
  }
  return machines;
}

}  // namespace

Seconds input_time(double rate, std::int64_t batch, const Cluster& cluster) {
  if (rate <= 0) return {};
  const auto machines = static_cast<double>(gpus_by_machine(cluster).size());
  return Seconds{static_cast<double>(batch) / (rate * machines)};
}

Seconds host_delay(const RunCalibration& calibration, std::int64_t batch, const Cluster& cluster) {
  const auto [gpus, most] = machines_of(cluster);
  const double further = std::max(0.0, static_cast<double>(most) - calibration.devices);
  return Seconds{calibration.host * further * static_cast<double>(batch) /
                 static_cast<double>(gpus)};
}

void set_hosts(Request& request, const std::optional<Profile>& profile,
               const std::optional<RunCalibration>& calibration, const Cluster& cluster,
               std::int64_t batch) {
  request.sim.steps_follow = request.given.contains("--launch-interval");
  if (profile && profile->launch.samples > 0 && !request.sim.steps_follow) {
    request.sim.launch_interval = profile->launch.median;
  }
  if (calibration) request.sim.host_delay = host_delay(*calibration, batch, cluster);
  request.sim.least_step = input_time(request.input_rate, batch, cluster);
}

std::string hosts_summary(const Request& request) {
  std::string text;
  if (request.sim.launch_interval > Seconds{0}) {
    text += "; a launch every " + to_text(request.sim.launch_interval);
  }
  if (request.input_rate > 0) {
    text += fmt::format("; hosts feed {} samples/s each", request.input_rate);
  }
  return text;
}

std::string input_line(const Experiment& experiment, double samples_per_second) {
  const auto says = [](const FittedStep& row) { return row.host.has_value(); };
  if (experiment.request.input_rate > 0 || tokens_per_sample(experiment.network) > 0 ||
      (experiment.calibration &&
       std::any_of(experiment.calibration->by.begin(), experiment.calibration->by.end(), says))) {
    return {};
  }
  const auto [gpus, most] = machines_of(experiment.cluster);
  const double each = samples_per_second * static_cast<double>(most) / static_cast<double>(gpus);
  return fmt::format("hosts: assumed to keep up with {} samples/s from {} (--input-rate)",
                     std::llround(each), gpus == most ? "the machine" : "each machine");
}

}  // namespace parsim::experiment
