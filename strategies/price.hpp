// Candidate plans priced by simulation, for strategies that choose among several.
#pragma once

#include <limits>
#include <span>

#include "core/executor.hpp"
#include "lowering/estimate.hpp"
#include "strategies/buckets.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The price of a plan: the plan that over-commits memory less is better, then the shorter step.
struct Price {
  std::int32_t overcommit = 0;  ///< see overcommit()
  Seconds step{};
  [[nodiscard]] bool fits() const { return overcommit == 0; }
  /// Strictly better; plans of the same price are neither better.
  [[nodiscard]] bool better_than(const Price& other) const {
    return overcommit != other.overcommit ? overcommit < other.overcommit : step < other.step;
  }
};

/// Marks what to recompute, in every `every`-th block, and nothing else. `optimal` chooses the
/// blocks itself.
void recompute(const Network& network, Recompute what, Plan& plan, std::int32_t every = 1);

/// The plan with the memory options that the input has (ZeRO, recomputation) in place of its
/// own; what is absent from the input stays as the plan has it. Strategies need not apply them:
/// the functions below do when they price a plan, and the caller of a strategy does with its
/// result. A plan whose replicas make no groups as the input's zero_group
/// says is not grouped; no price is worse than its. Where stage 3 begins or ends, buckets are those
/// of the new stage (StrategyOptions::bucket).
[[nodiscard]] Plan with_memory_options(const StrategyInput& input, Plan plan);

/// The plan with the gradient buckets of this size (StrategyOptions::bucket) that strategies begin
/// with: no trainer's file carries those that a search or --bucket chose.
[[nodiscard]] Plan with_buckets(StrategyInput input, Plan plan, std::optional<Bytes> bucket);

/// The plan without memory options.
[[nodiscard]] Plan without_memory_options(const Network& network, Plan plan);

/// What the strategy answers to the input without memory options: the plan that the input knows of
/// it, or else what it is asked for now, as if it ran alone. Throws InputError if it has none.
[[nodiscard]] Plan plan_of(const StrategyInput& input, const Strategy& strategy);

/// Throws InputError for `where` if the plan's replicas make no groups as the input says.
void check_zero_group(const StrategyInput& input, const Plan& plan, std::string_view where);

/// A line for each memory option that the plan uses.
[[nodiscard]] std::vector<std::string> memory_option_notes(const Network& network,
                                                           const Cluster& cluster,
                                                           const Plan& plan);

/// By device, of the plan with memory options, as StrategyInput::as_run has it.
[[nodiscard]] std::vector<lowering::MemoryUse> memory_use(const StrategyInput& input,
                                                          const Plan& plan);

/// How much a plan over-commits memory: 0 if every device can hold its part and the headroom, else
/// the least n such that no device needs more than 2^n times its usable memory. Coarse, so that one
/// byte does not decide between plans.
[[nodiscard]] std::int32_t overcommit(const StrategyInput& input, const Plan& plan);
[[nodiscard]] std::int32_t overcommit(const StrategyInput& input,
                                      const std::vector<lowering::MemoryUse>& uses);
/// Estimator::step_time. Of a large plan with many more micro-batches than stages the time of some
/// of its micro-batches, and of more the time that they add: once every stage is busy, each takes
/// as long as the one before.
[[nodiscard]] Seconds estimated_step(lowering::Estimator& estimator, const Plan& plan,
                                     Seconds limit = lowering::Estimator::unlimited);
/// Estimator::memory, of as many micro-batches as estimated_step looks at: more are never in
/// flight.
[[nodiscard]] std::vector<lowering::MemoryUse> estimated_memory(lowering::Estimator& estimator,
                                                                const Plan& plan);
/// By estimate, of the plan with memory options. Exact, but for estimated_step, if better than
/// `limit`; of another plan only that it is not better.
[[nodiscard]] Price estimated_price(const StrategyInput& input, lowering::Estimator& estimator,
                                    const Plan& plan,
                                    const Price& limit = {
                                        0, Seconds{std::numeric_limits<double>::infinity()}});
/// Whether every device can hold its part of the plan.
[[nodiscard]] bool fits(const StrategyInput& input, const Plan& plan);

/// Lowers plans of `network` on `cluster` and runs them: for StrategyInput::simulate. All must
/// outlive it; `cost` says which devices are alike.
[[nodiscard]] std::function<Seconds(const Plan&)> simulation(const Network& network,
                                                             const Cluster& cluster,
                                                             const CostModel& cost,
                                                             Executor& executor);

/// By `input.simulate`, which must not be empty; of a plan of more than `exactly` layers times
/// devices times micro-batches, which takes seconds, from some of them as estimated_step does.
constexpr std::size_t simulated_exactly = 500'000;
[[nodiscard]] Seconds simulated_step(const StrategyInput& input, const Plan& plan,
                                     std::size_t exactly = simulated_exactly);
/// The same.
[[nodiscard]] Price simulated_price(const StrategyInput& input, const Plan& plan);

/// Plans whose estimate is more than this times the best one's are not searched further.
constexpr double hopeless_estimate = 2;

/// Plans whose estimate is more than this times the best one's are not simulated: estimates err by
/// one or two percent (tests "estimate: near the simulator ..."). A plan of experts with tensor
/// parallelism in a pipeline was estimated 10 % too slow.
constexpr double worth_simulating = 1.05;
/// Of plans as other strategies make them: `best` is no slower than these.
constexpr double worth_simulating_rows = 1.25;

/// Index of the best of `plans`, which must not be empty; ties go to the lower index. One plan, or
/// no simulator: the first that fits, else the first. Hopeless plans are not simulated.
[[nodiscard]] std::size_t best_by_simulation(const StrategyInput& input,
                                             std::span<const Plan> plans);

/// Whether a network has so many layers on so many devices that 'best' leaves out the searches of
/// strategies that split single layers, as long as something else fits.
[[nodiscard]] bool are_many_layers(const StrategyInput& input);

}  // namespace parsim::strategies
