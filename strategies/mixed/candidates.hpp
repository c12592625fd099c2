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
/// take turns. What is expected to take so much longer than a limit that no price has been as far
/// below what was expected is not handed out.
class Candidates {
 public:
  Candidates(const Cluster& cluster, std::vector<MixedStages> all);
  /// Nothing if none is left that may take less than `limit`.
  std::optional<MixedStages> next(double limit);
  /// The price of the layout that was handed out last.
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
  struct Promising {
    Alike* from = nullptr;
    double step = 0;  ///< expected
  };
  /// The most promising of those with this MixedStages::waits that may take less than `limit`; null
  /// if there are none.
  Promising best_of(bool waits, double limit);
  [[nodiscard]] Key key_of(const MixedStages& mixed) const;
  [[nodiscard]] Kinds kinds_of(const MixedStages& mixed) const;

  const Cluster& cluster_;
  std::map<Key, Alike> alike_;
  std::map<Kinds, double> least_correction_;
  bool turn_ = true;  ///< of MixedStages::waits
  double expected_ = 0;
  std::size_t learned_ = 0;
  double least_ratio_ = 1;  ///< of prices to what was expected
};

}  // namespace parsim::strategies::mixed
