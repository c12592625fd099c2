#include "validation/predict_published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/run.hpp"
#include "validation/agreeing_columns.hpp"
#include "validation/measurements.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/published_calibration.hpp"
#include "validation/published_collective.hpp"
#include "validation/published_kernel.hpp"
#include "validation/published_keys.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_names.hpp"
#include "validation/published_plan.hpp"
#include "validation/published_training.hpp"
#include "validation/table_formats.hpp"

namespace parsim::validation {

namespace {

/// The text after "unscored: " in the notes of the row, or what it needs. Throws InputError for an
/// unknown unit.
std::string reason_not_to_score(const Claim& claim) {
  constexpr std::string_view mark = "unscored: ";
  const std::string notes = column(claim, "notes");
  const std::size_t at = notes.find(mark);
  if (at != std::string::npos) return notes.substr(at + mark.size());
  if (const std::string needs = missing_needs(claim); !needs.empty()) return "needs " + needs;
  if (column(claim, "usable") == "no") return "not usable, according to its source";
  if (!column(claim, "host_bound").empty()) return "limited by the host, according to its source";
  if (claim.quantity == "throughput") check_unit(claim);
  return "library not modelled";
}

/// True if devices share layers or stages: the rate of one device then is no baseline.
bool shares_layers(const Claim& claim) {
  if (!has_layout(claim)) return false;
  if (has_layout_file(claim)) return true;
  const RunLayout layout = layout_of(claim);
  return layout.group() > 1 || layout.pipeline > 1 || count_column(claim, "ep", 1) > 1;
}

double gib(Bytes bytes) { return static_cast<double>(bytes.value) / (1024.0 * 1024 * 1024); }

/// A run that failed has no time, but its plan needs memory.
Prediction memory_of_failure(const Claim& claim) {
  Prediction prediction;
  prediction.reason = column(claim, "status");
  if (const std::string reason = missing_needs(claim); !reason.empty()) {
    prediction.reason += fmt::format("; needs {}", reason);
    return prediction;
  }
  try {
    const PeakMemory memory = Training(claim).memory();
    prediction.peak_memory_gib = gib(memory.needed);
    prediction.verdict = to_text(memory.verdict);
    prediction.reason += fmt::format("; memory {}: {} of {}", prediction.verdict,
                                     to_text(memory.needed), to_text(memory.memory));
  } catch (const InputError& error) {
    prediction.reason += fmt::format("; memory not predicted: {}", error.what());
  }
  return prediction;
}

Calibration calibration_of(const Claim& claim) {
  return {claim.set, claim.name, column(claim, "machine"), column(claim, "gpu"), {}, {}};
}

bool shares_key(const Claim& claim, const std::set<std::string>& keys) {
  const std::vector<std::string> own = keys_of(claim);
  return std::any_of(own.begin(), own.end(), [&](const auto& key) { return keys.contains(key); });
}

/// Rows that calibrate and share a key with a row to be predicted.
std::vector<const Claim*> useful(const std::vector<Claim>& claims,
                                 const std::set<std::string>& keys) {
  std::vector<const Claim*> rows;
  for (const Claim& claim : claims) {
    const bool known = claim.ran && column(claim, unpredictable).empty();
    if (split_of(claim) != Split::calibrate || !known) continue;
    if (shares_key(claim, keys)) rows.push_back(&claim);
  }
  return rows;
}

bool crosses_machines(const Claim& claim) { return machines_of(claim) > 1; }

double machines_in(const Claim& claim) { return static_cast<double>(machines_of(claim)); }

double devices_in(const Claim& claim) {
  return static_cast<double>(count_column(claim, "n_gpus", 1));
}

/// Samples per second of one of the row's GPUs alone; nothing where that cannot be predicted.
std::optional<double> rate_alone(const Claim& claim, double factor) {
  Claim alone = claim;
  alone.what["n_gpus"] = alone.what["nodes"] = alone.what["gpus_per_node"] = "1";
  alone.what["dp"] = alone.what["global_batch"] = alone.what["placement"] = "";
  alone.what["zero_group"] = alone.what["zero_range"] = alone.what["parallelism"] = "";
  try {
    alone.what["gpu"] = gpu_without_count(claim);
    const Training one(alone);
    return one.samples() / one.step(factor);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

PublishedPredictor::PublishedPredictor(const std::vector<Claim>& claims,
                                       const std::vector<Claim>& others, bool from_scratch,
                                       const std::vector<Claim>& own) {
  for (const Claim& claim : claims) {
    if (split_of(claim) == Split::calibrate) continue;
    const std::vector<std::string> of_row = keys_of(claim);
    keys_.insert(of_row.begin(), of_row.end());
  }
  for (const std::vector<Claim>* source : {&own, &claims, &others}) {
    if (from_scratch && source != &own) break;
    const std::vector<const Claim*> rows = useful(*source, keys_);
    Fits& fits = sources_.emplace_back();
    fit_steps(rows, fits);
    fit_terms(rows, fits);
  }
}

bool PublishedPredictor::counts(const Claim& calibrating) const {
  return calibrating.quantity != "kernel-time" && shares_key(calibrating, keys_);
}

std::vector<Calibration> PublishedPredictor::Found::rows() const {
  std::vector<Calibration> all;
  for (const Fit& fit : fits) all.push_back(fit.row);
  return all;
}

std::vector<PublishedPredictor::Fit> PublishedPredictor::of_kernels(const std::vector<Fit>& fits) {
  std::vector<const experiment::FittedStep*> steps;
  for (const Fit& fit : fits) steps.push_back(&fit.step);
  steps = experiment::rows_of_kernels(std::move(steps));
  std::vector<Fit> kept;
  for (const Fit& fit : fits) {
    if (std::find(steps.begin(), steps.end(), &fit.step) != steps.end()) kept.push_back(fit);
  }
  return kept;
}

double PublishedPredictor::factor_of(const std::vector<Fit>& fits) {
  std::vector<double> factors;
  for (const Fit& fit : fits) factors.push_back(fit.step.kernels);
  return factors.empty() ? 1 : median(factors);
}

PublishedPredictor::Found PublishedPredictor::found(const Claim& claim) const {
  for (const Fits& source : sources_) {
    for (const std::string& key : keys_of(claim)) {
      const auto at = source.kernels.find(key);
      if (at == source.kernels.end()) continue;
      return {key, of_kernels(at->second)};
    }
  }
  return {};
}

double PublishedPredictor::links_of(const Claim& claim) const {
  if (!crosses_machines(claim)) return 1;
  for (const Fits& source : sources_) {
    for (const std::string& key : keys_of_links(claim)) {
      const auto at = source.links.find(key);
      if (at != source.links.end()) return median(at->second);
    }
  }
  return 1;
}

std::vector<PublishedPredictor::Fit> PublishedPredictor::hosts_of(const Claim& claim) const {
  if (has_layout(claim)) return {};
  for (const Fits& source : sources_) {
    const auto at = source.hosts.find(key_of_hosts(claim));
    if (at != source.hosts.end()) return at->second;
  }
  return {};
}

void PublishedPredictor::fit_terms(const std::vector<const Claim*>& claims, Fits& fits) {
  std::map<std::string, std::vector<TermPoint>> points;
  for (const Claim* claim : claims) {
    if (claim->quantity != "collective-time") continue;
    try {
      const PublishedCollective run(*claim);
      sim::SimOptions without = library_options(*claim);
      without.terms = {Seconds{0}, Seconds{0}, {}};
      const std::string key = keys_of(*claim).front();
      constexpr double unit = 1e-9;  // the root term counts for one protocol only
      sim::SimOptions rooted = without;
      rooted.terms.per_root_byte = Seconds{unit};
      const double modelled = run.estimated(without);
      const double root = (run.estimated(rooted) - modelled) / unit;
      points[key].push_back({modelled, root, claim->expected * 1e-6});
      fits.rows_of_terms[key] = {{claim->set,
                                  fmt::format("{} sizes", points[key].size()),
                                  column(*claim, "machine"),
                                  column(*claim, "gpu"),
                                  {},
                                  {}}};
    } catch (const InputError&) {
      continue;
    }
  }
  for (const auto& [key, list] : points) fits.terms[key] = fitted_terms(list);
}

void PublishedPredictor::fit_steps(const std::vector<const Claim*>& claims, Fits& fits) {
  std::vector<const Claim*> steps;
  for (const Claim* claim : claims) {
    if (claim->quantity == "throughput") steps.push_back(claim);
    if (claim->quantity != "step-time") continue;
    try {
      const SingleStep step = single_step(*claim);
      if (step.squares <= 0) continue;
      Fit fit{{}, step.flops / claim->expected, calibration_of(*claim)};
      fit.step.kernels = std::max(0.05, (claim->expected * 1e-3 - step.others) / step.squares);
      fit.row.kernels = fit.step.kernels;
      for (const std::string& key : keys_of(*claim)) fits.kernels[key].push_back(fit);
    } catch (const InputError&) {
      continue;  // the row cannot be expressed; rows to validate report why
    }
  }
  for (const auto& [claim, step] : expressible_steps(steps)) {
    Fit fit{step, step.rate, calibration_of(*claim)};
    fit.row.kernels = step.kernels;
    fit.row.links = step.links;
    fit.row.host = step.host;
    for (const std::string& key : keys_of(*claim)) fits.kernels[key].push_back(fit);
    if (step.host) fits.hosts[key_of_hosts(*claim)].push_back(fit);
    for (const std::string& key : keys_of_links(*claim)) {
      if (step.links) fits.links[key].push_back(*step.links);
    }
  }
}

std::string PublishedPredictor::not_expressible(const Claim& claim) {
  if (std::string reason = column(claim, unpredictable); !reason.empty()) return reason;
  if (const std::string needs = missing_needs(claim); !needs.empty()) return "needs " + needs;
  try {
    if (claim.quantity == "collective-time") {
      static_cast<void>(collective_of(claim));
      static_cast<void>(library_options(claim));
      static_cast<void>(cluster_of(claim));
      return {};
    }
    if (claim.quantity == "kernel-time") {
      static_cast<void>(kernel_seconds(claim));
      return {};
    }
    if (!column(claim, "layer").empty()) return "a single layer, not a network";
    static_cast<void>(load_network_of(claim));
    static_cast<void>(precision_of(claim));
    if (claim.quantity == "step-time") {
      static_cast<void>(device_of(claim));
      return {};
    }
    check_unit(claim);
    check_column_names(claim);
    check_parallelism(claim);
    const Cluster cluster = cluster_of(claim);
    if (has_layout(claim) && !has_layout_file(claim)) static_cast<void>(layout_of(claim));
    if (!has_layout(claim)) {
      const auto devices = std::ssize(devices_of(cluster, DeviceKind::gpu));
      check_data_parallelism(claim, devices);
      static_cast<void>(data_parallel_batch(claim, devices));
    }
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

Prediction PublishedPredictor::operator()(const Claim& claim) const {
  if (!claim.ran) return memory_of_failure(claim);
  if (std::string reason = column(claim, unpredictable); !reason.empty()) return {{}, {}, reason};
  try {
    if (split_of(claim) == Split::unscored) {
      return {std::nullopt, std::nullopt, reason_not_to_score(claim)};
    }
    if (claim.quantity == "throughput") return throughput(claim);
    if (claim.quantity == "step-time") return step_time(claim);
    if (claim.quantity == "kernel-time") return {1e6 * kernel_seconds(claim), {}, {}};
    return collective_time(claim);
  } catch (const InputError& error) {
    return {std::nullopt, std::nullopt, error.what()};
  }
}

Prediction PublishedPredictor::throughput(const Claim& claim) const {
  const Training training(claim);
  const Found calibrated = found(claim);
  const double factor = factor_of(calibrated.fits);
  Prediction prediction;
  const std::vector<Fit> hosts = calibrated.fits.empty() ? std::vector<Fit>{} : hosts_of(claim);
  std::vector<double> each, fewest;
  for (const Fit& fit : hosts) {
    each.push_back(*fit.step.host);
    fewest.push_back(fit.step.devices);
  }
  double host = 0;
  if (!hosts.empty()) {
    const double further = devices_in(claim) / machines_in(claim) - median(fewest);
    host = median(each) * std::max(0.0, further) * training.samples() / devices_in(claim);
  }
  const auto [step, parts] = training.step_and_parts(factor, links_of(claim), host);
  prediction.value = in_unit_of(claim, training.samples(), step);
  prediction.parts = parts;
  prediction.calibrated_by = calibrated.rows();
  for (const Fit& fit : hosts) {
    if (host > 0) prediction.calibrated_by.push_back(fit.row);
  }
  std::optional<double> one_device;
  if (!calibrated.fits.empty() && calibrated.key == keys_of(claim).front()) {
    one_device = calibrated.fits.front().one_device;
  }
  prediction.peak_memory_gib = gib(training.memory().needed);
  prediction.verdict = to_text(training.memory().verdict);
  if (shares_layers(claim)) return prediction;
  prediction.baseline_measured = one_device.has_value();
  if (!one_device) one_device = rate_alone(claim, factor);
  if (!one_device) return prediction;
  const double seconds = training.samples() / (devices_in(claim) * *one_device);
  prediction.baseline = in_unit_of(claim, training.samples(), seconds);
  return prediction;
}

Prediction PublishedPredictor::collective_time(const Claim& claim) const {
  const PublishedCollective run(claim);
  sim::SimOptions options = library_options(claim);
  std::vector<Calibration> rows;
  for (const Fits& source : sources_) {
    const auto at = source.terms.find(keys_of(claim).front());
    if (at == source.terms.end() || !column(claim, uncalibrated).empty()) continue;
    options.terms = at->second;
    rows = source.rows_of_terms.at(at->first);
    break;
  }
  if (column(claim, uncalibrated) == bare) options.terms = {Seconds{0}, Seconds{0}, {}};
  Prediction prediction{run.simulated(options) * 1e6, run.naive() * 1e6, {}, std::move(rows)};
  prediction.parts = run.parts(options, *prediction.value * 1e-6);
  if (!prediction.calibrated_by.empty()) {
    prediction.from_scratch = run.simulated(library_options(claim)) * 1e6;
  }
  return prediction;
}

Prediction PublishedPredictor::step_time(const Claim& claim) const {
  if (!column(claim, "layer").empty()) {
    return {std::nullopt, std::nullopt, "a single layer, not a network"};
  }
  const SingleStep step = single_step(claim);
  const Found calibrated = found(claim);
  const double factor = factor_of(calibrated.fits);
  Prediction prediction{(step.others + factor * step.squares) * 1e3, std::nullopt, {}};
  prediction.parts = step.parts(factor);
  if (calibrated.fits.empty()) return prediction;
  std::vector<double> rates;
  for (const Fit& fit : calibrated.fits) rates.push_back(fit.one_device);
  prediction.baseline = step.flops / median(rates);
  prediction.calibrated_by = calibrated.rows();
  return prediction;
}

}  // namespace parsim::validation
