// One switch, a cable to each device: the ideal switch that hand calculations assume. An NVSwitch
// node is the same with other names and defaults.
#include <fmt/format.h>

#include "topologies/generator.hpp"
#include "topologies/machine.hpp"

namespace parsim::topologies {

Cluster build_star(const GeneratorCall& call) {
  const std::int64_t count = call.shape(1, 1).front();
  const std::vector<const DeviceModel*> models = call.devices(count);
  const Seconds latency = call.latency("latency");
  ClusterBuilder builder(call.text(), call.where());
  const NodeId node = builder.add_node("node");
  const SwitchId middle = builder.add_switch("switch", node);
  Ports ports(builder, call, "rate", "kind");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const DeviceId device = builder.add_device(fmt::format("gpu{}", i), *models[i], node);
    const DeviceInMachine own = ports.of(*models[i]);
    builder.add_link(own.kind, Port::of(device), Port::of(middle), own.rate, latency,
                     own.provenance);
  }
  add_cpu(builder, call, "cpu", node, middle, latency);
  return std::move(builder).finish();
}

}  // namespace parsim::topologies
