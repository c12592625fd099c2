#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/best/memory_forecast.hpp"
#include "strategies/blocks.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/out_of_time.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/degrees.hpp"

namespace parsim::strategies {

namespace {

using tensor::Arrangement;
using tensor::Arranging;
using tensor::ParallelDegrees;

/// Degrees on some of the devices.
struct Placed {
  std::size_t group = 0;  ///< index into what may be asked of tensor-parallel groups
  ParallelDegrees degrees;
  std::vector<DeviceId> devices;             ///< in groups
  double gain = 1;                           ///< of the order of micro-batches, on 1F1B
  double slowdown = 1;                       ///< of what memory makes it compute again
  double step = 0;                           ///< at least (Arranging::least_step), or arranged
  std::optional<Arrangement> arrangement{};  ///< as soon as it is among the most promising
  double correction = 1;                     ///< of `step`, like slowdown for the order alone
  bool fits_easily = false;                  ///< MemoryForecast
};

/// All devices; of unlike ones also those of the fastest types alone.
std::vector<std::vector<DeviceId>> device_lists(const StrategyInput& input) {
  const std::vector<DeviceId> all = workers(input);
  std::map<double, std::vector<DeviceId>, std::greater<>> by_speed;
  for (const DeviceId device : all) {
    by_speed[input.cluster.model(device).peak_at(input.precision).value].push_back(device);
  }
  std::vector<std::vector<DeviceId>> lists{all};
  std::vector<DeviceId> fast;
  for (const auto& [speed, devices] : by_speed) {
    fast.insert(fast.end(), devices.begin(), devices.end());
    if (fast.size() == all.size()) break;
    std::vector<DeviceId> list;
    std::copy_if(all.begin(), all.end(), std::back_inserter(list), [&](DeviceId device) {
      return std::find(fast.begin(), fast.end(), device) != fast.end();
    });
    lists.push_back(std::move(list));
  }
  return lists;
}

/// An input that leaves nothing of that open, and what arranges its plans.
struct Grouped {
  Grouped(const StrategyInput& asked, const GroupOptions& options)
      : input(with_groups(asked, options)), arranging(input) {}
  StrategyInput input;
  Arranging arranging;
};

/// Hands out placements, the most promising first: those that at least take as long as the best
/// arranged one need not be arranged. The closed form errs alike for all placements with the same
/// groups, so that the last estimate corrects it. Those that fit without recomputation and sharded
/// weights, by forecast, and the others take turns: what these cost is less certain.
class Placements {
 public:
  Placements(std::list<Grouped>& groups, lowering::Estimator& estimator) {
    for (Grouped& group : groups) add(group, estimator);
  }

  /// Nothing if none is left that may take less than `limit` by what is certain, and less than
  /// `likely` by what is forecast and learnt, too.
  std::optional<Placed> next(Seconds limit, Seconds likely) {
    turn_ = !turn_;
    for (const bool fits : {turn_, !turn_}) {
      if (auto one = next_of(waiting_[fits ? 1 : 0], limit, likely)) return one;
    }
    return std::nullopt;
  }

  /// The most promising of those that fit easily: for a search in which none of the most
  /// promising ones does.
  std::optional<Placed> next_that_fits() {
    Waiting* from = nullptr;
    Waiting::iterator first;
    for (Waiting& waiting : waiting_) {
      const auto found = std::find_if(waiting.begin(), waiting.end(),
                                      [](const auto& one) { return one.second.fits_easily; });
      if (found == waiting.end() || (from != nullptr && first->first <= found->first)) continue;
      from = &waiting;
      first = found;
    }
    if (from == nullptr) return std::nullopt;
    Placed one = std::move(first->second);
    from->erase(first);
    arrange(one);
    return one;
  }

  /// The estimate of the arrangement, without memory options; or that it takes longer.
  void learn(const Placed& one, Seconds step) {
    corrections_[key_of(one)] = step.count() / one.arrangement->cut.step;
  }

 private:
  using Waiting = std::multimap<float, Placed>;

  std::optional<Placed> next_of(Waiting& waiting, Seconds limit, Seconds likely) {
    while (!waiting.empty()) {
      if (Seconds{waiting.begin()->first} > likely) return std::nullopt;
      Placed one = std::move(waiting.begin()->second);
      waiting.erase(waiting.begin());
      if (Seconds{one.step} > limit) continue;
      const auto learnt = corrections_.find(key_of(one));
      if (one.arrangement && learnt != corrections_.end() && learnt->second > one.correction) {
        one.correction = learnt->second;
        push(std::move(one));
        continue;
      }
      if (one.arrangement) return one;
      arrange(one);
      push(std::move(one));
    }
    return std::nullopt;
  }
  void arrange(Placed& one) {
    if (one.arrangement) return;
    one.arrangement = arrangings_[one.group]->arrange(one.degrees, one.devices);
    one.step = std::max(one.step, one.gain * one.arrangement->cut.step);
  }

