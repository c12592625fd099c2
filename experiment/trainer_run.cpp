#include "experiment/trainer_run.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "core/vocabulary.hpp"
#include "experiment/trainer_file.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

Plan run_by(std::string_view trainer, const Experiment& experiment, const Plan& plan) {
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, plan);
  const bool overlaps = overlaps_sums(trainer, degrees.zero.value_or(0), degrees.pp.value_or(1));
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

RunResult run_padded(const Experiment& experiment, const Plan& plan, std::int64_t multiple) {
  const std::int64_t words = vocabulary_of(experiment.network).value_or(0);
  Request request = experiment.request;
  request.plan_file = request.layout_file = "";
  request.batch = experiment.batch;
  Experiment padded(request);
  padded.network = experiment.network;
  pad_vocabulary(padded.network, multiple);
  const std::int64_t more = vocabulary_of(padded.network).value_or(0);
  Plan carried = plan;
  for (std::size_t l = 0; l < carried.layers.size(); ++l) {
    const Layer& before = experiment.network.layers[l];
    const Layer& after = padded.network.layers[l];
    const bool larger = before != after || input_shapes(experiment.network, LayerId{l}) !=
                                               input_shapes(padded.network, LayerId{l});
    for (Cut& cut : carried.layers[l].cuts) {
      const std::int64_t sum = std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
      if (larger && sum == words) cut.sizes = even_split(more, cut.sizes.size());
    }
  }
  return run_plan(padded, {carried, {}, {}}, Operations::folded).result;
}

Plan compared(const Experiment& experiment, Plan plan) {
  const std::string trainer = experiment.layout ? experiment.layout->trainer : "";
  if (trainer.empty() || plan.buckets.empty() || experiment.request.given.contains("--bucket")) {
    return plan;
  }
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, plan);
  if (overlaps_sums(trainer, degrees.zero.value_or(0), degrees.pp.value_or(1))) return plan;
  return strategies::with_buckets(experiment.strategy_input(), std::move(plan), after_backward);
}

Plan searched(const Experiment& experiment, const Plan& plan) {
  const std::string& launcher = experiment.request.launcher;
  return launcher.empty() ? compared(experiment, plan) : run_by(launcher, experiment, plan);
}

}  // namespace parsim::experiment
