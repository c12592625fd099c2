#include "experiment/trainer_run.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/json.hpp"
#include "core/vocabulary.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_layout.hpp"
#include "lowering/sync.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

/// Of unlike stages, those of the first count.
Bytes bucket_by(std::string_view trainer, const Network& network, const Plan& plan) {
  const std::vector<strategies::StageSummary> stages = strategies::stages_of(network, plan);
  const strategies::Degrees degrees = strategies::degrees_of(network, plan, stages);
  const strategies::StageSummary& first = stages.front();
  const TrainerGroups groups{.tensor = first.tp.value_or(1),
                             .context = first.cp.value_or(1),
                             .data = first.dp.value_or(1),
                             .pipeline = degrees.pp.value_or(1)};
  return usual_bucket(trainer, degrees.zero.value_or(0), groups, plan.reduce_precision);
}

/// A product whose columns devices share.
bool is_split_product(const Network& network, const Plan& plan, LayerId layer) {
  const std::vector<Cut>& cuts = plan.layers[layer.index()].cuts;
  return network[layer].kind.as<Dense>() != nullptr &&
         std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
           return cut.dim == Dim::channel && cut.sizes.size() > 1;
         });
}

}  // namespace

Plan plan_of_file(const std::string& text, const std::string& file, const Request& request) {
  Plan plan = plan_from_json(text, file);
  const Framework asked = sim::framework_of(request.sim.fusion);
  if (request.given.contains("--fusion") && of_megatron(asked) != of_megatron(plan.framework))
    plan.framework = asked;
  return plan;
}

void follow_framework(const Plan& plan, Request& request) {
  const bool open = !request.given.contains("--fusion") && request.launcher.empty();
  if (open && of_megatron(plan.framework)) request.sim.fusion = sim::Fusion::megatron;
}

void follow_trainer(const LayoutFile& file, Request& request) {
  if (!request.given.contains("--reduce-every")) {
    request.reduce_every = file.reduce_every.value_or(reduced_by(file.trainer, {}));
  }
  if (!request.given.contains("--fusion") && file.fusion) request.sim.fusion = *file.fusion;
}

void check_replicas(const LayoutFile& file, std::int64_t micro_batches, std::int64_t batch) {
  const std::int64_t least = micro_batches * file.replicas;
  if (batch % least == 0) return;
  throw InputError("--batch",
                   fmt::format("{} for {} replicas in {}", counted(batch, "sample"), file.replicas,
                               counted(micro_batches, "micro-batch")),
                   fmt::format("accepted: a multiple of {}", least));
}

Plan with_habits(const Network& network, Plan plan, const GroupHabits& habits) {
  plan.schedule.late_gathers = plan.schedule.late_gathers || habits.late_gathers;
  const std::vector<std::vector<LayerId>> users = lowering::users_of_parameters(network);
  const std::vector<std::vector<Consumer>> readers = consumers(network);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    if (habits.sums_apart) {
      const auto products = std::count_if(
          readers[l].begin(), readers[l].end(),
          [&](const Consumer& reader) { return is_split_product(network, plan, reader.layer); });
      plan.layers[l].apart = products > 1;
    }
    // Of keys and values that parts of the tokens gather nothing stays.
    if (habits.keeps_gathered && !plan.layers[l].recompute &&
        std::none_of(readers[l].begin(), readers[l].end(), [&](const Consumer& reader) {
          return network[reader.layer].kind.as<Attention>() != nullptr;
        })) {
      plan.layers[l].regather = false;
    }
    const bool table = habits.whole_words && layer.kind.as<Embedding>() != nullptr &&
                       users[layer.parameters[0].index()].size() == 1;
    if (!(habits.whole_scores && layer.kind.as<Loss>() != nullptr) && !table) continue;
    for (Cut& cut : plan.layers[l].cuts) {
      if (cut.dim != Dim::in_channel) continue;
      cut = {Dim::replica, std::vector<std::int64_t>(cut.sizes.size(), 1)};
    }
  }
  return plan;
}

Plan run_by(std::string_view trainer, const Experiment& experiment, const Plan& plan) {
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, plan);
  Plan carried = strategies::with_buckets(experiment.strategy_input(), plan,
                                          bucket_by(trainer, experiment.network, plan));
  carried.framework = sim::framework_of(experiment.request.sim.fusion);
  carried.schedule.reduce_every = reduced_by(trainer, plan.schedule.reduce_every);
  if (trainer == "accelerate" || trainer == "deepspeed") {
    carried = with_habits(experiment.network, std::move(carried), habits_of_transformers);
  }
  if (trainer == "torchtitan") {
    carried = with_habits(experiment.network, std::move(carried), habits_of_dtensor);
  }
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
  if (experiment.layout) {
    plan = with_habits(experiment.network, std::move(plan), experiment.layout->habits);
  }
  if (trainer.empty() || plan.buckets.empty() || experiment.request.given.contains("--bucket")) {
    return plan;
  }
  const Bytes bucket = bucket_by(trainer, experiment.network, plan);
  return strategies::with_buckets(experiment.strategy_input(), std::move(plan), bucket);
}

Plan searched(const Experiment& experiment, const Plan& plan) {
  const std::string& launcher = experiment.request.launcher;
  return launcher.empty() ? compared(experiment, plan) : run_by(launcher, experiment, plan);
}

}  // namespace parsim::experiment
