// Plans that `best` starts from, and the memory options that it tries with any of them. Private to
// `best`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/packed_plan.hpp"
#include "lowering/estimate.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

struct MemoryOptions {
  std::int32_t zero_stage = 0;
  ZeroGroup zero_group{};
  Recompute recompute = Recompute::none;
  bool sized = false;  ///< stage 3 has ddp_bucket in place of blocks, which take more memory
  /// ", zero 1, recompute full"; empty: none.
  [[nodiscard]] std::string text() const;
  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

/// A plan with memory options of its own.
struct PricedPlan {
  Plan plan;
  std::string origin;
  Price price{};  ///< estimated, later simulated
  MemoryOptions memory{};
  /// Of a pipeline.
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  /// As a strategy's own row has it: with the memory options that the input asks for.
  [[nodiscard]] bool is_row(const StrategyInput& input) const {
    MemoryOptions asked{
        input.zero_stage.value_or(0), {}, input.recompute.value_or(Recompute::none)};
    if (asked.zero_stage > 0) asked.zero_group = input.zero_group;
    return memory == asked && schedule == input.schedule_or_default();
  }
};

auto packed_parts(PackedAs<PricedPlan> auto& value) {
  auto& [plan, origin, price, memory, schedule] = value;
  return std::tie(plan, origin, price, memory, schedule);
}

/// What tensor-parallel groups do with tokens between their products.
struct GroupOptions {
  bool sequence_parallel = false, overlap = false;
};
/// What the input leaves open.
[[nodiscard]] std::vector<GroupOptions> group_options(const StrategyInput& input);
[[nodiscard]] StrategyInput with_groups(StrategyInput input, const GroupOptions& options);

/// StrategyInput::accepts, where it is given.
[[nodiscard]] bool accepted(const StrategyInput& input, const Plan& plan);

/// Whether several devices hold the same weights.
[[nodiscard]] bool has_replicas(const Network& network, const Plan& plan);

/// Whether the input asks for degrees or a number of micro-batches.
[[nodiscard]] bool asks_for_degrees(const StrategyInput& input);
/// Whether the plan has the degrees and micro-batches that the input asks for. Most strategies look
/// at none.
[[nodiscard]] bool keeps_degrees(const StrategyInput& input, const Plan& plan);
/// Whether they are the same but for memory of how they were found: notes, strategy.
[[nodiscard]] bool same_plan(const Plan& a, const Plan& b);

/// Better first; ties keep the order.
void sort_by_price(std::vector<PricedPlan>& candidates);

/// The input without memory options: prices take plans as they are.
[[nodiscard]] StrategyInput as_planned(const StrategyInput& input);
/// The input with these memory options.
[[nodiscard]] StrategyInput with_options(const StrategyInput& input, const MemoryOptions& memory);

/// The plan in another order of its micro-batches; as it is where it cannot have that (reordered).
[[nodiscard]] Plan in_order(Plan plan, PipelineSchedule schedule);

/// Tries memory options with plans, and ZB-H1 with pipelines in 1F1B: those that the input has, and
/// all of those that it has not.
class MemorySearch {
 public:
  MemorySearch(const StrategyInput& input, lowering::Estimator& estimator);

  /// The plan with each ZeRO stage and group, recomputing as little as lets it fit, if its estimate
  /// is better than `limit`, in each order; if it never fits, and the limit does not, with what
  /// over-commits memory least. Recomputation never saves time, so that more of it is tried only
  /// where less does not fit. Throws InputError for a plan that cannot be lowered.
  ///
  /// over     unless null, gets those that do not fit though all devices together have the memory,
  ///          if they are faster than a limit that fits; their steps are known for the least
  ///          recomputation only
  /// ordered  unless empty, plans in another order, where stages may be cut for their order
  [[nodiscard]] std::vector<PricedPlan> variants(
      const Plan& plan, const std::string& origin, const Price& limit,
      std::vector<PricedPlan>* over = nullptr,
      const std::function<std::vector<Plan>(PipelineSchedule)>& ordered = {});
  /// Whether the plan is accepted with one of the ZeRO stages and groups.
  [[nodiscard]] bool may_be_accepted(const Plan& plan) const;
  /// A plan that fits with this recomputation, with less of it where stages or blocks do without,
  /// unless the input asks for a rule or plans must be accepted.
  [[nodiscard]] Plan with_less_recompute(Plan plan, Recompute rule) const;
  /// The rules that with_less_recompute chooses among for a plan that may recompute as this one
  /// says, or more where the input leaves that open; the least first.
  [[nodiscard]] std::span<const Recompute> rules_with(Recompute rule) const;
  /// Whether it fits with some of the options, or might with other borders between its stages.
  [[nodiscard]] bool may_fit(const Plan& plan) const;

