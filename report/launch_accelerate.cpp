// Hugging Face accelerate carries DDP, ZeRO 1 by DeepSpeed, FSDP and HSDP, with FSDP also
// tensor-parallel groups; batch and optimizer are the script's. Source of keys: accelerate 1.15.0,
// commands/config/config_args.py, commands/launch.py, parallelism_config.py; of what gradients are
// reduced in: utils/dataclasses.py, set_mixed_precision.
#include <fmt/format.h>

#include "core/text.hpp"
#include "report/launch_parts.hpp"
#include "strategies/blocks.hpp"

namespace parsim::report {

namespace {

/// What shards the states.
enum class Engine : std::uint8_t { none, ddp, deepspeed, fsdp };

Engine engine_of(const CarriedPlan& carried) {
  const strategies::Degrees& degrees = carried.degrees();
  if (*degrees.dp == 1) return Engine::none;
  return *degrees.zero == 0 ? Engine::ddp : *degrees.zero == 1 ? Engine::deepspeed : Engine::fsdp;
}

void check_accelerate(const CarriedPlan& carried, Engine engine) {
  const strategies::Degrees& degrees = carried.degrees();
  if (*degrees.pp > 1) {
    carried.refuse("it is a pipeline", "--pp 1, or --launch megatron or torchtitan");
  }
  if (degrees.cp.value_or(1) > 1) {
    carried.refuse("it divides tokens", "--cp 1, or --launch torchtitan");
  }
  if (degrees.ep.value_or(1) > 1) carried.refuse("it divides experts", "--ep 1");
  carried.require_split_experts();
  if (*degrees.tp > 1 && engine != Engine::fsdp) {
    carried.refuse("its tensor-parallel groups are without FSDP, which parsim does not write",
                   "--zero 2 or 3, with --dp 2 or more");
  }
  if (degrees.sequence_parallel.value_or(false)) {
    carried.refuse("it has sequence parallelism", "no --sequence-parallel, or --launch torchtitan");
  }
  const bool blocks = !strategies::first_layers_of_blocks(carried.network).empty();
  if (engine == Engine::fsdp && !blocks) {
    carried.refuse("FSDP wraps blocks of transformers", "--zero 0 or 1");
  }
  if (engine != Engine::fsdp && carried.zero_groups() > 1) {
    carried.refuse("it has ZeRO groups without FSDP", "--zero 2 or 3");
  }
  const bool cast = engine == Engine::fsdp || engine == Engine::deepspeed;
  const Precision reduced = cast ? carried.plan.precision : Precision::fp32;
  if (carried.plan.reduce_precision != reduced) {
    carried.refuse(
        fmt::format("gradients are reduced in {}", to_text(carried.plan.reduce_precision)),
        fmt::format("--reduce-precision {}", to_text(reduced)));
  }
}

std::string accelerate_yaml(const CarriedPlan& carried, Engine engine,
                            const std::vector<LaunchMachine>& machines) {
  const strategies::Degrees& degrees = carried.degrees();
  const Precision precision = carried.plan.precision;
  constexpr std::string_view types[] = {"NO", "MULTI_GPU", "DEEPSPEED", "FSDP"};
  std::string text = fmt::format(
      "# For accelerate 1.15: accelerate launch --config_file accelerate.yaml\n"
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: {}\n"
      "num_machines: {}\n"
      "num_processes: {}\n"
      "mixed_precision: '{}'\n",
      types[static_cast<std::size_t>(engine)], machines.size(),
      machines.size() * machines.front().gpus.size(),
      precision == Precision::fp32 ? "no" : to_text(precision));
  if (engine == Engine::deepspeed) {
    text += fmt::format(
        "deepspeed_config:\n"
        "  deepspeed_multinode_launcher: standard\n"
        "  gradient_accumulation_steps: {}\n"
        "  offload_optimizer_device: none\n"
        "  offload_param_device: none\n"
        "  zero_stage: {}\n",
        carried.plan.schedule.micro_batches, *degrees.zero);
  }
  if (engine != Engine::fsdp) return text;
  text += fmt::format(
      "fsdp_config:\n"
      "  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: {}\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_activation_checkpointing: {}\n",
      *degrees.zero == 3, degrees.recompute == strategies::Recompute::full);
  const std::int64_t copies = carried.zero_groups();
  if (copies == 1 && *degrees.tp == 1) return text;
  return text + fmt::format(
                    "parallelism_config:\n"
                    "  parallelism_config_dp_replicate_size: {}\n"
                    "  parallelism_config_dp_shard_size: {}\n"
                    "  parallelism_config_tp_size: {}\n",
                    copies, *degrees.dp / copies, *degrees.tp);
}

}  // namespace

Launch accelerate_files(const CarriedPlan& carried) {
  carried.require_equal_degrees();
  const Engine engine = engine_of(carried);
  check_accelerate(carried, engine);
  const strategies::Degrees& degrees = carried.degrees();
  const std::int64_t steps = carried.plan.schedule.micro_batches;
  Launch launch;
  launch.not_carried = {
      fmt::format("the model, its data, the batch and the optimizer: the script's (parsim reads "
                  "the files back with --batch {} --optimizer {})",
                  carried.plan.batch, to_text(carried.plan.optimizer)),
      fmt::format("micro-batches of {}: the script's (per_device_train_batch_size of Hugging "
                  "Face's Trainer{})",
                  counted(*degrees.micro_batch, "sample"),
                  steps == 1 || engine == Engine::deepspeed
                      ? ""
                      : fmt::format("; parsim reads them back with --micro-batches {}", steps))};
  if (engine == Engine::fsdp) {
    carried.require_recompute({strategies::Recompute::none, strategies::Recompute::full},
                              "none or full");
  } else if (degrees.recompute != strategies::Recompute::none) {
    const std::string recompute(to_text(*degrees.recompute));
    launch.not_carried.push_back(fmt::format(
        "recomputation ({}): switch it on in the model, as with gradient_checkpointing_enable() "
        "of Hugging Face; parsim reads the files back as this plan with --recompute {}",
        recompute, recompute));
  }
  if (engine == Engine::deepspeed) {
    launch.not_carried.emplace_back(
        "reduce-scatters of gradients: DeepSpeed all-reduces them, which moves twice the bytes, "
        "unless a file of its own sets \"use_multi_rank_bucket_allreduce\": false");
  }
  if (engine != Engine::deepspeed && carried.plan.precision != Precision::fp32) {
    launch.not_carried.push_back(
        fmt::format("weights in {}: accelerate keeps FP32 ones and casts them at each use",
                    to_text(carried.plan.precision)));
  }
  if (carried.plan.schedule.reduce_every == ReduceEvery::micro_batch && steps > 1) {
    launch.not_carried.emplace_back(
        "gradients reduced after every micro-batch: the script's (sync_each_batch=True of "
        "GradientAccumulationPlugin; parsim reads the files back with --reduce-every micro-batch)");
  }
  if (*degrees.tp > 1) launch.not_carried.push_back(habits_line("transformers"));
  const std::vector<LaunchMachine> machines = carried.equal_machines();
  launch.files = {
      {"accelerate.yaml", accelerate_yaml(carried, engine, machines)},
      {"run.sh",
       machine_script(machines, "SCRIPT.py ARGUMENTS") +
           fmt::format(
               "here=$(cd -- \"$(dirname -- \"${{BASH_SOURCE[0]}}\")\" && pwd)\n"
               "export ACCELERATE_GRADIENT_ACCUMULATION_STEPS={}\n"
               "exec accelerate launch --config_file \"$here/accelerate.yaml\" \\\n"
               "  --machine_rank \"$NODE_RANK\" \\\n"
               "  --main_process_ip \"${{MASTER_ADDR:?the first machine of hostfile}}\" \\\n"
               "  --main_process_port \"${{MASTER_PORT:-29500}}\" \"$@\"\n",
               steps),
       true},
      {"hostfile", hostfile_of(machines)},
      {"README.md", fmt::format("{} on {}, written by parsim for accelerate: {}.\n"
                                "On the machine in line N of `hostfile`, counted from 0, run\n"
                                "`NODE_RANK=N MASTER_ADDR={} ./run.sh SCRIPT.py ARGUMENTS`.\n",
                                carried.plan.network, carried.plan.cluster,
                                strategies::short_text(degrees), machines.front().name)}};
  return launch;
}

}  // namespace parsim::report
