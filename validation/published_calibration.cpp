#include "validation/published_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
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
  // What links are cheaper than modelled, in logarithms. Their rate has an end, but collectives can
  // be priced too high; else kernels would take over all that a step waits less for links.
  double cheaper = 0;
  // Gauss-Newton in logarithms. Steps are nearly sums of powers: few iterations suffice.
  for (int iteration = 0; iteration < 10; ++iteration) {
    const double x = std::log(terms.kernels), y = std::log(terms.links) + cheaper;
    // The prior, which holds both near 1.
    double xx = 1 / (width_of_kernels * width_of_kernels), xy = 0;
    double yy = 1 / (width_of_links * width_of_links), x0 = -x * xx, y0 = -y * yy;
    for (const MeasuredStep& measured : steps) {
      const double step = measured.training->step(terms.kernels, terms.links);
      const double slope[] = {kernels ? 0 : share_of_kernels(*measured.training, terms, step),
                              link_share(*measured.training, terms, step)};
      const double weight = 1 / (noise * noise);
      const double rest = std::log(measured.seconds / step) - slope[1] * cheaper;
      xx += weight * slope[0] * slope[0];
      xy += weight * slope[0] * slope[1];
      yy += weight * slope[1] * slope[1];
      x0 += weight * slope[0] * rest;
      y0 += weight * slope[1] * rest;
    }
    const double free_dy = kernels ? y0 / yy : (y0 * xx - x0 * xy) / (xx * yy - xy * xy);
    const double dy = std::clamp(y + free_dy, -most, most) - y;
    // The best for this `dy`, which may be at its bound.
    const double dx = kernels ? 0 : std::clamp(x + (x0 - xy * dy) / xx, -most, most) - x;
    terms.kernels *= std::exp(dx);
    terms.links = std::exp(std::min(0.0, y + dy));
    cheaper = std::max(0.0, y + dy);
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
        // If links would have to be slower by more than the square of that, they do not bound it,
        // and it says nothing about them.
        const double slower = seconds / run.simulated(options);
        if (share * slower * slower >= 1 || slower <= 1) row.links = share;
        row.kind = kind_between_machines_of(claim, run.cluster());
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

/// Rows that share all terms but those of links of unlike kinds.
std::string job_of(const experiment::FittedStep& step, const Claim& claim) {
  return fmt::format("{}|{}|{}|{}|{}", step.device, step.network, to_text(step.precision),
                     column(claim, "framework"), step.machine);
}

/// The factor of kernels of a row on one machine. What separates its step from the prediction is
/// divided between kernels and links as for a row across machines, so that a step that links bound
/// changes kernels little.
double fitted_kernels(const Training& training, double seconds) {
  const double exact = fitted_factor(training, seconds), modelled = training.step(1);
  const auto gpus = devices_of(training.cluster(), DeviceKind::gpu).size();
  if (gpus == 1 || std::abs(std::log(exact)) < 1e-3) return exact;
  const double share =
      std::clamp(std::log(training.step(exact) / modelled) / std::log(exact), 0.0, 1.0);
  const double kernels = std::pow(share * width_of_kernels, 2);
  const double links = std::pow((1 - share) * width_of_links, 2);
  return fitted_factor(training,
                       modelled * std::pow(seconds / modelled, kernels / (kernels + links)));
}

/// A row that is fitted.
struct FittedRow {
  const Claim* claim = nullptr;
  experiment::FittedStep step;
  std::unique_ptr<Training> training;  ///< of a step of one device alone none
  std::int64_t machines = 1;
  double seconds = 0, host = 0;  ///< measured, and what of these hosts add

  [[nodiscard]] double gpus_of_machine() const { return step.gpus / static_cast<double>(machines); }
};

/// A row of a series under data parallelism.
struct HostRow {
  FittedRow* row = nullptr;
  double seconds = 0, explained = 0;  ///< measured, and by kernels and whole links
  double samples = 0;                 ///< of a GPU, times the further GPUs of its machine
  bool across = false;                ///< links can explain that it is slower
};

/// The seconds of a host for a sample and each further GPU that fit all rows best, by least squares
/// of relative errors; 0 if none is slower than explained.
double fitted_host(const std::vector<HostRow>& rows) {
  double most = 0, bound = std::numeric_limits<double>::infinity();
  for (const HostRow& row : rows) {
    if (row.across || row.samples <= 0) continue;
    if (row.seconds > (1 + noise) * row.explained) {
      most = std::max(most, (row.seconds - row.explained) / row.samples);
    }
    bound = std::min(bound, (largest_factor - 1) * row.explained / row.samples);
  }
  double low = 0, high = std::min(most, bound);
  const auto too_long = [&](double host) {  // the sign of the slope of the sum of squares
    double slope = 0;
    for (const HostRow& row : rows) {
      const double step = row.explained + host * row.samples, error = std::log(step / row.seconds);
      if (!row.across || error > 0) slope += error * row.samples / step;
    }
    return slope > 0;
  };
  if (!too_long(high)) return high;
  constexpr int halvings = 50;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (too_long(middle) ? high : low) = middle;
  }
  return low;
}

