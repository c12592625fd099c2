#include "experiment/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/errors.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

double read_by_fullest(std::span<const MachineReads> reads, Seconds step) {
  std::int64_t most = 0;
  for (const MachineReads& machine : reads) most = std::max(most, machine.samples);
  return step > Seconds{} ? static_cast<double>(most) / step.count() : 0;
}

void set_hosts(Request& request, const std::optional<Profile>& profile,
               const std::optional<RunCalibration>& calibration) {
  request.sim.steps_follow = request.given.contains("--launch-interval");
  if (profile && profile->launch.samples > 0 && !request.sim.steps_follow) {
    request.sim.launch_interval = profile->launch.median;
  }
  if (calibration) {
    request.sim.host_delay.per_sample = Seconds{calibration->host};
    request.sim.host_delay.devices = calibration->devices;
  }
  if (calibration && calibration->launch) {
    if (request.given.contains("--collective-launch")) {
      throw InputError("--calibrate-with",
                       "given with a small collective, together with --collective-launch",
                       "accepted: one of the two");
    }
    request.sim.terms.offset = calibration->launch;
  }
  request.sim.input_rate = request.input_rate;
}

bool hosts_matter(const sim::SimOptions& options) {
  return options.input_rate > 0 || options.host_delay.per_sample > Seconds{} ||
         options.launch_interval > Seconds{};
}

namespace {

std::set<NodeId> machines_with_gpus(const Cluster& cluster) {
  std::set<NodeId> machines;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu))
    machines.insert(cluster[gpu].node);
  return machines;
}

}  // namespace

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

std::string input_line(const Experiment& experiment, std::span<const RunResult> results) {
  const auto says = [](const FittedStep& row) { return row.host.has_value(); };
  if (experiment.request.input_rate > 0 || tokens_per_sample(experiment.network) > 0 ||
      (experiment.calibration &&
       std::any_of(experiment.calibration->by.begin(), experiment.calibration->by.end(), says))) {
    return {};
  }
  const RunResult* most = nullptr;
  for (const RunResult& result : results) {
    if (!result.fits() || (most != nullptr && result.read_by_host <= most->read_by_host)) continue;
    most = &result;
  }
  if (most == nullptr || most->read_by_host <= 0) return {};
  // One that reads all but for rounding has no others that read.
  const bool alone = std::llround(most->read_by_host) >= std::llround(most->samples_per_second);
  const std::set<NodeId> machines = machines_with_gpus(experiment.cluster);
  return fmt::format("hosts: assumed to keep up with {} samples/s from {} (--input-rate)",
                     std::llround(most->read_by_host),
                     !alone                ? "each machine"
                     : machines.size() > 1 ? "one machine"
                                           : "the machine");
}

}  // namespace parsim::experiment
