// Hypergraph partitioning of the network: blocks of filters, or of filters and samples, are
// vertices, their communication is nets, and a partition with a small cut and balanced work is the
// plan. A RECONSTRUCTION of Eserol 2019 ("Fast and efficient model parallelism for deep
// convolutional neural networks"), of which only the abstract was available: it partitions a
// network's nodes with a hypergraph partitioner and trains them in a pipelined manner.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

using hypergraph::Candidate;
using hypergraph::Recipe;
using hypergraph::Start;

struct Ranking {
  Candidate candidate;
  std::size_t simulated = 0;
};

/// Lower bound: all devices receive their elements at once, each over the fastest link.
Seconds receiving_time(const StrategyInput& input, std::int64_t elements) {
  BytesPerSecond fastest{0};
  for (const Link& link : input.cluster.links) fastest = std::max(fastest, link.rate);
  const auto devices = static_cast<std::int64_t>(workers(input).size());
  const Bytes each{elements * element_bytes(input.precision) / devices};
  return input.cluster.links.empty() ? Seconds{} : each / fastest;
}

/// The best by estimate; with a simulator the best by simulation of the few best by estimate and of
/// all that are another strategy's plan, so that the result is never worse than one of those. Plans
/// that move too many elements to come near the best are not estimated, and plans with a much
/// longer estimate are not simulated: on many devices that would take longer than all the rest.
Ranking chosen(const StrategyInput& input, std::vector<Candidate> candidates) {
  constexpr std::size_t finalists = 6;
  struct Ranked {
    std::size_t index;
    Price price;
  };
  lowering::Estimator estimator(input.step());
  std::vector<Ranked> ranked;
  std::vector<std::size_t> by_elements(candidates.size());
  std::iota(by_elements.begin(), by_elements.end(), std::size_t{0});
  std::stable_sort(by_elements.begin(), by_elements.end(), [&](std::size_t a, std::size_t b) {
    return candidates[a].elements < candidates[b].elements;
  });
  Price nearest;
  for (const std::size_t i : by_elements) {
    const Plan& plan = candidates[i].plan;
    const auto same = [&](const Ranked& other) {
      const Plan& known = candidates[other.index].plan;
      return known.layers == plan.layers && known.schedule == plan.schedule &&
             known.buckets == plan.buckets;
    };
    if (std::any_of(ranked.begin(), ranked.end(), same)) continue;
    const Price bound{0, receiving_time(input, candidates[i].elements) / hopeless_estimate};
    if (!ranked.empty() && nearest.better_than(bound)) continue;
    ranked.push_back({i, estimated_price(input, estimator, plan)});
    if (ranked.size() == 1 || ranked.back().price.better_than(nearest))
      nearest = ranked.back().price;
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.price.better_than(b.price); });
  if (!input.simulate) return {std::move(candidates[ranked[0].index]), 0};
  std::size_t searched = 0, simulated = 0, best = ranked[0].index;
  Price least;
  for (const Ranked& row : ranked) {
    const Candidate& candidate = candidates[row.index];
    if (!candidate.start_itself && ++searched > finalists) continue;
    if (simulated > 0 &&
        least.better_than({row.price.overcommit, row.price.step / hopeless_estimate}))
      continue;
    const Price price = simulated_price(input, candidate.plan);
    if (++simulated > 1 && !price.better_than(least)) continue;
    best = row.index;
    least = price;
  }
  return {std::move(candidates[best]), simulated};
}

}  // namespace

