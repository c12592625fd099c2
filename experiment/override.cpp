// Numbers of a cluster that the command line changes: --override.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "experiment/request.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view of_devices = "devices.NAME.memory=SIZE",
                           of_links = "links.NAME.power=WATTS, links.NAME.idle_power=WATTS";

/// "links.n0.gpu0-nic.power=10 W" in its parts.
struct Override {
  std::string name, number, value;
  std::string where;
};

[[noreturn]] void refuse_number(const Override& change, std::string_view what,
                                std::string_view accepted, const std::vector<std::string>& known) {
  throw InputError("--override", fmt::format("unknown key '{}' of a {}", change.number, what),
                   fmt::format("accepted: {}{}", accepted, did_you_mean(change.number, known)));
}

void override_device(Cluster& cluster, const Override& change) {
  if (change.number != "memory") refuse_number(change, "device", of_devices, {"memory"});
  const DeviceId device = find_device(cluster, change.name, "--override");
  const Bytes memory = parse_bytes(change.value, change.where);
  if (memory.value <= 0) {
    throw InputError(change.where, fmt::format("'{}'", change.value), "accepted: a positive size");
  }
  cluster.devices[device.index()].memory = memory;
}

void override_links(Cluster& cluster, const Override& change) {
  const bool idle = change.number == "idle_power";
  if (!idle && change.number != "power") {
    refuse_number(change, "link", of_links, {"power", "idle_power"});
  }
  const std::optional<std::string> none, value = change.value;
  topologies::set_link_power(cluster, change.name, idle ? none : value, idle ? value : none,
                             change.where);
}

}  // namespace

Cluster load_cluster_with(const std::string& name, const std::vector<std::string>& overrides,
                          std::string_view where, std::vector<std::string>* notes) {
  Cluster cluster = topologies::load_cluster(name, where, notes);
  for (const std::string& text : overrides) apply_override(cluster, text);
  return cluster;
}

void apply_override(Cluster& cluster, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const std::size_t first = key.find('.'), last = key.rfind('.');
  const std::string of = key.substr(0, first);
  const bool parts = equals != std::string::npos && first != std::string::npos && first < last;
  if (!parts || (of != "devices" && of != "links")) {
    throw InputError("--override", fmt::format("'{}'", text),
                     fmt::format("accepted: {}, {}", of_devices, of_links));
  }
  const Override change{key.substr(first + 1, last - first - 1), key.substr(last + 1),
                        text.substr(equals + 1), fmt::format("--override {}", key)};
  of == "devices" ? override_device(cluster, change) : override_links(cluster, change);
}

}  // namespace parsim::experiment
