#include "strategies/strategies.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"

namespace parsim::strategies {

const std::vector<Strategy>& all() {
  static const std::vector<Strategy> table{
      {"data",
       "every device all weights and a share of the batch; gradients summed in buckets during "
       "backward",
       plan_data},
      {"model-even", "the channels of every layer split evenly over all devices", plan_model_even},
      {"model",
       "filters shared by device speed, every other convolution by partial sums (Moreno-Alvarez "
       "2021)",
       plan_model},
      {"owt", "one weird trick: convolutions by sample, dense layers by channel", plan_owt},
      {"pipeline",
       "contiguous layers per device, micro-batches in GPipe, 1F1B, ZB-H1 or ZB-H2 order",
       plan_pipeline},
      {"hybrid",
       "contiguous parts on replicas of devices by a genetic allocation (GABRA, Akintoye 2021)",
       plan_hybrid},
      {"tensor", "tensor, pipeline and data parallelism combined (Megatron-LM)", plan_tensor},
      {"layer-wise",
       "every layer split in its own way, minimising compute plus communication (Jia et al. 2018)",
       plan_layer_wise},
      {"hypergraph",
       "blocks of filters and samples placed by a hypergraph partitioner: little communication, "
       "balanced work (reconstructed)",
       plan_hypergraph,
       {},
       true},
      {"best",
       "the fastest of all the others and of a search over degrees and memory options, improved by "
       "local search",
       plan_best,
       {},
       true},
  };
  return table;
}

std::span<const StrategyAlias> strategy_aliases() {
  static constexpr StrategyAlias aliases[] = {
      {"ddp", "data"},        {"dp", "data"},   {"fsdp", "data", 3}, {"tp", "tensor"},
      {"megatron", "tensor"}, {"3d", "tensor"}, {"pp", "pipeline"}};
  return aliases;
}

const StrategyAlias* strategy_alias(std::string_view name) {
  for (const StrategyAlias& alias : strategy_aliases()) {
    if (alias.name == name) return &alias;
  }
  return nullptr;
}

const Strategy& strategy(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Strategy& row : all()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  for (const StrategyAlias& alias : strategy_aliases()) names.emplace_back(alias.name);
  const std::string hint = name.find(',') == std::string_view::npos
                               ? did_you_mean(name, names)
                               : "; for several, repeat the option";
  throw InputError(where, fmt::format("unknown strategy '{}'", name),
                   fmt::format("accepted: {}{}", join(names), hint));
}

}  // namespace parsim::strategies
