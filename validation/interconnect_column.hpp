// What connects the GPUs of a row: its column `interconnect`, or what its card has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/link_kind.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Links of a GPU to others in its machine.
struct InsideLinks {
  LinkKind kind{};      ///< of Infinity Fabric NVLink 2, of which no system is measured: the family
  double rate = 0;      ///< by data sheet: GB/s of a GPU in each direction
  bool modules = true;  ///< NVLink or Infinity Fabric, not PCIe
};
/// Of a text that names NVLink, NVSwitch, PCIe, or Infinity Fabric (xGMI) with its rate ("Infinity
/// Fabric 150 GB/s"), which of MI300X is known. Without any text NVLink of modules (SXM), Infinity
/// Fabric of MI300X, and PCIe of the generation of other cards. Throws InputError for another text
/// where a machine has several GPUs (`each`), and for Infinity Fabric of an unknown rate.
[[nodiscard]] InsideLinks inside_links(const Claim& claim, const std::string& text,
                                       const DeviceModel& model, std::int64_t each);

/// The network ports of a machine, from texts such as "8x HDR 200 Gb/s", "8xNDR", "InfiniBand FDR
/// (56 Gb/s)", "50 GB/s", "400 Gb/s per GPU"; a rate beyond 400 Gb/s, or its generation's, is that
/// of all ports together.
struct NetworkPorts {
  std::int64_t count = 1;
  double gigabits = 100;           ///< of one port
  bool each_gpu = false;           ///< `count` is that of a GPU
  std::optional<LinkKind> kind{};  ///< if the text names one; OmniPath counts as InfiniBand
  friend bool operator==(const NetworkPorts&, const NetworkPorts&) = default;
};
/// None where the text names no rate, or has numbers or words that the grammar of network_ports.cpp
/// does not have, or that contradict each other; `refusal` says which. Rates of NVLink, Infinity
/// Fabric and PCIe are no ports.
struct ReadPorts {
  std::optional<NetworkPorts> ports;
  std::string refusal;
};
[[nodiscard]] ReadPorts read_ports(std::string_view interconnect);
/// The ports of a machine of `gpus`. Throws InputError for a text without, or none.
[[nodiscard]] NetworkPorts ports_between(const Claim& claim, std::string_view text,
                                         std::int64_t gpus);

/// The kind that a text or machine names. Amazon's machines have no InfiniBand: without EFA, TCP.
[[nodiscard]] std::optional<LinkKind> named_network_kind(std::string_view interconnect,
                                                         std::string_view machine);
/// Latency of the link at a port, in us: of EFA as published, else guessed.
[[nodiscard]] double port_latency(LinkKind kind, const DeviceModel& model);

/// Letters and digits of the text, in small letters, contain those of the word.
[[nodiscard]] bool names(std::string_view text, std::string_view word);

/// What is assumed of rows that do not say what connects their GPUs, where their cards may be
/// connected in several ways: "2 rows without interconnect: taken as PCIe of 31.5 GB/s between
/// l40s", or "".
[[nodiscard]] std::string assumed_links(const std::vector<Claim>& rows);

}  // namespace parsim::validation
