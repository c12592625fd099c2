#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "core/errors.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/move_borders.hpp"
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
  ParallelDegrees degrees;
  std::vector<DeviceId> devices;  ///< in groups
  double gain = 1;                ///< of the order of micro-batches, on 1F1B
  double least = 0;               ///< see Arranging::least_step
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
    std::sort(fast.begin(), fast.end());
    lists.push_back(fast);
  }
  return lists;
}

/// The most promising first.
std::vector<Placed> every_placement(const StrategyInput& input, Arranging& arranging) {
  std::vector<Placed> all;
  for (const std::vector<DeviceId>& devices : device_lists(input)) {
    for (const ParallelDegrees& degrees : tensor::every_degrees(input, devices)) {
      Placed one{degrees, tensor::in_groups(input, devices, degrees.tensor, degrees.context), 1, 0};
      one.devices.resize(degrees.group() * degrees.pipeline * degrees.data);
      const bool free = !input.schedule && degrees.chunks == 1 && degrees.micro_batches > 1;
      if (free) one.gain = zero_bubble_gain(degrees.pipeline, degrees.micro_batches);
      one.least = one.gain * arranging.least_step(degrees, one.devices);
      all.push_back(std::move(one));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) {
    return static_cast<float>(a.least) < static_cast<float>(b.least);
  });
  return all;
}

struct Found {
  PricedPlan candidate;
  Arrangement arrangement;
};

void sort_found(std::vector<Found>& found) {
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.candidate.price.better_than(b.candidate.price);
  });
}

/// A plan that does not fit, with borders between stages moved until it does; nothing if that is
/// not possible or no better than `limit`.
std::optional<Found> relieve(const StrategyInput& input, lowering::Estimator& estimator,
                             Arranging& arranging, Found over, const Price& limit) {
  if (over.arrangement.cut.first.size() < 2) return std::nullopt;
  const StrategyInput asked = with_options(input, over.candidate.memory);
  const auto make = [&](const std::vector<std::size_t>& first) {
    Arrangement other = over.arrangement;
    other.cut.first = first;
    return with_memory_options(asked, in_order(arranging.plan_of(other), over.candidate.schedule));
  };
  Staged moved = relieve_fullest(
      input, estimator, {over.arrangement.cut.first, std::move(over.candidate.plan)}, make);
  if (moved.first == over.arrangement.cut.first) return std::nullopt;
  over.arrangement.cut.first = std::move(moved.first);
  over.candidate.plan = std::move(moved.plan);
  over.candidate.price = estimated_price(as_planned(input), estimator, over.candidate.plan, limit);
  if (!over.candidate.price.better_than(limit)) return std::nullopt;
  return over;
}

}  // namespace

std::vector<PricedPlan> candidates_by_degrees(const StrategyInput& input,
                                              lowering::Estimator& estimator, const Price& limit) {
  constexpr double margin = 1.1;  // between what is rough and what is known
  constexpr std::size_t kept = 24, refined = 12, finalists = 8;
  constexpr std::size_t most_work = 12'000'000;  // layers x micro-batches x devices
  Arranging arranging(input);
  MemorySearch memory(input, estimator);
  std::vector<Found> found;
  Price best = limit;
  std::size_t work = 0;
  for (const Placed& one : every_placement(input, arranging)) {
    const Seconds enough = best.step * margin;
    if (best.fits() && Seconds{one.least} > enough) break;
    if (work > most_work && !found.empty()) break;
    const Arrangement arrangement = arranging.arrange(one.degrees, one.devices);
    if (best.fits() && one.gain * Seconds{arrangement.cut.step} > enough * margin) continue;
    work += input.network.layers.size() * static_cast<std::size_t>(one.degrees.micro_batches) *
            one.degrees.group() * one.degrees.data;
    const Price worst{best.overcommit, best.fits() ? enough : best.step};
    std::vector<PricedPlan> variants, over;
    try {
      variants = memory.variants(arranging.plan_of(arrangement), tensor::note_of(one.degrees),
                                 worst, &over);
    } catch (const InputError&) {  // a plan that cannot be lowered
      continue;
    }
    for (PricedPlan& candidate : variants) found.push_back({std::move(candidate), arrangement});
    const PricedPlan* done = nullptr;  // more recomputation would not save time
    for (const PricedPlan& candidate : over) {
      const bool same = done != nullptr && done->schedule == candidate.schedule &&
                        done->memory.zero_stage == candidate.memory.zero_stage &&
                        done->memory.zero_group == candidate.memory.zero_group;
      if (same) continue;
      auto relieved = relieve(input, estimator, arranging, {candidate, arrangement}, worst);
      if (!relieved) continue;
      found.push_back(*std::move(relieved));
      done = &candidate;
    }
    for (const Found& other : found) {
      if (other.candidate.price.better_than(best)) best = other.candidate.price;
    }
    if (found.size() < 2 * kept) continue;
    sort_found(found);
    found.resize(kept);
  }
  sort_found(found);
  if (found.size() > kept) found.resize(kept);
  std::vector<PricedPlan> candidates;
  for (Found& one : found) {
    PricedPlan& candidate = candidates.emplace_back(std::move(one.candidate));
    if (one.arrangement.cut.first.size() < 2 || candidates.size() > refined) continue;
    const StrategyInput asked = with_options(input, candidate.memory);
    const auto make = [&](const std::vector<std::size_t>& first) {
      Arrangement other = one.arrangement;
      other.cut.first = first;
      return in_order(arranging.plan_of(other), candidate.schedule);
    };
    Staged moved{one.arrangement.cut.first, without_memory_options(candidate.plan)};
    moved = move_borders(asked, estimator, std::move(moved), make);
    candidate.plan = with_memory_options(asked, std::move(moved.plan));
    candidate.price = estimated_price(as_planned(input), estimator, candidate.plan);
  }
  sort_by_price(candidates);
  if (candidates.size() > finalists) candidates.resize(finalists);
  return candidates;
}

}  // namespace parsim::strategies
