// In which order layouts are priced. Private to the search for mixed stages.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "strategies/mixed_stages.hpp"

namespace parsim::strategies::mixed {

/// Hands out layouts, the most promising first: the closed form errs alike for layouts with as many
/// micro-batches and stages of the same shapes, in any order and number, so that their last
/// price corrects it. Of shapes without a price the least correction so far is expected of layouts
/// with as many micro-batches and the same device models, if there is one, else none: each is
/// looked at before what is known to be worse. Layouts by the two closed forms of blocking sends
/// take turns.
class Candidates {
 public:
  Candidates(const Cluster& cluster, std::vector<MixedStages> all);
  std::optional<MixedStages> next();
  void learn(const MixedStages& layout, double step);

 private:
  using Shape = std::array<std::size_t, 3>;  ///< device model, replicas, tensor degree
  using Key = std::tuple<bool, std::int32_t, std::set<Shape>>;  ///< MixedStages::waits first
  using Kinds = std::tuple<bool, std::int32_t, std::set<std::size_t>>;  ///< likewise, of models
  struct Alike {
    std::vector<MixedStages> layouts;  ///< best first
    std::size_t next = 0;
    std::optional<double> correction;
  };
  /// The most promising of those with this MixedStages::waits; null if there are none.
  Alike* best_of(bool waits);
  [[nodiscard]] Key key_of(const MixedStages& mixed) const;
  [[nodiscard]] Kinds kinds_of(const MixedStages& mixed) const;

  const Cluster& cluster_;
  std::map<Key, Alike> alike_;
  std::map<Kinds, double> least_correction_;
  bool turn_ = true;  ///< of MixedStages::waits
};

}  // namespace parsim::strategies::mixed
