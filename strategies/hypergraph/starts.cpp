// Plans of other strategies as partitions: where the search starts, and what it must not lose to.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "strategies/hypergraph/blocks.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// Where the layers of a plan are cut by sample, ends of the micro-batch left out; of all layers or
/// only of those with parameters.
std::set<std::int64_t> sample_borders(const Network& network, const Plan& plan, bool all) {
  std::set<std::int64_t> borders;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (!all && network.layers[l].parameters.empty()) continue;
    for (const Cut& cut : plan.layers[l].cuts) {
      std::int64_t end = 0;
      for (const std::int64_t size : cut.sizes) {
        end += size;
        if (cut.dim == Dim::sample && end > 0 && end < plan.batch / plan.schedule.micro_batches)
          borders.insert(end);
      }
    }
  }
  return borders;
}

std::set<std::int64_t> sample_borders(const Network& network, const Plan& plan) {
  return sample_borders(network, plan, true);
}

std::vector<std::int64_t> sizes_between(const std::set<std::int64_t>& borders,
                                        std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;
  for (const std::int64_t border : borders) {
    sizes.push_back(border - begin);
    begin = border;
  }
  sizes.push_back(samples - begin);
  return sizes;
}

/// By layer: the channels between the plan's borders, empty groups left out.
std::vector<std::vector<std::int64_t>> channel_sizes(const Network& network, const Plan& plan) {
  std::vector<std::vector<std::int64_t>> sizes;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    std::vector<std::int64_t>& own = sizes.emplace_back();
    for (const Cut& cut : plan.layers[l].cuts) {
      if (cut.dim == Dim::channel) own = cut.sizes;
    }
    std::erase(own, 0);
    if (own.empty()) own = {network.layers[l].out.extent(Dim::channel)};
  }
  return sizes;
}

bool same_cells(std::vector<Cell> a, std::vector<Cell> b) {
  const auto before = [](const Cell& x, const Cell& y) { return x.device < y.device; };
  std::stable_sort(a.begin(), a.end(), before);
  std::stable_sort(b.begin(), b.end(), before);
  return a == b;
}

/// Whether every layer but the Input is split in the same way.
bool same_split(const Network& network, const Plan& a, const Plan& b) {
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const std::int64_t samples = a.batch / a.schedule.micro_batches;
    if (network[id].kind.as<Input>() == nullptr &&
        !same_cells(cells(network, id, a.layers[l], samples),
                    cells(network, id, b.layers[l], samples)))
      return false;
  }
  return true;
}

}  // namespace

std::vector<Start> starts_of(const StrategyInput& input) {
  std::vector<Start> starts;
  const auto attempt = [&](const StrategyInput& asked, const Strategy& row,
                           const std::string& name) {
    try {
      starts.push_back({name, plan_of(asked, row)});
    } catch (const InputError&) {  // a batch too small for it, a request it cannot serve
    }
  };
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, workers(input));
  const bool unequal = *std::max_element(kinds.begin(), kinds.end()) > 0;
  // The layer-wise search alone would take longer than everything else here.
  constexpr std::size_t most = 20'000;  // layers x devices
  const bool short_search = input.network.layers.size() * kinds.size() <= most;
  for (const Strategy& row : all()) {
    // These would call this one.
    if (row.name == "hypergraph" || row.name == "best") continue;
    if (row.name != "layer-wise" || short_search) attempt(input, row, row.name);
    if (row.name == "data" && unequal) {
      StrategyInput by_speed = input;
      by_speed.known = {};
      by_speed.shares = ShareRule::proportional;
      attempt(by_speed, row, "data, shares proportional");
    }
  }
  return starts;
}

std::vector<std::int64_t> sample_blocks(const Network& network, std::int64_t samples,
                                        std::size_t least, std::int32_t micro_batches,
                                        std::span<const Start> starts) {
  const auto count = std::clamp<std::size_t>(least, 1, static_cast<std::size_t>(samples));
  std::set<std::int64_t> borders;
  std::int64_t end = 0;
  for (const std::int64_t size : even_split(samples, count)) {
    end += size;
    if (end < samples) borders.insert(end);
  }
  for (const Start& start : starts) {
    if (start.plan.schedule.micro_batches != micro_batches) continue;
    std::set<std::int64_t> more = sample_borders(network, start.plan);
    more.insert(borders.begin(), borders.end());
    if (more.size() <= 2 * count) borders = std::move(more);
  }
  return sizes_between(borders, samples);
}

Model own_model(const StrategyInput& input, const Recipe& recipe, const Plan& plan,
                std::vector<double> work) {
  ModelOptions options;
  options.samples = input.batch / recipe.micro_batches;
  options.micro_batches = recipe.micro_batches;
  options.channel_sizes = channel_sizes(input.network, plan);
  // A loss cut by sample would multiply all of many blocks of channels; it moves next to nothing.
  constexpr std::size_t most = 32768;  // vertices
  std::set<std::int64_t> borders = sample_borders(input.network, plan);
  const std::size_t rows = blocks_of(input.network, 1, options.channel_sizes).maker.size();
  if (rows * (borders.size() + 1) > most) borders = sample_borders(input.network, plan, false);
  options.sample_sizes = sizes_between(borders, options.samples);
  options.states = 2 + state_per_parameter(input.optimizer);
  options.balance = recipe.balance;
  options.work = std::move(work);
  return model_of(input.network, options);
}

bool has_own_model(const Network& network, const Recipe& recipe, const Plan& plan) {
  return plan.schedule.micro_batches == recipe.micro_batches ||
         sample_borders(network, plan).empty();
}

Candidate candidate_of_start(const StrategyInput& input, const Start& start) {
  const std::vector<DeviceId> devices = workers(input);
  Recipe recipe;
  recipe.by_time = true;
  recipe.micro_batches = start.plan.schedule.micro_batches;
  const Model model = own_model(input, recipe, start.plan, layer_times(input, devices));
  recipe.by_samples = model.samples.size() > 1;
  recipe.name =
      fmt::format("model {}, the partition of '{}'", recipe.by_samples ? "U" : "F", start.name);
  PartitionOptions balance;
  balance.parts = static_cast<std::int32_t>(devices.size());
  balance.shares = speeds_of(input, devices);
  balance.tolerance = recipe.tolerance;
  Candidate candidate =
      planned(input, recipe, model,
              evaluated(model.graph, parts_of(input.network, model, start.plan, devices), balance));
  candidate.start_itself = same_split(input.network, candidate.plan, start.plan);
  if (candidate.start_itself) {
    candidate.plan = start.plan;
    candidate.plan.strategy = "hypergraph";
    candidate.plan.notes.clear();
  } else {
    candidate.recipe.name += ", as near as blocks allow";
  }
  return candidate;
}

}  // namespace parsim::strategies::hypergraph
