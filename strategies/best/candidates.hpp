// Plans that `best` starts from, and the memory options that it tries with any of them. Private to
// `best`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowering/estimate.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

struct MemoryOptions {
  std::int32_t zero_stage = 0;
  ZeroGroup zero_group{};
  Recompute recompute = Recompute::none;
  /// ", zero 1, recompute full"; empty: none.
  [[nodiscard]] std::string text() const;
};

/// A plan with memory options of its own.
struct PricedPlan {
  Plan plan;
  std::string origin;
  Price price{};  ///< estimated, later simulated
  MemoryOptions memory{};
};

/// Better first; ties keep the order.
void sort_by_price(std::vector<PricedPlan>& candidates);

/// The input without memory options: prices take plans as they are.
[[nodiscard]] StrategyInput as_planned(const StrategyInput& input);
/// The input with these memory options.
[[nodiscard]] StrategyInput with_options(const StrategyInput& input, const MemoryOptions& memory);

/// Tries memory options with plans: those that the input has, and all of those that it has not.
class MemorySearch {
 public:
  MemorySearch(const StrategyInput& input, lowering::Estimator& estimator);

  /// The plan with each ZeRO stage and group, recomputing as little as lets it fit, if its estimate
  /// is better than `limit`; if it never fits, and the limit does not, with what over-commits
  /// memory least. Recomputation never saves time, so that more of it is tried only where less does
  /// not fit. Throws InputError for a plan that cannot be lowered.
  ///
  /// over   unless null, gets those that do not fit though all devices together have the memory,
  ///        if they are faster than a limit that fits; their steps are known for the least
  ///        recomputation only
  [[nodiscard]] std::vector<PricedPlan> variants(const Plan& plan, const std::string& origin,
                                                 const Price& limit,
                                                 std::vector<PricedPlan>* over = nullptr);

 private:
  /// Without recomputation.
  [[nodiscard]] std::vector<MemoryOptions> shardings(const Plan& plan) const;
  /// Whether what devices need in all is no more than what those that work may fill.
  [[nodiscard]] bool suffices_in_all(const std::vector<lowering::MemoryUse>& uses) const;

  const StrategyInput& input_;
  StrategyInput plain_;
  lowering::Estimator& estimator_;
  std::vector<Recompute> recomputes_;  ///< the least first
};

/// The most promising degrees of tensor, pipeline and data parallelism with micro-batches and
/// memory options, best first, by estimate.
///
/// limit   what is known already: worse plans are of no use
[[nodiscard]] std::vector<PricedPlan> candidates_by_degrees(const StrategyInput& input,
                                                            lowering::Estimator& estimator,
                                                            const Price& limit);

}  // namespace parsim::strategies
