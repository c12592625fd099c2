#include "experiment/step_interval.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

StepParts parts_of(std::initializer_list<std::pair<CostClass, double>> shares) {
  StepParts parts{};
  for (const auto& [one, share] : shares) parts[static_cast<std::size_t>(one)] = share;
  return parts;
}

Spreads spreads_of(std::initializer_list<std::pair<CostClass, PriceSpread>> prices) {
  Spreads spreads;
  for (const auto& [one, spread] : prices) spreads.prices[static_cast<std::size_t>(one)] = spread;
  return spreads;
}

/// Of the standard normal distribution.
double below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

constexpr double deviations = 1.6449;

}  // namespace

TEST_CASE("step interval: by hand") {
  Spreads spreads =
      spreads_of({{CostClass::products, {0.2, 0.4}}, {CostClass::inside, {0.6, 0.8}}});
  const StepParts parts = parts_of({{CostClass::products, 0.5}, {CostClass::inside, 0.5}});
  // low √(0.1² + 0.3²), high √(0.2² + 0.4²).
  CHECK(step_interval(parts, spreads).low == testing::approx(std::exp(-std::sqrt(0.10))));
  CHECK(step_interval(parts, spreads).high == testing::approx(std::exp(std::sqrt(0.20))));
  spreads.host = {0, 0.4};
  spreads.plan = 0.1;
  CHECK(step_interval(parts, spreads).low == testing::approx(std::exp(-std::sqrt(0.11))));
  CHECK(step_interval(parts, spreads).high == testing::approx(std::exp(std::sqrt(0.37))));
  CHECK_FALSE(widest_class(parts, spreads));  // the host
  spreads.host.high = 0.39;
  CHECK(widest_class(parts, spreads) == CostClass::inside);
}

TEST_CASE("step interval: measured rows that contradict each other widen it, by hand") {
  Spreads spreads = spreads_of({{CostClass::products, {0.2, 0.4}}});
  spreads.kernels = 0.5;
  spreads.links = 0.6;
  spreads.launches = 0.8;
  const StepParts parts = parts_of({{CostClass::products, 0.25},
                                    {CostClass::memory, 0.25},
                                    {CostClass::between, 0.25},
                                    {CostClass::launches, 0.25}});
  // Kernels are one half, with one error.
  const double more = 0.25 * 0.25 + 0.15 * 0.15 + 0.2 * 0.2;
  CHECK(step_interval(parts, spreads).low ==
        testing::approx(std::exp(-std::sqrt(0.05 * 0.05 + more))));
  CHECK(step_interval(parts, spreads).high ==
        testing::approx(std::exp(std::sqrt(0.1 * 0.1 + more))));
}

TEST_CASE("step interval: at least half as long and half again where no kernel is of this card") {
  const Spreads narrow = spreads_of({{CostClass::borrowed, {0.1, 0.1}}});
  const auto interval = [&](const StepParts& parts, bool calibrated) {
    Spreads spreads = narrow;
    spreads.calibrated = calibrated;
    return step_interval(parts, spreads);
  };
  const StepParts unknown = parts_of({{CostClass::borrowed, 0.9}, {CostClass::inside, 0.1}});
  CHECK(interval(unknown, false).low == testing::approx(0.5));
  CHECK(interval(unknown, false).high == testing::approx(1.5));
  CHECK(interval(unknown, true).high == testing::approx(std::exp(0.09)));
  // Adding a loss or a classifier does not make a card known.
  const StepParts mostly = parts_of({{CostClass::borrowed, 0.95}, {CostClass::products, 0.05}});
  CHECK(interval(mostly, false).high == testing::approx(1.5));
  const StepParts partly = parts_of({{CostClass::borrowed, 0.5}, {CostClass::products, 0.5}});
  CHECK(interval(partly, false).high == testing::approx(std::exp(0.05)));
}

