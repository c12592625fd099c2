#include "topologies/import/gpus.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// What NCCL counts on, as a share of the raw rate of PCIe.
constexpr double counted_share = 12 / 15.75;

// Ids from the PCI ID repository (pci.ids), vendors 10de (NVIDIA) and 1002 (AMD).
constexpr KnownGpu gpus[] = {
    {"0x102d", "K80", "k80"},
    {"0x17fd", "M40", "m40"},
    {"0x17c2", "GTX TITAN X", "titanx-maxwell"},
    {"0x1b00", "TITAN X (Pascal)", "titanx-pascal"},
    {"0x1b02", "TITAN Xp", "titanxp"},
    {"0x1b80", "GTX 1080", "gtx-1080"},
    {"0x1b06", "GTX 1080 Ti", "gtx-1080ti"},
    {"0x1e82", "RTX 2080", "rtx-2080"},
    {"0x1e87", "RTX 2080", "rtx-2080"},
    {"0x1e04", "RTX 2080 Ti", "rtx-2080ti"},
    {"0x1e07", "RTX 2080 Ti", "rtx-2080ti"},
    {"0x1e02", "TITAN RTX", "titan-rtx"},
    {"0x1e30", "Quadro RTX 6000", "quadro-rtx-6000"},
    {"0x1e30", "Quadro RTX 8000", "quadro-rtx-6000", 48},  // one id for both
    {"0x1e36", "Quadro RTX 6000", "quadro-rtx-6000"},
    {"0x1e78", "Quadro RTX 6000", "quadro-rtx-6000"},
    {"0x2204", "RTX 3090", "rtx-3090"},
    {"0x2684", "RTX 4090", "rtx-4090"},
    {"0x15f8", "P100-PCIE-16GB", "p100-pcie"},
    {"0x15f7", "P100-PCIE-12GB", "p100-pcie", 12},
    {"0x15f9", "P100-SXM2-16GB", "p100-sxm2"},
    {"0x1db4", "V100-PCIE-16GB", "v100-pcie"},
    {"0x1db6", "V100-PCIE-32GB", "v100-pcie", 32},
    {"0x1db1", "V100-SXM2-16GB", "v100-sxm2"},
    {"0x1df5", "V100-SXM2-16GB", "v100-sxm2"},
    {"0x1db5", "V100-SXM2-32GB", "v100-sxm2-32"},
    {"0x1db8", "V100-SXM3-32GB", "v100-sxm3"},
    {"0x1eb8", "T4", "t4"},
    {"0x2236", "A10", "a10"},
    {"0x2237", "A10G", "a10g"},
    {"0x20b7", "A30", "a30"},
    {"0x2235", "A40", "a40"},
    {"0x2231", "RTX A5000", "rtx-a5000"},
    {"0x2230", "RTX A6000", "rtx-a6000"},
    {"0x27b8", "L4", "l4"},
    {"0x26b5", "L40", "l40"},
    {"0x26b9", "L40S", "l40s"},
    {"0x26b1", "RTX 6000 Ada Generation", "rtx-6000-ada"},
    {"0x2bb1", "RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"},
    {"0x2bb5", "RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
    {"0x20f1", "A100-PCIE-40GB", "a100-pcie-40"},
    {"0x20b1", "A100-PCIE-40GB", "a100-pcie-40"},
    {"0x20b5", "A100 80GB PCIe", "a100-pcie"},
    {"0x20b0", "A100-SXM4-40GB", "a100-sxm4-40"},
    {"0x20b2", "A100-SXM4-80GB", "a100-sxm4-80"},
    {"0x2331", "H100 PCIe", "h100-pcie"},
    {"0x2330", "H100 80GB HBM3", "h100-sxm5"},
    {"0x2321", "H100 NVL", "h100-nvl"},
    {"0x2329", "H20", "h20"},
    {"0x2342", "GH200 480GB", "gh200"},  // 96 GB of HBM3: the name has the memory of the processor
    {"0x2342", "GH200 120GB", "gh200"},
    {"0x2335", "H200", "h200-sxm"},
    {"0x2901", "B200", "b200-sxm"},
    {"0x2941", "GB200", "gb200"},
    {"0x3182", "B300 SXM6 AC", "b300"},
    {"0x3182", "B300", "b300"},
    {"0x31c2", "GB300", "gb300"},
    {"0x31c3", "GB300", "gb300"},
    {"0x7408", "MI250X", "mi250x"},
    {"0x74a1", "MI300X", "mi300x"},
};

/// What a compute capability suggests: with NVLink the board for servers, without the card.
struct CapabilityRow {
  std::int64_t capability;
  std::string_view with_nvlink, without;
  std::int64_t nvlinks;   ///< of the first
  double gigabytes;       ///< per second and NVLink, as NCCL counts on
  std::string_view pcie;  ///< of both
};
// NVLinks: NVIDIA's white papers of P100, V100, Turing, A100, GA102, H100 and Blackwell.
constexpr CapabilityRow capabilities[] = {
    {37, "k80", "k80", 0, 20, "8 GT/s"},
    {52, "m40", "m40", 0, 20, "8 GT/s"},
    {60, "p100-sxm2", "p100-pcie", 4, 18, "8 GT/s"},
    {61, "gtx-1080ti", "gtx-1080ti", 0, 18, "8 GT/s"},
    {70, "v100-sxm2", "v100-pcie", 6, 20, "8 GT/s"},
    {75, "rtx-2080ti", "t4", 2, 20, "8 GT/s"},
    {80, "a100-sxm4-40", "a100-pcie", 12, 20, "16 GT/s"},
    {86, "rtx-3090", "rtx-3090", 4, 12, "16 GT/s"},
    {89, "rtx-4090", "rtx-4090", 0, 20, "16 GT/s"},
    {90, "h100-sxm5", "h100-pcie", 18, 20.6, "32 GT/s"},
    {100, "b200-sxm", "b200-sxm", 18, 40.1, "32 GT/s"},
};

/// Types of the device table that have so many NVLinks, led so.
struct NvlinkRow {
  std::int64_t links;
  NvlinkShape shape;
  std::int64_t partners;  ///< 0: any number
  std::array<std::string_view, 3> types;
};
// Bridges: NVIDIA's pages of the cards. A machine rented in part shows the links to the GPUs that
// are there, so that two of an NVSwitch or of a DGX-1 look like a bridge and four of a DGX-1V like
// P100s.
constexpr NvlinkRow nvlink_rows[] = {
    {1, NvlinkShape::bridge, 1, {"rtx-2080", "p100-sxm2", "v100-sxm2"}},
    {2, NvlinkShape::bridge, 1, {"rtx-2080ti", "titan-rtx", "v100-sxm2"}},
    {4, NvlinkShape::bridge, 1, {"rtx-3090", "a40"}},
    {6, NvlinkShape::bridge, 1, {"v100-sxm3", "v100-sxm2"}},
    {12, NvlinkShape::bridge, 1, {"a100-pcie", "a100-sxm4-40", "h100-pcie"}},
    {18, NvlinkShape::bridge, 1, {"h100-sxm5", "h200-sxm", "b200-sxm"}},
    {4, NvlinkShape::mesh, 4, {"p100-sxm2"}},
    {4, NvlinkShape::mesh, 0, {"p100-sxm2", "v100-sxm2"}},
    {6, NvlinkShape::mesh, 0, {"v100-sxm2", "v100-sxm2-32"}},
    {12, NvlinkShape::mesh, 0, {"a100-sxm4-40", "a100-sxm4-80"}},
    {18, NvlinkShape::mesh, 0, {"h100-sxm5", "h200-sxm"}},
    {6, NvlinkShape::switches, 0, {"v100-sxm3"}},
    {12, NvlinkShape::switches, 0, {"a100-sxm4-40", "a100-sxm4-80"}},
    {18, NvlinkShape::switches, 0, {"h100-sxm5", "h200-sxm", "b200-sxm"}},
};

/// The row of a capability, or of the next smaller one (sm 72 counts as 70).
const CapabilityRow& row_of(std::int64_t capability) {
  const CapabilityRow* found = &capabilities[0];
  for (const CapabilityRow& row : capabilities) {
    if (row.capability <= capability) found = &row;
  }
  return *found;
}

/// What NCCL counts on per lane of so many transfers a second, in units of 100 Mbit/s.
std::optional<double> lane_rate(std::string_view speed) {
  constexpr std::pair<std::string_view, double> per_lane[] = {
      {"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}};
  for (const auto& [transfers, hundreds] : per_lane) {
    for (const std::string_view unit : {" GT/s", ".0 GT/s"}) {
      if (speed.starts_with(fmt::format("{}{}", transfers, unit))) return hundreds;
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const KnownGpu> known_gpus() { return gpus; }

const KnownGpu* gpu_of_pci(std::string_view vendor, std::string_view device) {
  if (vendor != "0x10de" && vendor != "0x1002") return nullptr;
  for (const KnownGpu& gpu : gpus) {
    if (gpu.pci_device == device) return &gpu;
  }
  return nullptr;
}

const KnownGpu* gpu_of_product(std::string_view product) {
  for (const std::string_view brand : {"NVIDIA ", "Tesla ", "GeForce "}) {
    if (product.starts_with(brand)) product.remove_prefix(brand.size());
  }
  for (const KnownGpu& gpu : gpus) {
    if (gpu.product == product) return &gpu;
  }
  return nullptr;
}

std::string_view model_of_product(std::string_view product) {
  const KnownGpu* const known = gpu_of_product(product);
  return known == nullptr ? std::string_view() : known->model;
}

std::optional<std::string> guess_of_capability(std::int64_t capability, std::int64_t nvlinks) {
  const CapabilityRow& row = row_of(capability);
  if (row.capability != capability) return std::nullopt;
  return std::string(nvlinks > 0 ? row.with_nvlink : row.without);
}

std::vector<std::string> types_of_nvlinks(std::int64_t links, NvlinkShape shape,
                                          std::int64_t partners) {
  for (const NvlinkRow& row : nvlink_rows) {
    if (row.links != links || row.shape != shape) continue;
    if (row.partners > 0 && row.partners != partners) continue;
    std::vector<std::string> types;
    for (const std::string_view type : row.types) {
      if (!type.empty()) types.emplace_back(type);
    }
    return types;
  }
  return {};
}

DeviceModel guessed_model(DeviceModel model, const std::string& from) {
  model.provenance.push_back({"model", Label::guessed, fmt::format("type guessed from {}", from)});
  return model;
}

std::int64_t capability_of(const DeviceModel& model) {
  const std::size_t point = model.architecture.find('.');
  if (point == std::string::npos) return 0;
  return 10 * std::atoi(model.architecture.c_str()) +
         std::atoi(model.architecture.c_str() + point + 1);
}

BytesPerSecond nvlink_rate(std::int64_t capability) { return {row_of(capability).gigabytes * 1e9}; }

std::int64_t nvlinks_of(std::int64_t capability) { return row_of(capability).nvlinks; }

bool pcie_speed_known(std::string_view speed) { return lane_rate(speed).has_value(); }

BytesPerSecond pcie_rate(std::string_view speed, std::int64_t lanes) {
  constexpr double unknown = 60, bits = 100e6 / 8;  // counted_share of the raw rate
  constexpr std::int64_t usual_lanes = 16;
  return {lane_rate(speed).value_or(unknown) * bits *
          static_cast<double>(lanes == 0 ? usual_lanes : lanes)};
}

void add_slot(ClusterBuilder& builder, Port gpu, const DeviceModel& model, Port parent,
              BytesPerSecond rate, std::int32_t provenance) {
  if (!lacks_peer_access(model)) {
    builder.add_link(gpu, parent, rate, pcie_latency, provenance);
    return;
  }
  const BytesPerSecond raw{rate.value / counted_share};
  builder.add_link(pcie_kind(raw, true), gpu, parent, raw, pcie_latency, provenance);
}

std::string_view pcie_speed_of(std::int64_t capability) { return row_of(capability).pcie; }

}  // namespace parsim::topologies
