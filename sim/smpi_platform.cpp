#include "sim/smpi_platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::sim {

namespace {

/// Settings that make SMPI's network that of flow_engine.cpp. smpirun chooses network/model itself,
/// so what that model would add is turned off here.
constexpr std::pair<const char*, const char*> settings[] = {
    {"network/crosstraffic", "0"},
    {"network/TCP-gamma", "1e30"},
    {"network/optim", "Lazy"},
    {"network/weight-S", "0"},
    {"network/bandwidth-factor", "1"},
    {"network/latency-factor", "1"},
    {"smpi/bw-factor", "0:1"},
    {"smpi/lat-factor", "0:1"},
    // An empty message does not wait for its receiver, all others do.
    {"smpi/send-is-detached-thresh", "1"},
    {"smpi/async-small-thresh", "0"},
};

/// The device's name if a hostfile can hold it. Other hosts begin with "_" and a digit.
std::string host_name(const Device& device, std::size_t index) {
  const bool plain = std::all_of(device.name.begin(), device.name.end(), [](char c) {
    return c != ':' && static_cast<unsigned char>(c) > ' ' && c != 0x7f;
  });
  return plain && !device.name.starts_with('_') ? device.name : fmt::format("_{}", index);
}

std::string link_name(const Link& link, bool backwards) {
  return xml_escaped(link.name) + (backwards ? "_DOWN" : "_UP");
}

/// The end of a host's element. For SimGrid's host energy plugin: power when idle, with one core in
/// use and with all, which are equal, because a kernel that runs keeps the device from idling.
std::string host_end(const Upkeep& upkeep) {
  if (!upkeep.power) return "/>";
  return fmt::format("><prop id=\"wattage_per_state\" value=\"{}:{}:{}\"/></host>",
                     upkeep.idle()->value, upkeep.power->value, upkeep.power->value);
}

/// For SimGrid's link energy plugin: what one direction, half of the link, draws when idle and at
/// its rate; linear between them.
std::string wattage_range(const LinkPower& power) {
  if (!power.power) return "";
  return fmt::format("<prop id=\"wattage_range\" value=\"{}:{}\"/>", power.idle()->value / 2,
                     power.power->value / 2);
}

}  // namespace

SmpiPlatform::SmpiPlatform(const Cluster& cluster, PathCache& paths)
    : cluster_(cluster), paths_(paths) {
  for (const Device& device : cluster.devices) hosts_.push_back(host_name(device, hosts_.size()));
}

bool SmpiPlatform::is_usual(const Ring& ring) const {
  const std::size_t n = ring.devices.size();
  for (std::size_t i = 0; i < n; ++i) {
    const Route& usual = paths_.between(ring.devices[i], ring.devices[(i + 1) % n]);
    if (ring.hops[i].hops != usual.hops) return false;
  }
  return true;
}

const std::vector<std::size_t>& SmpiPlatform::ring_hosts(GroupId group, std::size_t ring,
                                                         const Ring& way) {
  const auto [entry, fresh] = ring_hosts_.try_emplace({group.value, ring});
  std::vector<std::size_t>& hosts = entry->second;
  if (!fresh) return hosts;
  for (const DeviceId device : way.devices) {
    const std::size_t host = hosts_.size();
    hosts.push_back(host);
    hosts_.push_back(fmt::format("_{}.{}.{}", device.value, group.value, ring));
    routes_[{device.index(), host}] = routes_[{host, device.index()}] = &here_;
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    routes_[{hosts[i], hosts[(i + 1) % hosts.size()]}] = &way.hops[i].hops;
  }
  return hosts;
}

void SmpiPlatform::use_route(std::size_t from, std::size_t to) {
  const std::vector<Hop>*& route = routes_[{from, to}];
  if (route != nullptr) return;
  const bool devices = std::max(from, to) < cluster_.devices.size();
  ensure(from == to || devices, "ranks of a ring send to the next one and to their device's");
  route = from == to ? &here_ : &paths_.between(DeviceId{from}, DeviceId{to}).hops;
}

std::string SmpiPlatform::text(const std::vector<std::size_t>& ranks, double host_speed) const {
  std::string text =
      "<?xml version='1.0'?>\n"
      "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
      "<platform version=\"4.1\">\n  <config>\n";
  const auto out = std::back_inserter(text);
  for (const auto& [key, value] : settings) {
    fmt::format_to(out, "    <prop id=\"{}\" value=\"{}\"/>\n", key, value);
  }
  text += "  </config>\n  <zone id=\"_cluster\" routing=\"Full\">\n";
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (ranks[i] == 0) continue;
    fmt::format_to(out, "    <host id=\"{}\" speed=\"{}f\" core=\"{}\"{}\n", xml_escaped(hosts_[i]),
                   host_speed, ranks[i],
                   i < cluster_.devices.size() ? host_end(cluster_.devices[i].upkeep) : "/>");
  }
  // Links that draw power do so when idle, too, unless a machine without ranks is off.
  std::vector<bool> used(2 * cluster_.links.size());
  std::vector<bool> computes(cluster_.nodes.size());
  for (std::size_t d = 0; d < cluster_.devices.size(); ++d) {
    if (ranks[d] > 0) computes[cluster_.devices[d].node.index()] = true;
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    used[i] = cluster_.links[i / 2].power.power && is_on(cluster_, LinkId{i / 2}, computes);
  }
  for (const auto& [ends, hops] : routes_) {
    for (const Hop hop : *hops) used[hop.index()] = true;
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Link& link = cluster_.links[i / 2];
    if (!used[i]) continue;
    fmt::format_to(out,
                   "    <link id=\"{}\" bandwidth=\"{}Bps\" latency=\"0s\">"
                   "<prop id=\"latency_s\" value=\"{}\"/>{}</link>\n",
                   link_name(link, i % 2 == 1), link.rate.value, link.latency.count(),
                   wattage_range(link.power));
  }
  text +=
      "    <link id=\"_here\" bandwidth=\"1e30Bps\" latency=\"0s\" sharing_policy=\"FATPIPE\"/>\n";
  for (const auto& [ends, hops] : routes_) {
    fmt::format_to(out, "    <route src=\"{}\" dst=\"{}\" symmetrical=\"NO\">",
                   xml_escaped(hosts_[ends.first]), xml_escaped(hosts_[ends.second]));
    if (hops->empty()) text += "<link_ctn id=\"_here\"/>";
    for (const Hop hop : *hops) {
      fmt::format_to(out, "<link_ctn id=\"{}\"/>", link_name(cluster_[hop.link], hop.backwards));
    }
    text += "</route>\n";
  }
  return text + "  </zone>\n</platform>\n";
}

}  // namespace parsim::sim
