#include "strategies/move_borders.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

/// The first layer that computes: no stage holds inputs alone, which would leave its devices idle.
std::int64_t first_kernel_of(const Network& network) {
  const auto computes = [](const Layer& layer) { return layer.kind.as<Input>() == nullptr; };
  const std::vector<Layer>& chain = network.layers;
  return std::find_if(chain.begin(), chain.end(), computes) - chain.begin();
}

/// Memory that devices need beyond what they may fill, each as a part of that; and the device that
/// is the fullest.
struct Excess {
  double sum = 0, most = 0;
  DeviceId fullest{0};
};
Excess excess_of(const StrategyInput& input, const std::vector<lowering::MemoryUse>& uses) {
  Excess excess;
  for (std::size_t d = 0; d < uses.size(); ++d) {
    const auto usable = std::max<std::int64_t>(1, input.usable_memory(DeviceId{d}).value);
    const double part =
        static_cast<double>(uses[d].total().value) / static_cast<double>(usable) - 1;
    excess.sum += std::max(0.0, part);
    if (d > 0 && part <= excess.most) continue;
    excess.most = part;
    excess.fullest = DeviceId{d};
  }
  return excess;
}

/// The stages that a device works on.
std::set<std::size_t> stages_on(const Plan& plan, DeviceId device) {
  std::set<std::size_t> stages;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::vector<DeviceId>& devices = plan.layers[l].devices;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) continue;
    stages.insert(static_cast<std::size_t>(plan.schedule.stage_of_layer[l]));
  }
  return stages;
}

/// First layers after a stage has handed some units towards another: stages between them pass on as
/// many as they get. Nothing if a stage would be left without a layer that computes.
std::optional<std::vector<std::size_t>> handed_over(const std::vector<std::size_t>& units,
                                                    std::int64_t first_kernel,
                                                    std::vector<std::size_t> first,
                                                    std::size_t from, std::size_t to,
                                                    std::ptrdiff_t count) {
  const std::ptrdiff_t step = to > from ? -count : count;
  for (std::size_t s = std::min(from, to) + 1; s <= std::max(from, to); ++s) {
    const auto unit = std::lower_bound(units.begin(), units.end(), first[s]) - units.begin() + step;
    if (unit < 0 || unit >= std::ssize(units)) return std::nullopt;
    first[s] = units[static_cast<std::size_t>(unit)];
  }
  for (std::size_t s = 1; s < first.size(); ++s) {
    const bool empty =
        first[s] <= first[s - 1] || static_cast<std::int64_t>(first[s]) <= first_kernel;
    if (empty) return std::nullopt;
  }
  return first;
}

}  // namespace

std::size_t walk_of(const Plan& plan) {
  std::size_t cells = 0;
  for (const LayerPlan& layer : plan.layers) cells += layer.devices.size();
  const auto micro_batches = static_cast<std::size_t>(plan.schedule.micro_batches);
  return cells * std::min(micro_batches, 14 * plan.schedule.rank_lists.size());
}

Staged move_borders(const StrategyInput& input, lowering::Estimator& estimator, Staged start,
                    const std::function<Plan(const std::vector<std::size_t>&)>& make) {
  constexpr std::int64_t farthest = 4;        // units: a convolution and what follows it
  constexpr std::size_t most_work = 500'000;  // a tenth of a second of walking
  // Devices have several stages: the stages between two others keep their size.
  const bool interleaved = start.first.size() > start.plan.schedule.rank_lists.size();
  const double noise = interleaved ? 1e-3 : 1e-9;  // equal stages are to stay; rounding alone
  const std::size_t each = walk_of(start.plan);
  const auto layers = static_cast<std::int64_t>(start.plan.layers.size());
  if (start.first.size() < 2 || 2 * each > most_work) return start;
  const std::int64_t first_kernel = first_kernel_of(input.network);
  const std::vector<std::size_t> units = units_of(input.network, input.granularity);
  Price least = estimated_price(input, estimator, start.plan);
  std::size_t work = each;
  const auto improves = [&](std::vector<std::size_t> first) {
    if ((work += each) > most_work) return false;
    Plan plan = make(first);
    const Price price = estimated_price(input, estimator, plan, least);
    if (!price.better_than({least.overcommit, least.step * (1 - noise)})) return false;
    least = price;
    start = {std::move(first), std::move(plan)};
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 1; s < start.first.size(); ++s) {
      const std::vector<std::size_t> from = start.first;
      const auto at = [&](std::size_t stage) {
        return stage < from.size() ? static_cast<std::int64_t>(from[stage]) : layers;
      };
      const auto here = std::lower_bound(units.begin(), units.end(), from[s]) - units.begin();
      const std::int64_t last = std::min(std::ssize(units) - 1, here + farthest);
      for (std::int64_t u = std::max(here - farthest, std::int64_t{0}); u <= last; ++u) {
        const auto border = static_cast<std::int64_t>(units[static_cast<std::size_t>(u)]);
        const bool possible =
            border > std::max(at(s - 1), first_kernel) && border < at(s + 1) && border != at(s);
        if (!possible) continue;
        std::vector<std::size_t> first = from;
        first[s] = static_cast<std::size_t>(border);
        moved = improves(std::move(first)) || moved;
      }
    }
    for (std::size_t from = 0; interleaved && from < start.first.size(); ++from) {
      for (std::size_t to = 0; to < start.first.size(); ++to) {
        if (to == from) continue;
        auto first = handed_over(units, first_kernel, start.first, from, to, 1);
        moved = (first && improves(*std::move(first))) || moved;
      }
    }
  }
  return start;
}

Staged relieve_fullest(
    const StrategyInput& input, lowering::Estimator& estimator, Staged start,
    const std::function<std::optional<Plan>(const std::vector<std::size_t>&)>& make) {
  constexpr int most_tries = 200;
  const std::int64_t first_kernel = first_kernel_of(input.network);
  const std::vector<std::size_t> units = units_of(input.network, input.granularity);
  Staged now = start;
  Excess excess = excess_of(input, estimated_memory(estimator, now.plan));
  for (int tries = 0; excess.sum > 0;) {
    std::optional<Staged> better;
    Excess least = excess;
    for (const std::size_t from : stages_on(now.plan, excess.fullest)) {
      for (std::size_t to = 0; to < now.first.size(); ++to) {
        // Some layers keep nothing: several at once.
        for (const std::ptrdiff_t count : {1, 4}) {
          if (to == from || tries == most_tries) continue;
          const auto first = handed_over(units, first_kernel, now.first, from, to, count);
          std::optional<Plan> plan = first ? make(*first) : std::nullopt;
          if (!plan) continue;
          ++tries;
          Staged other{*first, *std::move(plan)};
          const Excess then = excess_of(input, estimated_memory(estimator, other.plan));
          if (std::pair(then.sum, then.most) >= std::pair(least.sum, least.most)) continue;
          least = then;
          better = std::move(other);
        }
      }
    }
    if (!better) return start;
    now = *std::move(better);
    excess = least;
  }
  return now;
}

}  // namespace parsim::strategies