  /// Groups of one device have no options: they come with the first.
  void add(Grouped& group, lowering::Estimator& estimator) {
    const StrategyInput& input = group.input;
    arrangings_.push_back(&group.arranging);
    MemoryForecast forecast(input, estimator);
    for (const std::vector<DeviceId>& devices : device_lists(input)) {
      const std::vector<std::vector<DeviceId>> orders = tensor::device_orders(input, devices);
      for (const ParallelDegrees& degrees : tensor::every_degrees(input, devices)) {
        if (degrees.tensor == 1 && arrangings_.size() > 1) continue;
        for (const std::vector<DeviceId>& order : orders) {
          if (input.poll) input.poll();
          Placed one{arrangings_.size() - 1, degrees,
                     tensor::in_groups(input, order, degrees.tensor, degrees.context)};
          one.devices.resize(degrees.group() * degrees.pipeline * degrees.data);
          if (!input.schedule && degrees.micro_batches > 1) {
            one.gain = zero_bubble_gain(degrees.pipeline, degrees.chunks, degrees.micro_batches);
          }
          one.slowdown = forecast.slowdown(degrees, one.devices);
          one.fits_easily = forecast.fits_easily(degrees, one.devices);
          one.step = one.gain * group.arranging.least_step(degrees, one.devices);
          push(std::move(one));
          if (degrees.pipeline == 1) break;
        }
      }
    }
  }
  /// In single precision: what adds up in another order is not another time.
  void push(Placed one) {
    const auto step = static_cast<float>(one.step * one.slowdown * one.correction);
    waiting_[one.slowdown == 1 ? 1 : 0].emplace(step, std::move(one));
  }
  using Key = std::array<std::size_t, 3>;  ///< options of groups, tensor, context
  static Key key_of(const Placed& one) {
    return {one.group, one.degrees.tensor, one.degrees.context};
  }
  std::vector<Arranging*> arrangings_;
  std::array<Waiting, 2> waiting_;  ///< those that fit second
  bool turn_ = false;
  std::map<Key, double> corrections_;
};

struct Found {
  PricedPlan candidate;
  Arrangement arrangement;
  Grouped* group = nullptr;
  std::string degrees{};
};

void sort_found(std::vector<Found>& found) {
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.candidate.price.better_than(b.candidate.price);
  });
}

/// Of memory options that change nothing, such as shards of what has a single owner, the first.
void leave_out_equals(const Network& network, std::vector<Found>& sorted) {
  const auto equal = [&](const Found& a, const Found& b) {
    return a.candidate.price.overcommit == b.candidate.price.overcommit &&
           a.candidate.price.step == b.candidate.price.step &&
           a.arrangement.cut.first == b.arrangement.cut.first &&
           a.candidate.schedule == b.candidate.schedule &&
           without_memory_options(network, a.candidate.plan).layers ==
               without_memory_options(network, b.candidate.plan).layers;
  };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), equal), sorted.end());
}

/// Layers x micro-batches x devices that estimates of a plan walk through, see estimated_step.
std::size_t walked(const StrategyInput& input, const ParallelDegrees& degrees) {
  const std::size_t estimated =
      std::min(static_cast<std::size_t>(degrees.micro_batches), 14 * degrees.pipeline);
  return input.network.layers.size() * estimated * degrees.group() * degrees.data;
}

/// The plan with model chunks cut for another order, if that is another cut; borders that move
/// from here and from there end at different cuts.
std::optional<Plan> cut_for(Arranging& arranging, const Arrangement& arrangement,
                            PipelineSchedule schedule) {
  if (arrangement.degrees.chunks < 2) return std::nullopt;
  const Arrangement other = arranging.cut_for(arrangement, schedule);
  if (other.cut.first == arrangement.cut.first) return std::nullopt;
  return arranging.plan_of(other);
}

/// The arrangement with the stages of a plan like its own.
Arrangement cut_as(Arrangement arrangement, const Plan& plan) {
  const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  for (std::size_t l = stages.size(); l-- > 0;) {
    arrangement.cut.first[static_cast<std::size_t>(stages[l])] = l;
  }
  return arrangement;
}

