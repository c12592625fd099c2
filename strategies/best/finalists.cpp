#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "strategies/at_once.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/buckets.hpp"
#include "strategies/out_of_time.hpp"

namespace parsim::strategies {

std::vector<PricedPlan> simulated(const StrategyInput& input, std::vector<PricedPlan> sorted) {
  constexpr std::size_t fewest = 2, most_work = 5'000'000;  // layers x micro-batches x devices
  std::size_t work = 0;
  std::vector<std::size_t> chosen;
  std::vector<Seconds> known;  ///< estimates
  const Price best = sorted.front().price;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const PricedPlan& candidate = sorted[i];
    // Rows of a comparison, which no plan of `best` may be slower than.
    const bool row = candidate.is_row(input) && candidate.price.overcommit == best.overcommit;
    const double worth = !row ? worth_simulating
                         : input.hosts_matter || input.upkeep
                             ? std::numeric_limits<double>::infinity()
                             : worth_simulating_rows;
    const bool late =
        candidate.price.overcommit != best.overcommit || candidate.price.step > worth * best.step;
    if (late && !chosen.empty()) continue;
    if (work > most_work && chosen.size() >= fewest && !row) continue;
    // The same step, such as that of states that are sharded but have a single owner.
    const Seconds estimate = candidate.price.step;
    const auto same = [&](Seconds other) { return estimate < other * 1.000'001; };
    if (work > most_work && !row && std::any_of(known.begin(), known.end(), same)) continue;
    known.push_back(estimate);
    for (const LayerPlan& layer : candidate.plan.layers) {
      work +=
          layer.devices.size() * static_cast<std::size_t>(candidate.plan.schedule.micro_batches);
    }
    chosen.push_back(i);
  }
  AtOnce<Price> prices(input, chosen.size(), [&](const StrategyInput& own, std::size_t c) {
    if (out_of_time(own)) throw OutOfTime();
    return simulated_price(own, sorted[chosen[c]].plan);
  });
  std::vector<PricedPlan> finalists;
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    PricedPlan& candidate = sorted[chosen[c]];
    try {
      candidate.price = prices.take(c);
    } catch (const OutOfTime&) {
      break;
    }
    finalists.push_back(std::move(candidate));
  }
  return finalists.empty() ? std::move(sorted) : std::move(finalists);
}

std::vector<PricedPlan> cheapest_first(const StrategyInput& input, std::vector<PricedPlan> sorted) {
  std::vector<std::pair<double, PricedPlan>> priced;
  for (PricedPlan& one : sorted) {
    const double upkeep = input.upkeep(one.plan, one.price.step);
    priced.emplace_back(upkeep, std::move(one));
  }
  std::stable_sort(priced.begin(), priced.end(), [](const auto& a, const auto& b) {
    const auto over = [](const auto& pair) { return pair.second.price.overcommit; };
    return std::pair(over(a), a.first) < std::pair(over(b), b.first);
  });
  for (std::size_t i = 0; i < priced.size(); ++i) sorted[i] = std::move(priced[i].second);
  return sorted;
}

void add_variants_of_best(
    const StrategyInput& input, std::vector<PricedPlan>& finalists,
    const std::function<std::optional<std::vector<PricedPlan>>(const PricedPlan&)>& vary) {
  const Price best = finalists.front().price;
  std::vector<PricedPlan> more;
  for (const PricedPlan& start : finalists) {
    const bool late = start.price.overcommit != best.overcommit ||
                      start.price.step > worth_simulating * best.step;
    if (late) continue;
    std::optional<std::vector<PricedPlan>> others = vary(start);
    if (!others) break;
    for (PricedPlan& other : *others) {
      other.price = simulated_price(input, other.plan);
      more.push_back(std::move(other));
    }
  }
  for (PricedPlan& one : more) finalists.push_back(std::move(one));
  sort_by_price(finalists);
}

}  // namespace parsim::strategies
