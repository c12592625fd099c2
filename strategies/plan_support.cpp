#include "strategies/plan_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <utility>

#include "core/errors.hpp"

namespace parsim::strategies {

Plan empty_plan(const StrategyInput& input, std::string_view strategy,
                const std::vector<DeviceId>& devices) {
  Plan plan;
  plan.strategy = strategy;
  plan.network = input.network.name;
  plan.cluster = input.cluster.name;
  plan.batch = input.batch;
  plan.precision = input.precision;
  plan.reduce_precision = input.reduce_precision;
  plan.optimizer = input.optimizer;
  plan.framework = input.framework;
  plan.layers.resize(input.network.layers.size());
  plan.schedule.stage_of_layer.assign(input.network.layers.size(), 0);
  plan.schedule.blocking_sends = input.pipeline_sends == PipelineSends::blocking;
  plan.schedule.reduce_every = input.reduce_every;
  plan.schedule.rank_lists = {{devices, {{0, 0, Direction::forward}, {0, 0, Direction::backward}}}};
  return plan;
}

namespace {

/// What decides where the devices of a machine stand among others: the most first.
struct Standing {
  double outside = 0;  ///< bytes/s of all links to other machines
  std::size_t gpus = 0;
  double inside = 0;  ///< bytes/s of all links within
  double speed = 0;   ///< FLOP/s of all GPUs
  std::int64_t memory = 0;
  std::string names{};  ///< of the GPUs' types
  friend auto operator<=>(const Standing&, const Standing&) = default;
};

std::vector<Standing> standings(const StrategyInput& input, const std::vector<DeviceId>& gpus) {
  const Cluster& cluster = input.cluster;
  std::vector<Standing> all(cluster.nodes.size());
  const auto node_of = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  for (const Link& link : cluster.links) {
    const NodeId a = node_of(link.a), b = node_of(link.b);
    if (a == b && a.valid()) all[a.index()].inside += link.rate.value;
    if (a == b) continue;
    for (const NodeId end : {a, b}) {
      if (end.valid()) all[end.index()].outside += link.rate.value;
    }
  }
  for (const DeviceId gpu : gpus) {
    Standing& machine = all[cluster[gpu].node.index()];
    ++machine.gpus;
    machine.speed += cluster.model(gpu).peak_at(input.precision).value;
    machine.memory += cluster[gpu].memory.value;
    machine.names += cluster.model(gpu).name + ' ';
  }
  return all;
}

}  // namespace

std::vector<DeviceId> workers(const StrategyInput& input) {
  std::vector<DeviceId> gpus =
      input.only.empty() ? devices_of(input.cluster, DeviceKind::gpu) : input.only;
  if (gpus.empty()) {
    throw InputError(fmt::format("cluster '{}'", input.cluster.name), "no GPU",
                     "at least one device that is not a CPU");
  }
  if (input.cluster.nodes.size() < 2) return gpus;
  const std::vector<Standing> standing = standings(input, gpus);
  const auto of = [&](DeviceId gpu) -> const Standing& {
    return standing[input.cluster[gpu].node.index()];
  };
  std::stable_sort(gpus.begin(), gpus.end(), [&](DeviceId a, DeviceId b) { return of(a) > of(b); });
  return gpus;
}

std::vector<std::vector<std::vector<DeviceId>>> worker_classes(const StrategyInput& input) {
  const std::vector<DeviceId> gpus = workers(input);
  const std::vector<Standing> standing = standings(input, gpus);
  std::vector<std::vector<std::vector<DeviceId>>> classes;
  const auto node_of = [&](DeviceId gpu) { return input.cluster[gpu].node; };
  for (const DeviceId gpu : gpus) {
    const bool known = !classes.empty() && node_of(classes.back().back().back()) == node_of(gpu);
    if (!known) {
      const bool like = !classes.empty() && standing[node_of(classes.back()[0][0]).index()] ==
                                                standing[node_of(gpu).index()];
      if (!like) classes.emplace_back();
      classes.back().emplace_back();
    }
    classes.back().back().push_back(gpu);
  }
  return classes;
}

LayerPlan by_sample(std::int64_t samples, const std::vector<DeviceId>& devices) {
  LayerPlan layer;
  layer.devices = devices;
  if (devices.size() > 1) layer.cuts = {{Dim::sample, even_split(samples, devices.size())}};
  return layer;
}

Sync chosen_sync(const StrategyInput& input) {
  if (input.sync != Sync::Kind::server) return {input.sync, {}};
  if (input.server.valid()) return {Sync::Kind::server, input.server};
  const std::vector<DeviceId> cpus = devices_of(input.cluster, DeviceKind::cpu);
  return {Sync::Kind::server, cpus.empty() ? workers(input)[0] : cpus[0]};
}

void note_idle(Plan& plan, const LayerPlan& layer) {
  if (layer.cuts.empty()) return;
  const std::vector<std::int64_t>& sizes = layer.cuts[0].sizes;
  const auto idle = std::count(sizes.begin(), sizes.end(), 0);
  if (idle == 0) return;
  plan.notes.push_back(fmt::format("{} of {} devices are idle: batch {} is too small for all", idle,
                                   sizes.size(), plan.batch));
}

void overlap_products(const StrategyInput& input, Plan& plan) {
  if (!input.tensor_overlap) return;
  const Network& network = input.network;
  const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
  std::vector<bool> scatters(network.layers.size());  // to a reader that has a share of the tokens
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    for (const LayerId in : network.layers[l].inputs) {
      scatters[in.index()] =
          scatters[in.index()] || (plan.layers[l].regather && stage[l] == stage[in.index()]);
    }
  }
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    LayerPlan& split = plan.layers[l];
    if (layer.kind.as<Dense>() == nullptr || split.joined) continue;
    const auto shares = [&](Dim dim) {
      return std::any_of(split.cuts.begin(), split.cuts.end(),
                         [&](const Cut& cut) { return cut.dim == dim && cut.sizes.size() > 1; });
    };
    const LayerId in = layer.inputs[0];
    const bool gathers = plan.layers[in.index()].regather && stage[in.index()] == stage[l];
    split.overlap = (shares(Dim::channel) && gathers) || (shares(Dim::in_channel) && scatters[l]);
  }
}

void note_sequence_parallel(const StrategyInput& input, Plan& plan) {
  const bool shares = std::any_of(plan.layers.begin(), plan.layers.end(),
                                  [](const LayerPlan& layer) { return layer.regather; });
  const bool overlaps = std::any_of(plan.layers.begin(), plan.layers.end(),
                                    [](const LayerPlan& layer) { return layer.overlap; });
  if (input.tensor_overlap && !overlaps) {
    plan.notes.emplace_back(
        "--tp-overlap changes nothing: no group of GPUs gathers or scatters tokens for a product");
  }
  if (!input.sequence_parallel || shares) return;
  plan.notes.emplace_back(
      "--sequence-parallel changes nothing: no group of GPUs shares layers that work on tokens");
}

}  // namespace parsim::strategies
