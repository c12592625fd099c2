#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/at_once.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/best/moves.hpp"
#include "strategies/out_of_time.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

namespace {

/// So many starts are searched from; more of them where each still gets so many evaluations.
constexpr std::size_t fewest_starts = 3, most_starts = 8;
constexpr std::int64_t enough_evaluations = 250;
/// The second round of the search is for so many of the starts' plans.
constexpr std::size_t survivors = 2;

/// A plan that local search changes.
struct Climber {
  PricedPlan candidate;
  std::int64_t kept = 0, spent = 0;
};

auto packed_parts(PackedAs<Climber> auto& value) {
  auto& [candidate, kept, spent] = value;
  return std::tie(candidate, kept, spent);
}

/// What one start's search is a part of, for progress.
struct Part {
  double begin = 0, share = 1;
};

/// Local search from a start with at most so many evaluations: a change is kept if it makes the
/// plan better. First the listed changes until none of them does, then random ones.
class Climbing {
 public:
  Climbing(const StrategyInput& input, lowering::Estimator& estimator, const Plan& start,
           const std::vector<Plan>& templates, std::uint64_t seed, Part part)
      : input_(input), estimator_(estimator), moves_(input, start, templates, seed), part_(part) {}

  void run(Climber& climber, std::int64_t budget, bool random) {
    budget_ = budget;
    spent_ = 0;
    try {
      for (bool better = true; better && spent_ < budget;) better = try_listed(climber);
      // Until as many were in vain as would show that little is left to find.
      const std::int64_t most_in_vain = budget / 4;
      std::int64_t failed = 0;
      while (random && failed < most_in_vain && spent_ < budget) {
        failed = tried(climber, moves_.propose(climber.candidate.plan)) ? 0 : failed + 1;
      }
    } catch (const OutOfTime&) {
      moves_.take_back(climber.candidate.plan);
    }
    climber.spent += spent_;
  }

 private:
  /// Every listed change alone, then those that are better one after the other, the one that gains
  /// most first. Whether one was kept.
  bool try_listed(Climber& climber) {
    std::vector<std::pair<Price, std::size_t>> better;
    const std::int64_t most = spent_ + (budget_ - spent_ + 1) * 3 / 4;
    for (std::size_t i = 0; i < moves_.listed() && spent_ < most; ++i) {
      if (!moves_.propose(climber.candidate.plan, i)) continue;
      if (const std::optional<Price> price = better_price(climber)) better.push_back({*price, i});
      moves_.take_back(climber.candidate.plan);
    }
    std::stable_sort(better.begin(), better.end(),
                     [](const auto& a, const auto& b) { return a.first.better_than(b.first); });
    bool kept = false;
    for (const auto& [price, i] : better) {
      if (spent_ >= budget_) break;
      if (tried(climber, moves_.propose(climber.candidate.plan, i))) kept = true;
    }
    return kept;
  }
  /// Whether the proposal is better, and kept.
  bool tried(Climber& climber, bool proposed) {
    if (!proposed) return false;
    const std::optional<Price> price = better_price(climber);
    if (!price) {
      moves_.take_back(climber.candidate.plan);
      return false;
    }
    climber.candidate.price = *price;
    ++climber.kept;
    return true;
  }
  /// Of the changed plan, if it is better than before and may be chosen.
  std::optional<Price> better_price(const Climber& climber) {
    constexpr std::int64_t pause = 16;
    if (input_.progress && spent_ % pause == 0) {
      input_.progress(part_.begin +
                      part_.share * static_cast<double>(spent_) / static_cast<double>(budget_));
    }
    ++spent_;
    const PricedPlan& candidate = climber.candidate;
    try {
      const Price price = estimated_price(input_, estimator_, candidate.plan, candidate.price);
      if (!price.better_than(candidate.price)) return std::nullopt;
      validate(candidate.plan, input_.network, input_.cluster, "strategy 'best'");
      const bool may = keeps_degrees(input_, candidate.plan) && accepted(input_, candidate.plan);
      return may ? std::optional(price) : std::nullopt;
    } catch (const InputError&) {  // the change makes an impossible plan
      return std::nullopt;
    }
  }

