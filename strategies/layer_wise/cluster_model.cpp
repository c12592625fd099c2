#include "strategies/layer_wise/cluster_model.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "core/errors.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies::layer_wise {

Seconds part_time(const StrategyInput& input, LayerId id, const Region& part, DeviceId device,
                  bool data) {
  const Layer& layer = input.network[id];
  const auto kernel = [&](Pass pass) {
    return kernel_time(input.cost, input.network, id, {part, {}}, pass, device, input.precision,
                       input.reduce_precision)
        .time;
  };
  Seconds time = kernel(Pass::forward);
  const bool two_kernels = layer.kind.as<Conv>() != nullptr || layer.kind.as<Dense>() != nullptr ||
                           layer.kind.as<ExpertDense>() != nullptr ||
                           layer.kind.as<Embedding>() != nullptr ||
                           layer.kind.as<Learned>() != nullptr;
  if (!two_kernels) return data || !layer.parameters.empty() ? time + kernel(Pass::backward) : time;
  if (data) time += kernel(Pass::backward_data);
  if (!layer.parameters.empty()) time += kernel(Pass::backward_weights);
  return time;
}

std::vector<bool> wanted_gradients(const Network& network) {
  std::vector<bool> wanted(network.layers.size(), false);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    wanted[l] = !network.layers[l].parameters.empty() || wants_data(network, LayerId{l}, wanted);
  }
  return wanted;
}

bool wants_data(const Network& network, LayerId layer, const std::vector<bool>& wanted) {
  const std::vector<LayerId>& inputs = network[layer].inputs;
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](LayerId producer) { return wanted[producer.index()]; });
}

ClusterModel::ClusterModel(const StrategyInput& input, SearchCosts costs, Exchanges exchanges)
    : input_(input),
      costs_(costs),
      exchanges_(exchanges),
      routes_(input.cluster),
      sync_(chosen_sync(input)),
      devices_(workers(input)) {
  speeds_.assign(devices_.size(), 1);
  if (costs_ == SearchCosts::own) measure_speeds();
  order_devices();
  measure_rates();
  if (exchanges_ == Exchanges::collectives) measure_collectives();
  const auto same = [](const std::vector<double>& rates) {
    return std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) == rates.end();
  };
  even_ = same(inside_) && same(outside_);
}

/// One speed for the whole network, so that neighbouring layers are cut at the same positions: the
/// samples of the batch with which all devices finish at the same time.
void ClusterModel::measure_speeds() {
  const std::vector<std::size_t> kinds = device_kinds(input_.cluster, devices_);
  if (std::all_of(kinds.begin(), kinds.end(), [](std::size_t kind) { return kind == 0; })) return;
  // Few samples are too coarse a measure for other dimensions.
  constexpr std::int64_t fine = 16;
  const auto count = static_cast<std::int64_t>(devices_.size());
  const std::vector<std::int64_t> shares =
      sample_shares(input_, devices_, std::max(input_.batch, fine * count));
  for (std::size_t i = 0; i < shares.size(); ++i) speeds_[i] = static_cast<double>(shares[i]);
}

