#include <fmt/format.h>

#include <sstream>

#include "core/text.hpp"
#include "core/timeline.hpp"
#include "experiment/options.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/layer_wise.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

namespace {

std::int64_t whole(const Claim& claim, std::string_view key) {
  return parse_whole(claim.at(key), claim.set + ": " + claim.name, 1, 1'000'000'000);
}

/// Network, cluster and costs of a claim, with the first `devices` GPUs.
struct Case {
  Case(const Claim& claim, std::int64_t devices)
      : network(networks::load_network(claim.at("network"), {}, claim.set)),
        cluster(topologies::load_cluster(claim.at("cluster"), claim.set)) {
    cluster =
        topologies::first_gpus(std::move(cluster), static_cast<std::size_t>(devices), claim.set);
    cost = sim::make_constant_efficiency(cluster);
    input.batch = devices * whole(claim, "samples_per_device");
    input.sync = Sync::Kind::ring;
  }
  /// Replaces the cost model.
  void calibrate(double factor) {
    base = std::move(cost);
    cost = sim::make_scaled(*base, factor);
  }
  [[nodiscard]] strategies::StrategyInput with_costs() const {
    strategies::StrategyInput full{network, cluster, *cost};
    full.batch = input.batch;
    full.sync = input.sync;
    return full;
  }

  struct {
    std::int64_t batch = 0;
    Sync::Kind sync{};
  } input;
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> base, cost;
};

// ------------------------------------------------------------------ layer-wise, figures 7 and 8

/// Images per second by the paper's sum (equation 1) with rings; kernels are scaled by one factor
/// per network so that one GPU runs at the published rate.
Prediction paper_throughput(const Claim& claim) {
  const double one_device = static_cast<double>(whole(claim, "one_device"));
  const auto paper_input = [](const Case& at) {
    strategies::StrategyInput input = at.with_costs();
    input.search_costs = strategies::SearchCosts::paper;
    return input;
  };
  const Case alone(claim, 1);
  const strategies::StrategyInput one = paper_input(alone);
  const double uncalibrated =
      strategies::paper_price(one, strategies::plan_data(one)).step().count();
  const double published = static_cast<double>(one.batch) / one_device;

  const std::int64_t devices = whole(claim, "devices");
  Case all(claim, devices);
  all.calibrate(published / uncalibrated);
  const strategies::StrategyInput input = paper_input(all);
  const Plan plan = strategies::strategy(claim.at("strategy"), claim.set).plan(input);
  const double step = strategies::paper_price(input, plan).step().count();
  return {static_cast<double>(input.batch) / step, static_cast<double>(devices) * one_device, {}};
}

/// GiB per step as figure 8 counts them.
Prediction paper_volume_gib(const Claim& claim) {
  const Case all(claim, whole(claim, "devices"));
  strategies::StrategyInput input = all.with_costs();
  input.search_costs = strategies::SearchCosts::paper;
  const Plan plan = strategies::strategy(claim.at("strategy"), claim.set).plan(input);
  const strategies::PaperVolume volume = strategies::paper_volume(input, plan);
  const bool once = claim.at("accounting") == "each output once";
  const Bytes bytes = once ? volume.activations_once : volume.total();
  return {static_cast<double>(bytes.value) / (1024.0 * 1024.0 * 1024.0), std::nullopt, {}};
}

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
      strategies::released_split(whole(claim, "filters"), speeds);
  const auto device = static_cast<std::size_t>(whole(claim, "device")) - 1;
  if (device >= split.size()) return {std::nullopt, std::nullopt, "no such device"};
  return {static_cast<double>(split[device]), std::nullopt, {}};
}

Seconds simulated(const strategies::StrategyInput& input, const Cluster& cluster,
                  const Plan& plan) {
  const auto simulator = sim::make_simgrid_executor(cluster, input.cost, {});
  return strategies::simulation(input.network, cluster, input.cost, *simulator)(plan);
}

/// Plans with a simulator at hand, and simulates.
Seconds simulated_strategy(const Case& at, const std::string& name, const std::string& where,
                           strategies::ShareRule shares = strategies::ShareRule::equal,
                           std::optional<std::int32_t> parts = std::nullopt) {
  strategies::StrategyInput input = at.with_costs();
  const auto simulator = sim::make_simgrid_executor(at.cluster, *at.cost, {});
  input.simulate = strategies::simulation(at.network, at.cluster, *at.cost, *simulator);
  input.shares = shares;
  input.parts = input.pipeline_parallel = parts;
  return simulated(input, at.cluster, strategies::strategy(name, where).plan(input));
}

/// How much faster data parallelism is with shares by speed than with equal ones.
Prediction shares_gain(const Claim& claim) {
  const Case at(claim, whole(claim, "devices"));
  const Seconds equal = simulated_strategy(at, "data", claim.set);
  const Seconds by_speed =
      simulated_strategy(at, "data", claim.set, strategies::ShareRule::proportional);
  return {equal / by_speed, std::nullopt, {}};
}

// ------------------------------------------------------------------ hybrid

/// Throughput of all devices over that of one, same strategy and samples per device.
Prediction speed_up(const Claim& claim) {
  const std::int64_t devices = whole(claim, "devices");
  const Case one(claim, 1), all(claim, devices);
  const Seconds alone = simulated_strategy(one, claim.at("strategy"), claim.set);
  const Seconds together =
      simulated_strategy(all, claim.at("strategy"), claim.set, strategies::ShareRule::equal,
                         static_cast<std::int32_t>(whole(claim, "parts")));
  return {static_cast<double>(devices) * (alone / together), std::nullopt, {}};
}

/// 1 − step / step of the other strategy.
Prediction time_saved(const Claim& claim) {
  const Case at(claim, whole(claim, "devices"));
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
  const std::int64_t parts = whole(claim, "parts"), batch = whole(claim, "batch");
  const std::int64_t moved = claim.at("model") == "F"
                                 ? filter_elements(network, batch, parts)
                                 : unified_elements(network, batch, parts, claim.set);
  const std::int64_t ring = 2 * (parts - 1) * parameter_count(network);
  return {1 - static_cast<double>(moved) / static_cast<double>(ring), std::nullopt, {}};
}

/// For one sample, in units of the claim's `elements`.
Prediction partition_volume(const Claim& claim) {
  const Network network = networks::load_network(claim.at("network"), {}, claim.set);
  const auto moved = static_cast<double>(filter_elements(network, 1, whole(claim, "parts")));
  return {moved / static_cast<double>(whole(claim, "elements")), std::nullopt, {}};
}

struct Predictor {
  std::string_view name;
  Prediction (*predict)(const Claim&);
};
constexpr Predictor predictors[] = {
    {"paper-throughput", paper_throughput},
    {"paper-volume", paper_volume_gib},
    {"filters", filters},
    {"shares-gain", shares_gain},
    {"speed-up", speed_up},
    {"time-saved", time_saved},
    {"volume-saved", volume_saved},
    {"partition-volume", partition_volume},
};

}  // namespace

Prediction predict_claim(const Claim& claim) {
  for (const Predictor& predictor : predictors) {
    if (predictor.name != claim.quantity) continue;
    return predictor.predict(claim);
  }
  return {std::nullopt, std::nullopt, fmt::format("unknown quantity '{}'", claim.quantity)};
}

}  // namespace parsim::validation
