// DeepSpeed's configuration carries ZeRO and tensor-parallel groups; pipelines are Python there.
// Source of keys: DeepSpeed 0.19.8, deepspeed/runtime/constants.py, runtime/zero/config.py,
// runtime/tensor_parallel/config.py, launcher/runner.py.
#include <fmt/format.h>

#include "core/json_writer.hpp"
#include "core/text.hpp"
#include "report/launch_parts.hpp"
#include "strategies/blocks.hpp"

namespace parsim::report {

namespace {

void check_deepspeed(const CarriedPlan& carried) {
  const strategies::Degrees& degrees = carried.degrees();
  if (*degrees.pp > 1) {
    carried.refuse("it is a pipeline, which is Python in DeepSpeed (PipelineModule)",
                   "--pp 1, or --launch megatron");
  }
  if (*degrees.tp > 1 && strategies::first_layers_of_blocks(carried.network).empty()) {
    carried.refuse("AutoTP divides the linear layers of transformers only", "--tp 1");
  }
  if (degrees.cp.value_or(1) > 1) carried.refuse("it divides tokens", "--cp 1");
  if (degrees.ep.value_or(1) > 1 && *degrees.tp > 1) {  // docs, "Expert Parallel"
    carried.refuse("AutoEP divides experts without tensor-parallel groups only",
                   "--tp 1 or --ep 1");
  }
  carried.require_split_experts();
  if (degrees.sequence_parallel.value_or(false)) {
    carried.refuse("it has sequence parallelism", "no --sequence-parallel");
  }
  if (carried.zero_groups() > 1) {  // MiCS was removed: runtime/config.py refuses its keys
    carried.refuse("it has ZeRO groups", "no --zero-group, or --launch megatron or torchtitan");
  }
}

std::string deepspeed_json(const CarriedPlan& carried) {
  const Plan& plan = carried.plan;
  const strategies::Degrees& degrees = carried.degrees();
  json::Writer out;
  out.open_object();
  out.key("train_batch_size").integer(plan.batch);
  out.key("train_micro_batch_size_per_gpu").integer(*degrees.micro_batch);
  out.key("gradient_accumulation_steps").integer(plan.schedule.micro_batches);
  for (const auto& [key, precision] :
       {std::pair{"bf16", Precision::bf16}, std::pair{"fp16", Precision::fp16}}) {
    if (plan.precision != precision) continue;
    out.key(key).open_object();
    out.key("enabled").boolean(true);
    out.close_object();
  }
  out.key("communication_data_type").text(to_text(plan.reduce_precision));
  out.key("zero_optimization").open_object();
  out.key("stage").integer(*degrees.zero);
  out.key("overlap_comm").boolean(true);
  if (*degrees.zero == 1 || *degrees.zero == 2) {
    // Else gradients are all-reduced (stage_1_and_2.py, average_tensor).
    out.key("use_multi_rank_bucket_allreduce").boolean(false);
  }
  out.close_object();
  if (*degrees.tp > 1) {
    out.key("tensor_parallel").open_object();
    out.key("autotp_size").integer(*degrees.tp);
    out.close_object();
  }
  if (degrees.ep.value_or(1) > 1) {
    out.key("expert_parallel").open_object();
    out.key("enabled").boolean(true);
    out.key("autoep_size").integer(*degrees.ep);
    out.close_object();
  }
  out.close_object();
  return out.take();
}

}  // namespace

Launch deepspeed_files(const CarriedPlan& carried) {
  carried.require_equal_degrees();
  check_deepspeed(carried);
  const std::vector<LaunchMachine> machines = carried.machines();
  std::string include;
  for (const LaunchMachine& machine : machines) {
    include += fmt::format("{}{}:{}", include.empty() ? "" : "@", machine.name,
                           fmt::join(machine.gpus, ","));
  }
  Launch launch;
  const std::string recompute(to_text(*carried.degrees().recompute));
  launch.not_carried = {
      fmt::format("the model, its data and the optimizer: the script's (parsim reads the "
                  "files back with --optimizer {})",
                  to_text(carried.plan.optimizer)),
      fmt::format("sizes of gradient buckets: DeepSpeed chooses them ({}reduce_bucket_size)",
                  *carried.degrees().zero == 3 ? "stage3_prefetch_bucket_size, " : "")};
  if (carried.degrees().recompute != strategies::Recompute::none) {
    launch.not_carried.push_back(fmt::format(
        "recomputation ({}): switch it on in the model, as with gradient_checkpointing_enable() "
        "of Hugging Face; parsim reads the files back as this plan with --recompute {}",
        recompute, recompute));
  }
  if (*carried.degrees().tp > 1) launch.not_carried.push_back(habits_line("AutoTP"));
  launch.files = {
      {"ds_config.json", deepspeed_json(carried)},
      {"hostfile", hostfile_of(machines)},
      {"run.sh",
       fmt::format("#!/usr/bin/env bash\n"
                   "# On the first machine of hostfile: ./run.sh SCRIPT.py ARGUMENTS\n"
                   "set -euo pipefail\n"
                   "here=$(cd -- \"$(dirname -- \"${{BASH_SOURCE[0]}}\")\" && pwd)\n"
                   "exec deepspeed --hostfile \"$here/hostfile\" \\\n"
                   "  --include '{}' \\\n"
                   "  \"$@\" --deepspeed --deepspeed_config \"$here/ds_config.json\"\n",
                   include),
       true},
      {"README.md",
       fmt::format("{} on {}, written by parsim for DeepSpeed: {}.\n"
                   "On {}, the first machine of `hostfile`, run `./run.sh SCRIPT.py ARGUMENTS`\n"
                   "with a script that calls `deepspeed.initialize`.\n",
                   carried.plan.network, carried.plan.cluster,
                   strategies::short_text(carried.degrees()), machines.front().name)}};
  return launch;
}

}  // namespace parsim::report
