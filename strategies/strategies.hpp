// The catalogue of parallelization strategies: from a network, a cluster and costs to a Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "core/spelling.hpp"
#include "lowering/estimate.hpp"
#include "lowering/headroom.hpp"

namespace parsim::strategies {

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b, zero_bubble, zero_bubble_h2 };
constexpr std::array<std::string_view, 4> spellings(PipelineSchedule) {
  return {"gpipe", "1f1b", "zero-bubble", "zero-bubble-h2"};
}
/// Whether a stage computes on while what it sends is under way (Schedule::blocking_sends).
enum class PipelineSends : std::uint8_t { overlapped, blocking };
constexpr std::array<std::string_view, 2> spellings(PipelineSends) {
  return {"overlapped", "blocking"};
}
/// How unequal devices share a cut: equally, or in proportion to their speed.
enum class ShareRule : std::uint8_t { equal, proportional };
constexpr std::array<std::string_view, 2> spellings(ShareRule) { return {"equal", "proportional"}; }
/// How shares become whole filters: by the largest remainder, or as the code released with
/// Moreno-Alvarez et al. 2021 does (floors, the rest to the fastest device).
enum class Rounding : std::uint8_t { largest_remainder, released };
constexpr std::array<std::string_view, 2> spellings(Rounding) {
  return {"largest-remainder", "released"};
}
/// What a search adds up: this project's costs (rings, overlap, simulated finalists), or its
/// paper's sum; `paper_total` where that may mean that an edge's transfers follow one another.
enum class SearchCosts : std::uint8_t { own, paper, paper_total };
constexpr std::array<std::string_view, 3> spellings(SearchCosts) {
  return {"own", "paper", "paper-total"};
}
/// Into how many parts a layer-wise search may cut a layer: numbers that divide the devices, as in
/// Jia et al. 2018, or any up to the devices.
enum class DegreeRule : std::uint8_t { dividing, any };
constexpr std::array<std::string_view, 2> spellings(DegreeRule) { return {"dividing", "any"}; }

/// Which activations are dropped and computed again (see lowering/recompute.hpp).
///   selective  attention scores and what is made of them up to the product with the values
///   pointwise  within a transformer block, outputs of norms and activation functions, as
///              Megatron-LM's --recompute-modules layernorm moe_act
///   op         everything within a block but attention and every other matrix product, as
///              torchtitan's selective_ac_option "op"
///   full       everything within a transformer block: its input is the only checkpoint
///   optimal    everything except the outputs of segments, which are cut to minimise the peak
/// none, selective and full as in Megatron-LM.
enum class Recompute : std::uint8_t { none, selective, pointwise, op, full, optimal };
constexpr std::array<std::string_view, 6> spellings(Recompute) {
  return {"none", "selective", "pointwise", "op", "full", "optimal"};
}
/// Former ones, refused with a hint.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> old_spellings(Recompute) {
  return {{{"attention", "selective"}, {"segments", "optimal"}}};
}

/// How devices that divide the tokens exchange keys and values for attention, as Megatron-LM's
/// --cp-comm-type calls it (see tensor/context.hpp). p2p is the default there (arguments.py), too.
enum class ContextExchange : std::uint8_t { p2p, all_gather, a2a };
constexpr std::array<std::string_view, 3> spellings(ContextExchange) {
  return {"p2p", "all_gather", "a2a"};
}

/// What a border between stages of a pipeline must not divide: a transformer's block, or a layer.
enum class Granularity : std::uint8_t { block, layer };
constexpr std::array<std::string_view, 2> spellings(Granularity) { return {"block", "layer"}; }

/// What the best plan has the least of.
enum class Objective : std::uint8_t { time, cost, energy };
constexpr std::array<std::string_view, 3> spellings(Objective) {
  return {"time", "cost", "energy"};
}
/// What a user may ask of a plan; experiment/option_table.cpp says which strategies read what.
struct StrategyOptions {
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;  ///< of gradients' sums, see Plan
  Optimizer optimizer = Optimizer::momentum;
  Framework framework = Framework::pytorch;
  std::optional<std::int32_t> tensor_parallel{}, pipeline_parallel{}, data_parallel{};
  std::optional<std::int32_t> expert_parallel{}, expert_tensor_parallel{};  ///< see experts.hpp
  std::optional<std::int32_t> context_parallel{};  ///< see tensor/context.hpp; absent: 1
  ContextExchange context_exchange = ContextExchange::p2p;
  std::int32_t virtual_pipeline = 1;  ///< model chunks of each device, see stages.hpp
  bool searches_chunks = true;        ///< one chunk is a default that `best` may change
  bool sequence_parallel = false, tensor_overlap = false;  ///< see tensor/split.hpp, LayerPlan
  std::optional<std::int32_t> parts{};                     ///< of `hybrid`
  std::optional<Granularity> granularity{};     ///< if absent: block where there are blocks
  std::optional<std::int32_t> micro_batches{};  ///< chosen if absent
  std::optional<PipelineSchedule> schedule{};   ///< absent: 1F1B, but `best` chooses
  PipelineSends pipeline_sends = PipelineSends::overlapped;
  Sync::Kind sync = Sync::Kind::automatic;
  ReduceEvery reduce_every = ReduceEvery::automatic;
  std::optional<Bytes> bucket{};  ///< 0: one per layer; absent: a block in ZeRO 3, else ddp_bucket
  ShareRule shares = ShareRule::equal;   ///< of the batch
  std::optional<std::int64_t> budget{};  ///< plan evaluations that a search may spend
  std::uint64_t seed = 1;
  /// Memory options that are absent: `best` chooses, plans of the others have none.
  std::optional<std::int32_t> zero_stage{};  ///< what replicas shard, see ZeroSharding
  ZeroGroup zero_group{};                    ///< among how many of them
  std::optional<Recompute> recompute{};
  std::int32_t recompute_every = 1;  ///< only in every so many-th block; not with optimal
  lowering::Headroom headroom{};     ///< memory that plans leave free
  Rounding rounding = Rounding::largest_remainder;
  std::vector<double> speeds{};  ///< of the devices for `model`, relative; empty: as priced
  SearchCosts search_costs = SearchCosts::own;
  DegreeRule degrees = DegreeRule::dividing;
  Objective objective = Objective::time;  ///< of `best`, among its finalists
  [[nodiscard]] PipelineSchedule schedule_or_default() const {
    return schedule.value_or(PipelineSchedule::one_f_one_b);
  }
};

