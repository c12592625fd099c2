#include "lowering/estimate.hpp"

#include "lowering/timer.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

struct Estimator::State {
  State(const StepInput& input, LinkSharing sharing)
      : pricer(input),
        timer(input.cluster, sharing),
        walk(input.network, input.cluster, &pricer, timer) {}
  Pricer pricer;
  Timer timer;
  Walk<Timer> walk;
};

Estimator::Estimator(const StepInput& input, LinkSharing sharing)
    : state_(std::make_unique<State>(input, sharing)) {}
Estimator::~Estimator() = default;

Seconds Estimator::step_time(const Plan& plan, Seconds limit) {
  state_->timer.give_up_at(limit);
  state_->walk.run(plan);
  if (EstimatorCounts* counts = state_->pricer.input.counts) {
    const PlanFragments& parts = state_->walk.parts();
    ++counts->plans;
    counts->needed += static_cast<std::int64_t>(2 * parts.layers.size() + parts.sums.size());
  }
  return state_->timer.latest();
}

std::vector<MemoryUse> Estimator::memory(const Plan& plan) {
  state_->walk.parts().find(plan);
  return memory_use(state_->walk.parts());
}

}  // namespace parsim::lowering
