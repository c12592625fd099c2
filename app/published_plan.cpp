#include "app/published_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "app/options.hpp"
#include "app/published_machines.hpp"
#include "core/errors.hpp"
#include "strategies/price.hpp"

namespace parsim {

namespace {

/// Networks built from blocks name their layers "block3.mlp.up"; nothing for what is around them.
std::optional<std::int64_t> block_of(const Network& network, LayerId layer) {
  constexpr std::string_view prefix = "block";
  const std::string_view name = network[layer].name;
  const std::size_t dot = name.find('.');
  if (!name.starts_with(prefix) || dot == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size(), dot - prefix.size());
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  return parse_whole(std::string(digits), network.name, 0, std::int64_t{1} << 30);
}

/// By layer; what comes before the first block is -1, what comes after the last one as if it were
/// one more.
std::vector<std::int64_t> blocks_of(const Network& network) {
  std::vector<std::int64_t> blocks;
  std::int64_t now = -1, most = -1;
  bool inside = false;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::optional<std::int64_t> block = block_of(network, LayerId{l});
    if (block) most = now = *block;
    if (!block && inside) now = most + 1;
    inside = block.has_value();
    blocks.push_back(now);
  }
  return blocks;
}

/// Units of fully sharded data parallelism: a block each, last one first, and what is left over.
std::vector<std::vector<ParameterId>> unit_buckets(const Network& network) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  const std::int64_t count = *std::max_element(blocks.begin(), blocks.end());
  std::vector<std::vector<ParameterId>> units(static_cast<std::size_t>(count) + 1);
  std::vector<bool> placed(network.parameters.size());
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    const bool around = blocks[l] < 0 || blocks[l] == count;
    const std::int64_t unit = around ? count : count - 1 - blocks[l];
    for (const ParameterId id : network.layers[l].parameters) {
      if (!placed[id.index()]) units[static_cast<std::size_t>(unit)].push_back(id);
      placed[id.index()] = true;
    }
  }
  std::erase_if(units, [](const std::vector<ParameterId>& unit) { return unit.empty(); });
  return units;
}

/// Moves layers between stages so that each has the same number of whole blocks, what is around
/// them on the first and the last, as Megatron-LM does. Needs blocks that divide.
void cut_by_blocks(const Network& network, std::int32_t stages, Plan& plan) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  const std::int64_t count = *std::max_element(blocks.begin(), blocks.end());
  if (stages == 1 || count % stages != 0) return;
  std::vector<std::int32_t>& stage_of = plan.schedule.stage_of_layer;
  std::vector<std::vector<DeviceId>> devices(static_cast<std::size_t>(stages));
  for (std::size_t l = 0; l < stage_of.size(); ++l) {
    devices.at(static_cast<std::size_t>(stage_of[l])) = plan.layers[l].devices;
  }
  for (std::size_t l = 0; l < stage_of.size(); ++l) {
    const std::int64_t block = std::clamp<std::int64_t>(blocks[l], 0, count - 1);
    const auto stage = static_cast<std::size_t>(block / (count / stages));
    stage_of[l] = static_cast<std::int32_t>(stage);
    plan.layers[l].devices = devices[stage];
  }
}

/// Every block keeps its input only, and sums over a group of devices again what it summed forward.
void recompute_blocks(const Network& network, Plan& plan) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  const auto readers = consumers(network);
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    plan.layers[l].recompute =
        block_of(network, LayerId{l}) &&
        std::all_of(readers[l].begin(), readers[l].end(), [&](const Consumer& reader) {
          return blocks[reader.layer.index()] == blocks[l];
        });
  }
}

std::int32_t small_column(const Claim& claim, std::string_view name) {
  const std::int64_t number = count_column(claim, name, 1);
  if (number <= std::numeric_limits<std::int32_t>::max()) {
    return static_cast<std::int32_t>(number);
  }
  throw InputError(place_in_row(claim, name), fmt::format("{}", number), "accepted: less");
}

void check_agrees(const Claim& claim, std::string_view name, std::int64_t ours) {
  const std::int64_t theirs = count_column(claim, name, ours);
  if (theirs == ours) return;
  throw InputError(place_in_row(claim, name), fmt::format("{}, but {} by the others", theirs, ours),
                   "accepted: n_gpus = tp x dp x pp, global_batch = micro_batch x grad_accum x dp");
}

}  // namespace

bool has_layout(const Claim& claim) { return !column(claim, "micro_batch").empty(); }

RunLayout layout_of(const Claim& claim) {
  RunLayout layout;
  layout.tensor = small_column(claim, "tp");
  layout.pipeline = small_column(claim, "pp");
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  const std::int64_t each = std::int64_t{layout.tensor} * layout.pipeline;
  if (gpus % each != 0) {
    throw InputError(place_in_row(claim, "n_gpus"), fmt::format("{} in groups of {}", gpus, each),
                     "accepted: whole groups");
  }
  layout.data = gpus / each;
  layout.micro_batch = count_column(claim, "micro_batch", 1);
  layout.micro_batches = small_column(claim, "grad_accum");
  check_agrees(claim, "dp", layout.data);
  check_agrees(claim, "global_batch", layout.batch());
  return layout;
}

Plan published_plan(const Claim& claim, StrategyInput& input) {
  const RunLayout layout = layout_of(claim);
  input.batch = layout.batch();
  input.micro_batches = layout.micro_batches;
  input.tensor = layout.tensor;
  input.parts = layout.pipeline;
  input.bucket = Bytes{std::numeric_limits<std::int64_t>::max()};
  const std::string stage = column(claim, "zero_stage");
  if (!stage.empty()) {
    input.zero_stage =
        static_cast<std::int32_t>(parse_whole(stage, place_in_row(claim, "zero_stage"), 0, 3));
  }
  Plan plan = plan_tensor(input);
  cut_by_blocks(input.network, layout.pipeline, plan);
  if (column_says(claim, "parallelism", "FSDP")) plan.buckets = unit_buckets(input.network);
  plan = with_savings(input, std::move(plan));
  if (column(claim, "recompute") == "yes") recompute_blocks(input.network, plan);
  return plan;
}

}  // namespace parsim
