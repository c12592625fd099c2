// What one node of the search costs by itself: t_C, t_S, update and memory.
#include <algorithm>
#include <set>
#include <utility>

#include "lowering/memory.hpp"
#include "strategies/layer_wise/tables.hpp"

namespace parsim::strategies::layer_wise {

namespace {

/// By configuration, by part: device and box. The same for all layers of a node.
std::vector<std::vector<Share>> shares_of(const StrategyInput& input, const ClusterModel& model,
                                          const Node& node) {
  std::vector<std::vector<Share>> result;
  for (const Configuration& configuration : node.configurations) {
    std::vector<Share>& shares = result.emplace_back();
    const std::vector<Region> parts =
        boxes(input.network, node.layers[0], configuration, input.batch, model.speeds());
    for (std::size_t k = 0; k < parts.size(); ++k) {
      shares.push_back({model.devices()[k], parts[k]});
    }
  }
  return result;
}

/// By device.
std::vector<std::int64_t> elements_of(const StrategyInput& input,
                                      const std::vector<Copies>& copies) {
  std::vector<std::int64_t> elements(input.cluster.devices.size(), 0);
  for (const Copies& part : copies) {
    for (const DeviceId device : part.devices) elements[device.index()] += part.elements(input);
  }
  return elements;
}

/// Without launches: parameters are updated in buckets. Most devices update equally much.
double update_time(const StrategyInput& input, const std::vector<std::int64_t>& elements) {
  std::set<std::pair<std::int32_t, std::int64_t>> known;
  double longest = 0;
  for (std::size_t d = 0; d < elements.size(); ++d) {
    const DeviceId device{d};
    if (elements[d] == 0 || !known.emplace(input.cost.alike(device), elements[d]).second) continue;
    OptimizerStep step{elements[d], input.optimizer, input.precision, input.reduce_precision};
    Seconds time = input.cost.update(device, step).time;
    step.elements = 0;
    time -= input.cost.update(device, step).time;
    longest = std::max(longest, time.count());
  }
  return longest;
}

double memory_of(const StrategyInput& input, LayerId layer, std::span<const Share> shares,
                 const std::vector<std::int64_t>& elements) {
  const LayerKind& kind = input.network[layer].kind;
  const bool in_place = kind.as<Activation>() != nullptr || kind.as<Flatten>() != nullptr;
  const std::int64_t each = element_bytes(input.precision) +
                            lowering::gradient_bytes(input.precision, input.reduce_precision) +
                            lowering::optimizer_bytes(input.precision, input.optimizer);
  std::vector<std::int64_t> bytes = elements;
  for (std::int64_t& sum : bytes) sum *= each;
  for (const Share& share : shares) {
    if (in_place) break;
    bytes[share.device.index()] += share.box.volume() * element_bytes(input.precision);
  }
  return static_cast<double>(*std::max_element(bytes.begin(), bytes.end()));
}

}  // namespace

Seconds compute_time(const StrategyInput& input, LayerId layer, std::span<const Share> shares,
                     bool data) {
  // Parts of the same extents on the same model cost the same. Where they lie hardly matters: only
  // a border's padding makes an input smaller.
  struct Known {
    std::int32_t model;
    Region box;
    Seconds time;
  };
  std::vector<Known> known;
  std::vector<Seconds> busy(input.cluster.devices.size());
  Seconds longest{};
  for (const Share& share : shares) {
    if (share.box.empty()) continue;
    const std::int32_t model = input.cluster[share.device].model;
    const auto same = [&](const Known& k) {
      if (k.model != model) return false;
      for (std::size_t a = 0; a < share.box.rank(); ++a) {
        if (k.box[a].size() != share.box[a].size()) return false;
      }
      return true;
    };
    auto at = std::find_if(known.begin(), known.end(), same);
    if (at == known.end()) {
      known.push_back({model, share.box, part_time(input, layer, share.box, share.device, data)});
      at = known.end() - 1;
    }
    busy[share.device.index()] += at->time;
    longest = std::max(longest, busy[share.device.index()]);
  }
  return longest;
}

std::vector<Copies> copies_of(const StrategyInput& input, LayerId id,
                              std::span<const Share> shares) {
  const Layer& layer = input.network[id];
  if (layer.parameters.empty()) return {};
  const std::vector<Shape> inputs = input_shapes(input.network, id);
  std::vector<Region> regions;  // of the first parameter: few are distinct
  std::vector<Copies> result;
  std::vector<bool> seen(input.cluster.devices.size(), false);
  for (const Share& share : shares) {
    if (share.box.empty()) continue;
    const Part part{share.box, {}};
    const Region first = parameter_region(layer.kind, inputs, layer.out, 0, part);
    const auto at = std::find(regions.begin(), regions.end(), first);
    const auto index = static_cast<std::size_t>(at - regions.begin());
    if (at == regions.end()) {
      std::int64_t elements = first.volume();
      for (std::size_t p = 1; p < layer.parameters.size(); ++p) {
        elements += parameter_region(layer.kind, inputs, layer.out, p, part).volume();
      }
      regions.push_back(first);
      result.push_back({{}, Bytes{elements * element_bytes(input.reduce_precision)}});
    }
    std::vector<DeviceId>& devices = result[index].devices;
    const bool first_of_device = !seen[share.device.index()];
    if (first_of_device ||
        std::find(devices.begin(), devices.end(), share.device) == devices.end()) {
      devices.push_back(share.device);
    }
    seen[share.device.index()] = true;
  }
  return result;
}

Seconds sync_time(const StrategyInput& input, ClusterModel& model,
                  const std::vector<Copies>& copies) {
  Seconds longest{}, sum{};
  for (const Copies& part : copies) {
    const Seconds time = model.sum_time(part.devices, part.payload);
    longest = std::max(longest, time);
    sum += time;
  }
  return input.sync == Sync::Kind::server ? sum : longest;
}

NodeCosts node_costs(const StrategyInput& input, ClusterModel& model, const Node& node,
                     const std::vector<bool>& wanted) {
  const std::size_t count = node.configurations.size();
  NodeCosts costs{std::vector<double>(count, 0), std::vector<double>(count, 0),
                  std::vector<double>(count, 0), std::vector<double>(count, 0)};
  const auto shares = shares_of(input, model, node);
  for (const LayerId layer : node.layers) {
    const bool data = wants_data(input.network, layer, wanted);
    for (std::size_t c = 0; c < count; ++c) {
      costs.compute[c] += compute_time(input, layer, shares[c], data).count();
      const std::vector<Copies> copies = copies_of(input, layer, shares[c]);
      costs.sync[c] += sync_time(input, model, copies).count();
      const std::vector<std::int64_t> elements = elements_of(input, copies);
      if (input.search_costs == SearchCosts::own) costs.update[c] += update_time(input, elements);
      costs.memory[c] += memory_of(input, layer, shares[c], elements);
    }
  }
  return costs;
}

}  // namespace parsim::strategies::layer_wise