double median_of_kernels(std::vector<const experiment::FittedStep*> rows) {
  std::vector<double> factors;
  for (const experiment::FittedStep* row : experiment::rows_of_kernels(std::move(rows))) {
    factors.push_back(row->kernels);
  }
  return median(std::move(factors));
}

/// Of data parallelism: rows of more GPUs of a machine than others of their series say together
/// what the host adds, if they take longer than those explain: input, launches and jitter, of which
/// nothing overlaps. One-sided: no host makes a step faster.
void fit_hosts(std::vector<FittedRow>& rows) {
  std::map<std::string, std::vector<FittedRow*>> series;
  for (FittedRow& row : rows) {
    if (row.step.samples > 0) series[job_of(row.step, *row.claim)].push_back(&row);
  }
  for (const auto& [name, members] : series) {
    double fewest = std::numeric_limits<double>::infinity();
    for (const FittedRow* row : members) {
      if (row->machines == 1) fewest = std::min(fewest, row->step.gpus);
    }
    std::vector<const experiment::FittedStep*> kernels;
    for (const FittedRow* row : members) {
      if (row->machines == 1 && row->step.gpus <= fewest) kernels.push_back(&row->step);
    }
    if (kernels.empty()) continue;
    const double factor = median_of_kernels(kernels);
    std::vector<HostRow> further;
    for (FittedRow* row : members) {
      if (row->gpus_of_machine() <= fewest) continue;
      further.push_back({row, row->seconds, row->training->step(factor),
                         row->step.samples * (row->gpus_of_machine() - fewest), row->machines > 1});
    }
    const double host = fitted_host(further);
    if (host <= 0) continue;
    for (const HostRow& one : further) {
      FittedRow& row = *one.row;
      row.host = host * one.samples;
      if (one.across) continue;
      row.step.kernels = factor;
      row.step.devices = fewest;
      row.step.host = host;
      row.step.measured = Seconds{one.seconds};
      row.step.fitted = Seconds{one.explained + row.host};
    }
  }
}

