#include "strategies/hypergraph/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// Cost by pins, both ascending.
std::map<std::vector<Vertex>, std::int64_t> nets_of(const Hypergraph& graph) {
  std::map<std::vector<Vertex>, std::int64_t> nets;
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    for (const Source& source : graph.sources[set]) {
      std::vector<Vertex> pins = graph.readers[set];
      const auto place = std::lower_bound(pins.begin(), pins.end(), source.vertex);
      if (place == pins.end() || *place != source.vertex) pins.insert(place, source.vertex);
      nets[std::move(pins)] += source.cost;
    }
  }
  return nets;
}

PartitionOptions exchanged_options(const StrategyInput& input, const Recipe& recipe,
                                   const std::vector<DeviceId>& devices) {
  PartitionOptions options;
  options.parts = static_cast<std::int32_t>(devices.size());
  options.shares = speeds_of(input, devices);
  options.tolerance = recipe.tolerance;
  return options;
}

}  // namespace

Recipe exchanged_recipe(const StrategyInput& input) {
  const std::int32_t micro_batches = micro_batches_of(input, workers(input).size());
  Recipe recipe;
  recipe.by_samples = micro_batches == 1;
  recipe.micro_batches = micro_batches;
  recipe.name = recipe.by_samples
                    ? "model U, whole network"
                    : fmt::format("model F, whole network, {} micro-batches", micro_batches);
  return recipe;
}

Model exchanged_model(const StrategyInput& input) {
  return model_for(input, exchanged_recipe(input), workers(input), {});
}

std::string hypergraph_text(const Hypergraph& graph, HypergraphFormat format,
                            const std::vector<double>& shares,
                            const std::vector<std::string>& comments) {
  ensure(graph.constraints == 1, "files have one weight for each vertex");
  const auto nets = nets_of(graph);
  std::int64_t unit = 0, weight = 0;
  std::size_t pins = 0;
  for (const auto& [net, cost] : nets) {
    unit = std::gcd(unit, cost);
    pins += net.size();
  }
  for (const std::int64_t w : graph.weights) weight = std::gcd(weight, w);
  unit = std::max<std::int64_t>(1, unit);
  weight = std::max<std::int64_t>(1, weight);
  std::string text;
  for (const std::string& comment : comments) text += fmt::format("% {}\n", comment);
  text +=
      fmt::format("% costs in units of {} elements a step, weights in units of {}\n", unit, weight);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (std::size_t p = 0; p < shares.size(); ++p)
    text += fmt::format("% part {}: {:.4f} of the weight\n", p, shares[p] / all);
  const bool patoh = format == HypergraphFormat::patoh;
  text += patoh ? fmt::format("1 {} {} {} 3\n", graph.vertices, nets.size(), pins)
                : fmt::format("{} {} 11\n", nets.size(), graph.vertices);
  for (const auto& [net, cost] : nets) {
    text += fmt::format("{}", cost / unit);
    for (const Vertex v : net) text += fmt::format(" {}", v + 1);
    text += '\n';
  }
  for (const std::int64_t w : graph.weights)
    text += fmt::format("{}{}", w / weight, patoh ? ' ' : '\n');
  if (patoh) text.back() = '\n';
  return text;
}

std::string exchanged_text(const StrategyInput& input, HypergraphFormat format) {
  const std::vector<DeviceId> devices = workers(input);
  std::vector<std::string> comments{fmt::format(
      "parsim: network {}, batch {}, {}, {}", input.network.name, input.batch,
      counted(static_cast<std::int64_t>(devices.size()), "device"), exchanged_recipe(input).name)};
  for (std::size_t p = 0; p < devices.size(); ++p)
    comments.push_back(fmt::format("part {}: {}", p, input.cluster[devices[p]].name));
  return hypergraph_text(exchanged_model(input).graph, format, speeds_of(input, devices), comments);
}

Parts read_partition(std::string_view text, const std::string& file, std::int32_t vertices,
                     std::int32_t parts) {
  Parts found;
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r') {
      ++i;
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \t\r\n", i), text.size());
    const std::string word(text.substr(i, end - i));
    const auto part = to_number<std::int32_t>(word);
    if (!part || *part < 0 || *part >= parts) {
      throw InputError(fmt::format("{}:{}", file, line), fmt::format("part '{}'", word),
                       parts == 1 ? "accepted: 0, the only device"
                                  : fmt::format("accepted: 0 to {}, a device each", parts - 1));
    }
    found.push_back(*part);
    i = end;
  }
  if (std::ssize(found) != vertices)
    throw InputError(file, counted(std::ssize(found), "part"),
                     fmt::format("accepted: one for each of the {} vertices that 'parsim plan "
                                 "--hgr' writes for this network, batch, number of devices and of "
                                 "micro-batches",
                                 vertices));
  return found;
}

Plan plan_of_partition(const StrategyInput& input, std::string_view text, const std::string& file) {
  const std::vector<DeviceId> devices = workers(input);
  const Recipe recipe = exchanged_recipe(input);
  const Model model = exchanged_model(input);
  const PartitionOptions options = exchanged_options(input, recipe, devices);
  const Parts given = read_partition(text, file, model.graph.vertices, options.parts);
  const std::int64_t cost = connectivity_cost(model.graph, given);
  Candidate candidate = planned(
      input, recipe, model, evaluated(model.graph, gathered(input.network, model, given), options));
  candidate.recipe.name += fmt::format(", the partition of {}", file);
  candidate.plan.notes = notes_of(input, candidate);
  if (candidate.elements != cost) {
    candidate.plan.notes.push_back(
        fmt::format("blocks that are alike were reordered: {} elements moved instead of {}",
                    candidate.elements, cost));
  }
  return candidate.plan;
}

}  // namespace parsim::strategies::hypergraph
