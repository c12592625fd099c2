#include "strategies/hypergraph/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/blocks.hpp"
#include "strategies/hypergraph/initial.hpp"
#include "strategies/hypergraph/order.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::hypergraph {

namespace {

/// The largest divisor of the batch up to four micro-batches a device (GPipe, section 2.3: the
/// bubble is negligible from there on).
std::int32_t default_micro_batches(std::int64_t batch, std::size_t devices) {
  for (auto m = static_cast<std::int64_t>(4 * devices); m > 1; --m) {
    if (batch % m == 0) return static_cast<std::int32_t>(m);
  }
  return 1;
}

/// The least multiple of `parts` that is at least 16: every device can get an equal number.
std::int32_t sixteen_or_more(std::size_t parts) {
  const auto p = static_cast<std::int32_t>(parts);
  return p * ((16 + p - 1) / p);
}

/// Orders in which ranges of vertices may be given to parts: rows of a layer sample by sample, and
/// whole samples.
std::vector<std::vector<std::vector<Vertex>>> unit_orders(const Model& model) {
  const std::size_t samples = model.samples.size();
  if (samples == 1) return {};
  std::vector<std::vector<Vertex>> by_layer, by_sample;
  std::vector<std::vector<std::int32_t>> families;
  for (std::size_t r = 0; r < model.maker.size(); ++r) {
    if (r == 0 || model.maker[r] != model.maker[r - 1]) families.emplace_back();
    families.back().push_back(static_cast<std::int32_t>(r));
  }
  const auto unit = [&](const std::vector<std::int32_t>& family, std::size_t s) {
    std::vector<Vertex> vertices;
    for (const std::int32_t row : family) vertices.push_back(model.vertex(row, s));
    return vertices;
  };
  for (const auto& family : families) {
    for (std::size_t s = 0; s < samples; ++s) by_layer.push_back(unit(family, s));
  }
  for (std::size_t s = 0; s < samples; ++s) {
    for (const auto& family : families) by_sample.push_back(unit(family, s));
  }
  return {by_layer, by_sample};
}

std::string megabytes(double bytes) { return fmt::format("{:.4g} MB", bytes / 1e6); }

/// By device, then layer: seconds for forward and backward of the whole batch.
std::vector<std::vector<double>> times_on(const StrategyInput& input,
                                          const std::vector<DeviceId>& devices) {
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  std::vector<std::vector<double>> all;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto like = std::find(kinds.begin(), kinds.end(), kinds[d]) - kinds.begin();
    std::vector<double> times;
    if (static_cast<std::size_t>(like) < d) times = all[static_cast<std::size_t>(like)];
    for (std::size_t l = times.size(); l < input.network.layers.size(); ++l) {
      const Part part{whole(input.network.layers[l].out, input.batch), {}};
      times.push_back(layer_time(input, LayerId{l}, part, devices[d]).count());
    }
    all.push_back(std::move(times));
  }
  return all;
}

double sum(const std::vector<double>& times) {
  return std::max(1e-12, std::accumulate(times.begin(), times.end(), 0.0));
}

}  // namespace

std::vector<double> layer_times(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  std::vector<double> work(input.network.layers.size(), 0);
  for (const std::vector<double>& times : times_on(input, devices)) {
    for (std::size_t l = 0; l < work.size(); ++l) work[l] += times[l] / sum(times);
  }
  return work;
}

std::vector<double> speeds_of(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  std::vector<double> speeds;
  for (const std::vector<double>& times : times_on(input, devices))
    speeds.push_back(1 / sum(times));
  return speeds;
}

Model model_for(const StrategyInput& input, const Recipe& recipe,
                const std::vector<DeviceId>& devices, const std::vector<Start>& starts) {
  ModelOptions options;
  options.samples = input.batch / recipe.micro_batches;
  options.micro_batches = recipe.micro_batches;
  options.states = 2 + state_per_parameter(input.optimizer);
  options.balance = recipe.balance;
  if (recipe.by_time) options.work = layer_times(input, devices);
  const std::size_t rows = blocks_of(input.network, 1).maker.size();
  if (recipe.by_samples) {
    constexpr std::size_t most = 1024;  // vertices
    options.channel_blocks = sixteen_or_more(devices.size());
    options.sample_sizes =
        sample_blocks(options.samples, static_cast<std::size_t>(options.channel_blocks),
                      recipe.micro_batches, starts);
    while (options.channel_blocks > 1 &&
           rows * static_cast<std::size_t>(options.channel_blocks) * options.sample_sizes.size() >
               most)
      options.channel_blocks = options.channel_blocks / 2;
  } else {
    constexpr std::size_t most = 768;
    options.channel_blocks = static_cast<std::int32_t>(
        std::clamp<std::size_t>(most / std::max<std::size_t>(1, rows), 8, 64));
  }
  return model_of(input.network, options);
}