/// A step that its own row fits, unless others of its job say more.
FittedRow fitted_alone(const Claim& claim, const std::vector<experiment::FittedStep>& collectives) {
  if (claim.quantity == "kernel-time" || !claim.ran) {
    throw InputError(location_of(claim, "value"),
                     !claim.ran ? "a run that did not end" : "a kernel",
                     "accepted: measured training steps and collectives");
  }
  check_predictable(claim);
  FittedRow row{&claim, described(claim), {}};
  experiment::FittedStep& step = row.step;
  if (claim.quantity == "step-time") {
    const SingleStep single = single_step(claim);
    step.kernels = claim.expected * 1e-3 / (single.others + single.squares);
    step.power = single.power;
    step.fusion = fusion_of(claim);
    return row;
  }
  row.machines = machines_of(claim);
  row.training = std::make_unique<Training>(claim, launch_for(step, row.machines > 1, collectives));
  const Training& training = *row.training;
  step.power = power_in(training.cluster(), step.device);
  step.fusion = training.fusion();
  const PeakMemory& memory = training.memory();
  step.memory = static_cast<double>(memory.needed.value) / static_cast<double>(memory.memory.value);
  step.gpus = static_cast<double>(devices_of(training.cluster(), DeviceKind::gpu).size());
  row.seconds = training.measured(claim);
  step.rate = training.samples() / row.seconds / step.gpus;
  if (!has_layout(claim)) step.samples = training.samples() / step.gpus;
  if (step.gpus > 1) step.share = kernel_share(training, {});
  if (row.machines > 1) {
    step.kind = kind_between_machines_of(claim, training.cluster());
    return row;
  }
  step.kernels = fitted_kernels(training, row.seconds);
  const bool ends =
      std::abs(std::log(step.kernels)) > std::log(largest_factor) - 1e-3;  // has a warning
  if (ends) return row;
  step.measured = Seconds{row.seconds};
  step.fitted = Seconds{training.step(step.kernels)};
  return row;
}

/// What rows of a job fit together.
void fit_jobs(std::vector<FittedRow>& rows) {
  fit_hosts(rows);
  std::map<std::string, std::vector<FittedRow*>> across;
  for (FittedRow& row : rows) {
    const std::optional<LinkKind>& kind = row.step.kind;
    if (row.machines > 1) {
      across[fmt::format("{}|{}", job_of(row.step, *row.claim), kind ? to_text(*kind) : "")]
          .push_back(&row);
    }
  }
  for (const auto& [key, members] : across) {
    const experiment::FittedStep& first = members.front()->step;
    std::vector<const experiment::FittedStep*> kernels;  // of rows on one machine
    for (const FittedRow& other : rows) {
      if (other.machines == 1 && other.step.device == first.device &&
          other.step.precision == first.precision && other.step.network == first.network) {
        kernels.push_back(&other.step);
      }
    }
    std::vector<MeasuredStep> steps;
    for (const FittedRow* row : members) {
      // What is left for kernels and links.
      steps.push_back(
          {row->training.get(), std::max(row->seconds - row->host, row->seconds / largest_factor)});
    }
    const StepTerms terms = fitted_step_terms(
        steps, kernels.empty() ? std::nullopt : std::optional(median_of_kernels(kernels)));
    for (FittedRow* row : members) {
      row->step.kernels = terms.kernels;
      row->step.links = terms.links;
      row->step.measured = Seconds{row->seconds};
      row->step.fitted = Seconds{row->training->step(terms.kernels, terms.links) + row->host};
    }
  }
}

}  // namespace

std::vector<experiment::FittedStep> fitted_steps(const std::vector<Claim>& all) {
  std::vector<experiment::FittedStep> collectives = fitted_collectives(all), fitted;
  std::vector<FittedRow> rows;
  for (const Claim& claim : all) {
    if (claim.ran && claim.quantity == "collective-time") continue;
    rows.push_back(fitted_alone(claim, collectives));
  }
  fit_jobs(rows);
  for (FittedRow& row : rows) fitted.push_back(std::move(row.step));
  std::move(collectives.begin(), collectives.end(), std::back_inserter(fitted));
  return fitted;
}

std::vector<std::pair<const Claim*, experiment::FittedStep>> expressible_steps(
    const std::vector<const Claim*>& claims) {
  std::vector<FittedRow> rows;
  for (const Claim* claim : claims) {
    try {
      rows.push_back(fitted_alone(*claim, {}));
    } catch (const InputError&) {
      continue;  // rows to validate report why
    }
  }
  fit_jobs(rows);
  std::vector<std::pair<const Claim*, experiment::FittedStep>> fitted;
  for (FittedRow& row : rows) fitted.emplace_back(row.claim, std::move(row.step));
  return fitted;
}

}  // namespace parsim::validation
