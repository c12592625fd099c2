#include "experiment/bisection.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <vector>

namespace parsim {

namespace {

/// Maximum flow by Dinic's algorithm. Every augmentation empties an edge exactly, so that
/// floating-point capacities terminate like integers.
class FlowGraph {
 public:
  explicit FlowGraph(std::size_t vertices) : edges_of_(vertices) {}

  void add_edge(std::size_t from, std::size_t to, double capacity) {
    edges_of_[from].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[to].push_back(edges_.size());
    edges_.push_back({from, 0.0});
  }

  double maximum_flow(std::size_t source, std::size_t sink) {
    double flow = 0.0;
    while (find_levels(source, sink)) {
      next_.assign(edges_of_.size(), 0);
      for (double pushed = 1.0; pushed > 0.0; flow += pushed) {
        pushed = push(source, sink, std::numeric_limits<double>::infinity());
      }
    }
    return flow;
  }

 private:
  struct Edge {
    std::size_t to = 0;
    double left = 0.0;
  };

  bool find_levels(std::size_t source, std::size_t sink) {
    level_.assign(edges_of_.size(), -1);
    level_[source] = 0;
    std::queue<std::size_t> waiting({source});
    for (; !waiting.empty(); waiting.pop()) {
      const std::size_t vertex = waiting.front();
      for (const std::size_t e : edges_of_[vertex]) {
        const Edge& edge = edges_[e];
        if (edge.left <= 0.0 || level_[edge.to] >= 0) continue;
        level_[edge.to] = level_[vertex] + 1;
        waiting.push(edge.to);
      }
    }
    return level_[sink] >= 0;
  }

  /// Sends along one shortest path; as deep as the path is long, a handful of hops.
  double push(std::size_t vertex, std::size_t sink, double limit) {
    if (vertex == sink) return limit;
    for (std::size_t& i = next_[vertex]; i < edges_of_[vertex].size(); ++i) {
      const std::size_t e = edges_of_[vertex][i];
      Edge& edge = edges_[e];
      if (edge.left <= 0.0 || level_[edge.to] != level_[vertex] + 1) continue;
      const double sent = push(edge.to, sink, std::min(limit, edge.left));
      if (sent <= 0.0) continue;
      edge.left -= sent;
      edges_[e ^ 1U].left += sent;  // edges come in pairs: the reverse is the neighbour
      return sent;
    }
    return 0.0;
  }

  std::vector<Edge> edges_;
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace

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
  FlowGraph graph(second + 1);
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
    graph.add_edge(*a, *b, link.rate.value);
    graph.add_edge(*b, *a, link.rate.value);
  }
  return BytesPerSecond{graph.maximum_flow(first, second)};
}

}  // namespace parsim
