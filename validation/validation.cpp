#include "validation/validation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::validation {

namespace {

/// Ranks from 0; equal values share the mean of theirs.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) {
      rank[order[k]] = static_cast<double>(i + end - 1) / 2;
    }
    i = end;
  }
  return rank;
}

std::string set_and_line(const Claim& claim) {
  const auto line = claim.what.find("line");
  return line == claim.what.end() ? claim.set : claim.set + ":" + line->second;
}

/// The least of the values that so large a share of them does not exceed.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

ValidationSet summary_of(const std::string& name, const std::vector<ValidationRow>& all) {
  ValidationSet set;
  set.name = name;
  std::vector<double> errors, expected, predicted;
  double baselines = 0;
  bool every_baseline = true;
  for (const ValidationRow& row : all) {
    if (row.claim.set != name) continue;
    errors.push_back(std::abs(row.error()));
    expected.push_back(row.claim.expected);
    predicted.push_back(row.predicted);
    every_baseline = every_baseline && row.baseline.has_value();
    if (row.baseline) {
      baselines += std::abs(*row.baseline - row.claim.expected) / std::abs(row.claim.expected);
    }
  }
  std::vector<double> memory;
  for (const ValidationRow& row : all) {
    if (row.claim.set != name) continue;
    if (const auto error = row.peak_memory_error()) memory.push_back(std::abs(*error));
  }
  if (!memory.empty()) {
    set.peak_memory_error =
        std::accumulate(memory.begin(), memory.end(), 0.0) / static_cast<double>(memory.size());
  }
  if (errors.empty()) return set;
  const auto count = static_cast<double>(errors.size());
  set.rows = errors.size();
  set.mean_error = std::accumulate(errors.begin(), errors.end(), 0.0) / count;
  set.max_error = *std::max_element(errors.begin(), errors.end());
  set.median_error = median(errors);
  set.low_error = quantile(errors, 0.05);
  set.high_error = quantile(errors, 0.95);
  if (every_baseline) set.baseline_mean_error = baselines / count;
  set.spearman = spearman(expected, predicted);
  return set;
}

void count_calibrations(const std::vector<Calibration>& calibrated_by, ValidationSet& set) {
  if (calibrated_by.empty()) ++set.uncalibrated;
  for (const Calibration& calibration : calibrated_by) {
    const auto known = std::find_if(set.calibrated_by.begin(), set.calibrated_by.end(),
                                    [&](const auto& entry) { return entry.first == calibration; });
    if (known == set.calibrated_by.end()) {
      set.calibrated_by.emplace_back(calibration, 1);
    } else {
      ++known->second;
    }
  }
}

}  // namespace

const std::string& Claim::at(std::string_view key) const {
  const auto found = what.find(key);
  if (found != what.end()) return found->second;
  throw InputError(set + ": " + name, "key '" + std::string(key) + "' is missing",
                   "needed by quantity '" + quantity + "'");
}

bool ValidationRow::promise_broken() const {
  return claim.within && !(std::abs(error()) <= *claim.within);
}

std::optional<double> ValidationRow::peak_memory_error() const {
  const auto measured = claim.what.find("peak_memory_gib");
  if (measured == claim.what.end() || measured->second.empty() || !peak_memory_gib) {
    return std::nullopt;
  }
  const auto gib = to_number<double>(measured->second);
  if (!gib || !(*gib > 0)) {
    throw InputError(set_and_line(claim) + ":peak_memory_gib", "'" + measured->second + "'",
                     "accepted: a number above 0, or nothing");
  }
  return (*peak_memory_gib - *gib) / *gib;
}

std::optional<double> ValidationSet::skill() const {
  if (!baseline_mean_error || *baseline_mean_error <= 0) return std::nullopt;
  return 1 - mean_error / *baseline_mean_error;
}

double median(std::vector<double> values) {
  ensure(!values.empty(), "a median needs values");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  ensure(a.size() == b.size(), "both sides have as many values");
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

std::vector<CollectiveSystem> collective_systems(const std::vector<ValidationRow>& rows) {
  constexpr double least_bytes = 64 * 1024;
  std::vector<std::string> machines;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> errors;
  const std::string all = "all";
  for (const ValidationRow& row : rows) {
    const auto size = row.claim.what.find("size_bytes");
    if (!row.from_scratch || size == row.claim.what.end()) continue;
    if (to_number<double>(size->second).value_or(0) < least_bytes) continue;
    const auto machine = row.claim.what.find("machine");
    const std::string name = machine == row.claim.what.end() ? "" : machine->second;
    if (errors.find(name) == errors.end()) machines.push_back(name);
    const double scratch = std::abs(*row.from_scratch / row.claim.expected - 1);
    for (const std::string& key : {name, all}) {
      errors[key].first.push_back(scratch);
      errors[key].second.push_back(std::abs(row.error()));
    }
  }
  if (!machines.empty()) machines.push_back(all);
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  std::vector<CollectiveSystem> systems;
  for (const std::string& machine : machines) {
    const auto& [scratch, fitted] = errors.at(machine);
    systems.push_back(
        {machine, scratch.size(), median(scratch), mean(scratch), median(fitted), mean(fitted)});
  }
  return systems;
}

Validation validate_claims(const std::vector<Claim>& claims, const Predict& predict) {
  Validation result;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::vector<Calibration>>> calibrations;  // of scored rows
  for (const Claim& claim : claims) {
    if (std::find(names.begin(), names.end(), claim.set) == names.end()) {
      names.push_back(claim.set);
    }
    const Prediction prediction = predict(claim);
    if (prediction.value) {
      result.rows.push_back({claim, *prediction.value, prediction.baseline,
                             prediction.peak_memory_gib, prediction.verdict,
                             prediction.from_scratch, prediction.parts,
                             !prediction.calibrated_by.empty(), prediction.baseline_measured});
      calibrations.push_back({claim.set, prediction.calibrated_by});
    } else {
      result.unresolved.push_back({claim.set, claim.name, prediction.reason, prediction.verdict});
    }
  }
  for (const std::string& name : names) {
    result.sets.push_back(summary_of(name, result.rows));
    result.sets.back().origin = std::find_if(claims.begin(), claims.end(), [&](const Claim& claim) {
                                  return claim.set == name;
                                })->origin;
    for (const auto& [set, calibration] : calibrations) {
      if (set == name) count_calibrations(calibration, result.sets.back());
    }
  }
  return result;
}

}  // namespace parsim::validation
