// torchtitan's TOML as a layout. Source of names and defaults: torchtitan v0.2.2,
// torchtitan/config/job_config.py.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_hosts.hpp"
#include "experiment/trainer_layout.hpp"
#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

/// Stages of torchtitan, by the names of their modules: all blocks, in their order.
std::vector<std::int64_t> blocks_by_modules(const TrainerWords& words, std::string_view key,
                                            std::int64_t all) {
  std::vector<std::int64_t> blocks;
  std::int64_t next = 0;
  for (const std::string& part : words.texts(key)) {
    std::int64_t number = 0;
    for (std::size_t at = part.find("layers."); at != std::string::npos;
         at = part.find("layers.", at + 1)) {
      const std::size_t digits = at + std::string_view("layers.").size();
      const std::size_t end = std::min(part.find_first_not_of("0123456789", digits), part.size());
      if (to_number<std::int64_t>(part.substr(digits, end - digits)) != next) {
        words.refuse(key, fmt::format("layers.{} next, all blocks in their order", next));
      }
      ++next;
      ++number;
    }
    blocks.push_back(number);
  }
  if (next != all) words.refuse(key, fmt::format("all {} blocks", all));
  return blocks;
}

/// Equal numbers of blocks, if the embedding and the head count as `first` and `last` blocks; what
/// is left over is with the first stages (torchtitan's generate_llm_fqn_per_model_part).
std::vector<std::int64_t> blocks_by_weight(std::int64_t blocks, std::int64_t stages,
                                           std::int64_t first, std::int64_t last) {
  const std::int64_t all = blocks + first + last;
  std::vector<std::int64_t> own;
  for (std::int64_t s = 0; s < stages; ++s) {
    own.push_back(all / stages + (s < all % stages ? 1 : 0));
  }
  own.front() -= first;
  own.back() -= last;
  return own;
}

std::vector<std::int64_t> blocks_of_torchtitan(const TrainerWords& words, std::int64_t blocks,
                                               std::int64_t pipeline) {
  constexpr std::string_view modules = "parallelism.module_fqns_per_model_part";
  if (pipeline == 1) return {blocks};
  if (words.has(modules)) return blocks_by_modules(words, modules, blocks);
  const std::string schedule =
      words.text("parallelism.pipeline_parallel_schedule").value_or("1F1B");
  const std::int64_t first =
      words.integer("parallelism.pipeline_parallel_first_stage_less_layers", 0).value_or(1);
  const std::int64_t last =
      words.integer("parallelism.pipeline_parallel_last_stage_less_layers", 0).value_or(1);
  constexpr std::string_view each = "parallelism.pipeline_parallel_layers_per_stage";
  // torchtitan/distributed/pipeline_parallel.py: embedding and head count as layers, a schedule
  // with chunks needs two or more, another one none.
  const bool interleaved = schedule == "Interleaved1F1B" || schedule == "InterleavedZeroBubble";
  std::int64_t stages = pipeline * (interleaved ? 2 : 1);
  if (const auto number = words.integer(each)) {
    stages = (blocks + first + last + *number - 1) / *number;
  }
  const bool fits =
      stages % pipeline == 0 && (interleaved ? stages / pipeline >= 2 : stages == pipeline);
  const std::vector<std::int64_t> own =
      fits ? blocks_by_weight(blocks, stages, first, last) : std::vector<std::int64_t>{};
  if (!fits || own.front() < 0 || own.back() < 0) {
    throw InputError(
        words.where(words.has(each) ? each : "parallelism.pipeline_parallel_degree"),
        fmt::format("{} blocks in {} stages over {} devices", blocks, stages, pipeline),
        interleaved ? "accepted: two or more stages with blocks for each device"
                    : "accepted: a stage with blocks for each device");
  }
  return own;
}

