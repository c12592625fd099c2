// Candidate plans priced by simulation, for strategies that choose among several.
#pragma once

#include <span>

#include "core/executor.hpp"
#include "lowering/memory.hpp"
#include "strategies/strategies.hpp"

namespace parsim {

/// What a plan costs: the plan that is less short of memory is better, then the shorter step.
struct Price {
  std::int32_t shortage = 0;  ///< see shortage()
  Seconds step{};
  [[nodiscard]] bool fits() const { return shortage == 0; }
  /// Strictly better; plans of the same price are neither better.
  [[nodiscard]] bool better_than(const Price& other) const {
    return shortage != other.shortage ? shortage < other.shortage : step < other.step;
  }
};

/// The plan with what the input asks for to save memory, whatever the plan said. Strategies need
/// not think of it: what is below prices plans so, and who asks a strategy adds it to the answer.
[[nodiscard]] Plan with_savings(const StrategyInput& input, Plan plan);

/// The plan without any savings.
[[nodiscard]] Plan without_savings(Plan plan);

/// What a plan does to save memory, a line each.
[[nodiscard]] std::vector<std::string> savings_notes(const Network& network, const Plan& plan);

/// By device, of the plan with savings.
[[nodiscard]] std::vector<MemoryUse> memory_use(const StrategyInput& input, const Plan& plan);

/// 0 if every device can hold its part of the plan and its headroom; n if one needs up to 2^n
/// times the memory that is left, and none more: a byte too much is not what should decide between
/// plans.
[[nodiscard]] std::int32_t shortage(const StrategyInput& input, const Plan& plan);
/// Whether every device can hold its part of the plan.
[[nodiscard]] bool fits(const StrategyInput& input, const Plan& plan);

/// Lowers plans of `network` on `cluster` and runs them: for StrategyInput::simulate. All three
/// must outlive it.
[[nodiscard]] std::function<Seconds(const Plan&)> simulation(const Network& network,
                                                             const Cluster& cluster,
                                                             Executor& executor);

/// By `input.simulate`, which must not be empty.
[[nodiscard]] Price simulated_price(const StrategyInput& input, const Plan& plan);

/// Index of the best of `plans`, which must not be empty; ties go to the lower index. One plan, or
/// no simulator: the first that fits, else the first.
[[nodiscard]] std::size_t best_by_simulation(const StrategyInput& input,
                                             std::span<const Plan> plans);

}  // namespace parsim
