// The YAML of Hugging Face accelerate as a layout. Source of names and defaults: accelerate 1.15.0,
// commands/config/config_args.py, commands/launch.py, utils/dataclasses.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_hosts.hpp"
#include "experiment/trainer_layout.hpp"
#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view type_at = "distributed-type", processes_at = "num-processes",
                           machines_at = "num-machines", tensor_at = "parallelism-config-tp-size",
                           shard_at = "parallelism-config-dp-shard-size",
                           replicate_at = "parallelism-config-dp-replicate-size",
                           reshard_at = "fsdp-reshard-after-forward",
                           wrap_at = "fsdp-auto-wrap-policy",
                           recompute_at = "fsdp-activation-checkpointing";

/// accelerate checks the names of its own settings only, and passes those of FSDP and of the
/// parallelism on: they may be misspelt. The last of FSDP is that of earlier releases.
void check_names(const TrainerWords& words) {
  const std::vector<std::string> known = {"fsdp-config",
                                          "fsdp-version",
                                          "fsdp-sharding-strategy",
                                          "fsdp-reshard-after-forward",
                                          "fsdp-auto-wrap-policy",
                                          "fsdp-transformer-layer-cls-to-wrap",
                                          "fsdp-min-num-params",
                                          "fsdp-offload-params",
                                          "fsdp-backward-prefetch",
                                          "fsdp-forward-prefetch",
                                          "fsdp-state-dict-type",
                                          "fsdp-use-orig-params",
                                          "fsdp-cpu-ram-efficient-loading",
                                          "fsdp-sync-module-states",
                                          "fsdp-activation-checkpointing",
                                          "fsdp-activation-checkpointing-offload",
                                          "fsdp-backward-prefetch-policy",
                                          "parallelism-config",
                                          "parallelism-config-dp-replicate-size",
                                          "parallelism-config-dp-shard-size",
                                          "parallelism-config-tp-size",
                                          "parallelism-config-cp-size",
                                          "parallelism-config-cp-backend",
                                          "parallelism-config-cp-comm-strategy",
                                          "parallelism-config-sp-size",
                                          "parallelism-config-sp-backend",
                                          "parallelism-config-sp-seq-length",
                                          "parallelism-config-sp-seq-length-is-variable",
                                          "parallelism-config-sp-attn-implementation"};
  for (const std::string_view prefix : {"fsdp-", "parallelism-config-"}) {
    for (const std::string& name : words.names_below(prefix)) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw InputError(words.where(name), "unknown key",
                       fmt::format("accepted: keys of accelerate's fsdp_config and "
                                   "parallelism_config{}",
                                   did_you_mean(name, known)));
    }
  }
  // accelerate launch adds the prefix of their table to these (commands/launch.py,
  // _validate_launch_command), and no other setting has such a name.
  const auto refuse_without = [&](std::string_view prefix, std::string_view rest) {
    if (!words.has(rest)) return;
    std::string whole = fmt::format("{}{}", prefix, rest);
    std::replace(whole.begin(), whole.end(), '-', '_');
    throw InputError(words.where(rest), "a name without its prefix",
                     fmt::format("accepted: {}", whole));
  };
  constexpr std::string_view of_fsdp = "fsdp-";
  for (const std::string& name : known) {
    if (name.starts_with(of_fsdp) && name != "fsdp-config") {
      refuse_without(of_fsdp, std::string_view(name).substr(of_fsdp.size()));
    }
  }
  if (words.text("mixed-precision") == "fp8") return;  // whose own table has a backend
  for (const std::string_view rest : {"backend", "mode", "use-dynamic", "use-fullgraph"}) {
    refuse_without("dynamo-", rest);
  }
}

void refuse_what_no_plan_has(const TrainerWords& words) {
  for (const std::string_view key :
       {"fsdp-offload-params", "fsdp-activation-checkpointing-offload", "offload-optimizer-device",
        "offload-param-device", "use-cpu", "tpu-use-cluster"}) {
    if (words.is_on(key) && words.text(key) != "none") words.refuse(key, "all on the GPU");
  }
  for (const std::string_view key : {"parallelism-config-cp-size", "parallelism-config-sp-size"}) {
    if (words.integer(key).value_or(1) > 1) words.refuse(key, "1");
  }
  if (words.has("deepspeed-config-file")) {
    words.refuse("deepspeed-config-file", "settings in this file, or --plan with that one");
  }
}

