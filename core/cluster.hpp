// A cluster as a graph: devices hang on switches or on each other by full-duplex links. A
// device never forwards traffic for others; only switches do.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/link_kind.hpp"
#include "core/spelling.hpp"
#include "core/units.hpp"

namespace parsim {

enum class DeviceKind : std::uint8_t { gpu, cpu };
constexpr std::array<std::string_view, 2> spellings(DeviceKind) { return {"gpu", "cpu"}; }
/// How a number was obtained.
enum class Label : std::uint8_t { measured, data_sheet, guessed };
constexpr std::array<std::string_view, 3> spellings(Label) {
  return {"measured", "data sheet", "guessed"};
}

/// Where a number of a description comes from. `key` is the number's name ("rate", "memory", …), or
/// "*" for all numbers of the entry that have none of their own.
struct Provenance {
  std::string key;
  Label label = Label::guessed;
  std::string source;
  friend bool operator==(const Provenance&, const Provenance&) = default;
};

/// What a device or a machine costs and draws, and how often it fails; nothing where it is not
/// known.
struct Upkeep {
  std::optional<MoneyPerHour> price{};
  std::optional<Watts> power{};  ///< of a device: while a kernel runs; of a machine: the most
  std::optional<Watts> idle_power{};
  /// Mean time between failures that stop a job. Of a machine: of what is not one of its devices.
  std::optional<Seconds> mtbf{};
  friend bool operator==(const Upkeep&, const Upkeep&) = default;

  /// Of a device without kernels: `idle_power`, or else a fifth of `power` (guessed).
  [[nodiscard]] std::optional<Watts> idle() const {
    constexpr double guessed_share = 0.2;
    return idle_power || !power ? idle_power : std::optional(*power * guessed_share);
  }
};

/// A type of device: one row of the device table.
struct DeviceModel {
  std::string name;  ///< "v100-sxm2"
  std::string base;  ///< the type that it was described from; "" for types of their own
  DeviceKind kind = DeviceKind::gpu;
  std::string architecture;          ///< CUDA compute capability "7.0", or "" if it has none
  std::int32_t multiprocessors = 0;  ///< SMs, compute units or cores
  /// Dense peak by Precision up to bf16; a precision without tensor cores has the rate it is
  /// emulated at (fp32's).
  std::array<FlopsPerSecond, 4> peak{};
  FlopsPerSecond fp8_peak{};  ///< 0: multiplies no FP8
  BytesPerSecond memory_rate{};
  Bytes memory{};
  std::vector<Provenance> provenance;
  Upkeep upkeep{};

  [[nodiscard]] FlopsPerSecond peak_at(Precision p) const {
    return multiplies_in_fp8(p) ? fp8_peak : peak[static_cast<std::size_t>(p)];
  }
  /// The type whose measured kernels it has, as shares of its own rates.
  [[nodiscard]] const std::string& measured_type() const { return base.empty() ? name : base; }
  friend bool operator==(const DeviceModel&, const DeviceModel&) = default;
};

struct Device {
  std::string name;         ///< unique in the cluster
  std::int32_t model = -1;  ///< index into Cluster::models
  NodeId node;
  Bytes memory{};   ///< capacity of this device; the model's unless overridden
  Upkeep upkeep{};  ///< the same
  friend bool operator==(const Device&, const Device&) = default;
};

/// A machine: what shares a chassis.
struct Node {
  std::string name;
  Upkeep upkeep{};  ///< of the whole machine, in place of its devices' price; no idle_power
  friend bool operator==(const Node&, const Node&) = default;
};

/// Anything that forwards: NVSwitch, PCIe switch, CPU socket, network card, network switch.
struct Switch {
  std::string name;
  NodeId node;  ///< invalid for switches between machines
  friend bool operator==(const Switch&, const Switch&) = default;
};

/// One end of a link.
struct Port {
  enum class Kind : std::uint8_t { device, switch_ } kind = Kind::device;
  std::int32_t index = -1;

  static Port of(DeviceId id) { return {Kind::device, id.value}; }
  static Port of(SwitchId id) { return {Kind::switch_, id.value}; }
  friend auto operator<=>(const Port&, const Port&) = default;
};

/// What a link draws, both of its ends together; nothing where it is not known.
struct LinkPower {
  std::optional<Watts> power{};  ///< while it carries its rate in both directions
  std::optional<Watts> idle_power{};
  friend bool operator==(const LinkPower&, const LinkPower&) = default;

  /// While it carries nothing: `idle_power`, or else `power`, as of links that never sleep.
  [[nodiscard]] std::optional<Watts> idle() const { return idle_power ? idle_power : power; }
};

/// A full-duplex cable: `rate` in each direction at once, `latency` to cross it. Parallel cables
/// are separate links, so that rings can use each of them.
struct Link {
  std::string name;
  Port a, b;
  BytesPerSecond rate{};
  Seconds latency{};
  std::int32_t provenance = -1;    ///< index into Cluster::provenances
  std::optional<LinkKind> kind{};  ///< nothing where none is known or can be guessed
  bool kind_guessed = false;       ///< by guess_link_kinds()
  BytesPerSecond line_rate{};      ///< of the data sheet, of which `rate` is a share; 0: not given
  LinkPower power{};
  friend bool operator==(const Link&, const Link&) = default;
};

/// A link in one direction: forwards is a → b. Index 2·link, or 2·link + 1 backwards.
struct Hop {
  LinkId link;
  bool backwards = false;

  [[nodiscard]] std::size_t index() const { return 2 * link.index() + (backwards ? 1 : 0); }
  friend auto operator<=>(const Hop&, const Hop&) = default;
};

struct Cluster {
  std::string name;
  std::vector<DeviceModel> models;
  std::vector<Node> nodes;
  std::vector<Device> devices;
  std::vector<Switch> switches;
  std::vector<Link> links;
  std::vector<Provenance> provenances;  ///< of links

  [[nodiscard]] const Device& operator[](DeviceId id) const { return devices[id.index()]; }
  [[nodiscard]] const Link& operator[](LinkId id) const { return links[id.index()]; }
  [[nodiscard]] const DeviceModel& model(DeviceId id) const {
    return models[static_cast<std::size_t>(devices[id.index()].model)];
  }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// Devices of a kind, in id order. Strategies place layers on GPUs only.
[[nodiscard]] std::vector<DeviceId> devices_of(const Cluster& cluster, DeviceKind kind);

/// The machine of an end of a link; invalid between machines.
[[nodiscard]] NodeId machine_of(const Cluster& cluster, Port port);
/// False for a link at a machine that does not compute and could be switched off.
///
/// computes   by NodeId
[[nodiscard]] bool is_on(const Cluster& cluster, LinkId link, const std::vector<bool>& computes);

/// Checks that names are unique and not empty, ports and models exist, rates are positive, and
/// every device can reach every other. Throws InputError with `where` and the offender's name.
void validate(const Cluster& cluster, const std::string& where);

}  // namespace parsim