 private:
  /// Whether sends may take so long, in a step that takes so long, that more micro-batches in
  /// flight help. `plan`: a pipeline with as many stages for each rank list.
  [[nodiscard]] bool waits_for_sends(const Plan& plan, Seconds step) const;
  /// Of the plan in its order.
  ///
  /// near   unless null, set to whether it takes less than `reach`, which is no less than the
  ///        limit's step, with some memory options
  void add_variants(const Plan& plan, const PricedPlan& like, const Price& limit, Seconds reach,
                    std::vector<PricedPlan>& fitting, std::optional<PricedPlan>& unfit,
                    std::vector<PricedPlan>* over, bool* near);
  /// Without recomputation.
  [[nodiscard]] std::vector<MemoryOptions> shardings(const Plan& plan) const;
  /// Whether what devices need in all is no more than what those that work may fill.
  [[nodiscard]] bool suffices_in_all(const std::vector<lowering::MemoryUse>& uses) const;

  const StrategyInput& input_;
  StrategyInput plain_;
  lowering::Estimator& estimator_;
  std::vector<double> boundary_;       ///< by layer: bytes of a sample sent to a stage from it on
  std::vector<Recompute> recomputes_;  ///< the least first
};

/// The most promising degrees of tensor, pipeline and data parallelism with micro-batches and
/// memory options, best first, by estimate.
///
/// limit   what is known already: worse plans are of no use
[[nodiscard]] std::vector<PricedPlan> candidates_by_degrees(const StrategyInput& input,
                                                            lowering::Estimator& estimator,
                                                            const Price& limit);

/// Pipelines whose stages differ (mixed_stages), where the memory that ZeRO frees or another order
/// of micro-batches lets the search choose what `tensor` alone does not; by estimate, best first.
[[nodiscard]] std::vector<PricedPlan> candidates_of_mixed_stages(const StrategyInput& input,
                                                                 lowering::Estimator& estimator,
                                                                 const Price& limit);

/// The changed copies of the best starts: local search by estimates.
///
/// starts   best first
/// budget   changes that may be estimated
[[nodiscard]] std::vector<PricedPlan> improved(const StrategyInput& input,
                                               lowering::Estimator& estimator,
                                               const std::vector<PricedPlan>& starts,
                                               std::int64_t budget);

/// Simulates all that may be the best by their estimates, of those that take long to simulate the
/// first ones, and leaves out the others.
///
/// sorted   best first, at least one
[[nodiscard]] std::vector<PricedPlan> simulated(const StrategyInput& input,
                                                std::vector<PricedPlan> sorted);

/// Adds variants of simulated plans that are near the first one, simulated as well. Sorts.
///
/// vary   the variants of a plan; nothing: none of this one or of those after it
void add_variants_of_best(
    const StrategyInput& input, std::vector<PricedPlan>& finalists,
    const std::function<std::optional<std::vector<PricedPlan>>(const PricedPlan&)>& vary);

/// By border between stages what handing a micro-batch over takes, of a pipeline with as many
/// stages for each rank list.
///
/// boundary   of the network (boundary_bytes)
[[nodiscard]] std::vector<Seconds> send_times(const StrategyInput& input, const Plan& plan,
                                              const std::vector<double>& boundary);

/// Adds the first pipelines in an order that follows from the times of their stages
/// (slots_by_time), with as many micro-batches in flight as their memory lets them have, unless the
/// input has an order, or a trainer.
void add_orders_by_time(const StrategyInput& input, lowering::Estimator& estimator,
                        std::vector<PricedPlan>& finalists);

/// Adds the first plans with buckets of a size that is faster, unless the input has one, or a
/// trainer.
void add_other_buckets(const StrategyInput& input, lowering::Estimator& estimator,
                       std::vector<PricedPlan>& finalists);

/// Of plans that over-commit memory as little as the first the one that costs or draws least first.
[[nodiscard]] std::vector<PricedPlan> cheapest_first(const StrategyInput& input,
                                                     std::vector<PricedPlan> sorted);

}  // namespace parsim::strategies
