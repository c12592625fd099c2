#include "experiment/trainer_run.hpp"

#include <string>
#include <utility>

#include "experiment/trainer_file.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

Plan run_by(std::string_view trainer, const Experiment& experiment, const Plan& plan) {
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, plan);
  const bool overlaps = overlaps_sums(trainer, degrees.zero.value_or(0));
  Plan carried =
      strategies::with_buckets(experiment.strategy_input(), plan,
                               overlaps ? strategies::StrategyOptions{}.bucket : after_backward);
  carried.schedule.reduce_every = reduced_by(trainer, plan.schedule.reduce_every);
  if (!degrees.schedule) return carried;  // one stage
  carried.schedule.blocking_sends =
      sends_of_trainer(trainer, *degrees.schedule, degrees.vp.value_or(1)) ==
      strategies::PipelineSends::blocking;
  return carried;
}

Plan compared(const Experiment& experiment, Plan plan) {
  const std::string trainer = experiment.layout ? experiment.layout->trainer : "";
  if (trainer.empty() || plan.buckets.empty() || experiment.request.given.contains("--bucket")) {
    return plan;
  }
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, plan);
  if (overlaps_sums(trainer, degrees.zero.value_or(0))) return plan;
  return strategies::with_buckets(experiment.strategy_input(), std::move(plan), after_backward);
}

Plan searched(const Experiment& experiment, const Plan& plan) {
  const std::string& launcher = experiment.request.launcher;
  return launcher.empty() ? compared(experiment, plan) : run_by(launcher, experiment, plan);
}

}  // namespace parsim::experiment
