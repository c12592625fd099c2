#include "validation/published_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/attention.hpp"
#include "validation/published_collective.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"
#include "validation/table_formats.hpp"

namespace parsim::validation {

namespace {

// Repeated runs differ by up to 2.5 % (validation/measurements/README.md).
constexpr double noise = 0.03;
// Prior widths of the terms, in the ratio of built-in rows: the root mean square of the factors
// that one-device rows fit to kernels is 0.25 (29 jobs, in logarithms), that of the errors of
// uncalibrated collectives between machines (set collectives_uncalibrated) 0.18. Wide, so that the
// row itself is matched.
constexpr double width_of_kernels = 1, width_of_links = 0.18 / 0.25;

constexpr double nudge = 0.02;  // of logarithms, for slopes

/// Downwards: at line rate, other links on the path are often as fast, so that more rate changes
/// nothing.
double link_share(const Training& training, const StepTerms& at, double step) {
  return -std::log(training.step(at.kernels, at.links * std::exp(-nudge)) / step) / nudge;
}

double share_of_kernels(const Training& training, const StepTerms& at, double step) {
  return std::log(training.step(at.kernels * std::exp(nudge), at.links) / step) / nudge;
}

}  // namespace

double kernel_share(const Training& training, const StepTerms& at) {
  return share_of_kernels(training, at, training.step(at.kernels, at.links));
}

StepTerms fitted_step_terms(std::span<const MeasuredStep> steps, std::optional<double> kernels) {
  const double most = std::log(largest_factor);
  StepTerms terms{kernels.value_or(1), 1};
  // Gauss-Newton in logarithms. Steps are nearly sums of powers: few iterations suffice.
  for (int iteration = 0; iteration < 10; ++iteration) {
    const double x = std::log(terms.kernels), y = std::log(terms.links);
    // The prior, which holds both near 1.
    double xx = 1 / (width_of_kernels * width_of_kernels), xy = 0;
    double yy = 1 / (width_of_links * width_of_links), x0 = -x * xx, y0 = -y * yy;
    for (const MeasuredStep& measured : steps) {
      const double step = measured.training->step(terms.kernels, terms.links);
      const double slope[] = {kernels ? 0 : share_of_kernels(*measured.training, terms, step),
                              link_share(*measured.training, terms, step)};
      const double weight = 1 / (noise * noise), rest = std::log(measured.seconds / step);
      xx += weight * slope[0] * slope[0];
      xy += weight * slope[0] * slope[1];
      yy += weight * slope[1] * slope[1];
      x0 += weight * slope[0] * rest;
      y0 += weight * slope[1] * rest;
    }
    const double free_dy = kernels ? y0 / yy : (y0 * xx - x0 * xy) / (xx * yy - xy * xy);
    const double dy = std::clamp(y + free_dy, -most, 0.0) - y;
    // The best for this `dy`, which may be at its bound.
    const double dx = kernels ? 0 : std::clamp(x + (x0 - xy * dy) / xx, -most, most) - x;
    terms.kernels *= std::exp(dx);
    terms.links *= std::exp(dy);
    if (std::abs(dx) + std::abs(dy) < 1e-4) break;
  }
  return terms;
}

namespace {

constexpr std::int64_t largest_launch = 64 * 1024;         // bytes: latency decides
constexpr std::int64_t least_of_links = 64 * 1024 * 1024;  // bytes: the rate decides

double median_of_launches(const std::vector<experiment::FittedStep>& rows) {
  std::vector<double> seconds;
  for (const experiment::FittedStep& row : rows) seconds.push_back(row.launch->count());
  return median(std::move(seconds));
}

void check_predictable(const Claim& claim) {
  const std::string reason = column(claim, unpredictable);
  if (reason.empty()) return;
  throw InputError(fmt::format("{}:{}", claim.set, column(claim, "line")), "not predicted", reason);
}

/// "all_reduce of 4.0 KiB on 16 GPUs of 2 machines", and how the library was set.
std::string run_of(const Claim& claim, const PublishedCollective& run) {
  const std::int64_t machines = machines_of(claim);
  std::string text =
      fmt::format("{} of {} on {}", column(claim, "collective"),
                  to_text(Bytes{count_column(claim, "size_bytes", 1)}), counted(run.gpus(), "GPU"));
  if (machines > 1) text += fmt::format(" of {}", counted(machines, "machine"));
  const std::string settings = column(claim, "settings");
  return settings.empty() ? text : fmt::format("{} with {}", text, settings);
}

/// Small collectives first: what they fit is part of the large ones' time.
std::vector<experiment::FittedStep> fitted_collectives(const std::vector<Claim>& rows) {
  std::vector<experiment::FittedStep> launches, fitted;
  for (const bool small : {true, false}) {
    for (const Claim& claim : rows) {
      if (claim.quantity != "collective-time") continue;
      check_predictable(claim);
      const PublishedCollective run(claim);
      const std::int64_t size = count_column(claim, "size_bytes", 1);
      if ((size <= largest_launch) != small) continue;
      experiment::FittedStep& row = fitted.emplace_back();
      row.set = claim.set;
      row.name = claim.name;
      row.machine = column(claim, "machine");
      row.gpu = column(claim, "gpu");
      row.device = device_of(claim);
      row.collective = true;
      row.between = run.between();
      const double seconds = 1e-6 * claim.expected;
      row.measured = Seconds{seconds};
      row.run = run_of(claim, run);
      sim::SimOptions options = library_options(claim);
      if (small) {
        options.terms.offset = Seconds{0};
        row.launch = Seconds{std::max(0.0, seconds - run.simulated(options))};
        launches.push_back(row);
      } else if (size >= least_of_links && row.between) {
        std::vector<experiment::FittedStep> alike;
        for (const experiment::FittedStep& launch : launches) {
          if (launch.device == row.device && launch.between) alike.push_back(launch);
        }
        if (!alike.empty()) options.terms.offset = Seconds{median_of_launches(alike)};
        double share = 1;  // the time goes nearly with 1 / share
        for (int i = 0; i < 5; ++i) {
          share = std::clamp(share * run.with_links(share).simulated(options) / seconds,
                             1 / largest_factor, 1.0);
        }
        row.links = share;
        row.fitted = Seconds{run.with_links(share).simulated(options)};
      }
    }
  }
  return fitted;
}

/// Of collectives on the row's card: on one machine or on several, as the row is, if there are
/// such.
std::optional<Seconds> launch_for(const experiment::FittedStep& step, bool between,
                                  const std::vector<experiment::FittedStep>& collectives) {
  std::vector<experiment::FittedStep> all, alike;
  for (const experiment::FittedStep& row : collectives) {
    if (!row.launch || row.device != step.device) continue;
    all.push_back(row);
    if (row.between == between) alike.push_back(row);
  }
  if (all.empty()) return std::nullopt;
  return Seconds{median_of_launches(alike.empty() ? all : alike)};
}

experiment::FittedStep described(const Claim& claim) {
  experiment::FittedStep step;
  step.set = claim.set;
  step.name = claim.name;
  step.machine = column(claim, "machine");
  step.gpu = column(claim, "gpu");
  step.device = device_of(claim);
  step.precision = precision_of(claim);
  if (claim.quantity != "step-time") step.profile = column(claim, "profile");
  const Network network = load_network_of(claim);
  step.network = network.name;
  step.attends = experiment::attention_of(network).has_value();
  return step;
}

std::optional<Watts> power_in(const Cluster& cluster, const std::string& device) {
  for (const DeviceModel& model : cluster.models) {
    if (model.name == device) return model.upkeep.power;
  }
  return std::nullopt;
}

bool one_series(const experiment::FittedStep& a, const experiment::FittedStep& b) {
  return a.device == b.device && a.network == b.network && a.precision == b.precision;
}

/// Of data parallelism in one machine: rows of more GPUs than others of their series say what the
/// host adds, if they take longer than those explain (PublishedPredictor::fit_hosts).
void fit_hosts(const std::vector<Claim>& rows,
               const std::vector<std::unique_ptr<Training>>& trainings,
               const std::vector<std::int64_t>& machines,
               std::vector<experiment::FittedStep>& fitted) {
  constexpr double noise = 0.03;  // of repeated runs
  const auto counts = [&](std::size_t i) {
    return trainings[i] && !has_layout(rows[i]) && machines[i] == 1;
  };
  const std::vector<experiment::FittedStep> alone = fitted;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!counts(i)) continue;
    const auto devices = static_cast<double>(count_column(rows[i], "n_gpus", 1));
    double fewest = devices;
    std::vector<double> kernels;
    for (std::size_t j = 0; j < rows.size(); ++j) {
      if (!counts(j) || !one_series(alone[i], alone[j]) ||
          column(rows[i], "framework") != column(rows[j], "framework")) {
        continue;
      }
      const auto others = static_cast<double>(count_column(rows[j], "n_gpus", 1));
      if (others < fewest) kernels.clear();
      fewest = std::min(fewest, others);
      if (others == fewest) kernels.push_back(alone[j].kernels);
    }
    if (devices == fewest) continue;
    const double factor = median(kernels), seconds = trainings[i]->measured(rows[i]),
                 explained = trainings[i]->step(factor);
    if (seconds < (1 + noise) * explained) continue;
    fitted[i].kernels = factor;
    fitted[i].devices = fewest;
    fitted[i].host =
        (seconds - explained) / (devices - fewest) / (trainings[i]->samples() / devices);
  }
}

}  // namespace

