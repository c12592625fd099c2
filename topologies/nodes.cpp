// N machines of M devices: inside, every device has a port of rate `intra` into the machine's
// switch; outside, the network ports of the machines, of rate `inter`, are linked to one ideal
// switch.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/generator.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// Latencies may be given apart or together, not both ways at once.
Seconds latency_of(const GeneratorCall& call, std::string_view key) {
  return call.latency_or(key, call.latency("latency"));
}

/// The models of all devices in order: the mix is of one machine, or of all of them.
std::vector<const DeviceModel*> all_devices(const GeneratorCall& call, std::int64_t machines,
                                            std::int64_t each) {
  const std::int64_t given = call.devices_given();
  if (given == 0 || given == machines * each) return call.devices(machines * each);
  if (given != each) {
    throw InputError(call.where("device"), fmt::format("the counts add up to {}", given),
                     fmt::format("accepted: counts that add up to {} (the devices of one machine) "
                                 "or to {} (of all machines)",
                                 each, machines * each));
  }
  const std::vector<const DeviceModel*> one = call.devices(each);
  std::vector<const DeviceModel*> all;
  for (std::int64_t i = 0; i < machines; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

}  // namespace

Cluster build_nodes(const GeneratorCall& call) {
  const std::vector<std::int64_t> shape = call.shape(2, 2);
  const std::int64_t machines = shape[0], each = shape[1];
  const std::vector<const DeviceModel*> models = all_devices(call, machines, each);
  const BytesPerSecond intra = call.rate("intra"), inter = call.rate("inter");
  const Seconds intra_latency = latency_of(call, "intra-latency");
  const Seconds inter_latency = latency_of(call, "inter-latency");
  const std::int64_t cards = call.integer("nics", 1, each);
  const std::optional<LinkKind> within = call.kind("intra-kind"), between = call.kind("inter-kind");

  ClusterBuilder builder(call.text(), call.where());
  const std::int32_t inside = builder.add_provenance(call.provenance("intra"));
  const std::int32_t outside = builder.add_provenance(call.provenance("inter"));
  const SwitchId network = machines > 1 ? builder.add_switch("network") : SwitchId{};
  for (std::int64_t n = 0; n < machines; ++n) {
    const NodeId node = builder.add_node(fmt::format("n{}", n));
    const SwitchId middle = builder.add_switch(fmt::format("n{}.switch", n), node);
    // One network card is linked to the switch. Several are linked to their devices, so that the
    // path with the fewest hops out of the machine leads through the device's own card.
    std::vector<SwitchId> cards_of_devices;
    if (machines > 1 && cards == 1) {
      builder.add_link(between, Port::of(middle), Port::of(network), inter, inter_latency, outside);
    } else if (machines > 1) {
      for (std::int64_t k = 0; k < cards; ++k) {
        cards_of_devices.push_back(builder.add_switch(fmt::format("n{}.nic{}", n, k), node));
        builder.add_link(between, Port::of(cards_of_devices.back()), Port::of(network), inter,
                         inter_latency, outside);
      }
    }
    for (std::int64_t i = 0; i < each; ++i) {
      const DeviceModel& model = *models[static_cast<std::size_t>(n * each + i)];
      const DeviceId device = builder.add_device(fmt::format("n{}.gpu{}", n, i), model, node);
      builder.add_link(within, Port::of(device), Port::of(middle), intra, intra_latency, inside);
      if (cards_of_devices.empty()) continue;
      // Never faster than the port into the switch, or neighbours would communicate through their
      // card.
      builder.add_link(Port::of(device),
                       Port::of(cards_of_devices[static_cast<std::size_t>(i * cards / each)]),
                       std::min(intra, inter), intra_latency, outside);
    }
    add_cpu(builder, call, fmt::format("n{}.cpu", n), node,
            cards_of_devices.empty() ? middle : cards_of_devices.front(), intra_latency);
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