Candidate planned(const StrategyInput& input, const Recipe& recipe, const Model& model,
                  Partition partition) {
  const std::vector<DeviceId> devices = workers(input);
  Candidate candidate{recipe, std::move(partition), 0, empty_plan(input, "hypergraph", devices)};
  candidate.words = candidate.partition.cost;
  candidate.plan.layers = layers_of(input.network, model, candidate.partition.parts, devices);
  for (LayerPlan& layer : candidate.plan.layers) layer.sync = chosen_sync(input);
  candidate.plan.schedule = pipelined(input, candidate.plan.layers, recipe.micro_batches);
  candidate.plan.buckets = gradient_buckets(input);
  return candidate;
}

std::vector<std::string> notes_of(const StrategyInput& input, const Candidate& candidate) {
  const std::size_t devices = workers(input).size();
  const auto parameters = static_cast<double>(parameter_count(input.network));
  const double element = static_cast<double>(element_bytes(input.precision));
  return {
      fmt::format("{}: {} a step at batch {} (connectivity minus one); data parallelism moves "
                  "2(P-1)W = {} on {} devices",
                  candidate.recipe.name, megabytes(static_cast<double>(candidate.words) * element),
                  input.batch,
                  megabytes(2 * static_cast<double>(devices - 1) * parameters * element), devices),
      fmt::format("heaviest part {:.3g} % above its target, tolerance {:.3g} %",
                  100 * candidate.partition.imbalance, 100 * candidate.recipe.tolerance),
      "reconstruction: of Eserol 2019 only the abstract is public; models and partitioner are "
      "ours"};
}

Candidate candidate_of(const StrategyInput& input, const Recipe& recipe,
                       const std::vector<Start>& starts) {
  const std::vector<DeviceId> devices = workers(input);
  const Model model = model_for(input, recipe, devices, starts);
  PartitionOptions options;
  options.parts = static_cast<std::int32_t>(devices.size());
  options.shares = speeds_of(input, devices);
  options.tolerance = recipe.tolerance;
  options.seed = input.seed;
  options.restarts = options.recombinations = options.bisections = 1;
  for (const Start& start : starts) {
    Parts parts = parts_of(input.network, model, start.plan, devices);
    // Far from balanced, nothing of it would be left after rebalancing.
    constexpr double hopeless = 0.1;
    const bool known =
        std::find(options.starts.begin(), options.starts.end(), parts) != options.starts.end();
    if (!known && evaluated(model.graph, parts, options).overload < hopeless)
      options.starts.push_back(std::move(parts));
  }
  const Limits limits = limits_of(model.graph, options.parts, options.shares, options.tolerance);
  std::vector<std::int32_t> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  for (const auto& units : unit_orders(model)) {
    if (auto chain = cheapest_chain(model.graph, limits, units, order))
      options.starts.push_back(std::move(*chain));
  }
  Partition found = partition(model.graph, options);
  Parts parts = gathered(input.network, model, found.parts);

  return planned(input, recipe, model, evaluated(model.graph, std::move(parts), options));
}

std::vector<Recipe> recipes_of(const StrategyInput& input, std::size_t devices) {
  const std::int32_t micro_batches =
      input.micro_batches.value_or(default_micro_batches(input.batch, devices));
  std::vector<Recipe> recipes;
  const auto add = [&](std::string name, bool by_samples, Balance balance, double tolerance,
                       std::int32_t parts, bool by_time = false) {
    recipes.push_back({std::move(name), by_samples, balance, tolerance, parts, by_time});
  };
  constexpr double loose = 0.1, usual = 0.05, tight = 0.02;
  if (micro_batches > 1) {
    const std::int32_t m = micro_batches;
    add("model F, whole network balanced, pipelined", false, Balance::work, usual, m);
    add("model F, whole network balanced by time, pipelined", false, Balance::work, usual, m, true);
    add("model U, whole network balanced, pipelined", true, Balance::work, usual, m);
  }
  if (!input.micro_batches || micro_batches == 1) {
    const Balance runs = Balance::work_by_layers;
    add("model U, runs of layers balanced", true, runs, loose, 1);
    add("model U, runs of layers balanced closely", true, runs, tight, 1);
    add("model U, runs of layers balanced by time", true, runs, loose, 1, true);
    add("model U, whole network balanced", true, Balance::work, usual, 1);
    // Not by time: the loss cannot be cut in model F, so it would be a run that nobody can balance.
    add("model F, runs of layers balanced", false, runs, loose, 1);
    if (micro_batches == 1) add("model F, whole network balanced", false, Balance::work, usual, 1);
  }
  return recipes;
}

}  // namespace parsim::hypergraph