/// The node with the fastest device first, then as given; within a node likewise.
void ClusterModel::order_devices() {
  std::map<NodeId, double> fastest;
  std::map<NodeId, std::size_t> given;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const NodeId node = input_.cluster[devices_[i]].node;
    double& best = fastest[node];
    best = std::max(best, speeds_[i]);
    given.emplace(node, i);
  }
  std::vector<std::size_t> order(devices_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) {
    const NodeId node = input_.cluster[devices_[i]].node;
    return std::tuple(-fastest[node], given[node], -speeds_[i], i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  std::vector<DeviceId> devices;
  std::vector<double> speeds;
  position_.assign(input_.cluster.devices.size(), order.size());
  for (const std::size_t i : order) {
    const bool other =
        !devices.empty() && input_.cluster[devices.back()].node != input_.cluster[devices_[i]].node;
    nodes_.push_back(devices.empty() ? 0 : nodes_.back() + (other ? 1 : 0));
    position_[devices_[i].index()] = devices.size();
    devices.push_back(devices_[i]);
    speeds.push_back(speeds_[i]);
  }
  devices_ = std::move(devices);
  speeds_ = std::move(speeds);
}

std::size_t ClusterModel::position(DeviceId device) const {
  const std::size_t at = position_[device.index()];
  ensure(at < devices_.size(), "a layer is placed on a device that is no worker");
  return at;
}

double ClusterModel::seconds_per_byte(std::size_t from, std::size_t to) {
  return 1 / routes_.between(devices_[from], devices_[to]).rate.value;
}

/// Of the devices of its own node the mean of all; of the others the mean of at most eight: one of
/// each of the next nodes.
void ClusterModel::measure_rates() {
  constexpr std::size_t most_nodes = 8;
  const std::size_t count = devices_.size(), all_nodes = node_count();
  std::vector<std::size_t> first(all_nodes + 1, count);
  for (std::size_t i = count; i-- > 0;) first[nodes_[i]] = i;
  inside_.assign(count, 0);
  outside_.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t node = nodes_[i], begin = first[node], size = first[node + 1] - begin;
    for (std::size_t j = begin; j < begin + size; ++j) {
      if (j == i) continue;
      inside_[i] += seconds_per_byte(j, i) / static_cast<double>(size - 1);
      latency_ = std::max(latency_, routes_.between(devices_[j], devices_[i]).latency);
    }
    const std::size_t others = std::min(most_nodes, all_nodes - 1);
    for (std::size_t step = 1; step <= others; ++step) {
      const std::size_t from = (node + step) % all_nodes;
      const std::size_t local = std::min(i - begin, first[from + 1] - first[from] - 1);
      const Route& route = routes_.between(devices_[first[from] + local], devices_[i]);
      double slowest = 1 / route.rate.value;
      if (costs_ == SearchCosts::own) {
        // Devices whose ways in share a hop get their part of it.
        for (const Hop hop : route.hops) {
          std::size_t sharers = 0;
          for (std::size_t j = begin; j < begin + size; ++j) {
            const std::size_t peer = std::min(j - begin, first[from + 1] - first[from] - 1);
            const Route& other = routes_.between(devices_[first[from] + peer], devices_[j]);
            sharers += std::count(other.hops.begin(), other.hops.end(), hop) > 0 ? 1 : 0;
          }
          slowest =
              std::max(slowest, static_cast<double>(sharers) / input_.cluster[hop.link].rate.value);
        }
      }
      outside_[i] += slowest / static_cast<double>(others);
      latency_ = std::max(latency_, route.latency);
    }
  }
  if (costs_ == SearchCosts::paper) latency_ = {};
}

/// Every member of an all-gather receives all but its own part.
void ClusterModel::measure_collectives() {
  if (devices_.size() < 2) return;
  constexpr Bytes large{1 << 28};
  const auto n = static_cast<double>(devices_.size());
  const Seconds time = input_.cost.collective(CollectiveKind::all_gather, devices_, large);
  const double rate = time.count() / (static_cast<double>(large.value) * (n - 1) / n);
  inside_.assign(devices_.size(), rate);
  outside_.assign(devices_.size(), rate);
}

Seconds ClusterModel::sum_time(std::span<const DeviceId> group, Bytes payload) {
  if (group.size() < 2) return {};
  if (sync_.kind == Sync::Kind::server) {
    Seconds time{};
    for (const DeviceId member : group) {
      // A member that is the server has its copy already.
      if (member == sync_.server) continue;
      if (costs_ == SearchCosts::own) {
        time += 2 * input_.cost.transfer(member, sync_.server, payload);
      } else {
        time += 2 * (payload / routes_.between(member, sync_.server).rate);
      }
    }
    return time;
  }
  if (costs_ == SearchCosts::own) {
    // Divisions of other dimensions, and other layers, leave the same copies.
    const auto [known, fresh] = sums_.try_emplace({{group.begin(), group.end()}, payload.value});
    if (fresh) known->second = input_.cost.collective(CollectiveKind::all_reduce, group, payload);
    return known->second;
  }
  double slowest = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const DeviceId next = group[(i + 1) % group.size()];
    slowest = std::max(slowest, 1 / routes_.between(group[i], next).rate.value);
  }
  const auto n = static_cast<double>(group.size());
  return Seconds{2 * (n - 1) / n * static_cast<double>(payload.value) * slowest};
}

}  // namespace parsim::strategies::layer_wise