bool has_sizes(const TrainerWords& words) {
  return !words.names_below("parallelism-config-").empty();
}

std::int64_t machines_of(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::set<NodeId> machines;
  for (const DeviceId device : devices) machines.insert(cluster[device].node);
  return std::ssize(machines);
}

/// A file without num_machines may have it on its command line.
void check_machines(const TrainerWords& words, std::int64_t machines) {
  const std::int64_t stated = words.integer(machines_at).value_or(machines);
  if (stated == machines) return;
  throw InputError(
      words.where(machines_at),
      fmt::format("{} for GPUs of {}", counted(stated, "machine"), counted(machines, "machine")),
      fmt::format("accepted: {}, or a hostfile of those that are used", machines));
}

/// What accelerate itself refuses of the sizes of a parallelism (parallelism_config.py,
/// __post_init__ and _validate_accelerator), and those that only FSDP makes something of. A
/// MULTI_GPU run with tensor parallelism has no replicas: no DDP wraps its model (accelerator.py,
/// prepare_model).
void check_sizes(const TrainerWords& words, std::string_view type, std::int64_t processes) {
  if (!has_sizes(words)) return;
  if (type == "FSDP") {
    if (words.integer("fsdp-version").value_or(1) != 2) {
      words.refuse("fsdp-version", "2 with a parallelism_config");
    }
    if (words.integer(shard_at).value_or(1) > 1) return;
    throw InputError(words.where(shard_at), "1, so FSDP shards nothing",
                     "accepted: 2 or more, no parallelism_config, or distributed_type: MULTI_GPU");
  }
  const auto check = [&](std::string_view name, bool may_be_all) {
    const std::int64_t size = words.integer(name).value_or(1);
    if (size == 1 || (may_be_all && size == processes)) return;
    words.refuse(name, fmt::format("1{} with distributed_type: {}",
                                   may_be_all ? fmt::format(" or {}", processes) : "", type));
  };
  check(tensor_at, type == "MULTI_GPU");
  check(shard_at, false);
  check(replicate_at, true);
}

/// Whether each block is a unit that FSDP gathers and sums. NO_WRAP is the default (utils/
/// dataclasses.py, FullyShardedDataParallelPlugin). Without blocks there is no class to wrap,
/// unless it is named: accelerate then wraps the root alone (set_auto_wrap_policy). Units by size
/// are modules in FSDP 1 and an error of PyTorch's fully_shard in FSDP 2, as a list of blocks is no
/// module with a forward pass.
bool wraps_blocks(const TrainerWords& words, bool has_blocks) {
  const std::string policy = lower_case(words.text(wrap_at).value_or("no_wrap"));
  if (policy == "transformer_based_wrap") {
    constexpr std::string_view class_at = "fsdp-transformer-layer-cls-to-wrap";
    if (has_blocks || words.text(class_at).value_or("").empty()) return has_blocks;
    words.refuse(class_at,
                 "none, for a network without transformer blocks, as parsim has no units "
                 "of other classes");
  }
  if (policy != "no_wrap") {
    words.refuse(wrap_at, "TRANSFORMER_BASED_WRAP or NO_WRAP, as parsim has no units by size");
  }
  if (words.is_on(recompute_at)) {
    words.refuse(recompute_at, "false, or fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP");
  }
  return false;
}

/// FSDP with one unit, the root's: PyTorch keeps its weights from the forward to the backward pass
/// (torch/distributed/fsdp/_runtime_utils.py, _post_forward_reshard; fully_shard's default), and
/// its whole gradients are there before they are summed.
void read_one_unit(const TrainerWords& words, bool has_blocks, LayoutFile& file) {
  file.bucket = after_backward;
  const std::string where = words.has(wrap_at) ? words.where(wrap_at) : words.file();
  const std::string unit =
      fmt::format("{}: FSDP {} sums all gradients after the backward pass", where,
                  has_blocks ? "without fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
                             : "of a network without transformer blocks");
  if (file.zero_stage == 0) {
    file.notes.push_back(unit);
    return;
  }
  file.zero_stage = 1;
  file.notes.push_back(
      fmt::format("{} and keeps them and the weights whole until then: ZeRO 1 is simulated{}", unit,
                  file.keeps_while_accumulating
                      ? ""
                      : ", which gathers weights once a step, not for each micro-batch"));
  file.keeps_while_accumulating = false;
}

