#include "experiment/bisection.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/graph.hpp"

namespace parsim::experiment {

std::optional<BytesPerSecond> bisection_rate(const Cluster& cluster) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  if (gpus.size() < 2) return std::nullopt;
  enum class Side : std::uint8_t { neither, first, second };
  std::vector<Side> side(cluster.devices.size(), Side::neither);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    side[gpus[i].index()] = i < gpus.size() / 2 ? Side::first : Side::second;
  }

  // Switches, then one vertex for all devices of a half each: they neither forward nor limit.
  const std::size_t first = cluster.switches.size();
  const std::size_t second = first + 1;
  // Links side by side are one: a star of 65,536 devices has two, and the flow is found at once.
  std::map<std::pair<std::size_t, std::size_t>, double> rates;
  const auto vertex = [&](const Port& port) -> std::optional<std::size_t> {
    const auto index = static_cast<std::size_t>(port.index);
    if (port.kind == Port::Kind::switch_) return index;
    if (side[index] == Side::neither) return std::nullopt;
    return side[index] == Side::first ? first : second;
  };
  for (const Link& link : cluster.links) {
    const std::optional<std::size_t> a = vertex(link.a);
    const std::optional<std::size_t> b = vertex(link.b);
    if (!a || !b || *a == *b) continue;
    rates[std::minmax(*a, *b)] += link.rate.value;
  }
  std::vector<FlowLink> links;
  for (const auto& [ends, rate] : rates) links.push_back({ends.first, ends.second, rate});
  return BytesPerSecond{maximum_flow(second + 1, links, first, second)};
}

}  // namespace parsim::experiment
