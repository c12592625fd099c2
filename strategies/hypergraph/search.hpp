// The candidates among which the strategy chooses: partitions of models F and U, each a plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "strategies/hypergraph/model.hpp"
#include "strategies/hypergraph/partition.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::hypergraph {

/// What one candidate balances and how it is run.
struct Recipe {
  std::string name;
  bool by_samples = false;  ///< model U
  Balance balance = Balance::work;
  double tolerance = 0.05;
  std::int32_t micro_batches = 1;
  bool by_time = false;  ///< work is the cost model's time, not multiply-accumulates
};

struct Candidate {
  Recipe recipe;
  Partition partition;
  std::int64_t elements = 0;  ///< moved in a step: connectivity minus one
  Plan plan;
  /// The partition of a start that describes its plan completely: the plan is the start's own.
  bool start_itself = false;
};

/// Partitions of other strategies that serve as starts.
struct Start {
  std::string name;
  Plan plan;
};
/// Every other strategy of the table that can plan this input, as in its own row; `data` also with
/// shares by speed if devices are unequal, `layer-wise` only up to some hundred layers on 64
/// devices.
[[nodiscard]] std::vector<Start> starts_of(const StrategyInput& input);

/// Sizes of at least `least` blocks of a micro-batch's samples (or one sample each), such that
/// blocks end where the starts of as many micro-batches cut by sample; of starts that would make
/// more than twice as many blocks, the first.
[[nodiscard]] std::vector<std::int64_t> sample_blocks(const Network& network, std::int64_t samples,
                                                      std::size_t least, std::int32_t micro_batches,
                                                      std::span<const Start> starts);

/// A model whose blocks are cut where the plan cuts, and nowhere else: few vertices, and the plan's
/// split of every layer that has rows of its own is a partition of it.
/// work   as in ModelOptions
[[nodiscard]] Model own_model(const StrategyInput& input, const Recipe& recipe, const Plan& plan,
                              std::vector<double> work);
/// Whether the recipe's micro-batches can be cut where the plan cuts samples.
[[nodiscard]] bool has_own_model(const Network& network, const Recipe& recipe, const Plan& plan);

/// The start as a partition, unrefined, with the partition's plan: the start's own if the partition
/// describes it completely.
[[nodiscard]] Candidate candidate_of_start(const StrategyInput& input, const Start& start);

/// Time of each layer, forward and backward, relative to the whole network's on the same device,
/// summed over the devices.
[[nodiscard]] std::vector<double> layer_times(const StrategyInput& input,
                                              const std::vector<DeviceId>& devices);

/// Target weights: each device's speed over the whole network by the cost model.
[[nodiscard]] std::vector<double> speeds_of(const StrategyInput& input,
                                            const std::vector<DeviceId>& devices);

/// The model of a recipe for this input: blocks so small that every device may have its share, so
/// large that the search stays short.
[[nodiscard]] Model model_for(const StrategyInput& input, const Recipe& recipe,
                              const std::vector<DeviceId>& devices,
                              const std::vector<Start>& starts);

/// A partition of the recipe's model and its plan.
[[nodiscard]] Candidate planned(const StrategyInput& input, const Recipe& recipe,
                                const Model& model, Partition partition);

/// Notes for a reader of the plan: elements moved, balance, reconstructions.
[[nodiscard]] std::vector<std::string> notes_of(const StrategyInput& input,
                                                const Candidate& candidate);

/// Partitions the recipe's model, from scratch and from the starts, and makes the plan.
[[nodiscard]] Candidate candidate_of(const StrategyInput& input, const Recipe& recipe,
                                     const std::vector<Start>& starts);

/// Those that are asked for, or the largest divisor of the batch up to four a device.
[[nodiscard]] std::int32_t micro_batches_of(const StrategyInput& input, std::size_t devices);

/// Families of recipes, most promising first, and in each a recipe with its variants.
[[nodiscard]] std::vector<std::vector<Recipe>> recipes_of(const StrategyInput& input,
                                                          std::size_t devices);
/// What it tries besides if nothing fits: memory shared by the devices' memory is a second
/// constraint.
[[nodiscard]] std::vector<Recipe> memory_recipes_of(const StrategyInput& input,
                                                    std::size_t devices);

/// Stages are runs of layers on the same devices; every device has a rank list. The order is that
/// of a small list schedule with the cost model's times: the slot that can start first, backward
/// before forward. With one_f_one_b no more micro-batches are in flight than there are devices. One
/// micro-batch: one stage, one rank list.
[[nodiscard]] Schedule pipelined(const StrategyInput& input, const std::vector<LayerPlan>& layers,
                                 std::int32_t micro_batches);

}  // namespace parsim::strategies::hypergraph
