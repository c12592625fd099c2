#include "experiment/what_would_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "experiment/run.hpp"
#include "lowering/recompute.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

struct Saving {
  std::int32_t zero_stage = 0;
  strategies::Recompute recompute = strategies::Recompute::none;
  bool sized = false;  ///< stage 3 gathers buckets of a size in place of blocks, which are larger
};

/// Sharding costs messages, smaller buckets more of them, dropping attention scores some kernels,
/// the lowest peak a third of the step.
///
/// blocks   gathered in stage 3
std::vector<Saving> savings_from(const Saving& now, bool attention, bool splits, bool blocks) {
  std::vector<Saving> savings;
  for (const strategies::Recompute recompute :
       {strategies::Recompute::none, strategies::Recompute::selective,
        strategies::Recompute::optimal}) {
    if (recompute < now.recompute || (recompute == strategies::Recompute::selective && !attention))
      continue;
    for (std::int32_t stage = now.zero_stage; stage <= (splits ? 3 : now.zero_stage); ++stage) {
      if (recompute != now.recompute || stage != now.zero_stage)
        savings.push_back({stage, recompute});
      if (stage == 3 && splits && blocks) savings.push_back({stage, recompute, true});
    }
  }
  return savings;
}

/// every   of --recompute-every, which does not go with optimal recomputation
std::string options_of(const Saving& saving, std::int32_t every) {
  std::vector<std::string> options;
  if (saving.zero_stage > 0) options.push_back(fmt::format("--zero {}", saving.zero_stage));
  if (saving.sized)
    options.push_back("--bucket " + strategies::bucket_text(strategies::ddp_bucket));
  if (saving.recompute != strategies::Recompute::none) {
    options.push_back(fmt::format("--recompute {}{}", to_text(saving.recompute),
                                  every > 1 && saving.recompute == strategies::Recompute::optimal
                                      ? " without --recompute-every"
                                      : ""));
  }
  return fmt::format("{}", fmt::join(options, " "));
}

void ask_for(const Saving& saving, strategies::StrategyInput& input) {
  input.zero_stage = saving.zero_stage;
  input.recompute = saving.recompute;
  if (saving.sized) input.bucket = strategies::ddp_bucket;
}

/// plan   of data parallelism; gets the options that save memory, on which nothing else in it
///        depends. Lists of all devices for each layer take longer to copy than to look at.
bool data_fits(strategies::StrategyInput input, const Saving& saving, Plan& plan) {
  ask_for(saving, input);
  if (!input.zero_group.all()) return strategies::fits(input, plan);  // groups may be refused
  plan = strategies::with_memory_options(input, std::move(plan));
  if (saving.zero_stage == 3) plan.buckets = strategies::gradient_buckets(input);
  input.zero_stage.reset();
  input.recompute.reset();
  return strategies::fits(input, plan);
}

bool data_fits(strategies::StrategyInput input, const Saving& saving, std::int64_t batch) {
  input.batch = batch;
  Plan plan = strategies::plan_data(input);
  return data_fits(input, saving, plan);
}

/// The largest multiple of the GPUs below the input's batch with which it fits.
std::optional<std::int64_t> largest_batch(const strategies::StrategyInput& input,
                                          const Saving& saving, std::int64_t gpus) {
  std::int64_t fitting = 0, beyond = (input.batch + gpus - 1) / gpus;  // in samples for each GPU
  while (beyond - fitting > 1) {
    const std::int64_t middle = (fitting + beyond) / 2;
    (data_fits(input, saving, middle * gpus) ? fitting : beyond) = middle;
  }
  if (fitting == 0) return std::nullopt;
  return fitting * gpus;
}

Seconds step_with(const Experiment& experiment, strategies::StrategyInput input,
                  const Saving& saving, Plan plan) {
  ask_for(saving, input);
  return simulated_step(experiment, strategies::with_memory_options(input, std::move(plan)));
}

}  // namespace

std::string what_would_fit(const Experiment& experiment, double memory) {
  if (experiment.plan) return {};
  Cluster cluster = experiment.cluster;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    Bytes& whole = cluster.devices[gpu.index()].memory;
    whole.value = static_cast<std::int64_t>(memory * static_cast<double>(whole.value));
  }
  strategies::StrategyInput input{experiment.network, cluster, *experiment.cost,
                                  experiment.request};
  input.batch = experiment.batch;
  input.server = experiment.server;
  const auto gpus =
      static_cast<std::int64_t>(devices_of(experiment.cluster, DeviceKind::gpu).size());
  const Saving now{input.zero_stage.value_or(0),
                   input.recompute.value_or(strategies::Recompute::none)};
  Plan plan = strategies::plan_data(input);
  if (data_fits(input, now, plan)) return "data would fit as asked";
  const bool splits = gpus > 1 && input.sync != Sync::Kind::server;
  const bool attention = !lowering::attention_scores(experiment.network).empty();
  std::vector<std::string> ways;
  Saving most = now;
  const bool blocks = strategies::gathers_blocks(input);
  for (const Saving& saving : savings_from(now, attention, splits, blocks)) {
    most = saving;
    if (!data_fits(input, saving, plan)) continue;
    ways.push_back("with " + options_of(saving, input.recompute_every));
    if (memory == 1.0)
      ways.back() +=
          fmt::format(" ({})", to_text(step_with(experiment, input, saving, std::move(plan))));
    break;
  }
  const bool helps = !ways.empty();
  const std::optional<std::int64_t> batch = largest_batch(input, now, gpus);
  if (batch) ways.push_back(fmt::format("with --batch {}", *batch));
  const std::string all = options_of(most, input.recompute_every);
  if (!helps && !all.empty()) {
    std::optional<std::int64_t> more = largest_batch(input, most, gpus);
    // Fewer samples than GPUs leave some without a share of what is split.
    if (!more && experiment.batch < gpus && data_fits(input, most, gpus)) more = gpus;
    if (more && more != batch) ways.push_back(fmt::format("with {} --batch {}", all, *more));
  }
  if (!ways.empty()) return fmt::format("data would fit {}", join(ways, ", or "));
  return fmt::format("data would not fit even with {}{}--batch {}", all, all.empty() ? "" : " ",
                     std::min(gpus, experiment.batch));
}

}  // namespace parsim::experiment
