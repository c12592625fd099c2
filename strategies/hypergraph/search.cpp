#include "strategies/hypergraph/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "strategies/buckets.hpp"
#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/blocks.hpp"
#include "strategies/hypergraph/initial.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies::hypergraph {

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

/// Whether it moves fewer elements to gather what the layer reads than to sum its weights, so that
/// cutting it by channel pays.
bool heavy(const StrategyInput& input, LayerId id) {
  const Network& network = input.network;
  std::int64_t read = 0, weights = 0;
  for (const LayerId from : network[id].inputs) {
    if (network[from].kind.as<Input>() == nullptr)
      read += network[from].out.elements() * input.batch;
  }
  for (const ParameterId parameter : network[id].parameters)
    weights += network[parameter].elements();
  return read > 0 && weights > read;
}

/// By layer, sizes of blocks of channels for model U: `count` each while the vertices allow, then
/// fewer for layers that are best cut by sample, last for the heavy ones. Blocks nest into equal
/// parts for the devices.
std::vector<std::vector<std::int64_t>> unified_blocks(const StrategyInput& input,
                                                      std::size_t devices, std::size_t count,
                                                      std::size_t samples) {
  constexpr std::size_t most = 1024;  // vertices
  const Network& network = input.network;
  std::vector<std::vector<std::int64_t>> sizes(network.layers.size());
  std::size_t of_heavy = count, of_others = count;
  while (true) {
    for (std::size_t l = 0; l < sizes.size(); ++l) {
      const std::size_t blocks = heavy(input, LayerId{l}) ? of_heavy : of_others;
      const std::int64_t extent = network.layers[l].out.extent(Dim::channel);
      sizes[l].clear();
      for (const std::int64_t part : even_split(extent, std::min(blocks, devices))) {
        for (const std::int64_t size : even_split(part, std::max<std::size_t>(1, blocks / devices)))
          if (size > 0) sizes[l].push_back(size);
      }
    }
    if (blocks_of(network, 1, sizes).maker.size() * samples <= most) return sizes;
    if (of_heavy == 1) return sizes;
    (of_others > 1 ? of_others : of_heavy) /= 2;
  }
}

/// Orders in which ranges of vertices may be given to parts: rows of a layer sample by sample, and
/// whole samples.
using UnitOrders = std::vector<std::vector<std::vector<Vertex>>>;
UnitOrders unit_orders(const Model& model) {
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
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  std::vector<std::vector<double>> all;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto like = std::find(kinds.begin(), kinds.end(), kinds[d]) - kinds.begin();
    std::vector<double> times;
    if (static_cast<std::size_t>(like) < d) times = all[static_cast<std::size_t>(like)];
    for (std::size_t l = times.size(); l < input.network.layers.size(); ++l) {
      const Part part{whole(input.network.layers[l].out, input.batch), {}};
      times.push_back(layer_time(input, flow, LayerId{l}, part, devices[d]).count());
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
  if (recipe.by_samples) {
    const auto count = static_cast<std::size_t>(sixteen_or_more(devices.size()));
    options.sample_sizes =
        sample_blocks(input.network, options.samples, count, recipe.micro_batches, starts);
    options.channel_sizes =
        unified_blocks(input, devices.size(), count, options.sample_sizes.size());
  } else {
    constexpr std::size_t most = 768;
    const std::size_t rows = blocks_of(input.network, 1).maker.size();
    options.channel_blocks = static_cast<std::int32_t>(
        std::clamp<std::size_t>(most / std::max<std::size_t>(1, rows), 8, 64));
  }
  return model_of(input.network, options);
}

Candidate planned(const StrategyInput& input, const Recipe& recipe, const Model& model,
                  Partition partition) {
  const std::vector<DeviceId> devices = workers(input);
  Candidate candidate{recipe, std::move(partition), 0, empty_plan(input, "hypergraph", devices)};
  candidate.elements = candidate.partition.cost;
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
      fmt::format("{}: {} moved per step at batch {} (connectivity minus one); data parallelism "
                  "would move 2(P-1)W = {} on {} devices",
                  candidate.recipe.name,
                  megabytes(static_cast<double>(candidate.elements) * element), input.batch,
                  megabytes(2 * static_cast<double>(devices - 1) * parameters * element), devices),
      fmt::format("balance: the heaviest part is {:.3g} % above its target, tolerance {:.3g} %",
                  100 * candidate.partition.imbalance, 100 * candidate.recipe.tolerance),
      "reconstruction: only the abstract of Eserol 2019 is public; models and partitioner are "
      "our own"};
}

namespace {

/// Targets of each device, part-major: its speed, and its memory where that is a constraint.
std::vector<double> targets_of(const StrategyInput& input, const Recipe& recipe,
                               const std::vector<DeviceId>& devices) {
  std::vector<double> speeds = speeds_of(input, devices);
  if (recipe.balance != Balance::work_and_memory) return speeds;
  double memory = 0, speed = 0;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    memory += static_cast<double>(input.usable_memory(devices[d]).value);
    speed += speeds[d];
  }
  std::vector<double> targets;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    targets.push_back(speeds[d] / speed);
    const auto own = static_cast<double>(input.usable_memory(devices[d]).value);
    targets.push_back(memory > 0 ? own / memory : 1 / static_cast<double>(devices.size()));
  }
  return targets;
}

