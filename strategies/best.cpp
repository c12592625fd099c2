// The fastest plan that fits: plans of all other strategies, then local search from the best of
// them with the estimator, then simulation of the finalists.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/at_once.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/best/fewer_machines.hpp"
#include "strategies/best/joint_borders.hpp"
#include "strategies/degrees.hpp"
#include "strategies/experts.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/out_of_time.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/context.hpp"

namespace parsim::strategies {

namespace {

/// Evaluations a device, shared out: an evaluation takes as much longer as there are more devices.
/// 2,500 for eight devices, half a second for ResNet-50.
constexpr std::int64_t budget_of_one_device = 20'000;
constexpr std::int64_t least_budget = 60, most_budget = 10'000;
constexpr std::size_t listed_plans = 5;

std::int64_t budget_for(const StrategyInput& input, std::size_t devices) {
  return input.budget.value_or(std::clamp(budget_of_one_device / static_cast<std::int64_t>(devices),
                                          least_budget, most_budget));
}

void add(std::vector<PricedPlan>& candidates, PricedPlan candidate) {
  const auto same = [&](const PricedPlan& known) { return same_plan(known.plan, candidate.plan); };
  if (std::none_of(candidates.begin(), candidates.end(), same)) {
    candidates.push_back(std::move(candidate));
  }
}

/// What further plans must beat to be of use: nothing, as long as no plan fits.
Price useful(const std::vector<PricedPlan>& known) {
  Price limit{std::numeric_limits<std::int32_t>::max(), {}};
  for (const PricedPlan& one : known) {
    if (one.price.better_than(limit)) limit = one.price;
  }
  if (!limit.fits()) return {std::numeric_limits<std::int32_t>::max(), {}};
  return {0, hopeless_estimate * limit.step};
}

/// Plans of other strategies as starts, with memory options: the best of each, and none, as its own
/// row has it.
class Starts {
 public:
  Starts(const StrategyInput& input, lowering::Estimator& estimator)
      : input_(input),
        estimator_(estimator),
        memory_(input, estimator),
        known_(input.known.begin(), input.known.end()),
        many_layers_(are_many_layers(input)) {}

  /// Of those that plan quickly, and `data` by speed; of the others if not. Of many layers on many
  /// devices the others are not asked, if some plan fits, but taken where the caller knows them:
  /// they would take longer than all the rest, and their plans exchange too much there.
  void add_strategies(bool quick, std::vector<PricedPlan>& starts) {
    const bool asks = quick || !useful(starts).fits() || !many_layers_;
    constexpr std::array<std::string_view, 4> quick_ones{"data", "pipeline", "hybrid", "tensor"};
    StrategyInput asked = input_;
    if (many_layers_ && asked.simulate && !has_mixed_stages(input_)) {
      // What a strategy chooses among is a start here, and all starts are judged by estimates. Of
      // stages that differ estimates err in more than their links.
      asked.simulate = [&](const Plan& plan) { return estimated_step(estimator_, plan); };
    }
    asked.known = known_;
    std::vector<const Strategy*> rows, unknown;
    for (const Strategy& row : all()) {
      const bool is_quick =
          std::find(quick_ones.begin(), quick_ones.end(), row.name) != quick_ones.end();
      if (row.plan == plan_best || is_quick != quick) continue;
      const auto made = [&](const Plan& plan) { return plan.strategy == row.name; };
      const bool known = std::any_of(known_.begin(), known_.end(), made);
      if (!asks && !known) continue;
      rows.push_back(&row);
      if (!known && !row.starts_from_others) unknown.push_back(&row);
    }
    AtOnce<Plan> plans(asked, unknown.size(), [&](const StrategyInput& own, std::size_t i) {
      return plan_of(own, *unknown[i]);
    });
    std::size_t next = 0;
    for (const Strategy* row : rows) {
      asked.known = known_;  // hypergraph starts from them, too
      const bool taken = next < unknown.size() && unknown[next] == row;
      attempt(row->name, asked.shares, starts,
              [&] { return taken ? plans.take(next++) : plan_of(asked, *row); });
    }
    if (!quick) return;
    asked.known = {};
    asked.shares = ShareRule::proportional;
    attempt("data, shares proportional", asked.shares, starts,
            [&] { return plan_of(asked, strategy("data", "best")); });
  }