/// Everything a strategy may look at.
struct StrategyInput : StrategyOptions {
  StrategyInput(const Network& on, const Cluster& machines, const CostModel& costs,
                StrategyOptions options = {})
      : StrategyOptions(std::move(options)), network(on), cluster(machines), cost(costs) {}
  const Network& network;
  const Cluster& cluster;
  const CostModel& cost;
  std::int64_t batch = 0;        ///< global
  std::vector<DeviceId> only{};  ///< GPUs that plans may use; empty: all of the cluster
  /// Who adds up with Sync::Kind::server; invalid: the first CPU, or GPU if there is none.
  DeviceId server{};
  /// Step time of a finalist, as `simulation` of price.hpp makes; empty: an estimate ranks them.
  std::function<Seconds(const Plan&)> simulate{};
  /// What a plan with this step costs or draws, by `objective`; empty: finalists compare by step.
  std::function<double(const Plan&, Seconds)> upkeep{};
  /// Of plans that `best` and `tensor` may choose, unless there are none; empty: of all.
  std::function<bool(const Plan&)> accepts{};
  std::function<void(double)> progress{};  ///< called now and then with what is done, 0 to 1
  std::function<void()> poll{};  ///< before each estimate or simulation; throws to end the search
  /// Results of so many calls of work that does not throw, in other processes. May be empty.
  std::function<std::vector<std::string>(std::size_t, std::function<std::string(std::size_t)>)>
      at_once{};
  std::function<Plan(const Plan&)> as_run{};  ///< by its trainer, whose memory counts; may be empty
  bool hosts_matter = false;                  ///< for steps; estimates leave out what hosts do
  /// Plans that others have made of this very input: searches that start from them do not ask.
  std::span<const Plan> known{};
  /// For the estimators of all strategies that plan this input; may be null.
  lowering::PriceCache* prices = nullptr;

  [[nodiscard]] lowering::StepInput step() const {
    return {network, cluster, cost, precision, reduce_precision, optimizer, prices, poll, as_run};
  }
  /// Memory of a device that a plan may fill.
  [[nodiscard]] Bytes usable_memory(DeviceId device) const {
    return headroom.usable(cluster[device].memory);
  }
};

struct Strategy {
  std::string name, summary;
  Plan (*plan)(const StrategyInput&) = nullptr;
  /// Instead of `plan`, of a strategy that is not in the table but the caller's own.
  std::function<Plan(const StrategyInput&)> callback{};
  bool starts_from_others = false;  ///< StrategyInput::known saves it work, or changes its plan
};

[[nodiscard]] const std::vector<Strategy>& all();
/// Another project's name for a strategy of the table.
struct StrategyAlias {
  std::string_view name, strategy;
  std::optional<std::int32_t> zero_stage{};  ///< that it stands for, unless another is given
};
[[nodiscard]] std::span<const StrategyAlias> strategy_aliases();
/// Null if the name is none.
[[nodiscard]] const StrategyAlias* strategy_alias(std::string_view name);
/// Throws InputError with a "did you mean" for an unknown name. `where` is the flag or file.
[[nodiscard]] const Strategy& strategy(std::string_view name, std::string_view where);

/// Throws InputError for `where` if several model chunks are asked for and `devices` in a pipeline
/// or the input's micro-batches, where they are known, rule them out: they need 1F1B, two devices,
/// as many layers as chunks, and a multiple of `devices` micro-batches (as Megatron-LM).
void expect_interleavable(const StrategyInput& input, std::optional<std::int32_t> devices,
                          std::string_view where);

[[nodiscard]] Plan plan_data(const StrategyInput& input);
[[nodiscard]] Plan plan_model_even(const StrategyInput& input);
[[nodiscard]] Plan plan_hybrid(const StrategyInput& input);
[[nodiscard]] Plan plan_model(const StrategyInput& input);
[[nodiscard]] Plan plan_owt(const StrategyInput& input);
[[nodiscard]] Plan plan_pipeline(const StrategyInput& input);
[[nodiscard]] Plan plan_tensor(const StrategyInput& input);
[[nodiscard]] Plan plan_layer_wise(const StrategyInput& input);
[[nodiscard]] Plan plan_best(const StrategyInput& input);
[[nodiscard]] Plan plan_hypergraph(const StrategyInput& input);

}  // namespace parsim::strategies
