// The hybrid cube mesh of the DGX-1: two squares of four GPUs, every GPU joined to the three others
// of its square and to its partner in the other square. P100 have four NVLinks, one to each of
// these; V100 have six, so that two of them are double.
#include <fmt/format.h>

#include <array>
#include <tuple>

#include "core/errors.hpp"
#include "topologies/generator.hpp"

namespace parsim::topologies {

namespace {

/// First GPU, second GPU, cables on a P100 machine, cables on a V100 machine. Source of the double
/// ones: `nvidia-smi topo -m` of a DGX-1 with V100 (NV1 and NV2).
constexpr std::array<std::tuple<std::size_t, std::size_t, int, int>, 16> nvlinks{{
    {0, 1, 1, 1},
    {0, 2, 1, 1},
    {0, 3, 1, 2},
    {0, 4, 1, 2},
    {1, 2, 1, 2},
    {1, 3, 1, 1},
    {1, 5, 1, 2},
    {2, 3, 1, 2},
    {2, 6, 1, 1},
    {3, 7, 1, 1},
    {4, 5, 1, 1},
    {4, 6, 1, 1},
    {4, 7, 1, 2},
    {5, 6, 1, 2},
    {5, 7, 1, 1},
    {6, 7, 1, 2},
}};

}  // namespace

Cluster build_cube_mesh(const GeneratorCall& call) {
  constexpr std::int64_t gpus = 8;
  if (call.shape(1, 1).front() != gpus) {
    throw InputError(call.where(), fmt::format("'{}' does not have 8 devices", call.text()),
                     "accepted: cube-mesh:8");
  }
  const std::int64_t per_gpu = call.integer("links", 4, 6);
  if (per_gpu == 5) throw InputError(call.where("links"), "'5'", "accepted: 4 or 6");
  const std::vector<const DeviceModel*> models = call.devices(gpus);
  const BytesPerSecond rate = call.rate("rate"), pcie_rate = call.rate("pcie-rate");
  const Seconds latency = call.latency("latency");

  ClusterBuilder builder(call.text(), call.where());
  const std::int32_t nvlink = builder.add_provenance(call.provenance("rate"));
  const std::int32_t lanes = builder.add_provenance(call.provenance("pcie-rate"));
  const std::int32_t across = builder.add_provenance(call.provenance("socket-rate"));
  const NodeId node = builder.add_node("node");
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < models.size(); ++i) {
    devices.push_back(builder.add_device(fmt::format("gpu{}", i), *models[i], node));
  }
  for (const auto& [a, b, cables_p100, cables_v100] : nvlinks) {
    builder.add_link(call.kind("kind"), Port::of(devices[a]), Port::of(devices[b]), rate, latency,
                     nvlink, per_gpu == 4 ? cables_p100 : cables_v100);
  }
  std::array<SwitchId, 2> sockets;
  for (std::size_t s = 0; s < sockets.size(); ++s) {
    sockets[s] = builder.add_switch(fmt::format("socket{}", s), node);
  }
  builder.add_link(Port::of(sockets[0]), Port::of(sockets[1]), call.rate("socket-rate"), latency,
                   across);
  for (std::size_t p = 0; p < 4; ++p) {
    const SwitchId pcie = builder.add_switch(fmt::format("pcie{}", p), node);
    builder.add_link(Port::of(pcie), Port::of(sockets[p / 2]), pcie_rate, latency, lanes);
    for (const std::size_t i : {2 * p, 2 * p + 1}) {
      builder.add_link(Port::of(devices[i]), Port::of(pcie), pcie_rate, latency, lanes);
    }
  }
  add_cpu(builder, call, "cpu", node, sockets[0], latency);
  return std::move(builder).finish();
}

}  // namespace parsim::topologies
