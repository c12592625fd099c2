// What simulation improves of a layout of mixed stages. Private to the search for them.
#pragma once

#include <cstddef>
#include <optional>

#include "lowering/estimate.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/price.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::mixed {

/// A layout with its plan and that plan's price.
struct Priced {
  MixedStages mixed;
  Plan plan;
  Price price;
};

/// Prices plans: by simulation if there is one, else by estimate.
class Pricing {
 public:
  Pricing(const StrategyInput& input, lowering::Estimator& estimator)
      : input_(input), estimator_(estimator) {}
  /// Part of the time that is gone after another plan.
  [[nodiscard]] double used(const Plan& plan) const;
  Price price(const Plan& plan);

 private:
  static constexpr double most_work = 6e6;  // a few seconds of simulation
  const StrategyInput& input_;
  lowering::Estimator& estimator_;
  std::size_t work_ = 0;
};

/// Whether the plan, with the memory options that are asked for, may be chosen.
[[nodiscard]] bool is_accepted(const StrategyInput& input, const Plan& plan);

/// Puts another layout in the place of `start` if its plan is better; whether it is, or nothing if
/// there is no time to look.
std::optional<bool> take_better(const StrategyInput& input, Pricing& pricing, Priced other,
                                Priced& start);

/// Moves borders between stages by a block as long as that helps and there is time.
void move_blocks(const StrategyInput& input, Pricing& pricing, Priced& start);

/// Joins neighbouring stages as long as that helps and there is time: where links are fast and
/// micro-batches few, unlike devices are better off with parts of each layer than with layers.
void merge_stages(const StrategyInput& input, Pricing& pricing, Priced& start);

}  // namespace parsim::strategies::mixed
