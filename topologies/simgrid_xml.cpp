// A cluster as a platform of SimGrid: one zone with explicit routes between all hosts, so that
// SimGrid goes the ways that parsim does. What SimGrid has no word for stands in <prop>.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/errors.hpp"
#include "core/routes.hpp"
#include "core/text.hpp"
#include "topologies/import/platform.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

class PlatformWriter {
 public:
  explicit PlatformWriter(const Cluster& cluster) : cluster_(cluster) {}

  std::string write() && {
    text_ =
        "<?xml version='1.0'?>\n"
        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        "<platform version=\"4.1\">\n";
    line("  <zone id=\"{}\" routing=\"Full\">\n", zone_name());
    prop(4, platform_key::name, cluster_.name);
    for (const Switch& one : cluster_.switches) {
      if (!one.node.valid()) continue;
      prop(4, std::string(platform_key::node_of) + one.name, cluster_.nodes[one.node.index()].name);
    }
    for (const Device& device : cluster_.devices) write_host(device);
    for (const Switch& one : cluster_.switches) {
      line("    <router id=\"{}\"/>\n", xml_escaped(one.name));
    }
    for (const Link& link : cluster_.links) write_link(link);
    write_routes();
    return std::move(text_) + "  </zone>\n</platform>\n";
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }
  void prop(int indent, std::string_view id, std::string_view value) {
    line("{:{}}<prop id=\"{}\" value=\"{}\"/>\n", "", indent, xml_escaped(id), xml_escaped(value));
  }

  /// Zones, hosts and routers share their names.
  [[nodiscard]] std::string zone_name() const {
    std::set<std::string_view> taken;
    for (const Device& device : cluster_.devices) taken.insert(device.name);
    for (const Switch& one : cluster_.switches) taken.insert(one.name);
    std::string name = "cluster";
    while (taken.contains(name)) name += '_';
    return name;
  }

  void write_host(const Device& device) {
    using namespace platform_key;
    const DeviceModel& model = cluster_.models[static_cast<std::size_t>(device.model)];
    const auto peak = [&](Precision p) { return fmt::format("{} FLOP/s", model.peak_at(p).value); };
    line("    <host id=\"{}\" speed=\"{}f\">\n", xml_escaped(device.name),
         model.peak_at(Precision::fp32).value);
    const std::pair<std::string_view, std::string> props[] = {
        {node, cluster_.nodes[device.node.index()].name},
        {platform_key::model, model.name},
        {kind, std::string(to_text(model.kind))},
        {architecture, model.architecture},
        {multiprocessors, fmt::format("{}", model.multiprocessors)},
        {fp32, peak(Precision::fp32)},
        {tf32, peak(Precision::tf32)},
        {fp16, peak(Precision::fp16)},
        {bf16, peak(Precision::bf16)},
        {memory_rate, fmt::format("{} B/s", model.memory_rate.value)},
        {model_memory, fmt::format("{} B", model.memory.value)},
        {memory, fmt::format("{} B", device.memory.value)}};
    for (const auto& [key, value] : props) prop(6, key, value);
    if (model.fp8_peak.value > 0) prop(6, fp8, peak(Precision::fp8));
    if (!model.base.empty()) prop(6, base, model.base);
    text_ += "    </host>\n";
  }

  void write_link(const Link& link) {
    const bool draws = link.power.power.has_value();
    line("    <link id=\"{}\" bandwidth=\"{}Bps\" latency=\"{}s\" sharing_policy=\"{}\">\n",
         xml_escaped(link.name), link.rate.value, link.latency.count(),
         draws ? "SHARED" : "SPLITDUPLEX");
    if (draws) write_power(link);
    prop(6, platform_key::a, name_of(link.a));
    prop(6, platform_key::b, name_of(link.b));
    if (link.provenance >= 0) {
      const Provenance& from = cluster_.provenances[static_cast<std::size_t>(link.provenance)];
      prop(6, platform_key::label, to_text(from.label));
      prop(6, platform_key::source, from.source);
    }
    text_ += "    </link>\n";
    if (!draws) return;
    line("    <link id=\"{}\" bandwidth=\"{}Bps\" latency=\"{}s\">\n", back_of(link),
         link.rate.value, link.latency.count());
    write_power(link);
    prop(6, platform_key::back_of, link.name);
    prop(6, platform_key::a, name_of(link.b));
    prop(6, platform_key::b, name_of(link.a));
    text_ += "    </link>\n";
  }
  /// The link energy plugin of SimGrid 3.32 knows no power of SPLITDUPLEX links, so links with one
  /// are written as two, each with its half.
  void write_power(const Link& link) {
    prop(6, platform_key::wattage_range,
         fmt::format("{}:{}", link.power.idle()->value / 2, link.power.power->value / 2));
  }
  static std::string back_of(const Link& link) { return xml_escaped(link.name) + "_DOWN"; }
  [[nodiscard]] const std::string& name_of(Port port) const {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster_.devices[index].name
                                           : cluster_.switches[index].name;
  }

  // Each direction by itself: among equal ways ours depends on where it leads.
  void write_routes() {
    Routes routes(cluster_);
    const std::size_t count = cluster_.devices.size();
    for (std::size_t from = 0; from < count; ++from) {
      for (std::size_t to = 0; to < count; ++to) {
        if (from == to) continue;
        line("    <route src=\"{}\" dst=\"{}\" symmetrical=\"NO\">",
             xml_escaped(cluster_.devices[from].name), xml_escaped(cluster_.devices[to].name));
        for (const Hop hop : routes.between(DeviceId{from}, DeviceId{to}).hops) {
          const Link& link = cluster_[hop.link];
          if (link.power.power) {
            line("<link_ctn id=\"{}\"/>", hop.backwards ? back_of(link) : xml_escaped(link.name));
            continue;
          }
          line("<link_ctn id=\"{}\" direction=\"{}\"/>", xml_escaped(link.name),
               hop.backwards ? "DOWN" : "UP");
        }
        text_ += "</route>\n";
      }
    }
  }

  const Cluster& cluster_;
  std::string text_;
};

}  // namespace

std::string simgrid_xml(const Cluster& cluster, std::string_view where) {
  constexpr std::size_t most_hosts = 1024;  // their routes are a million lines
  if (cluster.devices.size() > most_hosts) {
    throw InputError(
        where, fmt::format("{} devices", cluster.devices.size()),
        fmt::format("accepted: at most {}, because every pair has its route", most_hosts));
  }
  return PlatformWriter(cluster).write();
}

}  // namespace parsim::topologies
