#include "core/dag_algorithms.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <boost/range/iterator_range.hpp>
#include <iterator>
#include <utility>

#include "core/errors.hpp"

namespace parsim {

namespace {

using Vertex = std::uint32_t;
/// Compressed rows: a list per vertex would take several times the memory of the DAG itself.
using Graph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property,
                                                 boost::no_property, boost::no_property, Vertex>;

/// From every operation to those it waits for.
Graph predecessor_graph(const ExecDag& dag) {
  std::vector<std::pair<Vertex, Vertex>> edges;  // sorted by operation
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const OpId before : dag.predecessors(OpId{i})) {
      edges.emplace_back(static_cast<Vertex>(i), static_cast<Vertex>(before.value));
    }
  }
  return {boost::edges_are_sorted, edges.begin(), edges.end(), static_cast<Vertex>(dag.size())};
}

/// Boost lists a vertex after all that its edges lead to. Along the edges to predecessors, with
/// roots tried by id, that is a topological order with smaller ids first.
std::vector<Vertex> sorted(const Graph& predecessors) {
  std::vector<Vertex> order;
  order.reserve(num_vertices(predecessors));
  boost::topological_sort(predecessors, std::back_inserter(order));
  return order;
}

}  // namespace

CriticalPath critical_path(const ExecDag& dag, const std::vector<Seconds>& durations) {
  ensure(durations.size() == dag.size(), "critical_path gets a duration for every operation");
  const Graph graph = predecessor_graph(dag);
  std::vector<Seconds> end(dag.size());
  std::vector<OpId> latest_before(dag.size());  // invalid: waits for nothing
  OpId last;
  for (const Vertex v : sorted(graph)) {
    for (const Vertex before : boost::make_iterator_range(adjacent_vertices(v, graph))) {
      OpId& latest = latest_before[v];
      const bool later = !latest.valid() || end[before] > end[latest.index()];
      // Ties go to the smaller id, independent of the order of the predecessors.
      const bool tie = latest.valid() && end[before] == end[latest.index()];
      if (later || (tie && before < latest.index())) latest = OpId{std::size_t{before}};
    }
    end[v] = durations[v];
    if (latest_before[v].valid()) end[v] += end[latest_before[v].index()];
    if (!last.valid() || end[v] > end[last.index()]) last = OpId{std::size_t{v}};
  }

  CriticalPath path;
  if (last.valid()) path.length = end[last.index()];
  for (OpId id = last; id.valid(); id = latest_before[id.index()]) path.ops.push_back(id);
  std::reverse(path.ops.begin(), path.ops.end());
  return path;
}

}  // namespace parsim
