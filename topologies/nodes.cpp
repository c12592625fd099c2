// N machines of M devices: inside, every device has a port of rate `intra` into the machine's
// switch; outside, the network ports of the machines, of rate `inter`, are linked to one ideal
// switch.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "topologies/generator.hpp"
#include "topologies/machine.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// Latencies may be given apart or together, not both ways at once.
Seconds latency_of(const GeneratorCall& call, std::string_view key) {
  return call.latency_or(key, call.latency("latency"));
}

}  // namespace

Cluster build_nodes(const GeneratorCall& call) {
  const std::vector<std::int64_t> sizes = call.shape(2, 2);
  const std::int64_t machines = sizes[0], each = sizes[1];
  const std::vector<const DeviceModel*> models = call.devices_of_machines(machines, each);
  MachineShape shape{.devices = {},
                     .inter = call.rate("inter"),
                     .intra_latency = latency_of(call, "intra-latency"),
                     .inter_latency = latency_of(call, "inter-latency"),
                     .cards = call.integer("nics", 1, each),
                     .between = call.kind("inter-kind")};

  ClusterBuilder builder(call.text(), call.where());
  Ports ports(builder, call, "intra", "intra-kind");
  shape.provenance = builder.add_provenance(call.provenance("inter"));
  const SwitchId network = machines > 1 ? builder.add_switch("network") : SwitchId{};
  for (std::int64_t n = 0; n < machines; ++n) {
    shape.devices.clear();
    for (std::int64_t i = n * each; i < (n + 1) * each; ++i) {
      shape.devices.push_back(ports.of(*models[static_cast<std::size_t>(i)]));
    }
    const std::string name = fmt::format("n{}", n);
    const SwitchId host = add_machine(builder, shape, name, network);
    add_cpu(builder, call, name + ".cpu", NodeId{builder.cluster().nodes.size() - 1}, host,
            shape.intra_latency);
  }
  Cluster cluster = std::move(builder).finish();
  if (!call.has("placement")) return cluster;
  const std::vector<std::int64_t> counts = call.integers("placement", 1, each);
  if (std::ssize(counts) != machines) {
    throw InputError(call.where("placement"), fmt::format("{} numbers", counts.size()),
                     fmt::format("accepted: one for each of the {} machines", machines));
  }
  return first_gpus_of_nodes(std::move(cluster), {counts.begin(), counts.end()},
                             call.where("placement"));
}

}  // namespace parsim::topologies
