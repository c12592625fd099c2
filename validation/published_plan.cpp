#include "validation/published_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/options.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_layout.hpp"
#include "experiment/trainer_words.hpp"
#include "lowering/recompute.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "validation/measurements.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

/// First layers of the row's stages, with as many blocks as column `layout` gives ("13/11"; text
/// after a blank is a remark), else with equally many, as in Megatron-LM; or, where the column says
/// "embedding and loss" or Megatron-Bridge's recipes need it, with one less in the first and the
/// last stage, as account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split do
/// (src/megatron/bridge/recipes/qwen/qwen3_235b_a22b.py). Nothing if the number of blocks is not
/// divisible.
std::optional<std::vector<std::size_t>> first_layers(const Claim& claim, const Network& network,
                                                     std::int32_t stages) {
  const std::vector<std::size_t> blocks = strategies::first_layers_of_blocks(network);
  const std::string where = location_of(claim, "layout");
  const std::string layout = column(claim, "layout");
  const bool ends = layout.starts_with("embedding and loss");
  const std::string text = ends ? "" : layout.substr(0, layout.find(' '));
  const auto count = static_cast<std::size_t>(stages);
  if (text.empty() && !ends && stages == 1) return std::vector<std::size_t>{0};
  const bool counts_ends = ends || (column_contains(claim, "framework", "Megatron-Bridge") &&
                                    blocks.size() % count != 0 && blocks.size() > count);
  const std::size_t counted = blocks.size() + (counts_ends ? 2 : 0);
  if (ends && (stages == 1 || counted % count != 0 || counted < 2 * count)) {
    throw InputError(where,
                     fmt::format("embedding and loss in the place of two blocks, and {} blocks in "
                                 "{} stages",
                                 blocks.size(), stages),
                     fmt::format("accepted: a divisor of {} stages, two or more", counted));
  }
  if (text.empty() && (blocks.empty() || counted % count != 0)) return std::nullopt;
  std::vector<std::size_t> sizes(text.empty() ? count : 0, counted / count);
  if (text.empty() && counts_ends) {
    --sizes.front();
    --sizes.back();
  }
  for (const std::string& size : text.empty() ? std::vector<std::string>{} : split_at(text, '/'))
    sizes.push_back(static_cast<std::size_t>(parse_whole(size, where, 1, 1 << 20)));
  std::vector<std::size_t> first;
  std::size_t block = 0;
  for (const std::size_t size : sizes) {
    first.push_back(block < blocks.size() ? blocks[block] : 0);
    block += size;
  }
  if (block != blocks.size() || sizes.size() != count) {
    throw InputError(
        where, fmt::format("'{}', {} blocks in {} stages", text, block, sizes.size()),
        fmt::format("accepted: {} blocks in {} stages, as in 13/11", blocks.size(), stages));
  }
  return first;
}

std::int32_t small_column(const Claim& claim, std::string_view name) {
  const std::int64_t number = count_column(claim, name, 1);
  if (number <= std::numeric_limits<std::int32_t>::max()) {
    return static_cast<std::int32_t>(number);
  }
  throw InputError(location_of(claim, name), fmt::format("{}", number), "accepted: less");
}

/// Column `pipeline_sends`; without it as DeepSpeed's pipeline engine and Megatron-LM send.
strategies::PipelineSends sends_of(const Claim& claim, std::int32_t chunks) {
  const std::string text = column(claim, "pipeline_sends");
  if (!text.empty()) {
    return experiment::parse_spelling<strategies::PipelineSends>(
        text, location_of(claim, "pipeline_sends"));
  }
  const bool deepspeed = column_contains(claim, "framework", "DeepSpeed");
  if (!deepspeed && !trained_by_megatron(claim)) return strategies::PipelineSends::overlapped;
  return experiment::sends_of_trainer(deepspeed ? "deepspeed" : "megatron",
                                      strategies::PipelineSchedule::one_f_one_b, chunks);
}

