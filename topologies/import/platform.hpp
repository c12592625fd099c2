// A SimGrid platform as its file says it: hosts, routers, links without ends, and routes as lists
// of links. Where the links end is found out in simgrid.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/units.hpp"
#include "topologies/import/xml.hpp"

namespace parsim::topologies {

/// Keys of <prop> under which show cluster --format simgrid writes what SimGrid has no word for.
namespace platform_key {
inline constexpr std::string_view name = "parsim.name", node = "parsim.node",
                                  node_of = "parsim.node-of:", model = "parsim.model",
                                  kind = "parsim.kind", architecture = "parsim.architecture",
                                  multiprocessors = "parsim.multiprocessors", fp32 = "parsim.fp32",
                                  tf32 = "parsim.tf32", fp16 = "parsim.fp16", bf16 = "parsim.bf16",
                                  fp8 = "parsim.fp8",  // absent: none
    base = "parsim.base",                              // absent: none
    memory_rate = "parsim.memory_rate", model_memory = "parsim.model_memory",
                                  memory = "parsim.memory", a = "parsim.a", b = "parsim.b",
                                  label = "parsim.label", source = "parsim.source",
                                  back_of = "parsim.back-of";
/// SimGrid's own, of its link energy plugin: watts "idle:busy" of a link or of one direction.
inline constexpr std::string_view wattage_range = "wattage_range";
}  // namespace platform_key

using Props = std::map<std::string, std::string, std::less<>>;

/// A host or a router.
struct PlatformPoint {
  std::string name;
  std::string where;
  bool is_host = false;
  FlopsPerSecond speed{};  ///< of all cores
  std::int64_t cores = 1;
  bool forwards = false;  ///< its zone's routes lead through hosts
  Props props{};
};

struct PlatformLink {
  std::string name, where;
  BytesPerSecond rate{};
  Seconds latency{};
  std::string policy;
  Props props{};
};

/// One link of a route; direction is 1 (UP), -1 (DOWN) or 0 (none given).
struct PlatformHop {
  std::size_t link = 0;
  int direction = 0;
};
struct PlatformRoute {
  std::string where;
  std::size_t from = 0, to = 0;  ///< points
  std::vector<PlatformHop> hops;
  bool both_ways = true;  ///< it is the way back too
};

struct Platform {
  Props props;  ///< of the outermost zone
  std::vector<PlatformPoint> points;
  std::vector<PlatformLink> links;
  std::vector<PlatformRoute> routes;
  std::vector<std::string> notes;
};

/// Nothing if the key is absent.
[[nodiscard]] std::optional<std::string> prop_of(const Props& props, std::string_view key);
/// The type of device that a host is: as its props say it, else a guess from its speed.
[[nodiscard]] DeviceModel model_of_host(const PlatformPoint& host, const std::string& file);

/// Throws InputError with file and line for what is not understood.
[[nodiscard]] Platform read_platform(const Element& root, const std::string& file);

/// Attribute "speed" of a host, one core. All throw InputError with file, line and the units that
/// are accepted.
[[nodiscard]] FlopsPerSecond platform_speed(const XmlTag& tag);
[[nodiscard]] BytesPerSecond platform_rate(const XmlTag& tag, std::string_view attribute);
/// Zero if the attribute is absent.
[[nodiscard]] Seconds platform_latency(const XmlTag& tag, std::string_view attribute);

}  // namespace parsim::topologies
