// The candidates among which the strategy chooses: partitions of models F and U, each a plan.
#pragma once

#include <string>
#include <vector>

#include "strategies/hypergraph/model.hpp"
#include "strategies/hypergraph/partition.hpp"
#include "strategies/strategies.hpp"

namespace parsim::hypergraph {

/// What one candidate balances and how it is run.
struct Recipe {
  std::string name;
  bool by_samples = false;  ///< model U
  Balance balance = Balance::work;
  double tolerance = 0.05;
  std::int32_t micro_batches = 1;
};

struct Candidate {
  Recipe recipe;
  Partition partition;
  std::int64_t words = 0;  ///< moved in a step: connectivity minus one
  Plan plan;
};

/// Partitions of other strategies that serve as starts.
struct Start {
  std::string name;
  Plan plan;
};
/// Every other strategy of the table that can plan this input, without simulation.
[[nodiscard]] std::vector<Start> starts_of(const StrategyInput& input);

/// Target weights: each device's speed over the whole network by the cost model.
[[nodiscard]] std::vector<double> speeds_of(const StrategyInput& input,
                                            const std::vector<DeviceId>& devices);

/// The model of a recipe for this input: blocks so small that every device may have its share, so
/// large that the search stays short.
[[nodiscard]] Model model_for(const StrategyInput& input, const Recipe& recipe,
                              std::size_t devices);

/// Partitions the recipe's model, from scratch and from the starts, and makes the plan.
[[nodiscard]] Candidate candidate_of(const StrategyInput& input, const Recipe& recipe,
                                     const std::vector<Start>& starts);

/// What the strategy tries, most promising first.
[[nodiscard]] std::vector<Recipe> recipes_of(const StrategyInput& input, std::size_t devices);

}  // namespace parsim::hypergraph