  /// Of these strategies alone.
  void add_rows(std::span<const std::string_view> names, std::vector<PricedPlan>& starts) {
    for (const std::string_view name : names) {
      attempt(std::string(name), input_.shares, starts,
              [&] { return plan_of(input_, strategy(name, "best")); });
    }
    sort_by_price(starts);
  }

 private:
  template <class MakePlan>
  void attempt(const std::string& origin, ShareRule shares, std::vector<PricedPlan>& starts,
               const MakePlan& make_plan) {
    try {
      Plan plan = make_plan();
      if (shares == input_.shares) known_.push_back(plan);
      if (!keeps_degrees(input_, plan)) return;
      const auto same = [&](const Plan& tried) { return same_plan(tried, plan); };
      if (std::any_of(tried_.begin(), tried_.end(), same)) return;
      add_variants(plan, origin, starts);
      tried_.push_back(std::move(plan));
    } catch (const InputError&) {  // no plan for this input, or one that cannot be lowered
    }
  }

  void add_variants(const Plan& plan, const std::string& origin, std::vector<PricedPlan>& starts) {
    // A plan with a longer estimate may cost less, or launch fewer kernels.
    const bool any = input_.upkeep || input_.hosts_matter;
    const Price limit = any ? Price{std::numeric_limits<std::int32_t>::max(), {}} : useful(starts);
    std::vector<PricedPlan> variants = memory_.variants(plan, origin, limit);
    if (variants.empty()) {
      Plan asked = with_memory_options(input_, plan);
      if (limit.fits() || !accepted(input_, asked)) return;  // too slow, or not to be chosen
      // No such ZeRO groups: the caller says so.
      const Price price = estimated_price(input_, estimator_, plan);
      variants.push_back({std::move(asked), origin, price, {}});
    }
    sort_by_price(variants);
    const auto own = std::find_if(variants.begin() + 1, variants.end(),
                                  [&](const PricedPlan& one) { return one.is_row(input_); });
    if (own != variants.end()) add(starts, std::move(*own));
    add(starts, std::move(variants.front()));
  }

  const StrategyInput& input_;
  lowering::Estimator& estimator_;
  MemorySearch memory_;
  std::vector<Plan> known_;  ///< for strategies that start from others
  bool many_layers_;
  std::vector<Plan> tried_;
};

/// Searches beyond the strategies of the table, of plans with memory options of their own. A
/// further one is a line here.
using CandidateSearch = std::vector<PricedPlan> (*)(const StrategyInput&, lowering::Estimator&,
                                                    const Price& limit);
constexpr std::pair<std::string_view, CandidateSearch> candidate_searches[] = {
    {"stages that differ", candidates_of_mixed_stages},
    {"degrees and memory options", candidates_by_degrees}};

/// The parts of a search, until time is out.
class Parts {
 public:
  explicit Parts(const StrategyInput& input) : input_(input) {}
  /// What `search` had found when time was out stays.
  template <class Search>
  void run(std::string name, const Search& search) {
    try {
      if (lacking_.empty()) search();
    } catch (const OutOfTime&) {  // asked again below
    }
    if (out_of_time(input_)) lacking_.push_back(std::move(name));
  }
  [[nodiscard]] const std::vector<std::string>& lacking() const { return lacking_; }

 private:
  const StrategyInput& input_;
  std::vector<std::string> lacking_;
};

std::string price_text(const PricedPlan& candidate) {
  return fmt::format("{} {:.4g} ms{}", candidate.origin, candidate.price.step.count() * 1e3,
                     candidate.price.fits() ? "" : " (does not fit)");
}

/// Plans that leave machines idle: behind slow links more of them may take longer. Where data
/// parallelism is no slower without some machines, other strategies are asked for plans without
/// them; the best of these are changed as those on all machines were.
class FewerMachines {
 public:
  /// start   the best plan on all machines before changes
  FewerMachines(const StrategyInput& input, lowering::Estimator& estimator, const Price& start)
      : input_(input),
        own_(input),
        estimator_(estimator),
        start_(start),
        all_(workers(input).size()) {
    own_.known = {};
  }

