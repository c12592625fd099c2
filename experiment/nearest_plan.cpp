#include "experiment/nearest_plan.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/errors.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

struct PlainPlan {
  std::string strategy;                 ///< "layout": that of the request
  std::int32_t tp = 0, pp = 0, dp = 0;  ///< 0: the strategy's choice
};
constexpr std::string_view of_request = "layout";

std::vector<PlainPlan> plain_plans(const Experiment& experiment, const Plan& refused) {
  std::vector<PlainPlan> plans;
  if (experiment.layout) plans.push_back({std::string(of_request)});
  const std::size_t gpus = devices_of(experiment.cluster, DeviceKind::gpu).size();
  const bool blocks = !strategies::first_layers_of_blocks(experiment.network).empty();
  const strategies::Degrees own = strategies::degrees_of(experiment.network, refused);
  if (blocks && own.tp && own.pp && own.dp) {
    plans.push_back({"tensor", static_cast<std::int32_t>(*own.tp),
                     static_cast<std::int32_t>(*own.pp), static_cast<std::int32_t>(*own.dp)});
  }
  plans.insert(plans.end(), {{"data"}, {"pipeline"}});
  constexpr std::size_t most = 128;
  if (gpus > most || !blocks) return plans;
  plans.push_back({"tensor"});
  const auto all = static_cast<std::int32_t>(gpus);
  for (std::int32_t tp = 1; tp <= all; tp *= 2) {
    for (std::int32_t pp = 1; tp * pp <= all; pp *= 2) {
      if (all % (tp * pp) == 0) plans.push_back({"tensor", tp, pp, all / (tp * pp)});
    }
  }
  return plans;
}

std::optional<Plan> made(const Experiment& experiment, const PlainPlan& plain) {
  strategies::StrategyInput input = experiment.strategy_input();
  input.shares = strategies::ShareRule::equal;
  input.poll = experiment.request.poll;
  input.tensor_parallel.reset();
  input.pipeline_parallel.reset();
  input.data_parallel.reset();
  if (plain.tp > 0) {
    input.tensor_parallel = plain.tp;
    input.pipeline_parallel = plain.pp;
    input.data_parallel = plain.dp;
  }
  const bool laid_out = plain.strategy == of_request;
  strategies::Layout layout;
  if (laid_out) {
    take_decisions(*experiment.layout, input);
    input.shares = strategies::ShareRule::equal;
    layout = experiment.layout->layout;
    for (strategies::LayoutStage& stage : layout.stages) stage.samples.clear();
  }
  try {
    Plan plan = strategies::with_memory_options(
        input, laid_out ? strategies::plan_layout(input, layout)
                        : strategies::strategy(plain.strategy, "--strategy").plan(input));
    strategies::check_zero_group(input, plan, "--zero-group");
    validate(plan, experiment.network, experiment.cluster, "nearest plan");
    return plan;
  } catch (const InputError&) {  // no such plan for this input
    return std::nullopt;
  }
}

std::string options_of_plan(const Request& request, const PlainPlan& plain) {
  if (plain.strategy == of_request) {
    return fmt::format("--layout {} without its samples and shares", request.layout_file);
  }
  std::string text = "--strategy " + plain.strategy;
  if (plain.tp > 0) text += fmt::format(" --tp {} --pp {} --dp {}", plain.tp, plain.pp, plain.dp);
  if (plain.strategy == "data" && request.shares != strategies::ShareRule::equal) {
    text += " --shares equal";
  }
  return text;
}

}  // namespace

std::optional<NearestPlan> nearest_plan(const Experiment& experiment, const Plan& refused,
                                        const std::function<bool(const Plan&)>& accepts) {
  std::optional<NearestPlan> best;
  for (const PlainPlan& plain : plain_plans(experiment, refused)) {
    const std::optional<Plan> plan = made(experiment, plain);
    if (!plan || !accepts(*plan)) continue;
    const RunResult result = run_plan(experiment, {*plan, {}, {}}, Operations::folded).result;
    if (!result.fits() || (best && best->step <= result.step_time)) continue;
    best = NearestPlan{options_of_plan(experiment.request, plain), result.step_time};
  }
  return best;
}

}  // namespace parsim::experiment