void read_schedule(const TrainerWords& words, std::int64_t pipeline, LayoutFile& file) {
  constexpr std::string_view key = "parallelism.pipeline_parallel_schedule";
  const std::string name = words.text(key).value_or("1F1B");
  if (pipeline == 1) {
    if (name != "GPipe" && name != "1F1B" && !name.starts_with("Interleaved")) {
      file.notes.push_back(
          fmt::format("{}: {}, which nothing reads: without a pipeline there is no schedule",
                      words.where(key), name));
    }
    return;
  }
  if (name == "GPipe") {
    file.schedule = strategies::PipelineSchedule::gpipe;
  } else if (name == "1F1B" || name == "Interleaved1F1B") {
    file.schedule = strategies::PipelineSchedule::one_f_one_b;
  } else if (name == "InterleavedZeroBubble") {
    file.schedule = strategies::PipelineSchedule::zero_bubble;
  } else {
    words.refuse(key, "GPipe, 1F1B, Interleaved1F1B or InterleavedZeroBubble");
  }
}

void read_recompute(const TrainerWords& words, LayoutFile& file) {
  constexpr std::string_view mode_at = "activation_checkpoint.mode",
                             option_at = "activation_checkpoint.selective_ac_option";
  const std::string mode = words.text(mode_at).value_or("selective");
  const std::string option = words.text(option_at).value_or("2");
  file.recompute = strategies::Recompute::none;
  if (mode == "full") file.recompute = strategies::Recompute::full;
  if (mode == "selective" && option == "op") file.recompute = strategies::Recompute::op;
  if (mode == "selective" && option != "op") {
    const auto every = to_number<std::int32_t>(option);
    if (!every || *every < 1) words.refuse(option_at, "op, or a whole number of 1 or more");
    file.recompute = strategies::Recompute::full;
    file.recompute_every = *every;
  }
  if (mode != "none" && mode != "full" && mode != "selective") {
    words.refuse(mode_at, "none, selective or full");
  }
}

/// Refuses a key of [parallelism] that torchtitan 0.2 does not have: it may be a misspelling.
/// Source: torchtitan v0.2.2, torchtitan/config/job_config.py, Parallelism; of the last two
/// earlier releases.
void check_parallelism(const TrainerWords& words) {
  const std::vector<std::string> known = {"data_parallel_replicate_degree",
                                          "data_parallel_shard_degree",
                                          "fsdp_reshard_after_forward",
                                          "tensor_parallel_degree",
                                          "disable_loss_parallel",
                                          "enable_async_tensor_parallel",
                                          "pipeline_parallel_degree",
                                          "module_fqns_per_model_part",
                                          "pipeline_parallel_first_stage_less_layers",
                                          "pipeline_parallel_last_stage_less_layers",
                                          "pipeline_parallel_layers_per_stage",
                                          "pipeline_parallel_schedule",
                                          "pipeline_parallel_schedule_csv",
                                          "pipeline_parallel_microbatch_size",
                                          "pipeline_parallel_expert_parallel_overlap",
                                          "context_parallel_degree",
                                          "context_parallel_load_balancer",
                                          "context_parallel_rotate_method",
                                          "expert_parallel_degree",
                                          "expert_tensor_parallel_degree",
                                          "expert_parallel_comm_backend",
                                          "pipeline_parallel_split_points",
                                          "enable_compiled_autograd"};
  constexpr std::string_view table = "parallelism.";
  for (const std::string& name : words.names_below(table)) {
    const std::string key = name.substr(table.size());
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw InputError(
        words.where(name), "unknown key",
        fmt::format("accepted: keys of torchtitan's Parallelism{}", did_you_mean(key, known)));
  }
}

/// Parts of the tokens. An all-to-all of theirs shifts keys and values round a ring (see
/// report/launch_torchtitan.cpp).
void read_torchtitan_context(const TrainerWords& words, std::int64_t parts, LayoutFile& file) {
  constexpr std::string_view name = "parallelism.context_parallel_rotate_method";
  const std::string method = words.text(name).value_or("allgather");
  if (method != "allgather" && method != "alltoall") words.refuse(name, "allgather or alltoall");
  if (parts == 1) return;
  file.context = static_cast<std::int32_t>(parts);
  file.context_exchange = method == "alltoall" ? strategies::ContextExchange::p2p
                                               : strategies::ContextExchange::all_gather;
}

/// Samples of a replica, or of each of those that are accumulated.
std::int64_t local_batch_of(const TrainerWords& words, std::string_view name, LayoutFile& file) {
  constexpr std::string_view former = "training.batch_size";  // before torchtitan 0.2
  constexpr std::int64_t usual = 8;
  const auto local = words.integer(name), earlier = words.integer(former);
  if (local && earlier) words.refuse(former, fmt::format("one of {} and {}", former, name));
  if (!local && !earlier) {
    file.notes.push_back(fmt::format("{}: no {}: torchtitan's default is assumed, {} samples",
                                     words.file(), name, usual));
  }
  return local.value_or(earlier.value_or(usual));
}

