// Local improvement of a partition: k-way Fiduccia-Mattheyses passes and rebalancing.
#pragma once

#include <span>
#include <vector>

#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

/// A partition with what is needed to price moves: readers and source costs by set and part.
class Assignment {
 public:
  Assignment(const Hypergraph& graph, const Limits& limits, Parts parts);

  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] std::int32_t part(Vertex v) const { return parts_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] std::int64_t cost() const { return cost_; }
  [[nodiscard]] double overload() const { return overload_; }
  /// What the cost falls by if `v` moves to each of the parts: O(sets of v x parts).
  void gains(Vertex v, std::vector<std::int64_t>& to) const;
  [[nodiscard]] std::int64_t gain(Vertex v, std::int32_t to) const;
  /// What the overload grows by if `v` moves to `to`.
  [[nodiscard]] double added_overload(Vertex v, std::int32_t to) const;
  /// Whether a part that is above its caps would be less so without `v`. Else no move of it lessens
  /// the overload.
  [[nodiscard]] bool relieves(Vertex v) const;
  /// Whether `to` keeps its caps with `v`; loosely: without it.
  [[nodiscard]] bool has_capacity(Vertex v, std::int32_t to, bool loose = false) const;
  /// Whether a part is above one of its caps.
  [[nodiscard]] bool too_heavy(std::int32_t part) const;
  void move(Vertex v, std::int32_t to) { move(v, to, gain(v, to)); }
  /// With its gain, where that is known.
  void move(Vertex v, std::int32_t to, std::int64_t gain);
  /// Vertices of a set whose gains may have grown by the last move.
  struct Gained {
    std::int32_t set = 0;
    bool sources = false, all_readers = false;
    std::int32_t last_reader_in = -1;  ///< the readers in this part; -1: none
  };
  [[nodiscard]] const std::vector<Gained>& gained() const { return gained_; }

 private:
  [[nodiscard]] std::size_t slot(std::int32_t set, std::int32_t part) const {
    return static_cast<std::size_t>(set) * static_cast<std::size_t>(limits_.parts) +
           static_cast<std::size_t>(part);
  }
  const Hypergraph& graph_;
  const Limits& limits_;
  Parts parts_;
  std::vector<std::int32_t> reading_;   ///< by set and part: readers
  std::vector<std::int64_t> own_;       ///< by set and part: cost of the sources
  std::vector<std::int64_t> set_cost_;  ///< by set: of all sources
  /// Of a vertex in one of the constraints in which it has any: few of many.
  struct Weight {
    std::int32_t constraint = 0;
    std::int64_t weight = 0;
  };
  [[nodiscard]] std::span<const Weight> weights(Vertex v) const {
    const std::size_t first = first_weight_[at(v)];
    return std::span(vertex_weights_).subspan(first, first_weight_[at(v) + 1] - first);
  }
  std::vector<Weight> vertex_weights_;     ///< by vertex
  std::vector<std::size_t> first_weight_;  ///< by vertex, in `vertex_weights_`
  std::vector<std::int64_t> weights_;
  std::int64_t cost_ = 0;
  double overload_ = 0;
  std::vector<Gained> gained_;
};

/// Moves vertices out of parts above their caps, those that cost least for the overload they
/// remove first, until no move removes any. Fixed vertices stay.
void rebalance(const Hypergraph& graph, Assignment& assignment, const Limits& limits);

/// Passes of k-way FM until one improves nothing: the best move (it may be a loss) of a vertex that
/// has not moved yet, until `patience` moves brought nothing, then back to the best balanced state.
/// Never worse than before. Ties by vertex id.
void refine(const Hypergraph& graph, Assignment& assignment, const Limits& limits,
            std::int32_t patience);

}  // namespace parsim::strategies::hypergraph