TEST_CASE("step interval: the table has both states, and lines without each system") {
  for (const bool calibrated : {false, true}) {
    const Spreads& all = spreads(calibrated);
    CHECK(all.calibrated == calibrated);
    CHECK(all.rows > 500);
    CHECK(all.systems > 20);
    for (const PriceSpread& spread : all.prices) {
      CHECK(spread.low > 0);
      CHECK(spread.high > 0);
      CHECK(spread.high < 3);
    }
    CHECK(&spreads(calibrated, "a system without rows") == &all);
    const Spreads& fewer = spreads(calibrated, "h100-sxm5");
    CHECK(fewer.systems == all.systems - 1);
    CHECK(fewer.rows < all.rows);
  }
}

TEST_CASE("probability of the fastest: closed forms of two plans") {
  Spreads spreads =
      spreads_of({{CostClass::products, {0.3, 0.3}}, {CostClass::between, {0.6, 0.6}}});
  spreads.plan = 0.1;
  const StepParts products = parts_of({{CostClass::products, 1}});
  const StepParts between = parts_of({{CostClass::between, 1}});
  const auto first_of = [&](const StepParts& a, const StepParts& b, double slower) {
    const Contender plans[] = {{Seconds{1}, a}, {Seconds{slower}, b}};
    const std::vector<double> wins = probabilities_of_fastest(plans, spreads);
    CHECK(wins[0] + wins[1] == testing::approx(1));
    return wins[0];
  };
  // Of the same prices: only the errors of the plans differ, √2 · 0.1.
  const double same = deviations * std::log(1.1) / (0.1 * std::sqrt(2.0));
  CHECK(first_of(products, products, 1.1) == testing::approx(below(same)).epsilon(0.04));
  // Of other prices: √(0.3² + 0.6² + 2 · 0.1²).
  const double other = deviations * std::log(1.1) / std::sqrt(0.47);
  CHECK(first_of(products, between, 1.1) == testing::approx(below(other)).epsilon(0.08));
  CHECK(first_of(products, products, 2) > 0.999);
  // An error that measured rows leave to all kernels is of one of them: √(0.47 + 0.5²).
  spreads.kernels = 0.5;
  const double wider = deviations * std::log(1.1) / std::sqrt(0.72);
  CHECK(first_of(products, between, 1.1) == testing::approx(below(wider)).epsilon(0.08));
  CHECK(first_of(products, products, 1.1) == testing::approx(below(same)).epsilon(0.04));
}

TEST_CASE("probability of the fastest: a plan that two models bound gains by neither alone") {
  Spreads spreads;
  spreads.prices[static_cast<std::size_t>(CostClass::products)] = {0.3, 0.3};
  spreads.prices[static_cast<std::size_t>(CostClass::borrowed)] = {0.3, 0.3};
  spreads.plan = 1e-6;
  const StepParts own = parts_of({{CostClass::products, 1}}),
                  other = parts_of({{CostClass::borrowed, 1}});
  const auto second = [&](const std::vector<StepParts>& by_model) {
    const Contender plans[] = {{Seconds{1}, own, {own, parts_of({{CostClass::borrowed, 0.9}})}},
                               {Seconds{1.03}, other, by_model}};
    return probabilities_of_fastest(plans, spreads)[1];
  };
  // If only its longest chain counts, nearly half of all draws of the other class favour it.
  CHECK(second({}) > 0.4);
  // But its devices of the first model work as long as those of the first plan: then it needs
  // both, cheap borrowed prices and dear ones of its own.
  CHECK(second({parts_of({{CostClass::products, 1}}), other}) < 0.05);
}

TEST_CASE("probability of the fastest: equal plans are one, and a seed gives its numbers again") {
  const Spreads& known = spreads(false);
  const StepParts parts = parts_of({{CostClass::convolutions, 0.8}, {CostClass::inside, 0.2}});
  const std::vector<Contender> plans = {
      {Seconds{1}, parts}, {Seconds{1}, parts}, {Seconds{1.05}, parts}};
  const std::vector<double> wins = probabilities_of_fastest(plans, known, 7);
  CHECK(wins[0] == wins[1]);
  CHECK(wins[0] + wins[2] == testing::approx(1));
  CHECK(wins[0] > wins[2]);
  CHECK(wins == probabilities_of_fastest(plans, known, 7));
  CHECK(probabilities_of_fastest(std::span(plans).first(1), known)[0] == testing::approx(1));
  CHECK(probabilities_of_fastest({}, known).empty());
}

}  // namespace parsim::experiment
