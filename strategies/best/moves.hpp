// Small changes of a plan for a local search. Private to `best`.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Proposes changes of a plan and takes them back.
class Moves {
 public:
  /// `templates` are plans whose layers may be borrowed; they must outlive this object.
  Moves(const StrategyInput& input, std::span<const Plan> templates, std::uint64_t seed);

  /// Changes the plan; false if this try found nothing to change. What it makes may be impossible
  /// to lower: the caller finds out and takes it back.
  bool propose(Plan& plan);
  /// Undoes the last proposal.
  void take_back(Plan& plan);

 private:
  bool borrow_layers(Plan& plan);
  bool shift_samples(Plan& plan);
  bool move_border(Plan& plan);
  bool change_buckets(Plan& plan);
  void set(Plan& plan, std::size_t layer, LayerPlan wanted, std::int32_t stage);

  const StrategyInput& input_;
  std::span<const Plan> templates_;
  std::vector<std::vector<Consumer>> readers_;
  std::vector<std::size_t> units_;  ///< first layers at which stages may begin
  Random random_;
  struct Old {
    std::size_t layer = 0;
    LayerPlan plan;
    std::int32_t stage = 0;
  };
  std::vector<Old> old_;
  std::vector<std::vector<ParameterId>> old_buckets_;
  bool buckets_changed_ = false;
};

}  // namespace parsim::strategies
