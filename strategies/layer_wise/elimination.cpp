// Node and edge elimination on a multigraph (Jia et al. 2018, section 5.2, equations 2 and 3, and
// algorithm 1).
#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <limits>
#include <utility>

#include "core/errors.hpp"
#include "strategies/layer_wise/problem.hpp"

namespace parsim::strategies::layer_wise {

namespace {

using Table = std::shared_ptr<const Matrix>;
struct TableOfEdge {
  Table cost;
};
// vecS for edges: parallel ones are what edge elimination is about.
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS,
                                    boost::no_property, TableOfEdge>;
using EdgeOf = boost::graph_traits<Graph>::edge_descriptor;

/// An eliminated node with what its choice depended on.
struct Step {
  std::size_t before = 0, node = 0, after = 0;
  Table in, out;
};

class Reduction {
 public:
  explicit Reduction(const Problem& problem) : problem_(problem), graph_(problem.costs.size()) {
    for (const Problem::Edge& edge : problem.edges) {
      boost::add_edge(edge.from, edge.to, TableOfEdge{edge.cost}, graph_);
    }
    gone_.assign(problem.costs.size(), false);
  }

  Solution run(double bound) {
    std::vector<std::size_t> work(problem_.costs.size());
    for (std::size_t v = 0; v < work.size(); ++v) work[v] = v;
    // Every elimination changes the degrees of two nodes only: look at these again.
    for (std::size_t next = 0; next < work.size(); ++next) {
      const std::size_t v = work[next];
      if (gone_[v]) continue;
      merge_parallel_edges(v);
      if (boost::in_degree(v, graph_) != 1 || boost::out_degree(v, graph_) != 1) continue;
      eliminate(v);
      work.push_back(steps_.back().before);
      work.push_back(steps_.back().after);
    }
    return undo(solve_rest(bound));
  }

 private:
  /// Edge elimination (equation 3): t(e') = t(e1) + t(e2), for edges out of v and into v.
  void merge_parallel_edges(std::size_t v) {
    const auto merge = [&](std::vector<EdgeOf> edges, auto other) {
      std::stable_sort(edges.begin(), edges.end(),
                       [&](EdgeOf a, EdgeOf b) { return other(a) < other(b); });
      for (std::size_t i = 0; i < edges.size();) {
        std::size_t end = i + 1;
        while (end < edges.size() && other(edges[end]) == other(edges[i])) ++end;
        if (end - i > 1) {
          const auto from = boost::source(edges[i], graph_), to = boost::target(edges[i], graph_);
          auto sum = std::make_shared<Matrix>(*graph_[edges[i]].cost);
          for (std::size_t e = i + 1; e < end; ++e) {
            const std::vector<double>& more = graph_[edges[e]].cost->values;
            for (std::size_t k = 0; k < more.size(); ++k) sum->values[k] += more[k];
          }
          boost::remove_edge(from, to, graph_);
          boost::add_edge(from, to, TableOfEdge{std::move(sum)}, graph_);
        }
        i = end;
      }
    };
    const auto [in, in_end] = boost::in_edges(v, graph_);
    merge({in, in_end}, [&](EdgeOf e) { return boost::source(e, graph_); });
    const auto [out, out_end] = boost::out_edges(v, graph_);
    merge({out, out_end}, [&](EdgeOf e) { return boost::target(e, graph_); });
  }

  /// Node elimination (equation 2):
  ///
  ///     t(e', ci, ck) = min over cj of  t(lj, cj) + t(e1, ci, cj) + t(e2, cj, ck)
  void eliminate(std::size_t v) {
    const EdgeOf in = *boost::in_edges(v, graph_).first;
    const EdgeOf out = *boost::out_edges(v, graph_).first;
    const Step step{boost::source(in, graph_), v, boost::target(out, graph_), graph_[in].cost,
                    graph_[out].cost};
    const Matrix &first = *step.in, &second = *step.out;
    auto joined = std::make_shared<Matrix>(first.rows, second.columns,
                                           std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < first.rows; ++i) {
      double* const row = &joined->values[i * second.columns];
      for (std::size_t j = 0; j < first.columns; ++j) {
        const double until = problem_.costs[v][j] + first(i, j);
        const double* const rest = &second.values[j * second.columns];
        for (std::size_t k = 0; k < second.columns; ++k) row[k] = std::min(row[k], until + rest[k]);
      }
    }
    boost::clear_vertex(v, graph_);
    gone_[v] = true;
    boost::add_edge(step.before, step.after, TableOfEdge{std::move(joined)}, graph_);
    steps_.push_back(step);
  }

  Solution solve_rest(double bound) {
    Problem rest;
    std::vector<std::size_t> index(gone_.size(), 0);
    for (std::size_t v = 0; v < gone_.size(); ++v) {
      if (gone_[v]) continue;
      index[v] = rest.costs.size();
      kept_.push_back(v);
      rest.costs.push_back(problem_.costs[v]);
    }
    const auto [edge, end] = boost::edges(graph_);
    for (auto e = edge; e != end; ++e) {
      rest.edges.push_back(
          {index[boost::source(*e, graph_)], index[boost::target(*e, graph_)], graph_[*e].cost});
    }
    return solve_by_dependent_sets(rest, bound);
  }

