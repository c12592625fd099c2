// Rail-optimised networks: card i of every machine is linked to leaf switch i of its unit, and the
// leaves i of all units to spine i (NVIDIA DGX SuperPOD reference architecture, "compute fabric").
//
// A machine's cards are linked to its switch. So a GPU reaches a GPU of another rail through
// NVLink and the other rail's card, as NCCL does since 2.12 (PXN, "PCI x NVLink"), and spines of
// different rails need no link. A message that stays on its rail passes the GPU's port into the
// switch, too, though real ones take PCIe.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/generator.hpp"
#include "topologies/machine.hpp"

namespace parsim::topologies {

namespace {

struct Rails {
  const GeneratorCall& call;
  std::int64_t machines, each;
  ClusterBuilder builder;
  Ports ports;
  BytesPerSecond inter;
  Seconds inside, outside;
  std::optional<LinkKind> between;
  std::int32_t from_inter;

  Rails(const GeneratorCall& c, std::int64_t count, std::int64_t gpus)
      : call(c),
        machines(count),
        each(gpus),
        builder(c.text(), c.where()),
        ports(builder, c, "intra", "intra-kind"),
        inter(c.rate("inter")),
        inside(c.latency_or("intra-latency", c.latency("latency"))),
        outside(c.latency_or("inter-latency", c.latency("latency"))),
        between(c.kind("inter-kind")),
        from_inter(builder.add_provenance(c.provenance("inter"))) {}

  /// One switch for each rail; none with a single machine.
  std::vector<SwitchId> switches(const std::string& name) {
    std::vector<SwitchId> all;
    for (std::int64_t r = 0; r < each && machines > 1; ++r) {
      all.push_back(builder.add_switch(fmt::format("{}{}", name, r)));
    }
    return all;
  }

  void add_machine(const std::string& name, std::span<const DeviceModel* const> models,
                   const std::vector<SwitchId>& leaves) {
    const NodeId node = builder.add_node(name);
    const SwitchId middle = builder.add_switch(name + ".switch", node);
    for (std::size_t i = 0; i < models.size(); ++i) {
      const DeviceId gpu = builder.add_device(fmt::format("{}.gpu{}", name, i), *models[i], node);
      const DeviceInMachine own = ports.of(*models[i]);
      builder.add_link(own.kind, Port::of(gpu), Port::of(middle), own.rate, inside, own.provenance);
      if (leaves.empty()) continue;
      const SwitchId card = builder.add_switch(fmt::format("{}.nic{}", name, i), node);
      builder.add_link(Port::of(middle), Port::of(card), inter, inside, from_inter);
      builder.add_link(between, Port::of(card), Port::of(leaves[i]), inter, outside, from_inter);
    }
    add_cpu(builder, call, name + ".cpu", node, middle, inside);
  }
};

/// `each`: GPUs, cards and rails of a machine.
Cluster build(const GeneratorCall& call, std::int64_t machines, std::int64_t each,
              const std::string& name) {
  Rails rails(call, machines, each);
  const std::int64_t per_unit = std::min(machines, call.integer("unit", 1, most_devices));
  const std::vector<const DeviceModel*> models = call.devices_of_machines(machines, each);
  const double oversubscription = call.factor("oversubscription", 1, 64);
  const std::vector<SwitchId> spines =
      per_unit < machines ? rails.switches("spine") : std::vector<SwitchId>();
  for (std::int64_t first = 0; first < machines; first += per_unit) {
    const std::vector<SwitchId> leaves =
        rails.switches(spines.empty() ? "leaf" : fmt::format("unit{}.leaf", first / per_unit));
    // What its cards send together, or less; all of an uplink's cables as one.
    const BytesPerSecond uplink{rails.inter.value * static_cast<double>(per_unit) /
                                oversubscription};
    for (std::size_t r = 0; r < spines.size(); ++r) {
      rails.builder.add_link(rails.between, Port::of(leaves[r]), Port::of(spines[r]), uplink,
                             rails.outside, rails.from_inter);
    }
    for (std::int64_t n = first; n < std::min(first + per_unit, machines); ++n) {
      rails.add_machine(fmt::format("{}{}", name, n),
                        std::span(models).subspan(static_cast<std::size_t>(n * each),
                                                  static_cast<std::size_t>(each)),
                        leaves);
    }
  }
  return std::move(rails.builder).finish();
}

}  // namespace

Cluster build_rail(const GeneratorCall& call) {
  const std::vector<std::int64_t> sizes = call.shape(2, 2);
  return build(call, sizes[0], sizes[1], "n");
}

Cluster build_nvl72(const GeneratorCall& call) {
  constexpr std::int64_t gpus = 72;
  const std::int64_t racks = call.shape(1, 1).front();
  if (racks * gpus > most_devices) {
    throw InputError(call.where(), fmt::format("{} racks", racks),
                     fmt::format("accepted: at most {} racks", most_devices / gpus));
  }
  return build(call, racks, gpus, "rack");
}

}  // namespace parsim::topologies