/// When torchtitan, accelerate, and FSDP that keeps gathered weights, reduce gradients of several
/// micro-batches; of others as ReduceEvery::automatic says.
ReduceEvery reduced_in(const Claim& claim) {
  for (const std::string_view trainer : {"torchtitan", "accelerate"}) {
    if (column_contains(claim, "framework", trainer)) return experiment::reduced_by(trainer, {});
  }
  if (column_contains(claim, "parallelism", "SHARD_GRAD_OP")) return ReduceEvery::micro_batch;
  return ReduceEvery::automatic;
}

/// Column `zero_group`, as --zero-group; else `zero_range`, a number of replicas or "all"; without
/// both the replicas of one machine under PyTorch's HYBRID_SHARD, else all.
ZeroGroup zero_group_of(const Claim& claim) {
  for (const std::string_view key : {"zero_group", "zero_range"}) {
    const std::string text = column(claim, key);
    if (text == "all") return {};
    if (text.empty()) continue;
    return experiment::parse_zero_group(text, location_of(claim, key));
  }
  return {0, shards_in_machines(claim)};
}

/// The truth that a word names, in capitals or not; nothing for another word.
std::optional<bool> truth_of(const std::string& text) {
  const std::string small = experiment::lower_case(text);
  for (const std::string_view word : {"yes", "true", "on", "1"}) {
    if (small == word) return true;
  }
  for (const std::string_view word : {"", "no", "false", "off", "0", "none"}) {
    if (small == word) return false;
  }
  return std::nullopt;
}

bool true_column(const Claim& claim, std::string_view name) {
  const std::optional<bool> truth = truth_of(column(claim, name));
  if (truth) return *truth;
  throw InputError(location_of(claim, name), fmt::format("'{}'", column(claim, name)),
                   "accepted: yes or no");
}

/// Column `recompute`: a word of --recompute, yes for full, no or nothing for none. Without it
/// `notes` may say what is computed again in torchtitan's words (recompute_text), whose "selective"
/// is by operation. Throws InputError for what has nothing to drop.
strategies::Recompute recompute_of(const Claim& claim, const Network& network) {
  using enum strategies::Recompute;
  const std::string text = experiment::lower_case(recompute_text(claim));
  if (const std::optional<bool> all = truth_of(text)) return *all ? full : none;
  const auto what =
      experiment::parse_spelling<strategies::Recompute>(text, location_of(claim, "recompute"));
  if (what != selective || !lowering::attention_scores(network).empty()) return what;
  if (column_contains(claim, "framework", "torchtitan")) return op;
  throw InputError(location_of(claim, "recompute"),
                   fmt::format("'{}', but fused attention keeps no scores to drop", text),
                   "accepted: no, pointwise, op (torchtitan's selective), full");
}

/// Whether gradients are PyTorch's DistributedDataParallel's or FSDP's, which always sum during the
/// backward pass, in a trainer that leaves buckets as they are.
bool has_torch_buckets(const Claim& claim) {
  if (column_contains(claim, "framework", "DeepSpeed") || trained_by_megatron(claim)) return false;
  for (const std::string_view word : {"DDP", "FSDP"}) {
    for (const std::string_view name : {"framework", "parallelism"}) {
      if (column_contains(claim, name, word)) return true;
    }
  }
  for (const std::string_view trainer :
       {"torchtitan", "HF Trainer", "Hugging Face", "HuggingFace", "accelerate", "Lightning"}) {
    if (column_contains(claim, "framework", trainer)) return true;
  }
  return false;
}

/// Column `etp`. Without it 1 where replicas and parts of the tokens alone cannot divide the
/// experts by column ep, and in rows of Megatron-Bridge, whose recipes of mixtures all set
/// expert_tensor_parallel_size to 1 (src/megatron/bridge/recipes, scripts/performance/configs);
/// else Megatron-LM's default, all.
std::optional<std::int32_t> expert_tensor_of(const Claim& claim, const Network& network) {
  if (!column(claim, "etp").empty()) return small_column(claim, "etp");
  if (strategies::experts_of(network) == 0 || has_layout_file(claim)) return std::nullopt;
  const RunLayout layout = layout_of(claim);
  const bool fits = layout.data * layout.context % small_column(claim, "ep") == 0;
  const bool one = !fits || column_contains(claim, "framework", "Megatron-Bridge");
  return layout.tensor > 1 && one ? std::optional<std::int32_t>(1) : std::nullopt;
}

