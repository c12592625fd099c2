// A hypergraph whose cut is communication: every net has one source vertex, which owns its
// elements, and readers, which need them. The cost of a partition is connectivity minus one:
// elements moved.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace parsim::strategies::hypergraph {

using Vertex = std::int32_t;
/// Vertices, sets and parts are numbers; vectors want another kind of number.
[[nodiscard]] inline std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
/// Part of every vertex.
using Parts = std::vector<std::int32_t>;

/// A vertex in a set of readers: as a reader, as a source of elements, or both.
struct Incidence {
  std::int32_t set = 0;
  bool reader = false;
  std::int64_t cost = 0;  ///< of what it delivers to the set
  friend bool operator==(const Incidence&, const Incidence&) = default;
};

/// A source of a set of readers: one net, with the pins {vertex} ∪ readers.
struct Source {
  Vertex vertex = 0;
  std::int64_t cost = 0;
  friend bool operator==(const Source&, const Source&) = default;
};

/// Nets that have the same readers share them as one `set`: between two dense layers of 64 blocks
/// each there are 64 nets of 65 pins, but only one set of 64 readers with 64 sources. The cost of a
/// partition is a sum over parts,
///
///     Σ_set Σ_part [part reads the set] · (cost of all its sources − cost of those in the part)
///
/// which is Σ_net cost · (λ − 1): every part that reads receives once what it does not own.
struct Hypergraph {
  std::int32_t vertices = 0;
  std::int32_t constraints = 1;
  std::vector<std::int64_t> weights;          ///< vertex-major: vertices x constraints
  std::vector<std::int32_t> fixed;            ///< by vertex: its part, or -1; empty: all are free
  std::vector<std::vector<Vertex>> readers;   ///< by set, ascending
  std::vector<std::vector<Source>> sources;   ///< by set, ascending, each vertex once
  std::vector<std::vector<Incidence>> roles;  ///< by vertex, ascending by set

  [[nodiscard]] std::int64_t weight(Vertex v, std::int32_t constraint) const {
    return weights[static_cast<std::size_t>(v) * static_cast<std::size_t>(constraints) +
                   static_cast<std::size_t>(constraint)];
  }
  [[nodiscard]] std::int32_t fixed_part(Vertex v) const {
    return fixed.empty() ? -1 : fixed[static_cast<std::size_t>(v)];
  }
  [[nodiscard]] std::vector<std::int64_t> total_weights() const;
  friend bool operator==(const Hypergraph&, const Hypergraph&) = default;
};

/// Collects vertices and nets; nets with the same readers become one set.
class Builder {
 public:
  explicit Builder(std::int32_t constraints) { graph_.constraints = constraints; }
  /// `weights`: one for each constraint, not negative.
  Vertex add_vertex(std::span<const std::int64_t> weights, std::int32_t fixed = -1);
  /// Adds a net of `source` and `readers` (any order, repeats and the source allowed), unless it
  /// has no reader but the source or its cost is 0.
  void add_net(Vertex source, std::vector<Vertex> readers, std::int64_t cost);
  /// A net of each source and these readers.
  void add_nets(std::span<const Source> sources, std::vector<Vertex> readers);
  [[nodiscard]] Hypergraph build();

 private:
  Hypergraph graph_;
  std::map<std::vector<Vertex>, std::map<Vertex, std::int64_t>> sets_;
};

/// Σ_net cost · (λ − 1).
[[nodiscard]] std::int64_t connectivity_cost(const Hypergraph& graph, const Parts& parts);
/// Part-major: parts x constraints.
[[nodiscard]] std::vector<std::int64_t> part_weights(const Hypergraph& graph, const Parts& parts,
                                                     std::int32_t count);

}  // namespace parsim::strategies::hypergraph