/// fully_shard reads both. Without it torch.autocast leaves weights, and so their gradients, in
/// FP32, and does not run with groups or pipelines (torchtitan/distributed/utils.py,
/// maybe_enable_amp).
void read_precisions(const TrainerWords& words, const TrainerGroups& groups, bool shards,
                     LayoutFile& file) {
  constexpr std::string_view param_at = "training.mixed_precision_param",
                             reduce_at = "training.mixed_precision_reduce";
  file.precision = precision_named(words, param_at, "bfloat16");
  file.reduce_precision = precision_named(words, reduce_at, "float32");
  if (shards) return;
  if (groups.tensor * groups.pipeline > 1 && file.precision != Precision::fp32) {
    file.precision = Precision::fp32;
    file.notes.push_back(
        fmt::format("{}: torchtitan trains tensor-parallel groups and pipelines in fp32 unless "
                    "FSDP or context parallelism shards the weights",
                    words.has(param_at) ? words.where(param_at) : words.file()));
  }
  if (file.reduce_precision == Precision::fp32) return;
  file.reduce_precision = Precision::fp32;
  file.notes.push_back(
      fmt::format("{}: {}, which nothing reads without FSDP: gradients are summed in fp32",
                  words.where(reduce_at), words.text(reduce_at).value_or("")));
}

}  // namespace

