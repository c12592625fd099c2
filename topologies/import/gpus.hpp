// What importers know of GPUs and wires beyond the device table: which type a PCI id or a product's
// name means, and what NCCL counts on per cable. Files of foreign tools tell ids, names and counts,
// not rates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "topologies/builder.hpp"

namespace parsim::topologies {

/// A row of the table: a type of the device table, and the memory if it is not the type's.
struct KnownGpu {
  std::string_view pci_device;  ///< "0x1db1"
  std::string_view product;     ///< as nvidia-smi -L says, without "NVIDIA", "Tesla", "GeForce"
  std::string_view model;       ///< name in the device table
  std::int64_t memory_gib = 0;  ///< 0: the model's
};
/// The table; of several rows with one id the first counts.
[[nodiscard]] std::span<const KnownGpu> known_gpus();
/// Null if the table has no such GPU.
[[nodiscard]] const KnownGpu* gpu_of_pci(std::string_view vendor, std::string_view device);
[[nodiscard]] const KnownGpu* gpu_of_product(std::string_view product);

/// The type that is likeliest for a compute capability (70) and a number of NVLinks; nothing for a
/// capability without a row. A guess: say so.
[[nodiscard]] std::optional<std::string> guess_of_capability(std::int64_t capability,
                                                             std::int64_t nvlinks);
/// How a GPU's NVLinks lead to others: all to one, as a bridge between cards; to several; or as
/// many to every other, more than any GPU has in all, through switches.
enum class NvlinkShape : std::uint8_t { bridge, mesh, switches };
/// The types that have so many NVLinks, `links` of a GPU in all or, through switches, to each other
/// one, to `partners` others: the likeliest first, none for a number that no type has. Of one
/// generation, the first is a fair guess; of several, none is.
[[nodiscard]] std::vector<std::string> types_of_nvlinks(std::int64_t links, NvlinkShape shape,
                                                        std::int64_t partners);

/// The model with the remark that its type was guessed, and from what.
[[nodiscard]] DeviceModel guessed_model(DeviceModel model, const std::string& from);

/// Compute capability of a type as NCCL writes it: 70 of "7.0"; 0 if it has none.
[[nodiscard]] std::int64_t capability_of(const DeviceModel& model);

/// Of one NVLink in one direction, as NCCL counts on.
/// Source: ncclTopoNVLinkBw in NCCL 2.28's src/graph/topo.h.
[[nodiscard]] BytesPerSecond nvlink_rate(std::int64_t capability);
/// NVLinks that a GPU of that capability has; 0 if none.
[[nodiscard]] std::int64_t nvlinks_of(std::int64_t capability);

/// Of a PCIe link in one direction: three quarters of the raw rate. `speed` is "8.0 GT/s PCIe" or
/// "8 GT/s"; what is not known counts as 8 GT/s, no lanes as 16, as NCCL does.
/// Source: kvDictPciGen and ncclTopoAddPci in NCCL 2.28's src/graph/topo.cc.
[[nodiscard]] BytesPerSecond pcie_rate(std::string_view speed, std::int64_t lanes);
/// Adds the link of a GPU's slot, whose rate is pcie_rate's; through the host's memory where GPUs
/// of the model cannot reach each other's.
void add_slot(ClusterBuilder& builder, Port gpu, const DeviceModel& model, Port parent,
              BytesPerSecond rate, std::int32_t provenance);
/// Whether `speed` is one that pcie_rate knows.
[[nodiscard]] bool pcie_speed_known(std::string_view speed);
/// The PCIe generation that GPUs of a capability came with: "16 GT/s".
[[nodiscard]] std::string_view pcie_speed_of(std::int64_t capability);

/// Latencies of cables, guessed, as in clusters/*.toml.
inline constexpr Seconds nvlink_latency{1e-6}, pcie_latency{500e-9};

}  // namespace parsim::topologies