/// A plan that does not fit, with borders between stages moved until it does; nothing if that is
/// not possible, takes a device more than `enough`, or is no better than `limit`. Adds to `tries`
/// how many cuts it tried.
std::optional<Found> relieve(const StrategyInput& input, lowering::Estimator& estimator,
                             Arranging& arranging, Found over, Seconds enough, const Price& limit,
                             std::size_t& tries) {
  if (over.arrangement.cut.first.size() < 2) return std::nullopt;
  const StrategyInput asked = with_options(input, over.candidate.memory);
  // A step is taken to be as much longer as its busiest device works longer.
  const Seconds stretch = over.candidate.price.step / arranging.busiest(over.arrangement);
  const auto make = [&](const std::vector<std::size_t>& first) -> std::optional<Plan> {
    Arrangement other = over.arrangement;
    other.cut.first = first;
    if (stretch * arranging.busiest(other) > enough) return std::nullopt;
    ++tries;
    return with_memory_options(asked, in_order(arranging.plan_of(other), over.candidate.schedule));
  };
  Staged moved = relieve_fullest(
      input, estimator, {over.arrangement.cut.first, std::move(over.candidate.plan)}, make);
  if (moved.first == over.arrangement.cut.first) return std::nullopt;
  over.arrangement.cut.first = std::move(moved.first);
  over.candidate.plan = std::move(moved.plan);
  over.candidate.price = estimated_price(as_planned(input), estimator, over.candidate.plan, limit);
  if (!over.candidate.price.better_than(limit) || !accepted(input, over.candidate.plan)) {
    return std::nullopt;
  }
  return over;
}

/// Moves borders between stages as long as that helps.
void move_stages(const StrategyInput& input, lowering::Estimator& estimator, Arranging& arranging,
                 Arrangement& arrangement, PricedPlan& candidate) {
  const StrategyInput asked = with_options(input, candidate.memory);
  const auto make = [&](const std::vector<std::size_t>& first) {
    Arrangement other = arrangement;
    other.cut.first = first;
    return in_order(arranging.plan_of(other), candidate.schedule);
  };
  Staged moved{arrangement.cut.first, without_memory_options(input.network, candidate.plan)};
  moved = move_borders(asked, estimator, std::move(moved), make);
  Plan plan = with_memory_options(asked, std::move(moved.plan));
  if (!accepted(input, plan)) return;
  plan = MemorySearch(input, estimator)
             .with_less_recompute(std::move(plan), candidate.memory.recompute);
  const Price price = estimated_price(as_planned(input), estimator, plan);
  if (candidate.price.better_than(price)) return;
  candidate.price = price;
  candidate.plan = std::move(plan);
  arrangement.cut.first = std::move(moved.first);
}

}  // namespace

std::vector<GroupOptions> group_options(const StrategyInput& input) {
  if (first_layers_of_blocks(input.network).empty()) {
    return {{input.sequence_parallel, input.tensor_overlap}};
  }
  std::vector<GroupOptions> all{{true, true}};
  if (!input.tensor_overlap) all.push_back({true, false});
  if (!input.sequence_parallel) all.push_back({false, false});
  return all;
}

StrategyInput with_groups(StrategyInput input, const GroupOptions& options) {
  input.sequence_parallel = options.sequence_parallel;
  input.tensor_overlap = options.overlap;
  return input;
}

