#include <fmt/format.h>

#include <algorithm>

#include "report/launch_parts.hpp"
#include "strategies/experts.hpp"

namespace parsim::report {

namespace {

void check_megatron(const CarriedPlan& carried) {
  carried.require_equal_degrees();
  carried.require_recompute(
      {strategies::Recompute::none, strategies::Recompute::selective, strategies::Recompute::full},
      "none, selective or full");
  const strategies::Degrees& degrees = carried.degrees();
  carried.require_megatron_groups(*degrees.tp, degrees.sequence_parallel.value_or(false));
  // megatron/core/parallel_state.py, initialize_model_parallel
  const std::int64_t groups = carried.zero_groups(), parts = degrees.ep.value_or(1);
  const std::int64_t apart = *degrees.tp / degrees.etp.value_or(*degrees.tp);
  if (*degrees.dp * degrees.cp.value_or(1) * apart / parts % groups != 0) {
    carried.refuse(fmt::format("{} ZeRO groups of {} replicas that divide the experts in {}",
                               groups, *degrees.dp, parts),
                   "--zero-group with as many replicas of each expert in every group");
  }
}

/// "Et*5|t*4|t*3L".
std::string layout_of(const std::vector<std::int64_t>& blocks) {
  std::string text;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    text += s == 0 ? "E" : "|";
    if (blocks[s] > 0) text += fmt::format("t*{}", blocks[s]);
  }
  return text + "L";
}

/// The line of the script that sets how many of a GPU's queues its streams share, where Megatron-LM
/// insists: megatron/training/arguments.py, validate_args.
std::vector<std::string> connections(const strategies::Degrees& degrees) {
  // Its FSDP refuses one queue, which the caller's environment may name.
  if (*degrees.zero > 1) return {"unset CUDA_DEVICE_MAX_CONNECTIONS"};
  // One queue starts kernels in the order of their launch: an all-reduce before the matmul that is
  // to hide it. Blackwell GPUs take any number.
  if (*degrees.tp > 1 || degrees.cp.value_or(1) > 1) {
    return {"export CUDA_DEVICE_MAX_CONNECTIONS=1"};
  }
  return {};
}

std::vector<std::string> arguments_of(const CarriedPlan& carried) {
  check_megatron(carried);
  const Plan& plan = carried.plan;
  const strategies::Degrees& degrees = carried.degrees();
  std::vector<std::string> words;
  const auto flag = [&](std::string_view name) { words.emplace_back(name); };
  const auto value = [&](std::string_view name, auto number) {
    words.emplace_back(name);
    words.push_back(fmt::format("{}", number));
  };
  value("--tensor-model-parallel-size", *degrees.tp);
  if (degrees.sequence_parallel.value_or(false)) flag("--sequence-parallel");
  if (degrees.tensor_overlap.value_or(false)) flag("--tp-comm-overlap");
  if (degrees.cp.value_or(1) > 1) {
    value("--context-parallel-size", *degrees.cp);
    value("--cp-comm-type", to_text(carried.context_exchange()));
  }
  value("--pipeline-model-parallel-size", *degrees.pp);
  const std::vector<std::int64_t> blocks = carried.blocks_by_stage();
  const auto other = [&](std::int64_t number) { return number != blocks.front(); };
  if (std::any_of(blocks.begin(), blocks.end(), other)) {
    value("--pipeline-model-parallel-layout", layout_of(blocks));
  } else if (*degrees.vp > 1) {
    value("--num-virtual-stages-per-pipeline-rank", *degrees.vp);
  }
  if (degrees.ep.value_or(1) > 1) {
    value("--expert-model-parallel-size", *degrees.ep);
  }
  if (strategies::experts_of(carried.network) > 0 && degrees.ep.value_or(1) * *degrees.tp > 1) {
    value("--moe-token-dispatcher-type", std::string_view("alltoall"));  // else it gathers
  }
  if (degrees.etp && degrees.etp != degrees.tp)
    value("--expert-tensor-parallel-size", *degrees.etp);
  value("--micro-batch-size", *degrees.micro_batch);
  value("--global-batch-size", plan.batch);
  if (storage_of(plan.precision) == Precision::bf16) flag("--bf16");
  if (multiplies_in_fp8(plan.precision)) {
    // With scales of blocks E4M3 serves gradients, too: Transformer Engine's default.
    const bool by_block = plan.precision == Precision::fp8_blockwise;
    value("--fp8-format", by_block ? "e4m3" : "hybrid");
    value("--fp8-recipe", by_block                                   ? "blockwise"
                          : plan.precision == Precision::fp8_delayed ? "delayed"
                                                                     : "tensorwise");
  }
  if (plan.precision == Precision::fp16) {
    flag("--fp16");
    if (plan.reduce_precision == Precision::fp32) flag("--accumulate-allreduce-grads-in-fp32");
  }
  if (plan.reduce_precision == Precision::bf16 && storage_of(plan.precision) == Precision::bf16) {
    flag("--grad-reduce-in-bf16");
  }
  value("--optimizer", plan.optimizer == Optimizer::adam ? "adam" : "sgd");
  if (plan.optimizer == Optimizer::sgd) value("--sgd-momentum", 0);
  if (*degrees.zero == 1) flag("--use-distributed-optimizer");
  if (*degrees.zero > 1) {
    // Megatron-LM's FSDP: docs/source/api-guide/custom_fsdp.md, "Required Configurations".
    flag("--use-megatron-fsdp");
    value("--data-parallel-sharding-strategy",
          *degrees.zero == 2 ? "optim_grads" : "optim_grads_params");
    flag("--no-gradient-accumulation-fusion");
    flag("--use-distributed-optimizer");
    value("--ckpt-format", "fsdp_dtensor");
    if (plan.reduce_precision != storage_of(plan.precision)) {
      value("--megatron-fsdp-main-grads-dtype", to_text(plan.reduce_precision));
    }
  }
  if (const std::int64_t groups = carried.zero_groups(); groups > 1) {
    value("--num-distributed-optimizer-instances", groups);
    if (*degrees.zero > 1) value("--outer-dp-sharding-strategy", "no_shard");
  }
  if (*degrees.dp * degrees.cp.value_or(1) > 1) flag("--overlap-grad-reduce");
  if (degrees.recompute == strategies::Recompute::selective) {
    value("--recompute-granularity", "selective");
  }
  if (degrees.recompute == strategies::Recompute::full) {
    value("--recompute-granularity", "full");
    value("--recompute-method", "uniform");
    value("--recompute-num-layers", 1);
  }
  return words;
}

}  // namespace