void check_agrees(const Claim& claim, std::string_view name, std::int64_t ours) {
  const std::int64_t theirs = count_column(claim, name, ours);
  if (theirs == ours) return;
  throw InputError(
      location_of(claim, name), fmt::format("{}, but the other columns give {}", theirs, ours),
      "accepted: n_gpus = tp x cp x dp x pp, global_batch = micro_batch x grad_accum x dp");
}

/// Stages of blocks, tensor-parallel groups of neighbours, then replicas; for networks whose blocks
/// do not divide evenly, the stages that strategy tensor finds.
Plan plan_of_degrees(const Claim& claim, strategies::StrategyInput& input) {
  const RunLayout layout = layout_of(claim);
  input.batch = layout.batch();
  input.micro_batches = layout.micro_batches;
  input.tensor_parallel = layout.tensor;
  input.context_parallel = layout.context;
  input.pipeline_parallel = layout.pipeline;
  input.virtual_pipeline = layout.chunks;
  input.pipeline_sends = sends_of(claim, layout.chunks);
  strategies::expect_interleavable(input, layout.pipeline, location_of(claim, "vp"));
  const auto first = first_layers(claim, input.network, layout.pipeline * layout.chunks);
  if (!first) return strategies::plan_tensor(input);
  return strategies::plan_layout(
      input, strategies::even_layout(*first, static_cast<std::size_t>(layout.group()),
                                     static_cast<std::size_t>(layout.data),
                                     devices_of(input.cluster, DeviceKind::gpu), layout.chunks));
}

Plan plan_of_file(const Claim& claim, strategies::StrategyInput& input) {
  const std::string path = column(claim, "layout_file");
  const experiment::LayoutFile file = experiment::read_layout(
      read_file(path, location_of(claim, "layout_file")), path, input.network, input.cluster);
  input.micro_batches = small_column(claim, "grad_accum");
  input.pipeline_sends = sends_of(claim, file.layout.chunks);
  experiment::take_decisions(file, input);
  input.batch = count_column(claim, "global_batch",
                             file.samples.value_or(1) * input.micro_batches.value_or(1));
  check_batch(claim, input.batch);
  return strategies::plan_layout(input, file.layout);
}

}  // namespace

bool has_layout(const Claim& claim) {
  return !column(claim, "micro_batch").empty() || has_layout_file(claim);
}

bool has_layout_file(const Claim& claim) { return !column(claim, "layout_file").empty(); }

RunLayout layout_of(const Claim& claim) {
  RunLayout layout;
  layout.tensor = small_column(claim, "tp");
  layout.context = small_column(claim, "cp");
  layout.pipeline = small_column(claim, "pp");
  layout.chunks = small_column(claim, "vp");
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  const std::int64_t each = layout.group() * layout.pipeline;
  if (gpus % each != 0) {
    throw InputError(location_of(claim, "n_gpus"),
                     fmt::format("{} GPUs are no multiple of tp x cp x pp = {}", gpus, each),
                     "accepted: a multiple");
  }
  layout.data = gpus / each;
  layout.micro_batch = count_column(claim, "micro_batch", 1);
  layout.micro_batches = small_column(claim, "grad_accum");
  // Of all rows with global_batch, whose batch_per_gpu may be a replica's, that one counts.
  const bool only = column(claim, "global_batch").empty();
  const std::int64_t samples = only ? gpus * count_column(claim, "batch_per_gpu", 0) : 0;
  if (samples > 0 && column(claim, "grad_accum").empty()) {
    const std::int64_t of_replica = samples / layout.data;
    if (of_replica % layout.micro_batch != 0) {
      throw InputError(
          location_of(claim, "micro_batch"),
          fmt::format("{}, but a replica has {} samples", layout.micro_batch, of_replica),
          "accepted: a divisor of them");
    }
    layout.micro_batches = static_cast<std::int32_t>(of_replica / layout.micro_batch);
  }
  if (samples > 0 && samples != layout.batch()) {
    throw InputError(location_of(claim, "batch_per_gpu"),
                     fmt::format("{}, but micro_batch x grad_accum x dp / n_gpus is {:.3g}",
                                 column(claim, "batch_per_gpu"),
                                 static_cast<double>(layout.batch()) / static_cast<double>(gpus)),
                     "accepted: the same");
  }
  check_agrees(claim, "dp", layout.data);
  check_agrees(claim, "global_batch", layout.batch());
  check_batch(claim, layout.batch());
  return layout;
}