std::vector<PricedPlan> candidates_by_degrees(const StrategyInput& input,
                                              lowering::Estimator& estimator, const Price& limit) {
  constexpr double margin = 1.1;  // between what is rough and what is known
  constexpr std::size_t kept = 24, refined = 12, finalists = 8, with_kinds = 12,
                        of_same_degrees = 2, fewest_unfit = 4;
  constexpr std::size_t most_work = 12'000'000, much_work = 100'000;  // see walked
  constexpr std::size_t some_work = 1'000'000;    // when forecasts are to be relied on
  constexpr std::size_t hopeless_work = 200'000;  // counts for what surely does not fit
  constexpr std::size_t most_in_vain = 1500;      // cuts of plans that no cut lets fit
  std::list<Grouped> groups;
  for (const GroupOptions& options : group_options(input)) groups.emplace_back(input, options);
  MemorySearch memory(input, estimator);
  std::vector<Found> found;
  Price best = limit;
  std::size_t work = 0, unfit = 0;  ///< placements tried before any plan fits
  std::size_t in_vain = 0;
  Placements placements(groups, estimator);
  const auto goes_on = [&] {
    return work <= most_work || (found.empty() && (best.fits() || work <= 2 * most_work));
  };
  while (goes_on()) {
    const Seconds fastest = best.fits() ? best.step : lowering::Estimator::unlimited;
    const Seconds enough = fastest * margin;
    std::optional<Placed> one;
    if (!best.fits() && ++unfit > fewest_unfit) one = placements.next_that_fits();
    if (!one) {
      one = placements.next(enough * margin,
                            work > some_work ? enough : lowering::Estimator::unlimited);
    }
    if (!one) break;
    const Arrangement& arrangement = *one->arrangement;
    Grouped& group = *std::next(groups.begin(), static_cast<std::ptrdiff_t>(one->group));
    // Changes gain more where they are not bound to stages.
    const double changed = one->degrees.stages() == 1 ? margin : 1;
    const Price worst{best.overcommit, best.fits() ? enough * changed : best.step};
    const std::string degrees = tensor::note_of(one->degrees);
    std::vector<PricedPlan> variants, over;
    try {
      const Plan plan = group.arranging.plan_of(arrangement);
      if (!memory.may_be_accepted(plan)) continue;
      // Walking through a step takes much longer than finding out that nothing lets it fit.
      const std::size_t costs = walked(input, one->degrees);
      const bool too_large = best.fits() && costs > much_work && !memory.may_fit(plan);
      work += costs / (best.fits() && !too_large ? 1 : 4);
      if (!best.fits() && one->slowdown >= MemoryForecast::will_not_fit) work += hopeless_work;
      if (too_large) continue;
      if (best.fits()) {
        placements.learn(*one, estimated_step(estimator, plan, enough / one->gain * margin));
      }
      const auto ordered = [&](PipelineSchedule schedule) {
        std::vector<Plan> plans{in_order(plan, schedule)};
        std::optional<Plan> other = cut_for(group.arranging, arrangement, schedule);
        if (other) plans.push_back(in_order(*std::move(other), schedule));
        return plans;
      };
      variants = memory.variants(plan, degrees, worst, &over, ordered);
      if (input.schedule && *input.schedule != PipelineSchedule::one_f_one_b) {
        const auto other = cut_for(group.arranging, arrangement, PipelineSchedule::one_f_one_b);
        if (other)
          std::ranges::move(memory.variants(*other, degrees, worst, &over),
                            std::back_inserter(variants));
      }
    } catch (const InputError&) {  // a plan that cannot be lowered
      continue;
    } catch (const OutOfTime&) {
      break;
    }
    const bool fits = std::any_of(variants.begin(), variants.end(), [](const PricedPlan& variant) {
      return variant.price.fits() && variant.memory.recompute == Recompute::none;
    });
    for (PricedPlan& candidate : variants) {
      Arrangement own = cut_as(arrangement, candidate.plan);
      found.push_back({std::move(candidate), std::move(own), &group, degrees});
    }
    const PricedPlan* done = nullptr;  // more recomputation would not save time
    bool failed = false;
    for (const PricedPlan& candidate : over) {
      if (fits && candidate.memory.recompute != Recompute::none) continue;
      if (failed && walked(input, one->degrees) > much_work) break;
      if (best.fits() && in_vain >= most_in_vain) break;
      std::size_t tries = 0;
      const bool same = done != nullptr && done->schedule == candidate.schedule &&
                        done->memory.zero_stage == candidate.memory.zero_stage &&
                        done->memory.zero_group == candidate.memory.zero_group;
      if (same) continue;
      std::optional<Found> relieved;
      try {
        relieved = relieve(group.input, estimator, group.arranging,
                           {candidate, cut_as(arrangement, candidate.plan), &group, degrees},
                           fastest, worst, tries);
      } catch (const OutOfTime&) {
        break;
      }
      if (relieved) {
        found.push_back(*std::move(relieved));
        done = &candidate;
      } else {
        failed = true;
        in_vain += tries;
      }
    }
    for (const Found& other : found) {
      if (other.candidate.price.better_than(best)) best = other.candidate.price;
    }
    if (found.size() < 2 * kept) continue;
    sort_found(found);
    found.resize(kept);
  }
  sort_found(found);
  leave_out_equals(input.network, found);
  if (found.size() > kept) found.resize(kept);
  for (std::size_t i = 0; i < std::min(refined, found.size()); ++i) {
    Found& one = found[i];
    if (one.arrangement.cut.first.size() < 2) continue;
    try {
      move_stages(one.group->input, estimator, one.group->arranging, one.arrangement,
                  one.candidate);
    } catch (const OutOfTime&) {  // as it was, then
    }
  }
  sort_found(found);
  // Of plans that differ in memory options only few: other degrees are more of a choice. Of those
  // that are left the first with other stages or micro-batches, which changes leave as they are.
  std::vector<PricedPlan> candidates;
  std::map<std::string, std::size_t> counts;
  std::set<std::pair<std::size_t, std::int32_t>> kinds;
  for (Found& one : found) {
    const Schedule& order = one.candidate.plan.schedule;
    const bool fresh = kinds.insert({order.rank_lists.size(), order.micro_batches}).second;
    const bool place = candidates.size() < finalists || (fresh && candidates.size() < with_kinds);
    if (++counts[one.degrees] <= of_same_degrees && place) {
      candidates.push_back(std::move(one.candidate));
    }
  }
  return candidates;
}

}  // namespace parsim::strategies
