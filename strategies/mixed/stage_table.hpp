// Stages of given shapes one after the other: the best borders between them, and how long a step
// takes by a closed form. Private to the search for mixed stages.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "strategies/mixed/search.hpp"

namespace parsim::strategies::mixed {

/// A pipeline whose stages have shapes of their own.
struct ShapedPipeline {
  std::vector<StageShape> shapes;        ///< by stage
  std::vector<std::size_t> first_block;  ///< likewise
  double step = 0;                       ///< by a closed form, seconds
};

/// Stages by their shapes in a table.
using Sequence = std::vector<std::size_t>;

/// Where the stages of a sequence begin; nowhere, if there are no borders of a shorter step.
struct Borders {
  std::vector<std::size_t> first_block;
  double step = std::numeric_limits<double>::infinity();
};

/// Shapes with what they cost for a number of micro-batches, and the step of sequences of them.
///
/// The step is that of best_pipelines, but looks closer: of neighbours of one class it is known
/// whether they are on one machine, and the period is the longest also of the times that a
/// micro-batch takes from any stage to any later one and back, divided by the number of stages from
/// one to the other: so many more are in flight in the first than behind the second.
class StageTable {
 public:
  StageTable(const StrategyInput& input, const std::vector<DeviceClass>& classes, StageCosts& costs,
             std::int32_t micro_batches);

  /// The shape of these members; nothing if one of its devices had no sample.
  std::optional<std::size_t> add(const StageShape& wanted);
  [[nodiscard]] const StageShape& shape(std::size_t of) const { return shapes_[of].shape; }
  [[nodiscard]] std::int32_t micro_batches() const { return micro_batches_; }
  /// Stages x blocks of all programmes so far.
  [[nodiscard]] std::size_t work() const { return work_; }

  /// The best borders for these stages, if their step is shorter than the limit. A programme from
  /// the last block to the first for each of some bounds on the period, as in best_pipelines.
  [[nodiscard]] Borders cut(const Sequence& stages, double limit);
  /// A pipeline as it is with its step, or, where devices have too little memory for its blocks,
  /// with other borders; nothing if these have no step below the limit.
  [[nodiscard]] std::optional<ShapedPipeline> priced(ShapedPipeline pipeline, double limit);
  [[nodiscard]] ShapedPipeline pipeline(const Sequence& stages, const Borders& borders) const;

 private:
  struct Known {
    StageShape shape;
    std::vector<double> times, weights, afterwards;  // see StageCosts
    std::vector<std::int32_t> in_flight;
  };
  /// The stages from one on, the first of them beginning with some block.
  struct Cell {
    double sum = std::numeric_limits<double>::infinity();
    double excess = 0, period = 0, after = 0, out = 0;  // see ClosedForm and best_pipelines
    double busy = 0;    ///< with a micro-batch, seconds, and with sends that block
    double handed = 0;  ///< to the next stage, seconds
    std::size_t end = 0;
  };
  /// From each stage but the last to the next one, by the first block of the latter.
  struct Link {
    const std::vector<StageCosts::Send>* sends = nullptr;
    bool together = false;
  };
  [[nodiscard]] std::vector<Link> links(const Sequence& stages);
  [[nodiscard]] std::vector<bool> together(const Sequence& stages) const;
  double programme(const Sequence& stages, const std::vector<Link>& links, double bound,
                   Borders& best);
  [[nodiscard]] Cell before(const Sequence& stages, std::size_t s, std::size_t begin,
                            std::size_t end, const Link& link, double bound, const Cell* next);
  [[nodiscard]] double step_of(const Sequence& stages, const std::vector<Cell>& cells);
  double shared(std::size_t first, std::size_t last);
  const std::vector<StageCosts::Send>& sends(std::size_t from, std::size_t to, bool together);

  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  std::int32_t micro_batches_;
  std::int64_t samples_, least_;  ///< of a micro-batch; of a replica
  ClosedForm form_;
  double rounds_;  ///< of it
  std::size_t blocks_;
  std::size_t work_ = 0;
  std::vector<Known> shapes_;
  std::map<std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>,
           std::optional<std::size_t>>
      index_;
  std::map<std::tuple<std::size_t, std::size_t, bool>, std::vector<StageCosts::Send>> sends_;
  std::map<std::pair<std::size_t, std::size_t>, double> shared_;
};

}  // namespace parsim::strategies::mixed
