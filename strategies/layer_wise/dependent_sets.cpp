// The dependent-set dynamic program for graphs that node and edge elimination cannot reduce, and
// the descent for those that are too wide for it.
#include <algorithm>
#include <limits>
#include <set>

#include "core/errors.hpp"
#include "strategies/layer_wise/problem.hpp"

namespace parsim::strategies::layer_wise {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// A cost that depends on several nodes: row-major over their configurations, the last fastest.
struct Factor {
  std::vector<std::size_t> nodes;
  const double* values = nullptr;
  std::vector<double> own;  ///< empty: `values` belongs to an edge
};

class Program {
 public:
  Program(const Problem& problem, double bound) : problem_(problem), bound_(bound) {
    neighbours_.resize(problem.costs.size());
    for (const Problem::Edge& edge : problem.edges) {
      neighbours_[edge.from].insert(edge.to);
      neighbours_[edge.to].insert(edge.from);
    }
  }

  Solution run() {
    Solution solution;
    solution.kernel = problem_.costs.size();
    if (!find_order(solution)) {
      const std::size_t widest = solution.widest;
      solution = descend(problem_);
      solution.widest = widest;
      return solution;
    }
    for (const Problem::Edge& edge : problem_.edges) {
      factors_.push_back({{edge.from, edge.to}, edge.cost->values.data(), {}});
    }
    for (std::size_t s = 0; s < order_.size(); ++s) eliminate(order_[s]);
    solution.choice.assign(problem_.costs.size(), 0);
    for (std::size_t s = order_.size(); s-- > 0;) recover(s, solution.choice);
    solution.cost = cost_of(problem_, solution.choice);
    return solution;
  }

 private:
  [[nodiscard]] std::size_t configurations(std::size_t node) const {
    return problem_.costs[node].size();
  }

  /// Smallest dependent set first; false if the tables would be too large.
  bool find_order(Solution& solution) {
    std::vector<std::set<std::size_t>> left = neighbours_;
    std::vector<bool> gone(left.size(), false);
    double evaluations = 0, entries = 0;
    for (std::size_t step = 0; step < left.size(); ++step) {
      std::size_t chosen = left.size();
      for (std::size_t v = 0; v < left.size(); ++v) {
        if (!gone[v] && (chosen == left.size() || left[v].size() < left[chosen].size())) chosen = v;
      }
      double table = 1;
      for (const std::size_t other : left[chosen]) {
        table *= static_cast<double>(configurations(other));
      }
      solution.widest = std::max(solution.widest, left[chosen].size() + 1);
      evaluations += table * static_cast<double>(configurations(chosen));
      entries += table;
      if (evaluations > bound_ || entries > most_entries) return false;
      for (const std::size_t a : left[chosen]) {
        for (const std::size_t b : left[chosen]) {
          if (a != b) left[a].insert(b);
        }
        left[a].erase(chosen);
      }
      order_.push_back(chosen);
      dependents_.emplace_back(left[chosen].begin(), left[chosen].end());
      gone[chosen] = true;
    }
    return true;
  }

  /// Folds everything that depends on `node` into one table over its dependent set.
  void eliminate(std::size_t node) {
    std::vector<Factor> touching, others;
    for (Factor& factor : factors_) {
      const bool touches =
          std::find(factor.nodes.begin(), factor.nodes.end(), node) != factor.nodes.end();
      (touches ? touching : others).push_back(std::move(factor));
    }
    const std::vector<std::size_t>& axes = dependents_[joined_.size()];
    std::size_t entries = 1;
    for (const std::size_t axis : axes) entries *= configurations(axis);
    Factor table{axes, nullptr, std::vector<double>(entries, 0)};
    std::vector<std::size_t> choice(problem_.costs.size(), 0);
    for (std::size_t e = 0; e < entries; ++e) {
      table.own[e] = least(node, touching, choice).first;
      for (std::size_t a = axes.size(); a-- > 0;) {
        if (++choice[axes[a]] < configurations(axes[a])) break;
        choice[axes[a]] = 0;
      }
    }
    joined_.push_back(std::move(touching));
    factors_ = std::move(others);
    factors_.push_back(std::move(table));
  }

  /// Cheapest configuration of `node` given the others' in `choice`.
  std::pair<double, std::size_t> least(std::size_t node, const std::vector<Factor>& touching,
                                       const std::vector<std::size_t>& choice) {
    sums_ = problem_.costs[node];
    for (const Factor& factor : touching) {
      const double* const values = factor.own.empty() ? factor.values : factor.own.data();
      std::size_t at = 0, stride = 0;
      for (const std::size_t axis : factor.nodes) {
        at = at * configurations(axis) + (axis == node ? 0 : choice[axis]);
        stride = axis == node ? 1 : stride * configurations(axis);
      }
      for (std::size_t c = 0; c < sums_.size(); ++c) sums_[c] += values[at + c * stride];
    }
    const auto best = std::min_element(sums_.begin(), sums_.end());
    return {*best, static_cast<std::size_t>(best - sums_.begin())};
  }

  void recover(std::size_t step, std::vector<std::size_t>& choice) {
    choice[order_[step]] = least(order_[step], joined_[step], choice).second;
  }

  const Problem& problem_;
  double bound_;
  std::vector<std::set<std::size_t>> neighbours_;
  std::vector<std::size_t> order_;
  std::vector<std::vector<std::size_t>> dependents_;  ///< by step, ascending
  std::vector<std::vector<Factor>> joined_;           ///< by step: what was folded
  std::vector<Factor> factors_;
  std::vector<double> sums_;
};

}  // namespace

Solution solve_by_dependent_sets(const Problem& problem, double bound) {
  return Program(problem, bound).run();
}

Solution descend_from(const Problem& problem, std::vector<std::size_t> choice) {
  const std::size_t nodes = problem.costs.size();
  std::vector<std::vector<const Problem::Edge*>> edges_of(nodes);
  for (const Problem::Edge& edge : problem.edges) {
    edges_of[edge.from].push_back(&edge);
    edges_of[edge.to].push_back(&edge);
  }
  bool improved = true;
  // Each sweep lowers the sum, so it ends; the limit keeps long tails of tiny gains away.
  for (int sweep = 0; improved && sweep < 50; ++sweep) {
    improved = false;
    for (std::size_t v = 0; v < nodes; ++v) {
      std::vector<double> sums = problem.costs[v];
      for (const Problem::Edge* edge : edges_of[v]) {
        for (std::size_t c = 0; c < sums.size(); ++c) {
          sums[c] += edge->from == v ? (*edge->cost)(c, choice[edge->to])
                                     : (*edge->cost)(choice[edge->from], c);
        }
      }
      const auto least = std::min_element(sums.begin(), sums.end());
      if (*least >= sums[choice[v]]) continue;
      choice[v] = static_cast<std::size_t>(least - sums.begin());
      improved = true;
    }
  }
  const double cost = cost_of(problem, choice);
  return {cost, std::move(choice), false, nodes, 0};
}

Solution descend(const Problem& problem) {
  std::size_t most = 1;
  for (const std::vector<double>& costs : problem.costs) most = std::max(most, costs.size());
  Solution best{never, {}, false, problem.costs.size(), 0};
  for (std::size_t start = 0; start < most; ++start) {
    std::vector<std::size_t> choice;
    for (const std::vector<double>& costs : problem.costs) {
      choice.push_back(std::min(start, costs.size() - 1));
    }
    Solution found = descend_from(problem, std::move(choice));
    if (found.cost < best.cost) best = std::move(found);
  }
  return best;
}

}  // namespace parsim::strategies::layer_wise