  /// Those that are about as good as the best one after changes, or better.
  [[nodiscard]] std::vector<PricedPlan> plans(Price best) {
    constexpr std::size_t most_rounds = 3;
    std::vector<PricedPlan> found;
    for (std::size_t round = 0; round < most_rounds && best.fits(); ++round) {
      bool better = false;
      std::vector<DeviceId> next;
      for (Set& set : promising(best)) {
        change(set);
        if (set.starts.front().price.better_than(best)) {
          better = true;
          best = set.starts.front().price;
          next = set.devices;
        }
        for (PricedPlan& one : set.starts) {
          one.origin += fmt::format(", on {} of {} GPUs", set.devices.size(), all_);
          found.push_back(std::move(one));
        }
      }
      if (!better) break;
      own_.only = std::move(next);
    }
    return found;
  }

 private:
  struct Set {
    std::vector<DeviceId> devices;
    std::vector<PricedPlan> starts;  ///< at least one, best first
  };

  std::vector<PricedPlan> starts_of(std::span<const std::string_view> names) {
    std::vector<PricedPlan> starts;
    Starts(own_, estimator_).add_rows(names, starts);
    return starts;
  }

  /// Unlike machines, and few: more are searched in all detail.
  [[nodiscard]] bool worth_time() const {
    constexpr std::size_t few_devices = 16;
    return all_ <= few_devices && worker_classes(input_).size() > 1;
  }

  void change(Set& set) {
    constexpr std::int64_t few_changes = 40;
    own_.only = set.devices;
    if (worth_time() && !has_mixed_stages(own_)) {  // layers may be borrowed from all strategies
      Starts others(own_, estimator_);
      for (const bool quick : {true, false}) others.add_strategies(quick, set.starts);
      sort_by_price(set.starts);
    }
    const std::int64_t all = budget_for(input_, set.devices.size());
    if (!worth_time()) return climb(set, std::vector(set.starts), std::min(all, few_changes));
    // With memory options and without them: which start is better may hang on a hair.
    std::vector<PricedPlan> rows;
    std::copy_if(set.starts.begin(), set.starts.end(), std::back_inserter(rows),
                 [&](const PricedPlan& one) { return one.is_row(input_); });
    climb(set, rows, all / 2);
    climb(set, std::vector(set.starts), all / 2);
  }

  void climb(Set& set, const std::vector<PricedPlan>& from, std::int64_t budget) {
    if (from.empty()) return;
    for (PricedPlan& one : improved(own_, estimator_, from, std::max<std::int64_t>(1, budget))) {
      add(set.starts, std::move(one));
    }
    sort_by_price(set.starts);
  }

  std::vector<Set> promising(const Price& best) {
    constexpr std::size_t most_sets = 2;
    constexpr double near = 1.1, unchanged = 1.3;  // changes may gain so much more here
    constexpr std::string_view data[] = {"data"};
    constexpr std::string_view others[] = {"pipeline", "owt", "layer-wise"};
    if (are_many_layers(input_)) return {};
    const std::vector<std::vector<DeviceId>> fewer = fewer_machines(own_, best.step);
    if (fewer.empty()) return {};
    const std::vector<PricedPlan> before = starts_of(data);
    std::vector<Set> sets;
    for (const std::vector<DeviceId>& devices : fewer) {
      own_.only = devices;
      Set set{devices, starts_of(data)};
      if (set.starts.empty() || !set.starts.front().price.fits()) continue;
      const Seconds step = set.starts.front().price.step;
      if (!before.empty() && step > before.front().price.step) continue;
      if (!worth_time() && step > unchanged * best.step) continue;
      if (worth_time()) {
        for (PricedPlan& one : starts_of(others)) add(set.starts, std::move(one));
        sort_by_price(set.starts);
      }
      if (worth_time() && set.starts.front().price.step > near * start_.step) continue;
      sets.push_back(std::move(set));
    }
    std::stable_sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) {
      return a.starts.front().price.better_than(b.starts.front().price);
    });
    if (sets.size() > most_sets) sets.resize(most_sets);
    return sets;
  }

  const StrategyInput& input_;
  StrategyInput own_;
  lowering::Estimator& estimator_;
  Price start_;
  std::size_t all_;
};

}  // namespace

