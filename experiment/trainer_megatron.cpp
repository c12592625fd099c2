// Arguments of Megatron-LM and FlagScale's YAML as layouts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/options.hpp"
#include "experiment/trainer_hosts.hpp"
#include "experiment/trainer_layout.hpp"
#include "experiment/trainer_stages.hpp"
#include "lowering/recompute.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"

namespace parsim::experiment {

namespace {

using strategies::Recompute;

/// "name", refused if it is there: it changes the step, and nothing here says how.
struct Unknown {
  std::string_view name, accepted;
};
constexpr Unknown unknown_of_megatron[] = {
    {"use-tp-pp-dp-mapping", "ranks in the order tp-cp-ep-dp-pp"},
    {"pipeline-model-parallel-split-rank", "decoders"},
    {"encoder-num-layers", "decoders"},
    {"hierarchical-context-parallel-sizes", "one of --context-parallel-size"},
    {"optimizer-cpu-offload", "optimizer states on the GPU"},
    {"cpu-offloading-num-layers", "activations on the GPU"},
    {"distribute-saved-activations", "--sequence-parallel"},
    {"mtp-num-layers", "no layers for further tokens"},
    {"account-for-embedding-in-pipeline-split", "--pipeline-model-parallel-layout"},
    {"account-for-loss-in-pipeline-split", "--pipeline-model-parallel-layout"},
    {"use-torch-fsdp2", "--use-megatron-fsdp"},
    {"fp4-format", "--fp8-format"},
    {"fine-grained-activation-offloading", "activations on the GPU"},
    {"hybrid-context-parallel", "one of --context-parallel-size"},
    {"rampup-batch-size", "one batch size"},
    {"step-batch-size-schedule", "one batch size"},
    {"use-precision-aware-optimizer", "optimizer states in FP32"},
    {"zero-stage", "--use-distributed-optimizer or --use-megatron-fsdp"},
    {"ds-sequence-parallel-size", "--context-parallel-size"},
    {"yaml-cfg", "the arguments in this file"},
    {"recompute-granularity-per-stage-micro-batch", "one of --recompute-granularity"},
    {"moe-layer-recompute", "--recompute-granularity full, or none"},
    {"moe-expert-capacity-factor", "as many slots as tokens come; gpt:... has capacity=F"},
    {"moe-pad-expert-input-to-capacity", "as many slots as tokens come; gpt:... has capacity=F"},
    {"overlap-moe-expert-parallel-comm", "all-to-alls that wait for their block's kernels"},
    {"delay-wgrad-compute", "gradients of weights in their layer's backward pass"},
    {"moe-shared-expert-overlap", "shared experts after the others"},
    {"window-size", "attention to all tokens"},
    {"freeze-all-layers", "weights that are trained"},
    {"overlap-p2p-communication-warmup-flush", "--overlap-p2p-communication alone"},
    {"ddp-num-buckets", "--ddp-bucket-size"},
    {"ddp-reduce-scatter-with-fp32-accumulation", "gradients that NCCL sums"},
    {"fp8-dot-product-attention", "attention in 16 bits"},
    {"fp8-multi-head-attention", "attention in 16 bits"},
    {"fp8-output-proj", "the last product in 16 bits"},
    {"te-precision-config-file", "one precision for all layers"},
    {"fp32-residual-connection", "residuals in the precision of the step"},
    {"defer-embedding-wgrad-compute", "gradients of weights in their layer's backward pass"},
    {"overlap-param-gather-with-optimizer-step", "--overlap-param-gather alone"},
    {"use-layer-wise-distributed-optimizer", "--use-distributed-optimizer"},
    {"enable-full-sharding-in-hsdp", "states sharded in each copy"},
    {"suggested-communication-unit-size", "blocks as units of FSDP"},
    {"heterogeneous-layers-config-path", "equal blocks"},
    {"heterogeneous-layers-config-encoded-json", "equal blocks"},
    {"hybrid-layer-pattern", "blocks of a transformer"},
    {"hybrid-override-pattern", "blocks of a transformer"},
    {"linear-attention-freq", "attention in all blocks"},
    {"experimental-attention-variant", "attention in all blocks"},
    {"enable-mhc-connections", "plain residuals"},
    {"moe-latent-size", "experts as wide as the hidden size"},
    {"enable-zero-bubble", "1F1B; ZB-H1 and ZB-H2 are simulated with --strategy tensor --schedule"},
};

/// Runs core attention again (megatron/core/transformer/attention.py,
/// _checkpointed_attention_forward). A fused kernel's output stays, as the input of the next
/// product: no rule of ours takes the time and frees nothing.
Recompute selective_of(const TrainerWords& words, std::string_view name, const Network& network) {
  if (!lowering::attention_scores(network).empty()) return Recompute::selective;
  throw InputError(words.where(name), "selective, which only runs a fused attention kernel twice",
                   "accepted: none, which needs no more memory, or full; of attention that keeps "
                   "its scores, --network with attention=eager, or \"attn_implementation\": "
                   "\"eager\" in config.json");
}

void check_latent_attention(const TrainerWords& words, const Network& network) {
  constexpr std::string_view name = "multi-latent-attention";
  const bool has =
      std::any_of(network.layers.begin(), network.layers.end(),
                  [](const Layer& layer) { return layer.kind.as<HeadConcat>() != nullptr; });
  if (words.is_on(name) && !has) words.refuse(name, "--network with latent attention");
}

/// Kernels that keep attention scores, or not, as the network says (megatron/core/transformer/
/// enums.py, AttnBackend; auto chooses). The local implementation has unfused attention only,
/// with any backend, which is one of Transformer Engine (megatron/core/models/gpt/
/// gpt_layer_specs.py, get_gpt_layer_local_spec: DotProductAttention).
void check_attention(const TrainerWords& words, const Network& network) {
  check_latent_attention(words, network);
  const bool local = words.text("transformer-impl") == "local";
  const std::string_view name = local ? "transformer-impl" : "attention-backend";
  const std::string kind = words.text(name).value_or("auto");
  const bool keeps = !lowering::attention_scores(network).empty();
  if (!keeps && (kind == "unfused" || kind == "local")) {
    words.refuse(name, fmt::format("{}; or --network with attention=eager, or "
                                   "\"attn_implementation\": \"eager\" in config.json",
                                   local ? "transformer_engine" : "flash, fused or auto"));
  }
  if (keeps && (kind == "flash" || kind == "fused")) {
    words.refuse(name, "unfused, local or auto; or --network without eager attention");
  }
}

Recompute recompute_of(const TrainerWords& words, const Network& network) {
  constexpr std::string_view activations = "recompute-activations",
                             granularity = "recompute-granularity";
  if (words.is_on(activations)) return selective_of(words, activations, network);
  const std::optional<std::string> kind = words.text(granularity);
  if (!kind) return Recompute::none;
  if (*kind == "selective") {
    const std::vector<std::string> modules = words.texts("recompute-modules");
    if (!modules.empty() && modules != std::vector<std::string>{"core_attn"}) {
      words.refuse("recompute-modules", "core_attn");
    }
    return selective_of(words, granularity, network);
  }
  if (*kind != "full") words.refuse(granularity, "selective or full");
  if (words.text("recompute-method").value_or("uniform") != "uniform") {
    words.refuse("recompute-method", "uniform");
  }
  if (words.integer("recompute-num-layers").value_or(1) != 1) {
    words.refuse("recompute-num-layers", "1");
  }
  return Recompute::full;
}

bool shards_by_fsdp(const TrainerWords& words) {
  return words.is_on("use-megatron-fsdp") || words.is_on("use-custom-fsdp");
}

std::int32_t zero_of(const TrainerWords& words) {
  if (shards_by_fsdp(words)) {
    for (const auto& [name, only] : {std::pair{"outer-dp-sharding-strategy", "no_shard"},
                                     std::pair{"megatron-fsdp-main-params-dtype", "fp32"}}) {
      if (words.text(name).value_or(only) != only) words.refuse(name, only);
    }
    const std::string kind = words.text("data-parallel-sharding-strategy").value_or("no_shard");
    constexpr std::string_view kinds[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const auto* found = std::find(std::begin(kinds), std::end(kinds), kind);
    if (found == std::end(kinds)) {
      words.refuse("data-parallel-sharding-strategy",
                   "no_shard, optim, optim_grads or optim_grads_params");
    }
    return static_cast<std::int32_t>(found - std::begin(kinds));
  }
  return words.is_on("use-distributed-optimizer") ? 1 : 0;
}

/// Megatron-LM asks for sequence parallelism, which it turns off without tensor parallelism
/// (megatron/training/arguments.py, validate_args).
bool overlap_of(const TrainerWords& words, bool sequence_parallel) {
  constexpr std::string_view name = "tp-comm-overlap";
  if (!words.is_on(name)) return false;
  if (!sequence_parallel) words.refuse(name, "with sequence parallelism over two or more GPUs");
  // Of flags that are on, --no-NAME and --disable-NAME (training/argument_utils.py).
  for (const std::string_view part :
       {"tp-comm-overlap-ag", "tp-comm-overlap-rs", "tp-comm-bulk-wgrad", "tp-comm-bulk-dgrad"}) {
    for (const std::string_view off : {"no-", "disable-"}) {
      const std::string one = fmt::format("{}{}", off, part);
      if (words.is_on(one)) words.refuse(one, "all of --tp-comm-overlap, or none");
    }
  }
  for (const std::string_view one :
       {"tp-comm-overlap-rs-dgrad", "tp-comm-overlap-disable-qkv", "tp-comm-overlap-disable-fc1"}) {
    if (words.is_on(one)) words.refuse(one, "--tp-comm-overlap without it");
  }
  return true;
}

/// Megatron-LM's FSDP keeps and sums gradients in the precision of the weights unless its own
/// arguments say otherwise (megatron/core/distributed/fsdp/src/megatron_fsdp/
/// param_and_grad_buffer.py, _resolve_group_grad_dtype; training/arguments.py).
Precision fsdp_sums_in(const TrainerWords& words, Precision weights) {
  constexpr std::string_view kept_at = "megatron-fsdp-main-grads-dtype",
                             summed_at = "megatron-fsdp-grad-comm-dtype";
  const auto named = [&](std::string_view at, Precision otherwise) {
    const std::string text = words.text(at).value_or("auto");
    if (text == "auto") return otherwise;
    const auto found = text == "fp32" ? Precision::fp32 : weights;
    if (text != to_text(found)) words.refuse(at, fmt::format("auto, fp32 or {}", to_text(weights)));
    return found;
  };
  const Precision kept = named(kept_at, weights), summed = named(summed_at, kept);
  if (summed != kept) {
    words.refuse(summed_at, "auto, as parsim sums gradients in the precision that they have");
  }
  return kept;
}

void read_precision(const TrainerWords& words, LayoutFile& file) {
  const bool bf16 = words.is_on("bf16"), fp16 = words.is_on("fp16");
  if (bf16 && fp16) words.refuse("fp16", "one of bf16 and fp16");
  file.precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
  const bool in_fp32 = bf16 ? !words.is_on("grad-reduce-in-bf16")
                            : !fp16 || words.is_on("accumulate-allreduce-grads-in-fp32");
  file.reduce_precision = in_fp32 ? Precision::fp32 : *file.precision;
  if (shards_by_fsdp(words) && zero_of(words) > 0) {
    file.reduce_precision = fsdp_sums_in(words, *file.precision);
  }
  if (!words.has("fp8-format")) return;
  constexpr std::string_view gather_at = "fp8-param-gather";
  if (words.is_on(gather_at)) {
    file.notes.push_back(fmt::format("{}: weights are gathered in 16 bits here, which takes longer",
                                     words.where(gather_at)));
  }
  for (const std::string_view name : {"first-last-layers-bf16", "no-fp8-wgrad"}) {
    if (words.is_on(name)) words.refuse(name, "all blocks and all products in FP8");
  }
  const std::string recipe = words.text("fp8-recipe").value_or("delayed");
  if (recipe == "tensorwise") {
    file.precision = Precision::fp8;
  } else if (recipe == "delayed") {
    file.precision = Precision::fp8_delayed;
  } else if (recipe == "blockwise") {
    file.precision = Precision::fp8_blockwise;
  } else {
    words.refuse("fp8-recipe", "tensorwise, delayed or blockwise");
  }
}

void refuse_unknown(const TrainerWords& words) {
  for (const Unknown& unknown : unknown_of_megatron) {
    if (words.is_on(unknown.name)) words.refuse(unknown.name, std::string(unknown.accepted));
  }
}

/// Of Megatron-LM, and FlagScale after it.
void sum_gradients(const TrainerWords& words, const TrainerGroups& groups, LayoutFile& file) {
  constexpr std::string_view overlap = "overlap-grad-reduce";
  const bool overlaps = words.is_on(overlap);
  set_bucket(words, {"ddp-bucket-size", fmt::format("{}: no {}", words.file(), overlap), overlaps},
             "megatron", groups, file);
  if (overlaps || file.zero_stage == 3) return;
  file.notes.push_back(fmt::format(
      "{}: sums of gradients begin after the backward pass, without {}", words.file(), overlap));
}

/// Parts of the tokens. Of Megatron-LM, and FlagScale after it.
void read_megatron_context(const TrainerWords& words, std::int64_t parts, LayoutFile& file) {
  constexpr std::string_view name = "cp-comm-type";
  if (parts == 1) return;
  file.context = static_cast<std::int32_t>(parts);
  if (words.texts(name).size() > 1) words.refuse(name, "one kind");
  file.context_exchange = parse_spelling<strategies::ContextExchange>(
      words.text(name).value_or("p2p"), words.where(name));
}

Optimizer optimizer_of(const TrainerWords& words) {
  const std::string optimizer = words.text("optimizer").value_or("adam");
  if (optimizer == "adam") return Optimizer::adam;
  if (optimizer != "sgd") words.refuse("optimizer", "adam or sgd");
  const auto momentum = to_number<double>(words.text("sgd-momentum").value_or("0.9"));
  if (!momentum) words.refuse("sgd-momentum", "a number");
  return *momentum == 0 ? Optimizer::sgd : Optimizer::momentum;
}

/// Without it, experts are split by the tensor-parallel degree: megatron/core/
/// model_parallel_config.py, __post_init__. A mixture on tensor-parallel groups insists on sequence
/// parallelism: megatron/core/transformer/moe/moe_layer.py, forward.
std::int32_t expert_tensor_of(const TrainerWords& words, std::string_view at, std::int64_t tensor,
                              bool sequence_parallel) {
  const std::int64_t degree = words.integer(at).value_or(tensor);
  if (degree != 1 && degree != tensor) words.refuse(at, fmt::format("1 or {}", tensor));
  if (degree != tensor && !sequence_parallel) words.refuse(at, "1 with --sequence-parallel");
  return static_cast<std::int32_t>(degree);
}

/// Of Megatron-LM, and FlagScale after it: megatron/training/tokenizer/tokenizer.py,
/// _vocab_size_with_padding.
void read_padding(const TrainerWords& words, std::int64_t tensor, LayoutFile& file) {
  constexpr std::string_view name = "make-vocab-size-divisible-by";
  const std::int64_t multiple = words.integer(name).value_or(128);
  if (multiple < 1) words.refuse(name, "1 or more");
  file.words_multiple = multiple * tensor;
}

}  // namespace

LayoutFile of_megatron(const TrainerWords& words, const Network& network, const Cluster& cluster) {
  refuse_unknown(words);
  check_attention(words, network);
  LayoutFile file;
  const std::int64_t tensor = words.integer("tensor-model-parallel-size").value_or(1),
                     pipeline = words.integer("pipeline-model-parallel-size").value_or(1),
                     context = words.integer("context-parallel-size").value_or(1);
  const std::vector<DeviceId> devices = devices_of_hosts(words.file(), cluster);
  TrainerGroups groups{.tensor = tensor, .context = context, .pipeline = pipeline};
  groups.data = replicas_of(words, "tensor-model-parallel-size", devices.size(), groups);
  std::int64_t chunks = 1;
  const std::int64_t blocks = std::ssize(strategies::first_layers_of_blocks(network));
  const std::vector<std::int64_t> stages = blocks_of_megatron(words, blocks, pipeline, chunks);
  // As many as stages by default; more of them keep more activations (schedules.py,
  // get_schedule_table).
  constexpr std::string_view group_at = "microbatch-group-size-per-virtual-pipeline-stage";
  if (words.integer(group_at).value_or(pipeline) != pipeline && chunks > 1) {
    words.refuse(group_at, fmt::format("{}, as many as stages", pipeline));
  }
  file.layout = uniform_layout(words, network, stages, groups, chunks, devices);
  read_megatron_context(words, context, file);
  read_padding(words, tensor, file);
  const std::int64_t each = words.integer("micro-batch-size").value_or(1);
  set_batch(words, "global-batch-size", words.integer("global-batch-size"), each * groups.data,
            file);
  // More than tensor-parallel ones are sharded replicas (core/model_parallel_config.py).
  for (const std::string_view shards_at :
       {"tensor-parallel-num-weight-shards", "expert-tensor-parallel-num-weight-shards"}) {
    if (words.integer(shards_at).value_or(1) > 1 && words.integer(shards_at) != tensor) {
      words.refuse(shards_at, "--use-megatron-fsdp to shard weights");
    }
  }
  file.sequence_parallel = words.is_on("sequence-parallel") && tensor > 1;
  file.tensor_overlap = overlap_of(words, *file.sequence_parallel);
  const bool mixture = strategies::experts_of(network) > 0;
  if (mixture && tensor > 1 && !*file.sequence_parallel) {  // moe_layer.py, forward
    words.refuse("tensor-model-parallel-size", "1 for a mixture, or with --sequence-parallel");
  }
  const std::int64_t experts = words.integer("expert-model-parallel-size").value_or(1);
  if (experts > 1) file.expert_parallel = static_cast<std::int32_t>(experts);
  if (experts > 1 || (mixture && tensor > 1)) {
    const std::string dispatcher = words.text("moe-token-dispatcher-type").value_or("allgather");
    if (dispatcher == "allgather") {
      file.notes.push_back(
          fmt::format("{}: tokens go to experts by all-gathers there "
                      "(moe-token-dispatcher-type); all-to-alls are simulated",
                      words.file()));
    }
  }
  if (constexpr std::string_view at = "expert-tensor-parallel-size"; words.has(at)) {
    file.expert_tensor_parallel = expert_tensor_of(words, at, tensor, *file.sequence_parallel);
  }
  file.zero_stage = zero_of(words);
  if (const auto number = words.integer("num-distributed-optimizer-instances"); number > 1) {
    const std::int64_t sharding = groups.data * context;  // parallel_state.py
    if (sharding % *number != 0) {
      words.refuse("num-distributed-optimizer-instances",
                   context > 1
                       ? fmt::format("a divisor of {} replicas times {} parts of the tokens",
                                     groups.data, context)
                       : fmt::format("a divisor of {} replicas", groups.data));
    }
    file.zero_group = ZeroGroup{static_cast<std::int32_t>(sharding / *number), false};
  }
  file.recompute = recompute_of(words, network);
  read_precision(words, file);
  file.optimizer = optimizer_of(words);
  if (groups.data * context > 1) sum_gradients(words, groups, file);
  if (pipeline > 1 && words.is_on("no-overlap-p2p-communication")) {
    file.sends = strategies::PipelineSends::blocking;
  }
  for (const std::string& variable : words.texts("$")) {
    file.notes.push_back(fmt::format("{}: {} is not assigned there, its arguments are not read",
                                     words.file(), variable));
  }
  if (constexpr std::string_view name = "overlap-param-gather"; words.is_on(name)) {
    file.notes.push_back(fmt::format("{}: not modelled", words.where(name)));
  }
  return file;
}

LayoutFile of_flagscale(const TrainerWords& words, const Network& network, const Cluster& cluster) {
  constexpr std::string_view meshes_at = "hetero-process-meshes",
                             split_at = "hetero-pipeline-layer-split";
  const std::vector<std::int64_t> meshes = words.integers(meshes_at),
                                  split = words.integers(split_at);
  if (meshes.empty() || meshes.size() % 5 != 0 ||
      std::find(meshes.begin(), meshes.end(), 0) != meshes.end()) {
    words.refuse(meshes_at, "tp, cp, ep, dp and pp of each mesh");
  }
  // Everything but the stages is Megatron-LM's.
  refuse_unknown(words);
  check_attention(words, network);
  for (const std::string_view one :
       {"expert-model-parallel-size", "expert-tensor-parallel-size",
        "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"}) {
    if (words.has(one)) words.refuse(one, "none with hetero_process_meshes");
  }
  if (words.has("enable-hetero") && !words.is_on("enable-hetero")) {
    words.refuse("enable-hetero", "True, with hetero_process_meshes");
  }
  std::vector<TrainerGroups> groups;
  std::size_t all = 0;
  for (std::size_t m = 0; m < meshes.size(); m += 5) {
    groups.push_back({meshes[m], meshes[m + 1], meshes[m + 3], meshes[m + 4]});
    all += groups.back().devices();
    if (meshes[m + 2] != 1) words.refuse(meshes_at, "meshes with ep 1");
    if (meshes[m + 1] != meshes[1]) words.refuse(meshes_at, "meshes with the same cp");
  }
  const std::vector<DeviceId> devices = devices_of_hosts(words.file(), cluster);
  if (all != devices.size()) {
    throw InputError(words.where(meshes_at),
                     fmt::format("{} processes for {}", all, counted(std::ssize(devices), "GPU")),
                     "accepted: meshes that use all GPUs, or a hostfile of those that they use");
  }
  LayoutFile file;
  file.layout = mesh_layout(words, split_at, network, split, groups, devices);
  read_megatron_context(words, groups.front().context, file);
  read_padding(words, groups.front().tensor, file);
  const std::int64_t each = words.integer("micro-batch-size").value_or(1);
  set_batch(words, "global-batch-size", words.integer("global-batch-size"),
            each * groups.front().data, file);
  file.sequence_parallel = words.is_on("sequence-parallel");
  file.tensor_overlap = overlap_of(words, *file.sequence_parallel);
  file.zero_stage = zero_of(words);
  file.recompute = recompute_of(words, network);
  read_precision(words, file);
  file.optimizer = optimizer_of(words);
  sum_gradients(words, groups.front(), file);
  return file;
}

}  // namespace parsim::experiment
