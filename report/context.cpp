#include "report/context.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "experiment/communication.hpp"
#include "experiment/hosts.hpp"
#include "experiment/what_would_fit.hpp"

namespace parsim::report {

namespace {

/// "fp32", or "bf16 with gradients in fp32".
std::string arithmetic_of(const experiment::Request& request) {
  const std::string_view kernels = to_text(request.precision);
  if (request.reduce_precision == storage_of(request.precision)) return std::string(kernels);
  return fmt::format("{} with gradients in {}", kernels, to_text(request.reduce_precision));
}

/// "modelled, not measured on these GPUs", or the shares and where the others come from.
std::string kernel_times(const experiment::RunResult& result) {
  std::vector<std::string> shares;
  bool measured = false;
  for (const Origin origin : origins) {
    const double share = result.cost_shares[static_cast<std::size_t>(origin)];
    if (share <= 0) continue;
    shares.push_back(
        fmt::format("{} % {}", three_digits(100 * share),
                    origin == Origin::published ? "measured by others" : to_text(origin)));
    measured |= origin == Origin::measured || origin == Origin::scaled;
  }
  if (shares.size() == 1) shares.front().erase(0, shares.front().find("% ") + 2);
  if (measured) return fmt::format("{} ({})", join(shares), result.cost_summary);
  return join(shares) + ", not measured on these GPUs";
}

/// "calibrated by mine:2 (kernels x 1.21, links between machines x 0.8)".
std::string calibration_line(const experiment::RunCalibration& calibration) {
  constexpr std::size_t named = 4;  // of collectives: nccl-tests prints a row for each size
  std::vector<std::string> rows;
  std::size_t collectives = 0;
  for (const experiment::FittedStep& step : calibration.by) {
    const std::string links =
        step.links ? fmt::format("links between machines x {}", three_digits(*step.links)) : "";
    if (step.collective) {
      if (++collectives > named) continue;
      rows.push_back(fmt::format("{} of {} ({})", step.name, step.set,
                                 step.launch     ? fmt::format("launch of a collective {} us",
                                                               three_digits(1e6 * step.launch->count()))
                                 : links.empty() ? "links of another kind"
                                                 : links));
      continue;
    }
    rows.push_back(fmt::format(
        "{} of {} (kernels x {}{}{})", step.name, step.set, three_digits(step.kernels),
        links.empty() ? "" : ", " + links,
        step.host
            ? fmt::format(", {} us of the host for a sample and each further GPU of a machine",
                          three_digits(1e6 * *step.host))
            : ""));
  }
  if (collectives > named) rows.push_back(fmt::format("{} more", collectives - named));
  const bool steps = collectives < calibration.by.size();
  return fmt::format("calibrated by {}{}{}; {}", join(rows, "; "),
                     calibration.launch
                         ? fmt::format("; collectives take {} us beyond NCCL's model",
                                       three_digits(1e6 * calibration.launch->count()))
                         : "",
                     calibration.every_gpu ? ""
                     : steps               ? "; other types of GPU are not calibrated"
                                           : "; kernels are not calibrated",
                     calibration.every_gpu
                         ? "90 % intervals are those of published steps whose card a row calibrates"
                         : "90 % intervals stay those of published steps without a measured row");
}

}  // namespace

std::string device_mix(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const DeviceId device : devices) {
    const std::string& model = cluster.model(device).name;
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == model; });
    if (known == counts.end()) {
      counts.emplace_back(model, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<std::string> words;
  for (const auto& [model, count] : counts) words.push_back(fmt::format("{} x {}", count, model));
  return join(words);
}

std::string question_line(const experiment::Experiment& experiment) {
  const experiment::Request& request = experiment.request;
  const std::size_t gpus = devices_of(experiment.cluster, DeviceKind::gpu).size();
  std::vector<DeviceId> all;
  for (std::size_t d = 0; d < experiment.cluster.devices.size(); ++d) all.emplace_back(d);
  const bool chosen = !request.batch && !experiment.plan;
  const std::int64_t tokens = experiment::tokens_per_sample(experiment.network);
  return fmt::format("{} on {} ({}), batch {}{}{}, {}, {}", experiment.network.name,
                     experiment.cluster.name, device_mix(experiment.cluster, all), experiment.batch,
                     tokens == 0 ? "" : fmt::format(" x {} tokens", tokens),
                     chosen ? fmt::format(" (default: 32 x {})", gpus) : "", arithmetic_of(request),
                     to_text(request.optimizer));
}

std::string same_stages(const experiment::RunResult& best, const experiment::RunResult& next) {
  if (best.stages.size() < 2 || next.stages != best.stages) return {};
  const std::int64_t zero = next.degrees.zero.value_or(0);
  const bool otherwise = zero != best.degrees.zero.value_or(0);
  return fmt::format(" (the same stages{})", !otherwise  ? ""
                                             : zero == 0 ? " without ZeRO"
                                                         : fmt::format(" with ZeRO {}", zero));
}

namespace {

std::vector<std::string> source_lines(const experiment::Experiment& experiment,
                                      const std::vector<experiment::RunResult>& results, bool all) {
  std::vector<std::string> lines;
  const auto made =
      std::find_if(results.begin(), results.end(),
                   [](const experiment::RunResult& result) { return result.error.empty(); });
  if (made != results.end()) {
    lines.push_back("kernel times: " + kernel_times(*made));
    if (all && !made->cost_accuracy.empty()) {
      lines.push_back("expected kernel error: " + made->cost_accuracy);
    }
  }
  sim::SimOptions sim = experiment.request.sim;
  const auto by = [&](sim::Engine engine) {
    return std::any_of(results.begin(), results.end(), [&](const experiment::RunResult& result) {
      return result.engine == engine;
    });
  };
  // A note names the rows if not all.
  if (by(sim::Engine::fast) && !by(sim::Engine::simgrid)) sim.engine = sim::Engine::fast;
  if (experiment.calibration) lines.push_back(calibration_line(*experiment.calibration));
  lines.push_back("network: " + experiment::communication_model(sim, experiment.cluster));
  const std::string communication = experiment::communication_line(experiment, results);
  if (!communication.empty()) lines.push_back(communication);
  const std::string input = experiment::input_line(experiment, results);
  if (!input.empty()) lines.push_back(input);
  return lines;
}

}  // namespace

std::vector<std::string> source_lines(const experiment::Experiment& experiment,
                                      const std::vector<experiment::RunResult>& results) {
  return source_lines(experiment, results, true);
}

std::vector<std::string> short_source_lines(const experiment::Experiment& experiment,
                                            const std::vector<experiment::RunResult>& results) {
  return source_lines(experiment, results, false);
}

std::string advice_for(const experiment::Experiment& experiment,
                       const std::vector<experiment::RunResult>& results) {
  const bool fits = std::any_of(results.begin(), results.end(),
                                [](const experiment::RunResult& result) { return result.fits(); });
  return fits ? "" : experiment::what_would_fit(experiment);
}

std::string engine_note(const sim::SimOptions& sim,
                        const std::vector<experiment::RunResult>& results) {
  std::vector<std::string> fast;
  for (const experiment::RunResult& result : results) {
    if (sim.engine == sim::Engine::automatic && result.engine == sim::Engine::fast) {
      fast.push_back(result.strategy);
    }
  }
  if (fast.empty()) return {};
  return fmt::format(
      "{}: simulated by the fast engine (equal to SimGrid within 1 ns per operation; "
      "--engine simgrid for SimGrid itself)",
      join(fast));
}

std::vector<std::string> warnings_of(const experiment::Experiment& experiment,
                                     const std::vector<experiment::RunResult>& results) {
  std::vector<std::string> warnings = experiment.warnings;
  for (const experiment::RunResult& result : results) {
    for (std::string& warning : experiment::communication_warnings(result)) {
      warnings.push_back(std::move(warning));
    }
  }
  return warnings;
}

}  // namespace parsim::report
