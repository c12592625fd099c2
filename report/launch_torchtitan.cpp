// torchtitan carries FSDP, tensor, pipeline and context parallelism. Source of keys: torchtitan
// v0.2.2, torchtitan/config/job_config.py; of the order of ranks (pp, dp_replicate, dp_shard, cp,
// tp): torchtitan/distributed/parallel_dims.py.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "report/launch_parts.hpp"
#include "strategies/blocks.hpp"

namespace parsim::report {

namespace {

void check_torchtitan(const CarriedPlan& carried) {
  const strategies::Degrees& degrees = carried.degrees();
  const std::int64_t sharding = *degrees.dp * degrees.cp.value_or(1);
  const bool alone = *degrees.tp * degrees.cp.value_or(1) * *degrees.pp == 1;
  if (*degrees.tp > 1 && !degrees.sequence_parallel.value_or(false)) {
    carried.refuse("its tensor-parallel groups have no sequence parallelism",
                   "--sequence-parallel");
  }
  if (*degrees.dp > 1 && *degrees.zero == 0 && !alone) {
    carried.refuse("its replicas hold whole states, together with other parallelism",
                   "--zero 2 or 3");
  }
  if (degrees.cp.value_or(1) > 1 && *degrees.zero == 0) {
    carried.refuse("its parts of the tokens hold whole states", "--zero 2 or 3");
  }
  if (degrees.cp.value_or(1) > 1 &&
      carried.context_exchange() == strategies::ContextExchange::a2a) {
    carried.refuse("its parts of the tokens exchange heads", "--cp-comm p2p or all_gather");
  }
  if (sharding > 1 && *degrees.zero == 1) {
    carried.refuse("it shards optimizer states only", "--zero 2 or 3");
  }
  if (*degrees.zero == 3 && *degrees.pp > 1) {
    carried.refuse(
        "its stages free gathered weights after each pass, which PyTorch's pipelines do after "
        "forward passes alone",
        "--zero 2");
  }
  // torchtitan/distributed/utils.py, maybe_enable_amp
  if (sharding == 1 && !alone && carried.plan.precision != Precision::fp32) {
    carried.refuse(
        fmt::format("its precision is {}, and torchtitan trains tensor-parallel groups and "
                    "pipelines without FSDP in fp32",
                    to_text(carried.plan.precision)),
        "--precision fp32, or --zero 2 or 3 with --dp 2 or more");
  }
  if (degrees.ep.value_or(1) > 1) carried.refuse("it divides experts", "--ep 1");
  carried.require_split_experts();
  if (carried.plan.reduce_precision != Precision::fp32) {
    carried.refuse(
        fmt::format("gradients are reduced in {}", to_text(carried.plan.reduce_precision)),
        "--reduce-precision fp32");
  }
}

/// Names of the modules of each stage, by those of torchtitan's Llama.
std::string modules(const std::vector<std::int64_t>& blocks) {
  std::string text;
  std::int64_t next = 0;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    std::vector<std::string> names;
    if (s == 0) names.emplace_back("\"tok_embeddings\"");
    for (std::int64_t b = 0; b < blocks[s]; ++b) {
      names.push_back(fmt::format("\"layers.{}\"", next++));
    }
    if (s + 1 == blocks.size()) names.insert(names.end(), {"\"norm\"", "\"output\""});
    text += fmt::format("  [{}],\n", fmt::join(names, ", "));
  }
  return text;
}

std::string torchtitan_toml(const CarriedPlan& carried) {
  const Plan& plan = carried.plan;
  const strategies::Degrees& degrees = carried.degrees();
  const bool shards = *degrees.zero > 0 && *degrees.dp * degrees.cp.value_or(1) > 1;
  const std::int64_t replicated = shards ? carried.zero_groups() : *degrees.dp;
  if (*degrees.dp % replicated != 0)
    carried.refuse("ZeRO groups of parts of the tokens", "--zero-group with a multiple of --cp");
  const bool pipeline = *degrees.pp > 1;
  std::string text = fmt::format(
      "# For torchtitan 0.2. Add the tables of the model and its data, or copy these to yours.\n"
      "[training]\n"
      "local_batch_size = {}\n"
      "global_batch_size = {}\n"
      "mixed_precision_param = \"{}\"\n"
      "mixed_precision_reduce = \"float32\"\n"
      "\n[optimizer]\nname = \"AdamW\"\n"
      "\n[parallelism]\n"
      "data_parallel_replicate_degree = {}\n"
      "data_parallel_shard_degree = {}\n"
      "tensor_parallel_degree = {}\n"
      "context_parallel_degree = {}\n"
      "pipeline_parallel_degree = {}\n",
      pipeline ? plan.batch / *degrees.dp : *degrees.micro_batch, plan.batch,
      plan.precision == Precision::bf16 ? "bfloat16" : "float32", replicated,
      *degrees.dp / replicated, *degrees.tp, degrees.cp.value_or(1), *degrees.pp);
  const bool overlaps = degrees.tensor_overlap.value_or(false);
  if (degrees.cp.value_or(1) > 1) {
    // Its all-to-all shifts keys and values by one rank: _AllToAllRotater of
    // torch/distributed/tensor/experimental/_attention.py.
    const bool ring = carried.context_exchange() == strategies::ContextExchange::p2p;
    text +=
        fmt::format("context_parallel_rotate_method = \"{}\"\n", ring ? "alltoall" : "allgather");
  }
  if (overlaps) text += "enable_async_tensor_parallel = true\n";
  if (shards) {
    text += fmt::format("fsdp_reshard_after_forward = \"{}\"\n",
                        *degrees.zero == 3 ? "always" : "never");
  }
  if (pipeline) {
    const bool zero_bubble = degrees.schedule == strategies::PipelineSchedule::zero_bubble;
    if (zero_bubble && (overlaps || carried.compiles)) {
      carried.refuse("its schedule is ZB-H1, and it is compiled", "--schedule 1f1b");
    }
    text += fmt::format(
        "pipeline_parallel_schedule = \"{}\"\n"
        "pipeline_parallel_microbatch_size = {}\n"
        "module_fqns_per_model_part = [\n{}]\n",
        zero_bubble       ? "InterleavedZeroBubble"
        : *degrees.vp > 1 ? "Interleaved1F1B"
                          : "1F1B",
        *degrees.micro_batch, modules(carried.blocks_by_stage()));
  }
  if (overlaps || carried.compiles)
    text += "\n[compile]\nenable = true\ncomponents = [\"model\"]\n";
  switch (*degrees.recompute) {
    case strategies::Recompute::full:
      return text + "\n[activation_checkpoint]\nmode = \"full\"\n";
    case strategies::Recompute::op:
      return text +
             "\n[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
    default:
      return text + "\n[activation_checkpoint]\nmode = \"none\"\n";
  }
}

}  // namespace

