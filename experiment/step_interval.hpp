// How far a step may be from its prediction: an interval from the spreads of prices, by class.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "experiment/step_parts.hpp"

namespace parsim::experiment {

/// Of 90 % of systems the true price lies between the predicted one times exp(-low) and exp(high).
struct PriceSpread {
  double low = 0, high = 0;
  friend bool operator==(const PriceSpread&, const PriceSpread&) = default;
};

/// The spreads of one state of knowledge (experiment/spreads.csv, written by
/// validation/fit_spreads.py from published rows).
struct Spreads {
  std::array<PriceSpread, cost_classes> prices{};  ///< by CostClass
  /// Of what no price holds, such as the host and its input pipeline; of the whole step, the same
  /// for all plans.
  PriceSpread host{};
  double plan = 0;  ///< of one plan against others on the same machine, both ways
  /// Half-width of the best interval that is the same for every step, which these have to beat.
  double constant = 0;
  int systems = 0, rows = 0;  ///< in the fit
  bool calibrated = false;    ///< of steps that a measured row of the same card calibrates
  /// Of measured rows that contradict each other: one error of all kernels, of links between
  /// machines, and of launches of collectives, both ways; 0 where rows agree.
  double kernels = 0, links = 0, launches = 0;
};
/// `without` names a system (machine, card, framework) whose own rows are left out of the fit, as
/// when its rows are judged; a system without rows in the fit changes nothing.
[[nodiscard]] const Spreads& spreads(bool calibrated, std::string_view without = {});

/// Factors of the predicted step between which the measured one is expected in 90 % of cases.
struct StepInterval {
  double low = 1, high = 1;
};
/// The errors of a class are the same for all its prices, those of different classes independent;
/// each changes the step by its share:
///
///     high = exp √( Σ (share · high of the class)² + (high of host)² + plan² )
///
/// and likewise low. Rows that contradict each other add squares for the shares of all kernels, of
/// class `between` and of launches. Where kernels are priced by the model of another card (nine
/// tenths of their time) and nothing calibrates, at least ±50 %.
[[nodiscard]] StepInterval step_interval(const StepParts& parts, const Spreads& spreads);

/// The class that contributes most to an interval's upper end; nothing: host or plan.
[[nodiscard]] std::optional<CostClass> widest_class(const StepParts& parts, const Spreads& spreads);

/// A plan in a comparison.
struct Contender {
  Seconds step{};
  StepParts parts{};
  /// As parts_by_model has them: whose prices turn out higher may take over the step.
  std::vector<StepParts> by_model{};
  friend bool operator==(const Contender&, const Contender&) = default;
};
/// By plan, the probability that it is the fastest: the part of random errors with which it is.
/// All plans share the errors of the classes, so that plans made of the same prices differ by
/// `plan` only. A step is as long as the longest of its chain and its models' busiest devices, each
/// with its own errors. Equal plans share one error and have the probability of all of them
/// together. The same seed gives the same numbers.
[[nodiscard]] std::vector<double> probabilities_of_fastest(std::span<const Contender> plans,
                                                           const Spreads& spreads,
                                                           std::uint64_t seed = 1);

}  // namespace parsim::experiment
