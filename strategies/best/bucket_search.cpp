#include <optional>
#include <utility>

#include "strategies/best/candidates.hpp"
#include "strategies/buckets.hpp"
#include "strategies/estimated_below.hpp"

namespace parsim::strategies {

namespace {

/// Layers x micro-batches x devices: of larger plans estimates take long, and buckets matter less.
constexpr std::size_t most_work = 1'000'000;

std::size_t work_of(const Plan& plan) {
  std::size_t cells = 0;
  for (const LayerPlan& layer : plan.layers) cells += layer.devices.size();
  return cells * static_cast<std::size_t>(plan.schedule.micro_batches) * bucket_sizes.size();
}

/// The plan with the size of buckets that is clearly the fastest by estimate and needs no more
/// memory than the plan may. Estimates of one plan with several sizes err alike.
std::optional<PricedPlan> with_better_buckets(const StrategyInput& input,
                                              lowering::Estimator& estimator,
                                              const PricedPlan& start) {
  constexpr double clearly = 1e-3;
  std::optional<PricedPlan> better;
  Seconds least = (1 - clearly) * estimated_step(estimator, start.plan);
  for (const Bytes size : bucket_sizes) {
    Plan other = with_buckets(input, start.plan, size);
    if (other.buckets == start.plan.buckets) continue;
    const Seconds step = estimated_below(estimator, other, least);
    const auto fits = [&] {
      return overcommit(input, estimated_memory(estimator, other)) <= start.price.overcommit;
    };
    if (step >= least || !fits()) continue;
    least = step;
    better = start;
    better->plan = std::move(other);
    const std::optional<Bytes> named = bucket_size_of(input.network, better->plan);
    better->origin += ", bucket " + bucket_text(named.value_or(size));
  }
  return better;
}

/// The plan, and one of stage 3 within groups also without them, which other sizes may make the
/// faster of the two.
std::vector<PricedPlan> starts_like(const StrategyInput& input, const PricedPlan& plan) {
  std::vector<PricedPlan> starts{plan};
  const bool grouped = plan.memory.zero_stage == 3 && !plan.memory.zero_group.all();
  if (!grouped || !input.zero_group.all()) return starts;
  starts.push_back(plan);
  starts[1].memory.zero_group = {};
  starts[1].origin += ", in one group";
  for (LayerPlan& layer : starts[1].plan.layers) layer.zero.group = {};
  return starts;
}

}  // namespace

void add_other_buckets(const StrategyInput& input, lowering::Estimator& estimator,
                       std::vector<PricedPlan>& finalists) {
  const bool decided = input.bucket || input.as_run || input.accepts;
  if (decided || input.sync == Sync::Kind::server) return;
  std::size_t work = 0;
  add_variants_of_best(input, finalists,
                       [&](const PricedPlan& start) -> std::optional<std::vector<PricedPlan>> {
                         std::vector<PricedPlan> others;
                         if (!has_replicas(input.network, start.plan)) return others;
                         if ((work += work_of(start.plan)) > most_work) return std::nullopt;
                         for (const PricedPlan& like : starts_like(input, start)) {
                           auto other = with_better_buckets(input, estimator, like);
                           if (other) others.push_back(*std::move(other));
                         }
                         return others;
                       });
}

}  // namespace parsim::strategies
