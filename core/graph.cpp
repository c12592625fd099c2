#include "core/graph.hpp"

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <utility>

// g++ 12 takes the end of Boost's edge iterator, an optional, for read before it is written.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#pragma GCC diagnostic pop

namespace parsim {

namespace {

using FlowEdge = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using FlowGraph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<
        boost::vertex_color_t, boost::default_color_type,
        boost::property<boost::vertex_distance_t, long,
                        boost::property<boost::vertex_predecessor_t, FlowEdge::edge_descriptor>>>,
    boost::property<
        boost::edge_capacity_t, double,
        boost::property<boost::edge_residual_capacity_t, double,
                        boost::property<boost::edge_reverse_t, FlowEdge::edge_descriptor>>>>;

using OrderGraph = boost::compressed_sparse_row_graph<boost::directedS>;

/// Along edges to what a vertex waits for, with roots tried by number, vertices are finished in a
/// topological order.
struct Finished : boost::default_dfs_visitor {
  explicit Finished(TopologicalOrder& result) : found(&result) {}
  void finish_vertex(std::size_t v, const OrderGraph&) { found->order.push_back(v); }
  void back_edge(const OrderGraph::edge_descriptor& edge, const OrderGraph& graph) {
    if (!found->on_cycle) found->on_cycle = target(edge, graph);
  }
  TopologicalOrder* found;
};

}  // namespace

double maximum_flow(std::size_t vertices, std::span<const FlowLink> links, std::size_t source,
                    std::size_t sink) {
  FlowGraph graph(vertices);
  const auto capacity = get(boost::edge_capacity, graph);
  const auto reverse = get(boost::edge_reverse, graph);
  for (const FlowLink& link : links) {
    const auto there = add_edge(link.a, link.b, graph).first;
    const auto back = add_edge(link.b, link.a, graph).first;
    capacity[there] = capacity[back] = link.capacity;
    reverse[there] = back;
    reverse[back] = there;
  }
  // Every augmentation empties an edge exactly, so that it ends with floating-point capacities as
  // with integers; Boost's push_relabel_max_flow asserts that sums of them cancel.
  return boost::boykov_kolmogorov_max_flow(graph, source, sink);
}

TopologicalOrder topological_order(const std::vector<std::vector<std::size_t>>& waits_for) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t v = 0; v < waits_for.size(); ++v) {
    for (const std::size_t before : waits_for[v]) edges.emplace_back(v, before);
  }
  const OrderGraph graph(boost::edges_are_sorted, edges.begin(), edges.end(), waits_for.size());
  TopologicalOrder found;
  boost::depth_first_search(graph, boost::visitor(Finished(found)));
  return found;
}

}  // namespace parsim