LayoutFile of_torchtitan(const TrainerWords& words, const Network& network,
                         const Cluster& cluster) {
  check_parallelism(words);
  for (const std::string_view key :
       {"training.enable_cpu_offload", "optimizer.early_step_in_backward",
        "quantize.linear.float8.recipe_name", "quantize.linear.mx.recipe_name", "model.converters",
        "fault_tolerance.enable", "parallelism.pipeline_parallel_schedule_csv",
        "parallelism.pipeline_parallel_split_points"}) {
    if (!words.texts(key).empty() && words.is_on(key) && !words.texts(key).front().empty()) {
      words.refuse(key, "none");
    }
  }
  for (const std::string_view key :
       {"parallelism.expert_parallel_degree", "parallelism.expert_tensor_parallel_degree"}) {
    if (words.integer(key).value_or(1) > 1) words.refuse(key, "1");
  }
  // Of the weights and states, which are in FP32 else.
  if (words.text("training.dtype").value_or("float32") != "float32") {
    words.refuse("training.dtype", "float32");
  }
  LayoutFile file;
  TrainerGroups groups;
  groups.tensor = words.integer("parallelism.tensor_parallel_degree").value_or(1);
  groups.context = words.integer("parallelism.context_parallel_degree").value_or(1);
  groups.pipeline = words.integer("parallelism.pipeline_parallel_degree").value_or(1);
  const std::vector<DeviceId> devices = devices_of_hosts(words.file(), cluster);
  groups.data = replicas_of(words, "parallelism.tensor_parallel_degree", devices.size(), groups);
  constexpr std::string_view shard_at = "parallelism.data_parallel_shard_degree",
                             replicate_at = "parallelism.data_parallel_replicate_degree";
  const std::int64_t copies = words.integer(replicate_at).value_or(1);
  if (groups.data % copies != 0) {
    words.refuse(replicate_at, fmt::format("a divisor of {} replicas", groups.data));
  }
  const std::int64_t shards =
      words.text(shard_at).value_or("-1") == "-1" ? groups.data / copies : *words.integer(shard_at);
  if (shards * copies != groups.data) {
    words.refuse(shard_at, fmt::format("{}, for {} replicas", groups.data / copies, groups.data));
  }
  // torchtitan/models/llama3/infra/parallelize.py: "DDP has not supported > 1D parallelism".
  if (copies > 1 && shards * groups.context == 1 && groups.tensor * groups.pipeline > 1) {
    words.refuse(replicate_at,
                 "1 with other parallelism, or a data_parallel_shard_degree of 2 or more");
  }
  const std::vector<std::int64_t> blocks =
      blocks_of_torchtitan(words, blocks_of_network(network), groups.pipeline);
  if (std::ssize(blocks) % groups.pipeline != 0) {
    words.refuse("parallelism.module_fqns_per_model_part",
                 fmt::format("a list for each of {} stages, or a multiple", groups.pipeline));
  }
  file.layout =
      uniform_layout(words, network, blocks, groups, std::ssize(blocks) / groups.pipeline, devices);
  read_torchtitan_context(words, groups.context, file);
  // Of a pipeline the local batch has all micro-batches, else one of those that are accumulated.
  constexpr std::string_view local_at = "training.local_batch_size",
                             batch_at = "training.global_batch_size";
  const std::int64_t local = local_batch_of(words, local_at, file);
  const std::int64_t each =
      groups.pipeline > 1
          ? words.integer("parallelism.pipeline_parallel_microbatch_size").value_or(1)
          : local;
  std::int64_t batch = local * groups.data;
  if (words.has(batch_at) && words.text(batch_at) != "-1") {
    batch = *words.integer(batch_at);
    if (groups.pipeline > 1 && batch != local * groups.data) {
      words.refuse(batch_at,
                   fmt::format("{}, without accumulation over pipelines", local * groups.data));
    }
  }
  set_batch(words, words.has(batch_at) ? batch_at : local_at, batch, each * groups.data, file);
  read_schedule(words, groups.pipeline, file);
  file.sequence_parallel = groups.tensor > 1;
  constexpr std::string_view async_at = "parallelism.enable_async_tensor_parallel";
  file.tensor_overlap = *file.sequence_parallel && words.is_on(async_at);
  file.habits = habits_of_dtensor;
  file.habits.whole_scores = words.is_on("parallelism.disable_loss_parallel");
  // Pipelines keep gathered weights by default. Else FSDP frees them after forward passes alone
  // (backward_maybe_with_nosync of torch/distributed/pipelining/stage.py).
  const std::string reshard =
      words.text("parallelism.fsdp_reshard_after_forward").value_or("default");
  if (reshard != "default" && reshard != "always" && reshard != "never") {
    words.refuse("parallelism.fsdp_reshard_after_forward", "default, always or never");
  }
  const bool drops = reshard != "never" && groups.pipeline == 1;
  if (reshard == "always" && groups.pipeline > 1) {
    file.notes.push_back(fmt::format(
        "{}: stages of a pipeline gather weights again for every backward pass that follows a "
        "forward pass; \"never\" is simulated, which gathers them once, so the step is too short",
        words.where("parallelism.fsdp_reshard_after_forward")));
  }
  // Parts of the tokens shard, too: distributed/parallel_dims.py, fsdp_enabled.
  const std::int64_t owners = shards * groups.context;
  if (!overlaps_sums("torchtitan", 2, groups.pipeline)) file.bucket = after_backward;
  file.zero_stage = owners == 1 ? 0 : drops ? 3 : 2;
  if (owners > 1) file.usual_bucket = strategies::bucket_of_block;
  if (owners > 1 && copies > 1) {
    file.zero_group = ZeroGroup{static_cast<std::int32_t>(owners), false};
  }
  constexpr std::string_view parts_at = "compile.components";
  const std::vector<std::string> parts = words.texts(parts_at);
  const bool model =
      !words.has(parts_at) || std::find(parts.begin(), parts.end(), "model") != parts.end();
  const bool compiled = (words.is_on("compile.enable") && model) || words.is_on("training.compile");
  if (words.is_on(async_at) && !compiled) {  // distributed/tensor_parallel.py
    words.refuse(async_at, "false, or a model that is compiled ([compile] enable = true)");
  }
  if (compiled) {
    if (words.text("compile.backend").value_or("inductor") == "inductor") {
      file.fusion = sim::Fusion::compiled;  // "eager" and "aot_eager" run PyTorch's kernels
    }
    // torch/distributed/pipelining/schedules.py, _check_torch_compile_compatibility.
    if (file.schedule == strategies::PipelineSchedule::zero_bubble) {
      words.refuse("parallelism.pipeline_parallel_schedule",
                   "another schedule, or a model that is not compiled");
    }
  }
  read_recompute(words, file);
  read_precisions(words, groups, owners > 1, file);
  file.optimizer = optimizer_named(words, "optimizer.name");
  words.check_spelling();
  return file;
}

}  // namespace parsim::experiment