/// The start that moves fewest elements among those that keep the recipe's balance and move fewer
/// than `found`, each in a model with blocks of its own; null if there is none. The blocks of
/// model_for are the same for all starts, and on many layers too few to say each of them.
const Start* cheapest_start(const StrategyInput& input, const Recipe& recipe,
                            const std::vector<Start>& starts, const PartitionOptions& options,
                            const Partition& found) {
  const std::vector<DeviceId> devices = workers(input);
  const std::vector<double> work =
      recipe.by_time ? layer_times(input, devices) : std::vector<double>{};
  const Start* best = nullptr;
  std::int64_t least = found.balanced() ? found.cost : std::numeric_limits<std::int64_t>::max();
  for (const Start& start : starts) {
    if (!has_own_model(input.network, recipe, start.plan)) continue;
    const Model own = own_model(input, recipe, start.plan, work);
    const Partition given =
        evaluated(own.graph, parts_of(input.network, own, start.plan, devices), options);
    if (!given.balanced() || given.cost >= least) continue;
    best = &start;
    least = given.cost;
  }
  return best;
}

}  // namespace

Candidate candidate_of(const StrategyInput& input, const Recipe& recipe,
                       const std::vector<Start>& starts) {
  const std::vector<DeviceId> devices = workers(input);
  const Model model = model_for(input, recipe, devices, starts);
  PartitionOptions options;
  options.parts = static_cast<std::int32_t>(devices.size());
  options.shares = targets_of(input, recipe, devices);
  options.tolerance = recipe.tolerance;
  options.seed = input.seed;
  // Vertices x parts, what an FM pass looks at. Where it is more, the starts are refined only.
  constexpr std::size_t most = 50'000;
  const bool small = at(model.graph.vertices) * devices.size() <= most;
  options.restarts = options.recombinations = options.bisections = small ? 1 : 0;
  options.chains = small;
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
  for (const auto& units : small ? unit_orders(model) : UnitOrders{}) {
    if (auto chain = cheapest_chain(model.graph, limits, units, order))
      options.starts.push_back(std::move(*chain));
  }
  const auto candidate = [&](const Recipe& named, const Model& used, const PartitionOptions& how) {
    Parts parts = gathered(input.network, used, partition(used.graph, how).parts);
    return planned(input, named, used, evaluated(used.graph, std::move(parts), how));
  };
  Candidate found = candidate(recipe, model, options);
  // A large model's starts are candidates themselves, and there is no time for more.
  if (!recipe.by_samples || !small) return found;
  if (const Start* start = cheapest_start(input, recipe, starts, options, found.partition)) {
    const std::vector<double> work =
        recipe.by_time ? layer_times(input, devices) : std::vector<double>{};
    const Model own = own_model(input, recipe, start->plan, work);
    options.starts = {parts_of(input.network, own, start->plan, devices)};
    options.restarts = options.recombinations = options.bisections = 0;
    options.chains = false;
    Recipe named = recipe;
    named.name += fmt::format(", in the blocks of '{}'", start->name);
    found = candidate(named, own, options);
  }
  return found;
}

std::int32_t micro_batches_of(const StrategyInput& input, std::size_t devices) {
  return input.micro_batches.value_or(default_micro_batches(input.batch, devices));
}

std::vector<std::vector<Recipe>> recipes_of(const StrategyInput& input, std::size_t devices) {
  const std::int32_t m = micro_batches_of(input, devices);
  constexpr double loose = 0.1, usual = 0.05, tight = 0.02;
  const Balance runs = Balance::work_by_layers, all = Balance::work;
  const bool unpipelined = !input.micro_batches || m == 1;
  std::vector<std::vector<Recipe>> families;
  if (unpipelined) {
    families.push_back({{"model U, runs of layers balanced", true, runs, loose, 1},
                        {"model U, runs of layers balanced closely", true, runs, tight, 1},
                        {"model U, runs of layers balanced by time", true, runs, loose, 1, true}});
    families.push_back({{"model U, whole network balanced", true, all, usual, 1}});
  }
  if (m > 1) {
    families.push_back({{"model U, whole network balanced, pipelined", true, all, usual, m}});
    families.push_back(
        {{"model F, whole network balanced, pipelined", false, all, usual, m},
         {"model F, whole network balanced by time, pipelined", false, all, usual, m, true}});
  }
  if (unpipelined) {
    // Not by time: the loss cannot be cut in model F, so its run could not be balanced.
    families.push_back({{"model F, runs of layers balanced", false, runs, loose, 1}});
    if (m == 1) families.push_back({{"model F, whole network balanced", false, all, usual, 1}});
  }
  return families;
}

std::vector<Recipe> memory_recipes_of(const StrategyInput& input, std::size_t devices) {
  const std::int32_t micro_batches = micro_batches_of(input, devices);
  constexpr double loose = 0.1;
  std::vector<Recipe> recipes{{"model F, work and memory balanced, pipelined", false,
                               Balance::work_and_memory, loose, micro_batches}};
  if (!input.micro_batches || micro_batches == 1) {
    recipes.push_back(
        {"model U, work and memory balanced", true, Balance::work_and_memory, loose, 1});
  }
  return recipes;
}

}  // namespace parsim::strategies::hypergraph
