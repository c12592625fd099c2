// Exhaustive search over the choices of a layer-wise problem: what the search is compared with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "strategies/layer_wise/problem.hpp"

namespace parsim::testing {

/// Every choice, depth first; the sum of what is chosen so far is carried along. `prune`: leave a
/// branch whose sum with the least that the other nodes cost by themselves is no better than the
/// best so far.
class Enumeration {
 public:
  Enumeration(const strategies::layer_wise::Problem& problem, bool prune)
      : problem_(problem),
        prune_(prune),
        ending_(problem.costs.size()),
        choice_(problem.costs.size()),
        rest_(problem.costs.size() + 1, 0) {
    for (const strategies::layer_wise::Problem::Edge& edge : problem.edges)
      ending_[edge.to].push_back(&edge);
    for (std::size_t v = problem.costs.size(); v-- > 0;)
      rest_[v] = rest_[v + 1] + *std::min_element(problem.costs[v].begin(), problem.costs[v].end());
  }
  double least() {
    visit(0, 0);
    return least_;
  }
  /// Choices that were looked at to their end.
  [[nodiscard]] std::int64_t leaves() const { return leaves_; }

 private:
  void visit(std::size_t node, double sum) {
    const bool last = node + 1 == problem_.costs.size();
    for (std::size_t c = 0; c < problem_.costs[node].size(); ++c) {
      double cost = sum + problem_.costs[node][c];
      for (const strategies::layer_wise::Problem::Edge* edge : ending_[node])
        cost += edge->cost->values[choice_[edge->from] * edge->cost->columns + c];
      if (prune_ && cost + rest_[node + 1] >= least_) continue;
      if (last) {
        ++leaves_;
        least_ = std::min(least_, cost);
      } else {
        choice_[node] = c;
        visit(node + 1, cost);
      }
    }
  }

  const strategies::layer_wise::Problem& problem_;
  bool prune_;
  std::vector<std::vector<const strategies::layer_wise::Problem::Edge*>> ending_;
  std::vector<std::size_t> choice_;
  std::vector<double> rest_;  ///< least node costs from a node on
  double least_ = std::numeric_limits<double>::infinity();
  std::int64_t leaves_ = 0;
};

}  // namespace parsim::testing