Launch torchtitan_files(const CarriedPlan& carried) {
  carried.require_equal_degrees(true);
  carried.require_recompute(
      {strategies::Recompute::none, strategies::Recompute::op, strategies::Recompute::full},
      "none, op or full");
  check_torchtitan(carried);
  const std::vector<LaunchMachine> machines = carried.equal_machines();
  Launch launch;
  launch.not_carried = {"the model and its data: tables [model] and [training] of your own file"};
  launch.files = {
      {"parallelism.toml", torchtitan_toml(carried)},
      {"run.sh",
       torchrun_script(machines, "MORE ARGUMENTS",
                       {"here=$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" && pwd)",
                        "-m torchtitan.train --job.config_file \"$here/parallelism.toml\" \"$@\""}),
       true},
      {"hostfile", hostfile_of(machines)},
      {"README.md",
       fmt::format("{} on {}, written by parsim for torchtitan: {}.\n"
                   "Add the model to `parallelism.toml`. On the machine in line N of `hostfile`, "
                   "counted from 0, run\n`NODE_RANK=N MASTER_ADDR={} ./run.sh`.\n",
                   carried.plan.network, carried.plan.cluster,
                   strategies::short_text(carried.degrees()), machines.front().name)}};
  return launch;
}

}  // namespace parsim::report
