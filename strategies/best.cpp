// The fastest plan that fits: plans of all other strategies, then local search from the best of
// them with the estimator, then simulation of the finalists.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/best/moves.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

/// Evaluations a device, shared out: an evaluation takes as much longer as there are more devices.
/// 3000 for eight devices, half a second for ResNet-50.
constexpr std::int64_t budget_of_one_device = 24'000;
constexpr std::int64_t least_budget = 60, most_budget = 6'000;
constexpr std::size_t searched_starts = 3;
constexpr std::size_t listed_plans = 5;

struct Finalist {
  Plan plan;
  std::string origin;
  Price price;  ///< estimated, later simulated
};

/// Better first; ties keep the order.
void sort_by_price(std::vector<Finalist>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), [](const Finalist& a, const Finalist& b) {
    return a.price.better_than(b.price);
  });
}

void add(std::vector<Finalist>& candidates, Plan plan, std::string origin) {
  const auto same = [&](const Finalist& known) {
    return known.plan.layers == plan.layers && known.plan.schedule == plan.schedule &&
           known.plan.buckets == plan.buckets;
  };
  if (std::none_of(candidates.begin(), candidates.end(), same)) {
    candidates.push_back({std::move(plan), std::move(origin), {}});
  }
}

/// Every other strategy's plan for the input.
std::vector<Finalist> other_strategies(const StrategyInput& input) {
  std::vector<Finalist> starts;
  StrategyInput alone = input;  // as if it ran alone
  alone.known = {};
  alone.progress = {};
  for (const Strategy& row : all()) {
    if (row.plan == plan_best) continue;
    const auto known = std::find_if(input.known.begin(), input.known.end(),
                                    [&](const Plan& plan) { return plan.strategy == row.name; });
    if (known != input.known.end()) {
      add(starts, without_memory_options(*known), row.name);
      continue;
    }
    try {
      add(starts, row.plan(alone), row.name);
    } catch (const InputError&) {  // no plan for this input
    }
  }
  return starts;
}

/// The same strategies with options that the user left open.
void add_variants(std::vector<Finalist>& starts, const StrategyInput& input) {
  const auto attempt = [&](const StrategyInput& asked, Plan (*plan)(const StrategyInput&),
                           const std::string& origin) {
    try {
      add(starts, plan(asked), origin);
    } catch (const InputError&) {
    }
  };
  StrategyInput proportional = input;
  proportional.shares = ShareRule::proportional;
  attempt(proportional, plan_data, "data, shares proportional");
  if (input.micro_batches) return;
  const auto devices = static_cast<std::int32_t>(workers(input).size());
  for (const std::int32_t factor : {1, 2, 4}) {
    StrategyInput pipelined = input;
    pipelined.micro_batches = factor * devices;
    attempt(pipelined, plan_pipeline, fmt::format("pipeline, {} micro-batches", factor * devices));
  }
}

/// Local search from a start: a change is kept if it makes the plan better. Returns the number
/// kept. `begin`, `share`: for progress, which part of all searching this is.
std::int64_t improve(const StrategyInput& input, lowering::Estimator& estimator, Moves& moves,
                     Finalist& candidate, std::int64_t budget, double begin, double share) {
  std::int64_t kept = 0;
  constexpr std::int64_t pause = 16;
  for (std::int64_t spent = 0; spent < budget; ++spent) {
    if (input.progress && spent % pause == 0) {
      input.progress(begin + share * static_cast<double>(spent) / static_cast<double>(budget));
    }
    if (!moves.propose(candidate.plan)) continue;
    bool better = false;
    try {
      const Price price = estimated_price(input, estimator, candidate.plan, candidate.price);
      better = price.better_than(candidate.price);
      if (better) {
        validate(candidate.plan, input.network, input.cluster, "strategy 'best'");
        candidate.price = price;
      }
    } catch (const InputError&) {  // the change makes an impossible plan
      better = false;
    }
    if (better) {
      ++kept;
    } else {
      moves.take_back(candidate.plan);
    }
  }
  return kept;
}

/// The changed copies of the best starts.
std::vector<Finalist> improved(const StrategyInput& input, lowering::Estimator& estimator,
                               const std::vector<Finalist>& starts, std::int64_t budget) {
  std::vector<Plan> templates;
  for (const Finalist& start : starts) templates.push_back(start.plan);
  std::vector<Finalist> results;
  const std::size_t count = std::min(searched_starts, starts.size());
  const double share = 1 / static_cast<double>(count);
  for (std::size_t s = 0; s < count; ++s) {
    Moves moves(input, templates, input.seed + s);
    Finalist candidate = starts[s];
    const std::int64_t kept =
        improve(input, estimator, moves, candidate, budget / static_cast<std::int64_t>(count),
                static_cast<double>(s) * share, share);
    if (kept == 0) continue;
    candidate.origin += " + " + counted(static_cast<std::int64_t>(kept), "change");
    results.push_back(std::move(candidate));
  }
  return results;
}

std::string price_text(const Finalist& candidate) {
  return fmt::format("{} {:.4g} ms{}", candidate.origin, candidate.price.step.count() * 1e3,
                     candidate.price.fits() ? "" : " (does not fit)");
}

}  // namespace

Plan plan_best(const StrategyInput& asked) {
  expect_interleavable(asked, asked.pipeline_parallel, "--vp");
  StrategyInput input = asked;
  lowering::PriceCache prices(asked.step());
  if (input.prices == nullptr) input.prices = &prices;
  std::vector<Finalist> finalists = other_strategies(input);
  if (finalists.empty()) {
    throw InputError("strategy 'best'", "no other strategy has a plan",
                     "a network, cluster and batch that at least one strategy can split");
  }
  add_variants(finalists, input);
  lowering::Estimator estimator(input.step());
  for (Finalist& start : finalists) {
    start.price = estimated_price(input, estimator, start.plan);
  }
  sort_by_price(finalists);
  const auto devices = static_cast<std::int64_t>(workers(input).size());
  const std::int64_t budget =
      input.budget.value_or(std::clamp(budget_of_one_device / devices, least_budget, most_budget));
  for (Finalist& candidate : improved(input, estimator, finalists, budget)) {
    add(finalists, candidate.plan, candidate.origin);
    finalists.back().price = candidate.price;
  }
  if (input.simulate) {
    for (Finalist& finalist : finalists) {
      finalist.price = simulated_price(input, finalist.plan);
    }
  }
  sort_by_price(finalists);

  Plan plan = finalists[0].plan;
  plan.strategy = "best";
  plan.notes.clear();
  plan.notes.push_back(fmt::format("starts from {}", finalists[0].origin));
  std::vector<std::string> top;
  for (std::size_t i = 0; i < std::min(listed_plans, finalists.size()); ++i) {
    top.push_back(price_text(finalists[i]));
  }
  plan.notes.push_back(
      fmt::format("fastest plans, {}: {}", input.simulate ? "simulated" : "estimated", join(top)));
  plan.notes.push_back(
      fmt::format("the local search used its budget of {}", counted(budget, "plan evaluation")));
  for (const std::string& note : finalists[0].plan.notes) {
    plan.notes.push_back(fmt::format("{}: {}", finalists[0].plan.strategy, note));
  }
  return plan;
}

}  // namespace parsim::strategies
