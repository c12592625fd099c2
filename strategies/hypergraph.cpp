// Hypergraph partitioning of the network: blocks of filters, or of filters and samples, are
// vertices, what they exchange is nets, and a partition with few words cut and balanced work is the
// plan. A RECONSTRUCTION of Eserol 2019 ("Fast and efficient model parallelism for deep
// convolutional neural networks"), of which only the abstract was available: it partitions a
// network's nodes with a hypergraph partitioner and trains them in a pipelined manner.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "strategies/estimate.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim {

namespace {

using hypergraph::Candidate;
using hypergraph::Recipe;
using hypergraph::Start;

struct Ranking {
  Candidate candidate;
  std::size_t simulated = 0;
};

/// The best by estimate; with a simulator the best by simulation of the few best by estimate and of
/// all that are another strategy's plan, so that the result never loses to one of those.
Ranking chosen(const StrategyInput& input, std::vector<Candidate> candidates) {
  constexpr std::size_t finalists = 6;
  struct Ranked {
    std::size_t index;
    Price price;
  };
  Estimator estimator(input);
  std::vector<Ranked> ranked;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Plan& plan = candidates[i].plan;
    const auto same = [&](const Ranked& other) {
      const Plan& known = candidates[other.index].plan;
      return known.layers == plan.layers && known.schedule == plan.schedule &&
             known.buckets == plan.buckets;
    };
    if (std::none_of(ranked.begin(), ranked.end(), same))
      ranked.push_back({i, {fits(input, plan), estimator.step_time(plan)}});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.price.better_than(b.price); });
  std::vector<std::size_t> kept;
  std::vector<Plan> plans;
  std::size_t searched = 0;
  for (const Ranked& row : ranked) {
    const Candidate& candidate = candidates[row.index];
    if (!candidate.start_itself && ++searched > finalists) continue;
    kept.push_back(row.index);
    plans.push_back(candidate.plan);
    if (input.simulator == nullptr) break;
  }
  const std::size_t best = best_by_simulation(input, plans);
  return {std::move(candidates[kept[best]]), plans.size()};
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
  if (input.micro_batches &&
      (*input.micro_batches < 1 || input.batch % *input.micro_batches != 0)) {
    throw InputError("strategy 'hypergraph'",
                     fmt::format("batch {} in {} micro-batches", input.batch, *input.micro_batches),
                     "a number of micro-batches that divides the batch");
  }
  const bool alone = devices.size() == 1;
  const std::vector<Start> starts = alone ? std::vector<Start>{} : hypergraph::starts_of(input);
  std::vector<Recipe> recipes = hypergraph::recipes_of(input, devices.size());
  if (alone) recipes.resize(1);
  const auto budget = static_cast<std::size_t>(
      std::max<std::int64_t>(1, input.budget.value_or(recipes.size() + starts.size())));
  std::vector<Candidate> candidates;
  bool stopped = false;
  const auto within_budget = [&] {
    stopped = stopped || candidates.size() == budget;
    return !stopped;
  };
  for (const Recipe& recipe : recipes) {
    if (within_budget()) candidates.push_back(hypergraph::candidate_of(input, recipe, starts));
  }
  for (const Start& start : starts) {
    if (input.micro_batches && start.plan.schedule.micro_batches != *input.micro_batches) continue;
    if (within_budget()) candidates.push_back(hypergraph::candidate_of_start(input, start));
  }
  const std::size_t tried = candidates.size();
  Ranking choice = chosen(input, std::move(candidates));
  Plan best = std::move(choice.candidate.plan);
  best.notes = hypergraph::notes_of(input, choice.candidate);
  best.notes.push_back(
      input.simulator == nullptr
          ? fmt::format("the fastest of {} candidates by estimate; none was simulated", tried)
          : fmt::format("the fastest of {} simulated candidates, of {} tried", choice.simulated,
                        tried));
  if (choice.candidate.start_itself)
    best.notes.emplace_back("no partition with fewer words or better balance was faster");
  if (stopped)
    best.notes.push_back(fmt::format("stopped at the budget of {} plan evaluations", tried));
  return best;
}

}  // namespace parsim
