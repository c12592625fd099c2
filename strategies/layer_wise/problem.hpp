// What the search solves: nodes with a cost per configuration, edges with a cost per pair. Knows
// nothing of layers, so that tests can try it on any graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace parsim::strategies::layer_wise {

/// A table of costs, row-major.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c, double value = 0)
      : rows(r), columns(c), values(r * c, value) {}
  [[nodiscard]] double& operator()(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  [[nodiscard]] double operator()(std::size_t r, std::size_t c) const {
    return values[r * columns + c];
  }
};

struct Problem {
  struct Edge {
    std::size_t from = 0, to = 0;
    /// Rows by configuration of `from`. Shared, because many edges of a network are alike.
    std::shared_ptr<const Matrix> cost;
  };
  std::vector<std::vector<double>> costs;  ///< by node and configuration
  std::vector<Edge> edges;
};

struct Solution {
  double cost = 0;
  std::vector<std::size_t> choice;  ///< configuration by node
  bool exact = true;                ///< false: the search reached its bound, `choice` is good only
  std::size_t kernel = 0;           ///< nodes that the eliminations left
  std::size_t widest = 0;           ///< nodes of the largest table of the dependent-set program
};

/// Σ of the chosen costs.
[[nodiscard]] double cost_of(const Problem& problem, const std::vector<std::size_t>& choice);

/// Entries that the dependent-set program may evaluate before it gives up: about a second.
inline constexpr double most_evaluations = 1e9;
/// Entries that its tables may have together, eight bytes each: 200 MB.
inline constexpr double most_entries = 2.5e7;

/// The cheapest choice. First leaves out configurations that cannot be part of it: their own cost
/// with the least of everything else is above a choice that a descent finds. Then node and edge
/// elimination (Jia et al. 2018, section 5.2), then over what remains the dependent-set dynamic
/// program (PaSE: Elango et al. 2021, section III); choices recovered by undoing. If the latter
/// would need more than `bound` evaluations or most_entries, descends from the best uniform choices
/// instead, one node at a time, and the solution records it. Ties go to the lower configuration.
[[nodiscard]] Solution solve(const Problem& problem, double bound = most_evaluations);

/// The dependent-set program alone: eliminates one node after another, the one with the smallest
/// dependent set first (ties: the lower number), so that the table of a step has that set's
/// configurations as its axes.
[[nodiscard]] Solution solve_by_dependent_sets(const Problem& problem,
                                               double bound = most_evaluations);

/// Improves single nodes one after another until none gets better, from every uniform start
/// (configuration k, or the node's last) and keeps the best.
[[nodiscard]] Solution descend(const Problem& problem);
/// The same from one start.
[[nodiscard]] Solution descend_from(const Problem& problem, std::vector<std::size_t> choice);

}  // namespace parsim::strategies::layer_wise
