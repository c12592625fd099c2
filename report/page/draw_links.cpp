#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"

namespace parsim::report {

namespace {

NodeId node_of(const Cluster& cluster, const Port& port) {
  const auto index = static_cast<std::size_t>(port.index);
  return port.kind == Port::Kind::device ? cluster.devices[index].node
                                         : cluster.switches[index].node;
}

/// Links of one kind and rate, inside machines or not.
struct LinkType {
  std::size_t links = 0;
  double sum = 0.0;         ///< of the uses of both directions
  std::size_t busiest = 0;  ///< a hop
};

}  // namespace

std::string link_table(const Cluster& cluster, const std::vector<double>& hop_use) {
  using Key = std::tuple<bool, double, std::string>;  // the slowest between machines first
  std::map<Key, LinkType> types;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    const NodeId a = node_of(cluster, link.a), b = node_of(cluster, link.b);
    const bool inside = a == b && a.valid();
    const std::string kind = link.kind ? std::string(to_text(*link.kind)) : "link";
    LinkType& type = types[{inside, link.rate.value, kind}];
    if (type.links++ == 0) type.busiest = 2 * i;
    for (std::size_t hop = 2 * i; hop < std::min(2 * i + 2, hop_use.size()); ++hop) {
      type.sum += hop_use[hop];
      if (hop_use[hop] > hop_use[type.busiest]) type.busiest = hop;
    }
  }
  if (types.empty()) return {};
  std::string out =
      "<table class=links><thead><tr><th>links<th>rate, each way<th>busiest<th>mean use<tbody>\n";
  for (const auto& [key, type] : types) {
    const auto& [inside, rate, kind] = key;
    out +=
        fmt::format("<tr><td>{} x {}, {}<td>{}", type.links, html(kind),
                    inside ? "inside machines" : "between machines", to_text(BytesPerSecond{rate}));
    if (hop_use.empty()) {
      out += "<td>not known<td>not known\n";
      continue;
    }
    const Link& link = cluster.links[type.busiest / 2];
    const Port& to = type.busiest % 2 == 1 ? link.a : link.b;
    out += hop_use[type.busiest] < 5e-4
               ? std::string("<td>unused")
               : fmt::format("<td>{:.1f}\u00a0% ({} to {})", 100 * hop_use[type.busiest],
                             html_name(link.name), html_name(experiment::port_name(cluster, to)));
    out += fmt::format("<td>{:.1f}\u00a0%\n", 100 * type.sum / static_cast<double>(2 * type.links));
  }
  return out + "</table>\n";
}

}  // namespace parsim::report