/// Whether FSDP 1 issues the gather of a block before the sums of the block before it, with which
/// it shares a stream of NCCL. BACKWARD_POST does so, too, once the block's kernels are launched
/// (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook). NO_PREFETCH is the default, and
/// numbers count (utils/dataclasses.py, FullyShardedDataParallelPlugin).
bool prefetches(const TrainerWords& words) {
  constexpr std::string_view prefetch_at = "fsdp-backward-prefetch";
  const std::string prefetch = lower_case(words.text(prefetch_at).value_or("no_prefetch"));
  constexpr std::array early{"backward_pre", "backward_post", "1", "2"};
  if (prefetch != "no_prefetch" && !std::count(early.begin(), early.end(), prefetch)) {
    words.refuse(prefetch_at, "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
  }
  return prefetch != "no_prefetch";
}

/// The ZeRO stage that FSDP stands for, and the replicas that share a copy of the states.
void read_fsdp(const TrainerWords& words, std::int64_t replicas, bool has_blocks,
               LayoutFile& file) {
  if (words.integer("fsdp-version").value_or(1) == 2) {
    // utils/other.py, str_to_bool.
    const std::string reshard = lower_case(words.text(reshard_at).value_or("true"));
    constexpr std::array yes{"true", "yes", "y", "t", "on", "1"},
        no{"false", "no", "n", "f", "off", "0"};
    const bool keeps = std::count(no.begin(), no.end(), reshard) > 0;
    if (!keeps && !std::count(yes.begin(), yes.end(), reshard)) {
      words.refuse(reshard_at, "true or false");
    }
    file.zero_stage = keeps ? 2 : 3;
  } else {
    // accelerate launch sets it in any case, and it goes before (accelerator.py, prepare_model).
    constexpr std::string_view key = "fsdp-sharding-strategy";
    const std::string strategy = lower_case(words.text(key).value_or("full_shard"));
    const std::string reshard = lower_case(words.text(reshard_at).value_or("full_shard"));
    if (!words.has(key) && reshard != "full_shard" && reshard != "1") {
      file.notes.push_back(fmt::format(
          "{}: FSDP 1 follows fsdp_sharding_strategy, FULL_SHARD where the file has none, not this",
          words.where(reshard_at)));
    }
    if (strategy == "full_shard" || strategy == "1") {
      file.zero_stage = 3;
    } else if (strategy == "shard_grad_op" || strategy == "2") {
      // torch/distributed/fsdp/_runtime_utils.py, _should_free_in_backward.
      file.zero_stage = 2;
      file.keeps_while_accumulating = true;
    } else if (strategy == "no_shard" || strategy == "3") {
      file.zero_stage = 0;
    } else {
      words.refuse(key, "FULL_SHARD, SHARD_GRAD_OP or NO_SHARD");
    }
  }
  if (words.is_on(recompute_at)) file.recompute = strategies::Recompute::full;
  const std::int64_t copies = words.integer(replicate_at).value_or(1);
  const std::int64_t shards = words.integer(shard_at).value_or(replicas);
  if (copies * shards != replicas) {
    throw InputError(words.where(words.has(shard_at) ? shard_at : replicate_at),
                     fmt::format("{} copies of {} shards", copies, shards),
                     fmt::format("accepted: sizes whose product is {} replicas", replicas));
  }
  if (shards == 1) {
    file.zero_stage = 0;
    file.keeps_while_accumulating = false;
  }
  if (*file.zero_stage >= 2) {
    file.usual_bucket = words.integer("fsdp-version").value_or(1) == 1
                            ? strategies::bucket_of_block_and_root
                            : strategies::bucket_of_block;
  }
  if (!wraps_blocks(words, has_blocks) && replicas > 1) read_one_unit(words, has_blocks, file);
  if (words.integer("fsdp-version").value_or(1) == 1) {
    const bool early = prefetches(words);
    file.habits.late_gathers = file.zero_stage == 3 && !early;
  }
  if (file.keeps_while_accumulating) {
    file.notes.push_back(
        fmt::format("{}: FSDP 1 keeps gathered weights and whole gradients while micro-batches "
                    "accumulate: with several, ZeRO 1 is simulated, which moves as much",
                    words.file()));
  }
  if (copies > 1 && shards > 1) {
    file.zero_group = ZeroGroup{static_cast<std::int32_t>(shards), false};
  }
}

}  // namespace