  /// Pops the eliminations: a node's choice follows from its two neighbours'.
  Solution undo(const Solution& rest) {
    Solution whole = rest;
    whole.kernel = kept_.size();
    whole.choice.assign(gone_.size(), 0);
    for (std::size_t k = 0; k < kept_.size(); ++k) whole.choice[kept_[k]] = rest.choice[k];
    for (std::size_t s = steps_.size(); s-- > 0;) {
      const Step& step = steps_[s];
      const std::size_t i = whole.choice[step.before], k = whole.choice[step.after];
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t j = 0; j < step.in->columns; ++j) {
        const double cost = problem_.costs[step.node][j] + (*step.in)(i, j) + (*step.out)(j, k);
        if (cost >= least) continue;
        least = cost;
        whole.choice[step.node] = j;
      }
    }
    whole.cost = cost_of(problem_, whole.choice);
    return whole;
  }

  const Problem& problem_;
  Graph graph_;
  std::vector<bool> gone_;
  std::vector<Step> steps_;
  std::vector<std::size_t> kept_;  ///< nodes that were not eliminated
};

}  // namespace

double cost_of(const Problem& problem, const std::vector<std::size_t>& choice) {
  ensure(choice.size() == problem.costs.size(), "a choice has a configuration for every node");
  double sum = 0;
  for (std::size_t v = 0; v < choice.size(); ++v) sum += problem.costs[v][choice[v]];
  for (const Problem::Edge& edge : problem.edges) {
    sum += (*edge.cost)(choice[edge.from], choice[edge.to]);
  }
  return sum;
}

namespace {

/// The cost of a choice that is good already: descents from the first, the last and the cheapest
/// configurations.
double reachable(const Problem& problem) {
  std::vector<std::size_t> first, last, cheapest;
  for (const std::vector<double>& costs : problem.costs) {
    first.push_back(0);
    last.push_back(costs.size() - 1);
    cheapest.push_back(
        static_cast<std::size_t>(std::min_element(costs.begin(), costs.end()) - costs.begin()));
  }
  return std::min({descend_from(problem, first).cost, descend_from(problem, last).cost,
                   descend_from(problem, cheapest).cost});
}

/// By node: the configurations with which a choice could still reach `limit`.
///
///     node's cost + least of each of its edges in that configuration + least of all other nodes
///     and edges  <=  limit
std::vector<std::vector<std::size_t>> promising(const Problem& problem, double limit) {
  std::vector<std::vector<double>> sums = problem.costs;
  std::vector<double> own(problem.costs.size(), 0);  // least of the node and of its edges
  double all = 0;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    own[v] = *std::min_element(sums[v].begin(), sums[v].end());
    all += own[v];
  }
  for (const Problem::Edge& edge : problem.edges) {
    const Matrix& table = *edge.cost;
    std::vector<double> columns(table.columns, std::numeric_limits<double>::infinity());
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < table.rows; ++r) {
      double row = std::numeric_limits<double>::infinity();
      for (std::size_t c = 0; c < table.columns; ++c) {
        row = std::min(row, table(r, c));
        columns[c] = std::min(columns[c], table(r, c));
      }
      sums[edge.from][r] += row;
      least = std::min(least, row);
    }
    for (std::size_t c = 0; c < table.columns; ++c) sums[edge.to][c] += columns[c];
    own[edge.from] += least;
    own[edge.to] += least;
    all += least;
  }
  std::vector<std::vector<std::size_t>> result(sums.size());
  for (std::size_t v = 0; v < sums.size(); ++v) {
    for (std::size_t c = 0; c < sums[v].size(); ++c) {
      if (all - own[v] + sums[v][c] <= limit) result[v].push_back(c);
    }
  }
  return result;
}

/// The problem with these configurations only.
Problem restricted(const Problem& problem, const std::vector<std::vector<std::size_t>>& kept) {
  Problem result;
  for (std::size_t v = 0; v < kept.size(); ++v) {
    std::vector<double>& costs = result.costs.emplace_back();
    for (const std::size_t c : kept[v]) costs.push_back(problem.costs[v][c]);
  }
  for (const Problem::Edge& edge : problem.edges) {
    const std::vector<std::size_t>&rows = kept[edge.from], &columns = kept[edge.to];
    auto table = std::make_shared<Matrix>(rows.size(), columns.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < columns.size(); ++c) {
        (*table)(r, c) = (*edge.cost)(rows[r], columns[c]);
      }
    }
    result.edges.push_back({edge.from, edge.to, std::move(table)});
  }
  return result;
}

}  // namespace

Solution solve(const Problem& problem, double bound) {
  // Sums in another order differ in their last bits: a little above the limit may be equal to it.
  const double limit = reachable(problem) * (1 + 1e-9);
  const std::vector<std::vector<std::size_t>> kept = promising(problem, limit);
  const Problem smaller = restricted(problem, kept);
  Solution solution = Reduction(smaller).run(bound);
  for (std::size_t v = 0; v < kept.size(); ++v) solution.choice[v] = kept[v][solution.choice[v]];
  solution.cost = cost_of(problem, solution.choice);
  return solution;
}

}  // namespace parsim::strategies::layer_wise