  const StrategyInput& input_;
  lowering::Estimator& estimator_;
  Moves moves_;
  Part part_;
  std::int64_t budget_ = 1, spent_ = 0;
};

/// Gives a changed plan the memory options that suit it now.
void choose_memory(const StrategyInput& input, lowering::Estimator& estimator,
                   PricedPlan& candidate) {
  MemorySearch memory(input, estimator);
  std::string origin = candidate.origin;
  const std::string suffix = candidate.memory.text();
  if (origin.ends_with(suffix)) origin.resize(origin.size() - suffix.size());
  for (PricedPlan& variant : memory.variants(candidate.plan, origin, candidate.price)) {
    if (!variant.price.better_than(candidate.price)) continue;
    if (keeps_degrees(input, variant.plan)) candidate = std::move(variant);
  }
}

/// How many evaluations a start is worth: where layers have stages there are few changes.
std::int64_t weight(const Plan& plan) { return plan.schedule.rank_lists.size() > 1 ? 1 : 3; }

/// Whether two plans have the same price and stages: as good as one.
bool alike(const PricedPlan& a, const PricedPlan& b) {
  constexpr double equal = 1e-9;
  return a.price.overcommit == b.price.overcommit &&
         std::abs(a.price.step / b.price.step - 1) < equal &&
         a.plan.schedule.rank_lists.size() == b.plan.schedule.rank_lists.size() &&
         a.plan.schedule.micro_batches == b.plan.schedule.micro_batches;
}

/// Starts for as many searches, that differ in more than memory options and the order of
/// micro-batches: the best of each number of stages and micro-batches, which changes leave as they
/// are, then the best of the others.
std::vector<PricedPlan> distinct(const Network& network, const std::vector<PricedPlan>& starts,
                                 std::size_t most) {
  std::vector<const PricedPlan*> different;
  std::vector<Plan> seen;
  for (const PricedPlan& start : starts) {
    if (start.price.step > hopeless_estimate * starts.front().price.step) continue;
    Plan bare =
        in_order(without_memory_options(network, start.plan), PipelineSchedule::one_f_one_b);
    const auto same = [&](const Plan& plan) { return same_plan(plan, bare); };
    const auto same_price = [&](const PricedPlan* other) { return alike(*other, start); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    if (std::any_of(different.begin(), different.end(), same_price)) continue;
    seen.push_back(std::move(bare));
    different.push_back(&start);
  }
  std::set<std::pair<std::size_t, std::int32_t>> kinds;
  std::vector<PricedPlan> chosen, others;
  for (const PricedPlan* start : different) {
    const Schedule& order = start->plan.schedule;
    const bool first = kinds.insert({order.rank_lists.size(), order.micro_batches}).second;
    (first ? chosen : others).push_back(*start);
  }
  chosen.insert(chosen.end(), others.begin(), others.end());
  if (chosen.size() > most) chosen.resize(most);
  sort_by_price(chosen);
  return chosen;
}

/// Every layer cut over the first `devices`, by sample or as Megatron-LM cuts it, in groups of
/// every size: what a change may make of a layer does not depend on which plans fit or are fast as
/// a whole.
void add_whole_cuts(const StrategyInput& input, std::size_t devices, std::int32_t micro_batches,
                    std::vector<Plan>& templates) {
  StrategyInput whole = input;
  whole.simulate = {};
  whole.accepts = {};
  whole.pipeline_parallel = 1;
  whole.virtual_pipeline = 1;
  whole.micro_batches = micro_batches;
  const std::vector<GroupOptions> options = group_options(input);
  for (std::size_t size = devices; size > 0; --size) {
    if (devices % size != 0) continue;
    whole.tensor_parallel = static_cast<std::int32_t>(size);
    whole.data_parallel = static_cast<std::int32_t>(devices / size);
    for (std::size_t o = 0; o < (size == devices ? options.size() : 1); ++o) {
      try {
        templates.push_back(plan_tensor(with_groups(whole, options[o])));
      } catch (const InputError&) {  // layers that cannot be cut so often
      }
    }
  }
}

std::size_t devices_of(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const LayerPlan& layer : plan.layers) {
    devices.insert(devices.end(), layer.devices.begin(), layer.devices.end());
  }
  std::sort(devices.begin(), devices.end());
  return static_cast<std::size_t>(std::unique(devices.begin(), devices.end()) - devices.begin());
}

/// What layers may become: as whole cuts have them, or other starts.
std::vector<Plan> templates_for(const StrategyInput& input, const std::vector<PricedPlan>& starts,
                                const std::vector<PricedPlan>& all) {
  std::vector<Plan> templates;
  std::set<std::pair<std::size_t, std::int32_t>> kinds;
  for (const PricedPlan& start : starts) {
    const Schedule& order = start.plan.schedule;
    if (order.rank_lists.size() > 1) continue;
    for (const std::size_t count : {workers(input).size(), devices_of(start.plan)}) {
      if (!kinds.insert({count, order.micro_batches}).second) continue;
      add_whole_cuts(input, count, order.micro_batches, templates);
    }
  }
  for (const PricedPlan& start : all) templates.push_back(start.plan);
  return templates;
}

/// The local searches from several starts, each in a process of its own where there are some. In
/// a first round all try their listed changes, in a second one the best of them go on.
class Climb {
 public:
  Climb(const StrategyInput& input, lowering::Estimator& estimator,
        const std::vector<PricedPlan>& starts, std::vector<Plan> templates, bool chooses_memory)
      : input_(input),
        estimator_(estimator),
        templates_(std::move(templates)),
        chooses_memory_(chooses_memory) {
    for (const PricedPlan& start : starts) climbers_.push_back({start, 0, 0});
  }

