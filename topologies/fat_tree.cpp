// Fat trees: three levels of k-port switches (Al-Fares et al. 2008, "A scalable, commodity data
// center network architecture"), or two levels of leaves and spines.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "topologies/generator.hpp"

namespace parsim::topologies {

namespace {

constexpr std::int64_t most_ports = 64;  // 64³/4 = 65,536 devices

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Tree {
  const GeneratorCall& call;
  std::vector<const DeviceModel*> models;
  BytesPerSecond rate, uplink_rate;
  Seconds latency;
  ClusterBuilder builder;
  std::int32_t device_links, uplinks;

  explicit Tree(const GeneratorCall& c)
      : call(c),
        models(c.devices(c.shape(1, 1).front())),
        rate(c.rate("rate")),
        uplink_rate(c.rate_or("uplink-rate", rate)),
        latency(c.latency("latency")),
        builder(c.text(), c.where()),
        device_links(builder.add_provenance(c.provenance("rate"))),
        uplinks(builder.add_provenance(c.provenance("uplink-rate"))) {}

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(models.size()); }
  void join(SwitchId low, SwitchId high) {
    builder.add_link(Port::of(low), Port::of(high), uplink_rate, latency, uplinks);
  }
  void hang(std::int64_t device, SwitchId leaf) {
    add_host(builder, call, *models[static_cast<std::size_t>(device)], leaf, rate, latency,
             device_links);
  }
};

/// Pods of k/2 edge and k/2 aggregation switches; aggregation switch j of every pod is linked to
/// the cores j·k/2 … j·k/2 + k/2 − 1. Only the pods that hold devices are built.
void build_k_ary(Tree& tree, std::int64_t ports) {
  const std::int64_t half = ports / 2, per_pod = half * half;
  std::vector<SwitchId> cores;
  for (std::int64_t i = 0; i < half * half; ++i) {
    cores.push_back(tree.builder.add_switch(fmt::format("core{}", i)));
  }
  for (std::int64_t pod = 0; pod < divided_up(tree.count(), per_pod); ++pod) {
    std::vector<SwitchId> middle;
    for (std::int64_t j = 0; j < half; ++j) {
      middle.push_back(tree.builder.add_switch(fmt::format("pod{}.aggregation{}", pod, j)));
      for (std::int64_t c = 0; c < half; ++c) {
        tree.join(middle.back(), cores[static_cast<std::size_t>(j * half + c)]);
      }
    }
    for (std::int64_t e = 0; e < half && pod * per_pod + e * half < tree.count(); ++e) {
      const SwitchId edge = tree.builder.add_switch(fmt::format("pod{}.edge{}", pod, e));
      for (const SwitchId high : middle) tree.join(edge, high);
      const std::int64_t first = pod * per_pod + e * half;
      for (std::int64_t i = first; i < std::min(first + half, tree.count()); ++i) {
        tree.hang(i, edge);
      }
    }
  }
}

/// Leaves of `per_leaf` devices, each with one cable to each spine.
void build_leaf_spine(Tree& tree, std::int64_t per_leaf, std::int64_t spine_count) {
  std::vector<SwitchId> spines;
  for (std::int64_t i = 0; i < spine_count; ++i) {
    spines.push_back(tree.builder.add_switch(fmt::format("spine{}", i)));
  }
  for (std::int64_t first = 0; first < tree.count(); first += per_leaf) {
    const SwitchId leaf = tree.builder.add_switch(fmt::format("leaf{}", first / per_leaf));
    for (const SwitchId spine : spines) tree.join(leaf, spine);
    for (std::int64_t i = first; i < std::min(first + per_leaf, tree.count()); ++i) {
      tree.hang(i, leaf);
    }
  }
}

std::int64_t ports_for(const GeneratorCall& call, std::int64_t count) {
  if (call.has("k")) {
    const std::int64_t ports = call.integer("k", 2, most_ports);
    if (ports % 2 == 0 && ports * ports * ports / 4 >= count) return ports;
    throw InputError(call.where("k"),
                     fmt::format("k={} is odd or too small for {} devices", ports, count),
                     "accepted: an even number of ports k with k³/4 devices or more");
  }
  std::int64_t ports = 2;
  while (ports * ports * ports / 4 < count) ports += 2;
  return ports;
}

}  // namespace

Cluster build_fat_tree(const GeneratorCall& call) {
  Tree tree(call);
  if (call.has("leaf") || call.has("spines")) {
    if (call.has("k")) {
      throw InputError(call.where("k"), "'k' together with 'leaf' or 'spines'",
                       "accepted: k (three levels), or leaf and spines (two levels)");
    }
    const std::int64_t per_leaf = call.integer("leaf", 1, most_devices);
    build_leaf_spine(tree, per_leaf, call.integer_or("spines", per_leaf, 1, most_devices));
  } else {
    build_k_ary(tree, ports_for(call, tree.count()));
  }
  return std::move(tree.builder).finish();
}

}  // namespace parsim::topologies
