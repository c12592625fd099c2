// Small changes of a plan for a local search. Private to `best`.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Layers `first` to `end` - 1.
struct LayerRun {
  std::size_t first = 0, end = 0;
  friend bool operator==(const LayerRun&, const LayerRun&) = default;
};

/// Proposes changes of a plan and takes them back.
class Moves {
 public:
  /// For a plan like `start`: with its stages and micro-batches.
  ///
  /// templates   plans whose layers may be borrowed, the most useful first; they must outlive this
  Moves(const StrategyInput& input, const Plan& start, std::span<const Plan> templates,
        std::uint64_t seed);

  /// So many changes are worth a try before those at random, the most promising first.
  [[nodiscard]] std::size_t listed() const;
  /// The listed change, as the plan is now; false if it changes nothing. What it makes may be
  /// impossible to lower: the caller finds out and takes it back.
  bool propose(Plan& plan, std::size_t change);
  /// A random change.
  bool propose(Plan& plan);
  /// Undoes the last proposal.
  void take_back(Plan& plan);

 private:
  bool borrow_layers(Plan& plan);
  bool borrow(Plan& plan, const Plan& lender, std::span<const LayerRun> runs);
  bool shift_samples(Plan& plan);
  bool move_border(Plan& plan);
  /// Gives the unit to the `which`-th of the stages next to it.
  bool move_unit(Plan& plan, std::size_t unit, std::size_t which);
  [[nodiscard]] std::vector<std::size_t> neighbours(const Plan& plan, std::size_t unit) const;
  bool change_buckets(Plan& plan, std::size_t size);
  void forget();
  void set(Plan& plan, std::size_t layer, LayerPlan wanted, std::int32_t stage);

  const StrategyInput& input_;
  std::vector<const Plan*> lenders_;  ///< that differ, of one stage as the start
  std::vector<std::vector<LayerRun>> runs_;
  std::vector<std::vector<Consumer>> readers_;
  std::vector<std::size_t> units_;  ///< first layers at which stages may begin
  bool by_block_ = false;           ///< gradients of ZeRO stage 3, also where that is slower
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
