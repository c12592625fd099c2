#include "experiment/step_interval.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/random.hpp"
#include "experiment/embedded.hpp"

namespace parsim::experiment {

namespace {

/// 5 % of a normal distribution lie above so many standard deviations.
constexpr double deviations_to_95 = 1.6449;
/// Of cards and vendors of which nothing is known, in the direction of faster and of slower steps.
const double unknown_low = std::log(2.0), unknown_high = std::log(1.5);
constexpr int draws = 1000;

struct SpreadsTable {
  std::map<std::pair<bool, std::string>, Spreads, std::less<>> by_system;
};

SpreadsTable read_spreads() {
  const EmbeddedFile& file = experiment_files().front();
  const CsvTable table = read_csv(file.text, std::string(file.path));
  SpreadsTable all;
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](const std::string& column) { return table.number(row, column); };
    const auto spread = [&](const std::string& name) {
      return PriceSpread{number(name + "_low"), number(name + "_high")};
    };
    Spreads spreads;
    for (std::size_t i = 0; i < cost_classes; ++i) {
      spreads.prices[i] = spread(std::string(to_text(static_cast<CostClass>(i))));
    }
    spreads.host = spread("host");
    spreads.plan = number("plan");
    spreads.constant = number("constant");
    spreads.systems = static_cast<int>(number("systems"));
    spreads.rows = static_cast<int>(number("rows"));
    spreads.calibrated = table.at(row, "calibrated") == "yes";
    all.by_system.insert_or_assign({spreads.calibrated, table.at(row, "without")}, spreads);
  }
  return all;
}

constexpr CostClass of_kernels[] = {CostClass::measured,     CostClass::products,
                                    CostClass::convolutions, CostClass::attention,
                                    CostClass::memory,       CostClass::borrowed};

double share_of(const StepParts& parts, CostClass one) {
  return parts[static_cast<std::size_t>(one)];
}

double share_of_kernels(const StepParts& parts) {
  double share = 0;
  for (const CostClass own : of_kernels) share += share_of(parts, own);
  return share;
}

/// Nine tenths of the kernels' time are by the model of another card.
bool mostly_borrowed(const StepParts& parts) {
  constexpr double most = 0.9;
  const double borrowed = share_of(parts, CostClass::borrowed);
  return borrowed > 0 && borrowed >= most * share_of_kernels(parts);
}

/// Of rows that contradict each other.
double square_of_contradictions(const StepParts& parts, const Spreads& spreads) {
  return std::pow(share_of_kernels(parts) * spreads.kernels, 2) +
         std::pow(share_of(parts, CostClass::between) * spreads.links, 2) +
         std::pow(share_of(parts, CostClass::launches) * spreads.launches, 2);
}

/// A standard normal number (Box and Muller 1958).
double normal(Random& random) {
  const auto uniform = [&] {  // (0, 1]
    return (static_cast<double>(random.next() >> 11) + 1) * 0x1p-53;
  };
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

/// The logarithm of a price over the predicted one.
double drawn(Random& random, const PriceSpread& spread) {
  const double z = normal(random) / deviations_to_95;
  return z * (z < 0 ? spread.low : spread.high);
}

/// The logarithm of what parts take, in predicted steps, with errors of their classes.
double log_length(const StepParts& parts, const StepParts& errors) {
  double length = 0, error = 0;
  for (std::size_t c = 0; c < parts.size(); ++c) {
    length += parts[c];
    error += parts[c] * errors[c];
  }
  return length > 0 ? std::log(length) + error / length : 0;
}

}  // namespace

const Spreads& spreads(bool calibrated, std::string_view without) {
  static const SpreadsTable table = read_spreads();
  const auto found = table.by_system.find(std::pair(calibrated, std::string(without)));
  if (found != table.by_system.end()) return found->second;
  const auto all = table.by_system.find(std::pair(calibrated, std::string()));
  ensure(all != table.by_system.end(), "the table of spreads has both states of knowledge");
  return all->second;
}

StepInterval step_interval(const StepParts& parts, const Spreads& spreads) {
  double low = spreads.host.low * spreads.host.low + spreads.plan * spreads.plan;
  double high = spreads.host.high * spreads.host.high + spreads.plan * spreads.plan;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    low += std::pow(parts[i] * spreads.prices[i].low, 2);
    high += std::pow(parts[i] * spreads.prices[i].high, 2);
  }
  low = std::sqrt(low + square_of_contradictions(parts, spreads));
  high = std::sqrt(high + square_of_contradictions(parts, spreads));
  if (!spreads.calibrated && mostly_borrowed(parts)) {
    low = std::max(low, unknown_low);
    high = std::max(high, unknown_high);
  }
  return {std::exp(-low), std::exp(high)};
}

std::optional<CostClass> widest_class(const StepParts& parts, const Spreads& spreads) {
  std::optional<CostClass> widest;
  double most = std::max(spreads.host.high, spreads.plan);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double width = parts[i] * spreads.prices[i].high;
    if (width <= most) continue;
    most = width;
    widest = static_cast<CostClass>(i);
  }
  return widest;
}

std::vector<double> probabilities_of_fastest(std::span<const Contender> plans,
                                             const Spreads& spreads, std::uint64_t seed) {
  // Equal plans: the first of them stands for all.
  std::vector<std::size_t> first(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    first[i] = 0;
    while (plans[first[i]] != plans[i]) ++first[i];
  }
  std::vector<int> wins(plans.size());
  Random random(seed);
  const bool alone =
      std::all_of(first.begin(), first.end(), [](std::size_t plan) { return plan == 0; });
  if (alone && !plans.empty()) wins[0] = draws;
  for (int draw = 0; draw < draws && !alone; ++draw) {
    StepParts errors{};
    for (std::size_t c = 0; c < errors.size(); ++c) errors[c] = drawn(random, spreads.prices[c]);
    const auto add = [&](double spread, std::span<const CostClass> classes) {
      if (spread <= 0) return;
      const double error = drawn(random, {spread, spread});
      for (const CostClass one : classes) errors[static_cast<std::size_t>(one)] += error;
    };
    add(spreads.kernels, of_kernels);
    add(spreads.links, {{CostClass::between}});
    add(spreads.launches, {{CostClass::launches}});
    std::size_t fastest = 0;
    double least = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (first[i] != i) continue;
      const double own = drawn(random, {spreads.plan, spreads.plan});
      double longest = log_length(plans[i].parts, errors);
      for (const StepParts& model : plans[i].by_model) {
        longest = std::max(longest, log_length(model, errors));
      }
      const double step = std::log(plans[i].step.count()) + own + longest;
      if (i != 0 && step >= least) continue;
      least = step;
      fastest = i;
    }
    ++wins[fastest];
  }
  std::vector<double> probabilities(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    probabilities[i] = static_cast<double>(wins[first[i]]) / draws;
  }
  return probabilities;
}

}  // namespace parsim::experiment