std::vector<DeviceId> megatron_ranks(const Network& network, const Cluster& cluster,
                                     const Plan& plan) {
  const CarriedPlan carried(Trainer::megatron, network, cluster, plan);
  check_megatron(carried);
  return carried.ranks();
}

std::vector<std::string> megatron_arguments(const Network& network, const Cluster& cluster,
                                            const Plan& plan) {
  return arguments_of(CarriedPlan(Trainer::megatron, network, cluster, plan));
}

Launch megatron_files(const CarriedPlan& carried) {
  const Plan& plan = carried.plan;
  const std::vector<std::string> arguments = arguments_of(carried);
  const std::vector<LaunchMachine> machines = carried.equal_machines();
  std::vector<std::string> command = connections(carried.degrees());
  command.emplace_back("parallelism=(");
  for (const std::string& word : arguments) {
    if (word.starts_with("--")) {
      command.push_back("  " + word);
    } else {
      command.back() += fmt::format(" '{}'", word);
    }
  }
  command.emplace_back(")");
  command.emplace_back(R"("$@" "${parallelism[@]}")");
  Launch launch;
  launch.not_carried = {"the model and its data: give Megatron-LM its own arguments",
                        "sizes of gradient buckets: Megatron-LM chooses them (--ddp-bucket-size)"};
  for (const auto& line : {repeated_key_heads(carried), padded_vocabulary(carried)}) {
    if (line) launch.not_carried.push_back(*line);
  }
  launch.words_multiple = words_multiple(carried);
  if (plan.precision == Precision::tf32) {
    launch.not_carried.emplace_back("tf32: PyTorch decides where products of fp32 use it");
  }
  launch.files = {
      {"run.sh", torchrun_script(machines, "pretrain_gpt.py ARGUMENTS", command), true},
      {"hostfile", hostfile_of(machines)},
      {"README.md",
       fmt::format(
           "{} on {}, written by parsim for Megatron-LM: {}.\n"
           "On the machine in line N of `hostfile`, counted from 0, run\n"
           "`NODE_RANK=N MASTER_ADDR={} ./run.sh pretrain_gpt.py ARGUMENTS OF THE MODEL`.\n",
           plan.network, plan.cluster, strategies::short_text(carried.degrees()),
           machines.front().name)}};
  return launch;
}

}  // namespace parsim::report
