// Candidate plans priced by simulation, for strategies that choose among several.
#pragma once

#include <span>

#include "core/executor.hpp"
#include "strategies/memory.hpp"
#include "strategies/strategies.hpp"

namespace parsim {

/// What a plan costs: the plan that lacks less memory is better, then the shorter step.
struct Price {
  Bytes lacking{};  ///< on the device that lacks most; 0: the plan fits
  Seconds step{};
  [[nodiscard]] bool fits() const { return lacking.value == 0; }
  /// Strictly better; plans of the same price are neither better.
  [[nodiscard]] bool better_than(const Price& other) const {
    return lacking != other.lacking ? lacking < other.lacking : step < other.step;
  }
};

/// The plan with what the input asks for to save memory, whatever the plan said. Strategies need
/// not think of it: what is below prices plans so, and who asks a strategy adds it to the answer.
[[nodiscard]] Plan with_savings(const StrategyInput& input, Plan plan);

/// What was done, for the notes of a plan with savings; empty if nothing.
[[nodiscard]] std::vector<std::string> savings_notes(const StrategyInput& input, const Plan& plan);

/// By device, of the plan with savings.
[[nodiscard]] std::vector<MemoryUse> memory_use(const StrategyInput& input, const Plan& plan);

/// What the device that lacks most memory for its part of the plan lacks.
[[nodiscard]] Bytes lacking_memory(const StrategyInput& input, const Plan& plan);
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
