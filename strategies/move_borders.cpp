#include "strategies/move_borders.hpp"

#include <algorithm>
#include <utility>

#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

/// Operations of a layer in one walk through the step.
std::size_t walk_of(const Plan& plan) {
  std::size_t cells = 0;
  for (const LayerPlan& layer : plan.layers) cells += layer.devices.size();
  return cells * static_cast<std::size_t>(plan.schedule.micro_batches);
}

}  // namespace

Staged move_borders(const StrategyInput& input, lowering::Estimator& estimator, Staged start,
                    const std::function<Plan(const std::vector<std::size_t>&)>& make) {
  constexpr std::int64_t farthest = 4;        // units: a convolution and what follows it
  constexpr std::size_t most_work = 500'000;  // a tenth of a second of walking
  constexpr double rounding_noise = 1e-9;
  const std::size_t each = walk_of(start.plan);
  const auto layers = static_cast<std::int64_t>(start.plan.layers.size());
  if (start.first.size() < 2 || 2 * each > most_work) return start;
  // No stage of inputs alone: it would leave its devices idle.
  const auto computes = [](const Layer& layer) { return layer.kind.as<Input>() == nullptr; };
  const std::vector<Layer>& chain = input.network.layers;
  const std::int64_t first_kernel =
      std::find_if(chain.begin(), chain.end(), computes) - chain.begin();
  const std::vector<std::size_t> units = units_of(input.network, input.granularity);
  Price least = estimated_price(input, estimator, start.plan);
  std::size_t work = each;
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
        if (!possible || (work += each) > most_work) continue;
        Staged other{from, {}};
        other.first[s] = static_cast<std::size_t>(border);
        other.plan = make(other.first);
        const Price price = estimated_price(input, estimator, other.plan, least);
        if (!price.better_than({least.overcommit, least.step * (1 - rounding_noise)})) continue;
        least = price;
        start = std::move(other);
        moved = true;
      }
    }
  }
  return start;
}

}  // namespace parsim::strategies