LayoutFile of_accelerate(const TrainerWords& words, const Network& network, const Cluster& cluster,
                         std::optional<std::int64_t> asked_batch) {
  check_names(words);
  refuse_what_no_plan_has(words);
  const std::string type = words.text(type_at).value_or("");
  const bool fsdp = type == "FSDP", deepspeed = type == "DEEPSPEED";
  if (!fsdp && !deepspeed && type != "MULTI_GPU" && type != "NO") {
    words.refuse(type_at, "NO, MULTI_GPU, FSDP or DEEPSPEED");
  }
  const std::vector<DeviceId> devices = devices_of_hosts(words.file(), cluster);
  if (type == "NO" && devices.size() > 1) {  // commands/launch.py, simple_launcher
    words.refuse(type_at, fmt::format("MULTI_GPU, FSDP or DEEPSPEED for {} GPUs, as accelerate "
                                      "launches one process without",
                                      devices.size()));
  }
  const std::int64_t processes =
      type == "NO" ? 1 : words.integer(processes_at).value_or(std::ssize(devices));
  if (processes != std::ssize(devices)) {
    throw InputError(
        words.where(processes_at),
        fmt::format("{} processes for {}", processes, counted(std::ssize(devices), "GPU")),
        "accepted: a process for each GPU, or a hostfile of those that are used");
  }
  check_machines(words, machines_of(cluster, devices));
  LayoutFile file;
  TrainerGroups groups;
  check_sizes(words, type, processes);
  groups.tensor = words.integer(tensor_at).value_or(1);
  const std::int64_t blocks = std::ssize(strategies::first_layers_of_blocks(network));
  if (groups.tensor > 1 && blocks == 0) {
    words.refuse(tensor_at, "1, for a network without transformer blocks");
  }
  file.habits = habits_of_transformers;
  file.replicas = groups.data = replicas_of(words, tensor_at, devices.size(), groups);
  file.layout = uniform_layout(words, network, {blocks}, groups, 1, devices);
  if (!asked_batch) {
    throw InputError("--batch", fmt::format("missing: {} leaves it open", words.file()),
                     "accepted: the samples of a step, which the script decides");
  }
  // Its former name: commands/config/config_args.py, process_config.
  const bool halves = !words.has("mixed-precision") && words.is_on("fp16");
  const std::string precision = words.text("mixed-precision").value_or(halves ? "fp16" : "no");
  if (precision != "no" && precision != "bf16" && precision != "fp16") {
    words.refuse("mixed-precision", "no, bf16 or fp16");
  }
  file.precision = precision == "no"     ? Precision::fp32
                   : precision == "bf16" ? Precision::bf16
                                         : Precision::fp16;
  file.reduce_precision = fsdp || deepspeed ? *file.precision : Precision::fp32;
  // Of any type, in any case: src/accelerate/utils/launch.py, DynamoBackend of an upper-case name.
  if (lower_case(words.text("dynamo-backend").value_or("")) == "inductor") {
    file.fusion = sim::Fusion::compiled;
  }
  file.zero_stage = 0;
  if (fsdp) read_fsdp(words, groups.data, blocks > 0, file);
  if (deepspeed) file.reduce_every = ReduceEvery::automatic;
  if (!deepspeed) {
    words.check_spelling();
    return file;
  }
  file.zero_stage = static_cast<std::int32_t>(words.integer("zero-stage", 0).value_or(2));
  if (*file.zero_stage > 3) words.refuse("zero-stage", "0 to 3");
  if (*file.zero_stage < 3) {
    file.bucket = after_backward;
  } else {
    file.usual_bucket = usual_bucket("deepspeed", 3, groups, *file.reduce_precision);
  }
  check_deepspeed_zero(words, network, groups.data, true, file);
  constexpr std::string_view steps_at = "gradient-accumulation-steps";
  if (words.has(steps_at) && words.text(steps_at) != "auto") {
    file.micro_batches = static_cast<std::int32_t>(*words.integer(steps_at));
  }
  words.check_spelling();
  return file;
}

}  // namespace parsim::experiment
