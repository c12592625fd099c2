// The catalogue of parallelization strategies: each decides, none lowers. Input: a network, a
// cluster, costs. Output: a Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "lowering/estimate.hpp"
#include "lowering/headroom.hpp"

namespace parsim {

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };
/// How unequal devices share a cut: equally, or in proportion to their speed.
enum class ShareRule : std::uint8_t { equal, proportional };
/// How shares become whole filters: by the largest remainder, or as the code released with
/// Moreno-Alvarez et al. 2021 does (floors, the rest to the fastest device).
enum class Rounding : std::uint8_t { largest_remainder, released };
/// What a search adds up: this project's costs (rings, overlap, simulated finalists), or the sum of
/// the paper it comes from; `paper_total` where the paper can be read so that the transfers of an
/// edge go one after another.
enum class SearchCosts : std::uint8_t { own, paper, paper_total };
/// Into how many parts a layer-wise search may cut a layer: numbers that divide the devices, as in
/// Jia et al. 2018, or any up to the devices.
enum class DegreeRule : std::uint8_t { dividing, any };

/// Which activations are dropped and computed again: none, the maps of attention, or all but what
/// segments of layers hand on (see recompute.hpp).
enum class Recompute : std::uint8_t { none, attention, segments };

/// Everything a strategy may look at.
struct StrategyInput {
  const Network& network;
  const Cluster& cluster;
  const CostModel& cost;
  std::int64_t batch = 0;  ///< global
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;  ///< of gradients' sums, see Plan
  Optimizer optimizer = Optimizer::momentum;
  Sync::Kind sync = Sync::Kind::automatic;
  /// Who adds up with Sync::Kind::server; invalid = the first CPU, or the first GPU if there is
  /// none.
  DeviceId server{};
  std::optional<std::int32_t> micro_batches{};  ///< pipelines; chosen if absent
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  Bytes bucket{25 * 1024 * 1024};  ///< gradients travel in buckets of this size; 0 = one per layer
  std::int32_t zero_stage = 0;  ///< what replicas split among them, see zero_stage in core/plan.hpp
  Recompute recompute = Recompute::none;
  Headroom headroom{};  ///< memory that plans leave free
  std::uint64_t seed = 1;
  ShareRule shares = ShareRule::equal;  ///< of the batch, for `data`
  Rounding rounding = Rounding::largest_remainder;
  SearchCosts search_costs = SearchCosts::own;
  DegreeRule degrees = DegreeRule::dividing;  ///< `layer-wise`
  std::optional<std::int32_t> parts{};        ///< `hybrid`, `pipeline`, `tensor`: contiguous parts
  std::optional<std::int32_t> tensor{};       ///< `tensor`: devices that share every layer
  std::optional<std::int64_t> budget{};       ///< plan evaluations a search may spend
  /// Step time of a finalist, by simulation: `simulation` of price.hpp makes one. Empty: a search
  /// ranks finalists by its own estimate only.
  std::function<Seconds(const Plan&)> simulate{};
  /// Called by long searches now and then with the fraction that is done, 0 to 1. May be empty.
  std::function<void(double)> progress{};
  /// Plans that other strategies have made already for this very input; `best` does not ask again.
  std::span<const Plan> known{};

  [[nodiscard]] StepInput step() const {
    return {network, cluster, cost, precision, reduce_precision, optimizer};
  }
  /// Memory of a device that a plan may fill.
  [[nodiscard]] Bytes usable_memory(DeviceId device) const {
    return headroom.usable(cluster[device].memory);
  }
};

struct Strategy {
  std::string name, summary;
  Plan (*plan)(const StrategyInput&);
  /// Fields of StrategyInput, as options of the command line, that only some strategies read and
  /// this one does: "--shares", "--rounding", "--search-costs", "--degrees", "--parts", "--tensor",
  /// "--budget".
  std::vector<std::string_view> options{};
};

[[nodiscard]] const std::vector<Strategy>& strategies();
/// Throws InputError with a "did you mean" for an unknown name. `where` is the flag or file.
[[nodiscard]] const Strategy& strategy(std::string_view name, std::string_view where);

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

}  // namespace parsim