Plan plan_hypergraph(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  // The partitioner's tables grow with devices x sets of readers.
  constexpr std::size_t most_devices = 256;
  if (devices.size() > most_devices) {
    throw InputError("strategy 'hypergraph'", fmt::format("{} devices", devices.size()),
                     fmt::format("at most {}", most_devices));
  }
  expect_whole_micro_batches(input.batch, input.micro_batches.value_or(1), "hypergraph");
  const bool alone = devices.size() == 1;
  const std::vector<Start> starts = alone ? std::vector<Start>{} : hypergraph::starts_of(input);
  std::vector<std::vector<Recipe>> families = hypergraph::recipes_of(input, devices.size());
  if (alone) {  // the whole network is on the device: only micro-batches are left to choose
    std::vector<std::vector<Recipe>> different;
    for (const std::vector<Recipe>& family : families) {
      const auto same = [&](const std::vector<Recipe>& other) {
        return other[0].micro_batches == family[0].micro_batches;
      };
      if (std::none_of(different.begin(), different.end(), same)) different.push_back({family[0]});
    }
    families = std::move(different);
  }
  std::size_t most = starts.size() + 2;  // two recipes that share memory out
  for (const std::vector<Recipe>& family : families) most += family.size();
  const auto budget = static_cast<std::size_t>(
      std::max<std::int64_t>(1, input.budget.value_or(static_cast<std::int64_t>(most))));
  std::vector<Candidate> candidates;
  bool stopped = false;
  const auto within_budget = [&] {
    stopped = stopped || candidates.size() == budget;
    if (input.progress) {
      input.progress(std::min(1.0, static_cast<double>(candidates.size()) /
                                       static_cast<double>(std::min(budget, most))));
    }
    return !stopped;
  };
  lowering::Estimator estimator(input.step());
  Price best_start{std::numeric_limits<std::int32_t>::max(), {}};
  std::vector<Price> prices;
  for (const Start& start : starts) {
    Price limit = best_start;
    if (limit.fits()) limit.step = hopeless_estimate * limit.step;
    prices.push_back(estimated_price(input, estimator, start.plan, limit));
    if (prices.back().better_than(best_start)) best_start = prices.back();
  }
  // Plans that are far behind are partitions to begin with, and no more.
  const Price useful{best_start.overcommit, hopeless_estimate * best_start.step};
  for (std::size_t s = 0; s < starts.size(); ++s) {
    if (useful.better_than(prices[s])) continue;
    const Plan& plan = starts[s].plan;
    if (input.micro_batches && plan.schedule.micro_batches != *input.micro_batches) continue;
    if (within_budget()) candidates.push_back(hypergraph::candidate_of_start(input, starts[s]));
  }
  // Where two families in a row come near no start, the less promising ones do not either.
  constexpr int hopeless_families = 2;
  int far_families = 0;
  for (const std::vector<Recipe>& family : families) {
    if (far_families == hopeless_families) break;
    bool near = false;
    for (const Recipe& recipe : family) {
      if (!within_budget()) break;
      candidates.push_back(hypergraph::candidate_of(input, recipe, starts));
      Price price = estimated_price(input, estimator, candidates.back().plan);
      price.step = price.step / hopeless_estimate;
      near = !best_start.better_than(price);
      if (!near) break;  // variants differ little
    }
    far_families = near ? 0 : far_families + 1;
  }
  const auto some_fits = [&] {
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const Candidate& c) { return fits(input, c.plan); });
  };
  if (!alone && !some_fits()) {
    for (const Recipe& recipe : hypergraph::memory_recipes_of(input, devices.size())) {
      if (within_budget()) candidates.push_back(hypergraph::candidate_of(input, recipe, starts));
    }
  }
  if (input.progress) input.progress(1);
  const std::size_t tried = candidates.size();
  Ranking choice = chosen(input, std::move(candidates));
  Plan best = std::move(choice.candidate.plan);
  best.notes = hypergraph::notes_of(input, choice.candidate);
  best.notes.push_back(
      !input.simulate
          ? fmt::format("fastest of {} by estimate; none was simulated",
                        counted(static_cast<std::int64_t>(tried), "candidate"))
          : fmt::format("fastest of {} simulated candidates, {} tried", choice.simulated, tried));
  if (choice.candidate.start_itself)
    best.notes.emplace_back("no partition with less communication or better balance was faster");
  if (stopped)
    best.notes.push_back(fmt::format("the search used its budget of {}",
                                     counted(static_cast<std::int64_t>(tried), "plan evaluation")));
  return best;
}

}  // namespace parsim::strategies