  /// So many evaluations for all of them, the listed changes only or also random ones.
  void round(std::int64_t budget, bool random, Part part) {
    std::int64_t weights = 0;
    for (const Climber& climber : climbers_) weights += weight(climber.candidate.plan);
    part.share /= static_cast<double>(climbers_.size());
    AtOnce<Climber> climbed(input_, climbers_.size(), [&](const StrategyInput& own, std::size_t c) {
      Climber climber = climbers_[c];
      if (out_of_time(own)) return climber;
      const std::int64_t before = climber.kept;
      Climbing climbing(own, estimator_, climber.candidate.plan, templates_, own.seed + c,
                        {part.begin + static_cast<double>(c) * part.share, part.share});
      const std::int64_t most = budget * weight(climber.candidate.plan) / weights;
      climbing.run(climber, std::max<std::int64_t>(1, most), random);
      try {
        const bool changed = climber.kept > before;
        if (changed && chooses_memory_) choose_memory(own, estimator_, climber.candidate);
      } catch (const OutOfTime&) {  // as they are, then
      }
      return climber;
    });
    std::vector<Climber> next;
    for (std::size_t c = 0; c < climbers_.size(); ++c) next.push_back(climbed.take(c));
    climbers_ = std::move(next);
    std::stable_sort(climbers_.begin(), climbers_.end(), [](const Climber& a, const Climber& b) {
      return a.candidate.price.better_than(b.candidate.price);
    });
  }
  [[nodiscard]] std::int64_t spent() const { return spent_by(climbers_) + spent_by(done_); }
  /// Ends all but the best that differ; the layers of these may be borrowed from now on.
  void keep_best(std::size_t most) {
    std::vector<Climber> best;
    for (Climber& climber : climbers_) {
      const auto same = [&](const Climber& other) {
        return alike(other.candidate, climber.candidate);
      };
      const bool stays = best.size() < most && std::none_of(best.begin(), best.end(), same);
      (stays ? best : done_).push_back(std::move(climber));
    }
    climbers_ = std::move(best);
    for (const Climber& climber : climbers_) templates_.push_back(climber.candidate.plan);
  }
  /// Those that changed.
  [[nodiscard]] std::vector<PricedPlan> results() && {
    std::vector<PricedPlan> changed;
    for (std::vector<Climber>* climbers : {&climbers_, &done_}) {
      for (Climber& climber : *climbers) {
        if (climber.kept == 0) continue;
        climber.candidate.origin += " + " + counted(climber.kept, "change");
        changed.push_back(std::move(climber.candidate));
      }
    }
    return changed;
  }

 private:
  static std::int64_t spent_by(const std::vector<Climber>& climbers) {
    std::int64_t spent = 0;
    for (const Climber& climber : climbers) spent += climber.spent;
    return spent;
  }

  const StrategyInput& input_;
  lowering::Estimator& estimator_;
  std::vector<Plan> templates_;
  bool chooses_memory_;
  std::vector<Climber> climbers_, done_;
};

}  // namespace

std::vector<PricedPlan> improved(const StrategyInput& input, lowering::Estimator& estimator,
                                 const std::vector<PricedPlan>& all, std::int64_t budget) {
  const auto well_searched = static_cast<std::size_t>(budget / enough_evaluations);
  const std::vector<PricedPlan> starts =
      distinct(input.network, all, std::clamp(well_searched, fewest_starts, most_starts));
  // Where a start gets few evaluations they go to what the starts have, with its memory options.
  const bool few = well_searched < fewest_starts;
  Climb climb(input, estimator, starts,
              templates_for(input, few ? std::vector<PricedPlan>{} : starts, all), !few);
  climb.round(budget / 2, false, {0, 0.5});
  climb.keep_best(survivors);
  climb.round(std::max<std::int64_t>(budget - climb.spent(), 0), true, {0.5, 0.5});
  return std::move(climb).results();
}

}  // namespace parsim::strategies