Plan plan_best(const StrategyInput& asked) {
  expect_interleavable(asked, asked.pipeline_parallel, "--vp");
  expect_experts(asked);
  tensor::expect_context(asked);
  expect_whole_micro_batches(asked.batch, asked.micro_batches.value_or(1), "best");
  StrategyInput input = asked;
  lowering::PriceCache prices(asked.step());
  if (input.prices == nullptr) input.prices = &prices;
  lowering::Estimator estimator(input.step());
  std::vector<PricedPlan> finalists;
  Starts starts(input, estimator);
  Parts parts(input);
  parts.run("plans of other strategies", [&] { starts.add_strategies(true, finalists); });
  sort_by_price(finalists);
  const Price limit = finalists.empty() ? Price{std::numeric_limits<std::int32_t>::max(), {}}
                                        : finalists.front().price;
  StrategyInput searching = input;
  if (!has_mixed_stages(input)) searching.at_once = {};  // one of the two does nothing
  AtOnce<std::vector<PricedPlan>> found(
      searching, std::size(candidate_searches), [&](const StrategyInput& own, std::size_t s) {
        return candidate_searches[s].second(own, estimator, limit);
      });
  for (std::size_t s = 0; s < std::size(candidate_searches); ++s) {
    parts.run(std::string(candidate_searches[s].first), [&] {
      for (PricedPlan& candidate : found.take(s)) add(finalists, std::move(candidate));
    });
  }
  // The others' plans are what `accepts` is there to leave out: layers with degrees of their own.
  if (!input.accepts || finalists.empty()) {
    parts.run("splits of single layers", [&] { starts.add_strategies(false, finalists); });
  }
  if (finalists.empty() && !parts.lacking().empty()) throw OutOfTime();
  if (finalists.empty() && !input.accepts && asks_for_degrees(input)) {
    // As good as it can keep them, or it says why not.
    const Plan plan = plan_tensor(input);
    finalists.push_back(
        {with_memory_options(input, plan), "tensor", estimated_price(input, estimator, plan), {}});
  }
  if (finalists.empty() && !input.accepts) {
    throw InputError("strategy 'best'", "no other strategy has a plan",
                     "a network, cluster and batch that at least one strategy can split");
  }
  sort_by_price(finalists);
  if (parts.lacking().empty() && input.accepts &&
      (finalists.empty() || !finalists.front().price.fits())) {
    // Others fit, perhaps; the caller can say what keeps them from being accepted.
    StrategyInput all = input;
    all.accepts = {};
    Plan plan = plan_best(all);
    if (finalists.empty() || fits(all, plan)) return plan;
  }
  const std::int64_t budget = budget_for(input, workers(input).size());
  const Price start = finalists.front().price;
  parts.run("changes", [&] {
    for (PricedPlan& candidate : improved(input, estimator, finalists, budget)) {
      add(finalists, std::move(candidate));
    }
  });
  sort_by_price(finalists);
  parts.run("plans on fewer machines", [&] {
    const Price best = finalists.front().price;
    for (PricedPlan& one : FewerMachines(input, estimator, start).plans(best)) {
      add(finalists, std::move(one));
    }
  });
  sort_by_price(finalists);
  parts.run("borders and recomputation", [&] { add_joint_borders(input, estimator, finalists); });
  if (input.simulate) {
    parts.run("simulation of the best plans", [&] {
      finalists = simulated(input, std::move(finalists));
      sort_by_price(finalists);
    });
    parts.run("changes of stages", [&] {
      const PricedPlan& first = finalists.front();
      std::optional<Plan> varied = varied_stages(input, estimator, first.plan);
      if (!varied || !keeps_degrees(input, *varied)) return;
      const Price price = simulated_price(input, *varied);
      finalists.push_back(
          {std::move(*varied), first.origin + ", other stages", price, first.memory});
      sort_by_price(finalists);
    });
    parts.run("orders of micro-batches", [&] { add_orders_by_time(input, estimator, finalists); });
    parts.run("sizes of buckets", [&] { add_other_buckets(input, estimator, finalists); });
    if (input.upkeep) finalists = cheapest_first(input, std::move(finalists));
  }

  Plan plan = finalists[0].plan;
  plan.strategy = "best";
  plan.notes.clear();
  plan.notes.push_back(fmt::format("starts from {}", finalists[0].origin));
  if (input.schedule && plan.schedule.micro_batches == 1) {
    plan.notes.push_back(fmt::format("--schedule {} changes nothing: the plan has one micro-batch",
                                     to_text(*input.schedule)));
  }
  if (!parts.lacking().empty()) {
    plan.notes.push_back(std::string(search_stopped) + join(parts.lacking()));
  }
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
