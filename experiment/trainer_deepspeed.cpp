// DeepSpeed's JSON as a layout, and words of PyTorch that torchtitan's TOML has, too.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_hosts.hpp"
#include "experiment/trainer_layout.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"

namespace parsim::experiment {

std::int64_t blocks_of_network(const Network& network) {
  return std::ssize(strategies::first_layers_of_blocks(network));
}

Optimizer optimizer_named(const TrainerWords& words, std::string_view key) {
  const std::string lower = lower_case(words.text(key).value_or("AdamW"));
  if (lower == "adam" || lower == "adamw" || lower == "fusedadam") return Optimizer::adam;
  if (lower != "sgd") words.refuse(key, "Adam, AdamW or SGD");
  // Readers keep no fractional numbers: 0.0 counts as momentum, too.
  return words.text("optimizer.params.momentum").value_or("0") == "0" ? Optimizer::sgd
                                                                      : Optimizer::momentum;
}

Precision precision_named(const TrainerWords& words, std::string_view key,
                          std::string_view fallback) {
  const std::string name = words.text(key).value_or(std::string(fallback));
  if (name == "bfloat16" || name == "bf16" || name == "bfp16") return Precision::bf16;
  if (name == "float32" || name == "fp32") return Precision::fp32;
  if (name != "float16" && name != "fp16") words.refuse(key, "float32, bfloat16 or float16");
  return Precision::fp16;
}

namespace {

/// Of a transformer: what Hugging Face's Trainer makes of an "auto" in DeepSpeed's file
/// (transformers/integrations/deepspeed.py, trainer_config_finalize).
std::optional<std::int64_t> square_of_hidden(const Network& network) {
  const std::vector<std::int64_t> blocks = strategies::blocks_of(network);
  const auto first = std::find(blocks.begin(), blocks.end(), 0);
  if (first == blocks.end()) return std::nullopt;
  const Layer& block = network.layers[static_cast<std::size_t>(first - blocks.begin())];
  for (const auto& axis : network[block.inputs[0]].out.axes) {
    if (axis.dim == Dim::channel) return axis.extent * axis.extent;
  }
  return std::nullopt;
}

/// Batch and micro-batches. Hugging Face's Trainer fills what is "auto" from its arguments; here
/// --batch and --micro-batches do.
void read_deepspeed_batch(const TrainerWords& words, std::int64_t replicas,
                          std::optional<std::int64_t> asked_batch, LayoutFile& file) {
  constexpr std::string_view batch_at = "train_batch_size",
                             each_at = "train_micro_batch_size_per_gpu",
                             steps_at = "gradient_accumulation_steps";
  const auto is_auto = [&](std::string_view key) { return words.text(key) == "auto"; };
  const auto number = [&](std::string_view key) {
    return is_auto(key) ? std::nullopt : words.integer(key);
  };
  const auto batch = number(batch_at), steps = number(steps_at);
  auto each = number(each_at);
  if (!batch && !(each && !is_auto(steps_at))) {
    const bool open = is_auto(batch_at) || is_auto(each_at) || is_auto(steps_at);
    if (!open) {
      throw InputError(words.where(batch_at), "missing",
                       fmt::format("accepted: {} or {}", batch_at, each_at));
    }
    if (!asked_batch) {
      throw InputError("--batch", fmt::format("missing: {} leaves it open", words.file()),
                       "accepted: the samples of a step, in place of \"auto\"");
    }
    if (steps) file.micro_batches = static_cast<std::int32_t>(*steps);
    if (!each) return;
    const std::int64_t samples = *each * replicas;
    if (*asked_batch % samples != 0) {
      throw InputError(
          "--batch",
          fmt::format("{} samples in micro-batches of {} over all replicas", *asked_batch, samples),
          "accepted: a multiple");
    }
    file.micro_batches = static_cast<std::int32_t>(*asked_batch / samples);
    return;
  }
  if (!each) {
    const std::int64_t parts = replicas * steps.value_or(1);
    if (is_auto(steps_at) || (is_auto(each_at) && !steps)) {  // --micro-batches divides the batch
      file.batch = batch;
      return;
    }
    if (*batch % parts != 0) words.refuse(batch_at, fmt::format("a multiple of {}", parts));
    each = *batch / parts;
  }
  const std::int64_t samples = *each * replicas;
  set_batch(words, batch_at, batch ? *batch : samples * steps.value_or(1), samples, file);
  if (steps && *file.micro_batches != *steps) {
    words.refuse(steps_at, fmt::format("{}, by the batch", *file.micro_batches));
  }
}

/// AutoEP, by all-to-alls among replicas (module_inject/auto_ep_layer.py), which DeepSpeed refuses
/// to combine with AutoTP (docs, "Expert Parallel").
void read_deepspeed_experts(const TrainerWords& words, const Network& network,
                            const TrainerGroups& groups, LayoutFile& file) {
  constexpr std::string_view enabled_at = "expert_parallel.enabled",
                             size_at = "expert_parallel.autoep_size",
                             split_at = "expert_parallel.expert_tensor_parallel_size";
  if (!words.is_on(enabled_at)) return;
  const std::int64_t size = words.integer(size_at).value_or(1),
                     experts = strategies::experts_of(network);
  if (words.integer(split_at).value_or(1) > 1) words.refuse(split_at, "1");
  if (size == 1) return;
  if (experts == 0) words.refuse(size_at, "1, for a network without experts");
  if (groups.tensor > 1) words.refuse(size_at, "1 with tensor_parallel.autotp_size");
  if (experts % size != 0 || groups.data % size != 0) {
    words.refuse(size_at,
                 fmt::format("a divisor of {} experts and of {} replicas", experts, groups.data));
  }
  file.expert_parallel = static_cast<std::int32_t>(size);
}

/// What bounds the elements that stage 3 gathers ahead (partitioned_param_coordinator.py,
/// fetch_sub_module). Without prefetches it gathers module by module, when a module is launched:
/// its stream does not wait for kernels.
std::string_view gathered_ahead_at(const TrainerWords& words) {
  constexpr std::string_view ahead_at = "zero_optimization.stage3_prefetch_bucket_size",
                             live_at = "zero_optimization.stage3_max_live_parameters";
  const auto elements = [&](std::string_view key) {
    return words.has(key) ? to_number<double>(words.text(key).value_or("")) : std::nullopt;
  };
  constexpr double usual = 5e7;
  const std::optional<double> live = elements(live_at);
  return live && *live < elements(ahead_at).value_or(usual) ? live_at : ahead_at;
}

}  // namespace

LayoutFile of_deepspeed(TrainerWords words, const Network& network, const Cluster& cluster,
                        std::optional<std::int64_t> asked_batch) {
  words.rename("bfloat16", "bf16");  // precision_config.py, get_bfloat16_config
  const std::string zero = "zero_optimization.";
  for (const std::string name :  // zero/config.py, populate_by_name
       {"prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold",
        "max_live_parameters", "max_reuse_distance", "use_all_reduce_for_fetch_params"}) {
    words.rename(zero + name, zero + "stage3_" + name);
  }
  for (const std::string_view key :
       {"zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device"}) {
    if (words.has(key) && words.text(key) != "none") words.refuse(key, "none");
  }
  for (const std::string_view key : {"zero_optimization.zero_hpz_partition_size",
                                     "zero_optimization.zero_quantized_weights",
                                     "zero_optimization.zero_quantized_gradients",
                                     "sequence_parallel_size",
                                     "zero_optimization.cpu_offload",
                                     "zero_optimization.cpu_offload_param",
                                     "torch_autocast.enabled",
                                     "amp.enabled",
                                     "progressive_layer_drop.enabled",
                                     "curriculum_learning.enabled",
                                     "data_efficiency.enabled",
                                     "compile.deepcompile",
                                     "eigenvalue.enabled",
                                     "sparse_gradients",
                                     "pipeline.stages",
                                     "elasticity.enabled",
                                     "activation_checkpointing.cpu_checkpointing",
                                     "bf16",
                                     "fp16",
                                     "zero_optimization"}) {  // the last three are tables
    if (words.is_on(key) && words.text(key) != "1") words.refuse(key, "none");
  }
  for (const std::string_view key :
       {"bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states",
        "fp16.fp16_master_weights_and_grads"}) {
    if (words.is_on(key)) words.refuse(key, "false: master weights and states are in FP32 here");
  }
  LayoutFile file;
  TrainerGroups groups;
  constexpr std::string_view tensor_at = "tensor_parallel.autotp_size";
  groups.tensor = std::max<std::int64_t>(1, words.integer(tensor_at, 0).value_or(1));
  if (groups.tensor > 1 && blocks_of_network(network) == 0) {
    words.refuse(tensor_at, "1, for a network without transformer blocks");
  }
  constexpr std::string_view head_at = "tensor_parallel.vocab_parallel_lm_head";
  if (groups.tensor > 1 && words.is_on(head_at)) {
    words.refuse(head_at, "false, as parsim has no divided scores with a whole embedding");
  }
  constexpr std::string_view late_at = "tensor_parallel.tp_overlap_comm";
  if (groups.tensor > 1 && words.is_on(late_at)) {
    file.notes.push_back(fmt::format(
        "{}: in backward passes DeepSpeed overlaps sums with weight gradients; kernels wait for "
        "them in this step, which is too long",
        words.where(late_at)));
  }
  file.habits = habits_of_transformers;
  const std::vector<DeviceId> devices = devices_of_hosts(words.file(), cluster);
  file.replicas = groups.data = replicas_of(words, tensor_at, devices.size(), groups);
  file.layout = uniform_layout(words, network, {blocks_of_network(network)}, groups, 1, devices);
  read_deepspeed_batch(words, groups.data, asked_batch, file);
  read_deepspeed_experts(words, network, groups, file);
  file.zero_stage =
      static_cast<std::int32_t>(words.integer("zero_optimization.stage", 0).value_or(0));
  if (*file.zero_stage > 3) words.refuse("zero_optimization.stage", "0 to 3");
  // -1, the default: no groups (deepspeed/runtime/zero/config.py).
  if (const auto size = words.integer("zero_optimization.mics_shard_size", -1); size > 0) {
    file.zero_group = ZeroGroup{static_cast<std::int32_t>(*size), false};
  }
  constexpr std::string_view overlap_at = "zero_optimization.overlap_comm";
  const bool overlaps = words.has(overlap_at) ? words.is_on(overlap_at) : *file.zero_stage == 3;
  const bool open = words.text("bf16.enabled") == "auto" || words.text("fp16.enabled") == "auto";
  const bool bf16 = words.text("bf16.enabled") != "auto" && words.is_on("bf16.enabled"),
             fp16 = words.text("fp16.enabled") != "auto" && words.is_on("fp16.enabled");
  if (bf16 && fp16) words.refuse("fp16.enabled", "one of bf16 and fp16");
  if (bf16 || fp16 || !open) {  // else --precision says it
    file.precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
  }
  if (file.precision || words.has("communication_data_type")) {
    file.reduce_precision = precision_named(words, "communication_data_type",
                                            to_text(file.precision.value_or(Precision::fp32)));
  }
  file.sums_in_weights = !file.reduce_precision;  // engine.py, communication_data_type
  const bool gathers = *file.zero_stage == 3;
  constexpr std::string_view fetch_at = "zero_optimization.stage3_use_all_reduce_for_fetch_params";
  if (gathers && words.is_on(fetch_at))
    words.refuse(fetch_at, "false, as parsim simulates all-gathers");
  std::optional<std::int64_t> automatic = square_of_hidden(network);
  if (automatic && gathers) automatic = *automatic * 9 / 10;
  set_bucket(words,
             {gathers ? gathered_ahead_at(words) : "zero_optimization.reduce_bucket_size",
              words.has(overlap_at) ? words.where(overlap_at) : words.file(),
              overlaps && *file.zero_stage > 0, automatic},
             "deepspeed", groups, file);
  check_deepspeed_zero(words, network, groups.data, overlaps, file);
  // What the script decides otherwise, options decide here.
  if (words.has("optimizer.type")) file.optimizer = optimizer_named(words, "optimizer.type");
  words.check_spelling();
  return file;
}

}  // namespace parsim::experiment