std::vector<experiment::FittedStep> fitted_steps(const std::vector<Claim>& all) {
  std::vector<Claim> rows;  // of steps
  for (const Claim& claim : all) {
    if (claim.ran && claim.quantity == "collective-time") continue;
    rows.push_back(claim);
  }
  std::vector<experiment::FittedStep> fitted;
  std::vector<experiment::FittedStep> collectives = fitted_collectives(all);
  std::map<std::string, std::vector<std::size_t>> across;
  std::vector<std::unique_ptr<Training>> trainings(rows.size());
  std::vector<std::int64_t> machines(rows.size(), 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Claim& claim = rows[i];
    if (claim.quantity == "kernel-time" || !claim.ran) {
      throw InputError(location_of(claim, "value"),
                       !claim.ran ? "a run that did not end" : "a kernel",
                       "accepted: measured training steps and collectives");
    }
    check_predictable(claim);
    experiment::FittedStep& step = fitted.emplace_back(described(claim));
    if (claim.quantity == "step-time") {
      const SingleStep single = single_step(claim);
      step.kernels = claim.expected * 1e-3 / (single.others + single.squares);
      step.power = single.power;
      step.fusion = fusion_of(claim);
      continue;
    }
    machines[i] = machines_of(claim);
    trainings[i] =
        std::make_unique<Training>(claim, launch_for(step, machines[i] > 1, collectives));
    step.power = power_in(trainings[i]->cluster(), step.device);
    step.fusion = trainings[i]->fusion();
    const PeakMemory& memory = trainings[i]->memory();
    step.memory =
        static_cast<double>(memory.needed.value) / static_cast<double>(memory.memory.value);
    if (machines[i] > 1) {
      across[fmt::format("{}|{}|{}|{}", step.device, step.network, to_text(step.precision),
                         column(claim, "framework"))]
          .push_back(i);
    } else {
      step.kernels = fitted_factor(*trainings[i], trainings[i]->measured(claim));
    }
  }
  fit_hosts(rows, trainings, machines, fitted);
  for (const auto& [key, members] : across) {
    const experiment::FittedStep& first = fitted[members.front()];
    std::vector<double> factors;  // of rows on one machine
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const experiment::FittedStep& other = fitted[i];
      if (machines[i] == 1 && other.device == first.device && other.precision == first.precision &&
          other.network == first.network) {
        factors.push_back(other.kernels);
      }
    }
    std::vector<MeasuredStep> steps;
    for (const std::size_t i : members) {
      steps.push_back({trainings[i].get(), trainings[i]->measured(rows[i])});
    }
    const StepTerms terms = fitted_step_terms(
        steps, factors.empty() ? std::nullopt : std::optional(median(std::move(factors))));
    for (const std::size_t i : members) {
      fitted[i].kernels = terms.kernels;
      fitted[i].links = terms.links;
      fitted[i].measured = Seconds{trainings[i]->measured(rows[i])};
      fitted[i].fitted = Seconds{trainings[i]->step(terms.kernels, terms.links)};
    }
  }
  std::move(collectives.begin(), collectives.end(), std::back_inserter(fitted));
  return fitted;
}

}  // namespace parsim::validation
