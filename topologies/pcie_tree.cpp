// One machine without NVLink: devices on PCIe switches, these on CPU sockets, the sockets joined.
#include <fmt/format.h>

#include "topologies/generator.hpp"

namespace parsim::topologies {

Cluster build_pcie_tree(const GeneratorCall& call) {
  const std::int64_t count = call.shape(1, 1).front();
  const std::vector<const DeviceModel*> models = call.devices(count);
  const std::int64_t socket_count = call.integer("sockets", 1, most_devices);
  const std::int64_t per_switch = call.integer("per-switch", 1, most_devices);
  const BytesPerSecond rate = call.rate("rate");
  const Seconds latency = call.latency("latency");
  const std::optional<LinkKind> kind = call.kind("kind");

  ClusterBuilder builder(call.text(), call.where());
  const std::int32_t lanes = builder.add_provenance(call.provenance("rate"));
  const std::int32_t across = builder.add_provenance(call.provenance("socket-rate"));
  const NodeId node = builder.add_node("node");
  std::vector<SwitchId> sockets;
  for (std::int64_t s = 0; s < socket_count; ++s) {
    sockets.push_back(builder.add_switch(fmt::format("socket{}", s), node));
    for (std::int64_t other = 0; other < s; ++other) {
      builder.add_link(Port::of(sockets[static_cast<std::size_t>(other)]), Port::of(sockets.back()),
                       call.rate("socket-rate"), latency, across);
    }
  }
  const std::int64_t switch_count = (count + per_switch - 1) / per_switch;
  for (std::int64_t p = 0; p < switch_count; ++p) {
    const SwitchId pcie = builder.add_switch(fmt::format("pcie{}", p), node);
    // Neighbouring switches share a socket.
    const SwitchId socket = sockets[static_cast<std::size_t>(p * socket_count / switch_count)];
    builder.add_link(kind, Port::of(pcie), Port::of(socket), rate, latency, lanes);
    for (std::int64_t i = p * per_switch; i < std::min((p + 1) * per_switch, count); ++i) {
      const DeviceModel& model = *models[static_cast<std::size_t>(i)];
      const DeviceId device = builder.add_device(fmt::format("gpu{}", i), model, node);
      builder.add_link(kind, Port::of(device), Port::of(pcie), rate, latency, lanes);
    }
  }
  add_cpu(builder, call, "cpu", node, sockets.front(), latency);
  return std::move(builder).finish();
}

}  // namespace parsim::topologies
