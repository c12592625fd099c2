#include <fmt/format.h>

#include <sstream>

#include "core/text.hpp"
#include "core/timeline.hpp"
#include "experiment/options.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"
#include "validation/paper_case.hpp"
#include "validation/predict_layer_wise.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

namespace {

// ------------------------------------------------------------------ model and Whale

std::vector<double> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<double> list;
  for (double value = 0; stream >> value;) list.push_back(value);
  return list;
}

/// Filters of one device by the released code's rounding.
Prediction filters(const Claim& claim) {
  const std::vector<double> speeds = numbers(claim.at("speeds"));
  const std::vector<std::int64_t> split =
      strategies::released_split(whole_number(claim, "filters"), speeds);
  const auto device = static_cast<std::size_t>(whole_number(claim, "device")) - 1;
  if (device >= split.size()) return {std::nullopt, std::nullopt, "no such device"};
  return {static_cast<double>(split[device]), std::nullopt, {}};
}

Seconds simulated(const strategies::StrategyInput& input, const Cluster& cluster,
                  const Plan& plan) {
  const auto simulator = sim::make_simgrid_executor(cluster, input.cost, {});
  return strategies::simulation(input.network, cluster, input.cost, *simulator)(plan);
}

/// Plans with a simulator at hand, and simulates.
Seconds simulated_strategy(const PaperCase& at, const std::string& name, const std::string& where,
                           strategies::ShareRule shares = strategies::ShareRule::equal,
                           std::optional<std::int32_t> parts = std::nullopt) {
  strategies::StrategyInput input = at.input();
  const auto simulator = sim::make_simgrid_executor(at.cluster(), at.cost(), {});
  input.simulate = strategies::simulation(at.network(), at.cluster(), at.cost(), *simulator);
  input.shares = shares;
  input.parts = input.pipeline_parallel = parts;
  return simulated(input, at.cluster(), strategies::strategy(name, where).plan(input));
}

/// How much faster data parallelism is with shares by speed than with equal ones.
Prediction shares_gain(const Claim& claim) {
  const PaperCase at(claim, whole_number(claim, "devices"));
  const Seconds equal = simulated_strategy(at, "data", claim.set);
  const Seconds by_speed =
      simulated_strategy(at, "data", claim.set, strategies::ShareRule::proportional);
  return {equal / by_speed, std::nullopt, {}};
}

// ------------------------------------------------------------------ hybrid

/// Throughput of all devices over that of one, same strategy and samples per device.
Prediction speed_up(const Claim& claim) {
  const std::int64_t devices = whole_number(claim, "devices");
  const PaperCase one(claim, 1), all(claim, devices);
  const Seconds alone = simulated_strategy(one, claim.at("strategy"), claim.set);
  const Seconds together =
      simulated_strategy(all, claim.at("strategy"), claim.set, strategies::ShareRule::equal,
                         static_cast<std::int32_t>(whole_number(claim, "parts")));
  return {static_cast<double>(devices) * (alone / together), std::nullopt, {}};
}

/// 1 − step / step of the other strategy.
Prediction time_saved(const Claim& claim) {
  const PaperCase at(claim, whole_number(claim, "devices"));
  const Seconds own = simulated_strategy(at, claim.at("strategy"), claim.set);
  const Seconds other = simulated_strategy(at, claim.at("against"), claim.set);
  return {1 - own / other, std::nullopt, {}};
}

// ------------------------------------------------------------------ hypergraph

/// Elements that a partition of model F moves, as counted in the literature.
std::int64_t filter_elements(const Network& network, std::int64_t samples, std::int64_t parts) {
  strategies::hypergraph::ModelOptions options;
  options.samples = samples;
  options.detail = strategies::hypergraph::Detail::simple;
  strategies::hypergraph::PartitionOptions search;
  search.parts = static_cast<std::int32_t>(parts);
  return strategies::hypergraph::partition(strategies::hypergraph::model_of(network, options).graph,
                                           search)
      .cost;
}

/// Elements that the plan of a balanced partition of model U moves.
std::int64_t unified_elements(const Network& network, std::int64_t batch, std::int64_t parts,
                              const std::string& where) {
  const Cluster cluster = topologies::load_cluster(
      fmt::format("star:{},device=p100-sxm2,rate=10GB/s,latency=1us", parts), where);
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  const strategies::hypergraph::Recipe recipe{"model U", true};
  return strategies::hypergraph::candidate_of(input, recipe,
                                              strategies::hypergraph::starts_of(input))
      .elements;
}

/// 1 − elements / (2 (P−1) W).
Prediction volume_saved(const Claim& claim) {
  const Network network = networks::load_network(claim.at("network"), {}, claim.set);
  const std::int64_t parts = whole_number(claim, "parts"), batch = whole_number(claim, "batch");
  const std::int64_t moved = claim.at("model") == "F"
                                 ? filter_elements(network, batch, parts)
                                 : unified_elements(network, batch, parts, claim.set);
  const std::int64_t ring = 2 * (parts - 1) * parameter_count(network);
  return {1 - static_cast<double>(moved) / static_cast<double>(ring), std::nullopt, {}};
}

/// For one sample, in units of the claim's `elements`.
Prediction partition_volume(const Claim& claim) {
  const Network network = networks::load_network(claim.at("network"), {}, claim.set);
  const auto moved = static_cast<double>(filter_elements(network, 1, whole_number(claim, "parts")));
  return {moved / static_cast<double>(whole_number(claim, "elements")), std::nullopt, {}};
}

struct Predictor {
  std::string_view name;
  Prediction (*predict)(const Claim&);
};
constexpr Predictor predictors[] = {
    {"filters", filters},           {"shares-gain", shares_gain},
    {"speed-up", speed_up},         {"time-saved", time_saved},
    {"volume-saved", volume_saved}, {"partition-volume", partition_volume},
};

}  // namespace

Prediction predict_claim(const Claim& claim) {
  for (const Predictor& predictor : predictors) {
    if (predictor.name != claim.quantity) continue;
    return predictor.predict(claim);
  }
  if (auto prediction = predict_layer_wise(claim)) return *prediction;
  return {std::nullopt, std::nullopt, fmt::format("unknown quantity '{}'", claim.quantity)};
}

}  // namespace parsim::validation
