// Kinds of links, and what such links carry under a communication library: a share of the
// data-sheet rate, and fixed costs of a collective, both from measured systems.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/units.hpp"

namespace parsim {

struct Cluster;
struct DeviceModel;

enum class LinkKind : std::uint8_t {
  nvlink1,
  nvlink2,
  nvlink3,
  nvlink4,
  nvlink5,
  pcie3,
  pcie4,
  pcie5,
  pcie3_host,  ///< between GPUs that cannot reach each other's memory: through the host's
  pcie4_host,
  pcie5_host,
  infiniband,
  roce,
  efa,
  tcp,
  slingshot
};
constexpr std::array<std::string_view, 16> spellings(LinkKind) {
  return {"nvlink1", "nvlink2", "nvlink3",    "nvlink4",    "nvlink5",    "pcie3",
          "pcie4",   "pcie5",   "pcie3-host", "pcie4-host", "pcie5-host", "infiniband",
          "roce",    "efa",     "tcp",        "slingshot"};
}
/// Kinds that borrow from each other where one has no measured system.
enum class LinkFamily : std::uint8_t { nvlink, pcie, pcie_host, network };
[[nodiscard]] LinkFamily family_of(LinkKind kind);

/// Inside a machine what is faster is NVLink: PCIe 5 x16 with what NCCL counts on (48 GB/s) is
/// slower.
inline constexpr BytesPerSecond fastest_pcie{50e9};
/// A module on a board with NVLink (SXM), not a card in a slot.
[[nodiscard]] bool is_module(const DeviceModel& model);

/// A GeForce or Titan card since Turing: the driver refuses copies between two of them over PCIe.
[[nodiscard]] bool lacks_peer_access(const DeviceModel& model);
/// PCIe of the generation whose 16 lanes carry that rate, through the host's memory or not.
[[nodiscard]] LinkKind pcie_kind(BytesPerSecond rate, bool through_host);

/// What a GPU's own port is: NVLink of a module, else PCIe, of the generation that came with its
/// architecture; nothing where the architecture is not one of NVIDIA's.
[[nodiscard]] std::optional<LinkKind> port_kind(const DeviceModel& model);
/// Rate each way of a GPU's port by data sheet: all its NVLinks together, or 16 lanes of PCIe;
/// nothing for networks, whose cards differ.
[[nodiscard]] std::optional<BytesPerSecond> port_rate(LinkKind kind);

/// What one measured system says about a kind. A number below zero is not known from it.
struct MeasuredLinks {
  LinkKind kind;
  std::string_view system;  ///< the machine, as validation/measurements calls it
  double efficiency;        ///< share of the data-sheet rate that large collectives reach
  double launch;            ///< us that small collectives take beyond NCCL's model
  double root;              ///< us per √byte with protocol Simple, from filling the pipeline
  std::string_view source;
};
/// All of them. Fitted by validation/fit_links.py.
[[nodiscard]] std::span<const MeasuredLinks> measured_links();

/// What to expect of links of a kind.
struct LinkNumbers {
  double efficiency = 1;
  Seconds launch{};
  Seconds per_root_byte{};
  std::int32_t systems = 0;  ///< of that kind, with an efficiency; 0: borrowed from its family
};
/// Medians over measured systems: the efficiency over those of the kind, or of its family where
/// none is known; the root, which the library decides, over those of the family; the launch, which
/// the host decides, over all systems inside a machine, or all between machines.
///
/// without   a system whose own rows are left out, to predict it from the others; "": none
[[nodiscard]] LinkNumbers link_numbers(LinkKind kind, std::string_view without = {});

/// What links of a kind carry of their data sheet's rate, or the rate itself where no kind is
/// given.
[[nodiscard]] BytesPerSecond effective_rate(std::optional<LinkKind> kind, BytesPerSecond rate);

/// Fills in the kinds of links that have none, marked as guessed; rates stay as they are. Inside a
/// machine a link at a GPU is NVLink if it is faster than 50 GB/s or joins two GPUs that are
/// modules (SXM), else PCIe, of the generation that its rate needs; between machines a link of 10
/// us and more is TCP, else InfiniBand. Links of CPUs, and between switches of one machine, get
/// none.
void guess_link_kinds(Cluster& cluster);

/// Rates of links that are known by their data sheet, with another system left out than before.
void leave_system_out(Cluster& cluster, std::string_view system);

}  // namespace parsim