bool overlaps_products(const Claim& claim) {
  if (!true_column(claim, "sequence_parallel")) return false;
  constexpr std::string_view feature = "tp-overlap";
  return true_column(claim, "tp_overlap") || true_column(claim, "tp_comm_overlap") ||
         column_contains(claim, "needs", feature) || column_contains(claim, "soft", feature);
}

std::optional<Bytes> bucket_of(const Claim& claim, Precision reduced) {
  constexpr Bytes all{std::numeric_limits<std::int64_t>::max()};
  const std::string text = column(claim, "bucket");
  if (text == "all") return all;
  if (!text.empty()) return parse_bytes(text, location_of(claim, "bucket"));
  if (column_contains(claim, "parallelism", "FSDP")) {
    // FULL_SHARD, SHARD_GRAD_OP and HYBRID_SHARD are words of FSDP 1 (ShardingStrategy).
    const bool first = column_contains(claim, "parallelism", "_SHARD") ||
                       column_contains(claim, "parallelism", "SHARD_GRAD_OP");
    return first ? strategies::bucket_of_block_and_root : strategies::bucket_of_block;
  }
  const auto elements = [&](std::int64_t count) { return Bytes{count * element_bytes(reduced)}; };
  if (column_contains(claim, "framework", "InternEvo")) return elements(std::int64_t{512} << 20);
  // The recipes of both set overlap_grad_reduce (NeMo's nemo/collections/llm/recipes).
  if (column_contains(claim, "framework", "Megatron-Bridge") || trained_by_nemo(claim)) {
    return elements(40'000'000);
  }
  if (zero_stage_of(claim) == 3 && column_contains(claim, "framework", "DeepSpeed")) {
    return elements(experiment::deepspeed_prefetch * small_column(claim, "tp"));
  }
  // Stage 3 gathers weights by buckets, too (lowering/zero_schedule.hpp): of all, once a step.
  if (!has_layout(claim) || zero_stage_of(claim) == 3 || has_torch_buckets(claim)) return {};
  return all;
}

Plan published_plan(const Claim& claim, strategies::StrategyInput& input) {
  input.bucket = bucket_of(claim, input.reduce_precision);
  input.reduce_every = reduced_in(claim);
  input.zero_stage = zero_stage_of(claim);
  if (input.zero_stage.value_or(0) > 0) input.zero_group = zero_group_of(claim);
  input.sequence_parallel = true_column(claim, "sequence_parallel");
  input.tensor_overlap = overlaps_products(claim);
  if (!column(claim, "ep").empty()) input.expert_parallel = small_column(claim, "ep");
  input.expert_tensor_parallel = expert_tensor_of(claim, input.network);
  Plan plan = has_layout_file(claim) ? plan_of_file(claim, input) : plan_of_degrees(claim, input);
  strategies::check_zero_group(input, plan, location_of(claim, "zero_stage"));
  plan = strategies::with_memory_options(input, std::move(plan));
  const strategies::Recompute what = recompute_of(claim, input.network);
  if (what != strategies::Recompute::none) {
    strategies::recompute(input.network, what, plan, small_column(claim, "recompute_every"));
  }
  return plan;
}

}  // namespace parsim::validation
