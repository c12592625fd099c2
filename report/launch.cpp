#include "report/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"

namespace parsim::report {

namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& accepted) {
  throw InputError("--launch", "Megatron-LM cannot run this plan: " + found,
                   "accepted: " + accepted);
}

using Stages = std::vector<strategies::StageSummary>;

/// Throws if the plan is not one of Megatron-LM's.
strategies::Degrees carried_degrees(const Network& network, const Plan& plan) {
  const strategies::Degrees degrees = strategies::degrees_of(network, plan);
  const auto layers = [&](auto member) {
    return std::any_of(plan.layers.begin(), plan.layers.end(), member);
  };
  if (!degrees.tp || !degrees.dp || !degrees.pp || !degrees.vp) {
    refuse("layers or stages have degrees of their own",
           "equal degrees, as with --strategy tensor and --tp, --pp, --dp");
  }
  if (!degrees.micro_batch) refuse("replicas have unequal shares", "equal ones");
  if (*degrees.pp > 1 && degrees.schedule != strategies::PipelineSchedule::one_f_one_b) {
    refuse("its schedule is not 1F1B", "--schedule 1f1b");
  }
  constexpr strategies::Recompute theirs[] = {
      strategies::Recompute::none, strategies::Recompute::selective, strategies::Recompute::full};
  if (!degrees.recompute ||
      std::find(std::begin(theirs), std::end(theirs), *degrees.recompute) == std::end(theirs)) {
    refuse("it recomputes layers of its own choice", "--recompute none, selective or full");
  }
  if (!degrees.zero) refuse("layers have ZeRO stages of their own", "one of --zero");
  if (layers([](const LayerPlan& layer) { return layer.sync.kind == Sync::Kind::server; })) {
    refuse("gradients meet on a parameter server", "--sync ring");
  }
  return degrees;
}

/// By stage how many blocks it has: none may be in two stages, the embedding is in the first, the
/// head in the last.
std::vector<std::int64_t> blocks_by_stage(const Network& network, const Plan& plan,
                                          std::size_t stages) {
  const std::vector<std::int64_t> blocks = strategies::blocks_of(network);
  const std::int64_t count = std::ssize(strategies::first_layers_of_blocks(network));
  if (count == 0) refuse("the network has no transformer blocks", "a transformer");
  std::vector<std::optional<std::size_t>> stage_of(static_cast<std::size_t>(count));
  std::vector<std::int64_t> number(stages);
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_layer[l]);
    const std::int64_t block = blocks[l];
    if ((block < 0 && stage != 0) || (block >= count && stage + 1 != stages)) {
      refuse("the embedding is not in its first stage, or the head not in its last",
             "--granularity block");
    }
    if (block < 0 || block >= count) continue;
    std::optional<std::size_t>& own = stage_of[static_cast<std::size_t>(block)];
    if (!own) ++number[stage];
    if (own.value_or(stage) != stage) {
      refuse("stages begin inside blocks", "--granularity block");
    }
    own = stage;
  }
  return number;
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

/// What attention of a plan with parts of the tokens exchanges, by the name of --cp-comm-type.
strategies::ContextExchange exchange_of(const Network& network, const Plan& plan) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (network.layers[l].kind.as<Attention>() == nullptr) continue;
    const std::vector<Cut>& cuts = plan.layers[l].cuts;
    const auto by_token = [](const Cut& cut) { return cut.dim == Dim::token; };
    if (plan.layers[l].ring) return strategies::ContextExchange::p2p;
    if (std::any_of(cuts.begin(), cuts.end(), by_token)) {
      return strategies::ContextExchange::all_gather;
    }
  }
  return strategies::ContextExchange::a2a;
}

/// The devices of a stage: replica after replica, of each its tensor-parallel groups.
std::vector<DeviceId> group_order(const Network& network, const Plan& plan,
                                  const strategies::StageSummary& stage) {
  const auto all = static_cast<std::size_t>(*stage.tp * stage.cp.value_or(1) * *stage.dp);
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (const LayerId id : stage.layers) {
    std::vector<Cell> own = cells(network, id, plan.layers[id.index()], samples);
    std::stable_sort(own.begin(), own.end(), [](const Cell& a, const Cell& b) {
      return a.part.out[0].begin < b.part.out[0].begin;
    });
    std::vector<DeviceId> devices;
    for (const Cell& cell : own) devices.push_back(cell.device);
    const std::set<DeviceId> distinct(devices.begin(), devices.end());
    if (devices.size() == all && distinct.size() == all) return devices;
  }
  refuse("no layer of a stage is shared by all its devices", "equal degrees");
}

/// The ranks of one machine.
struct Machine {
  std::string name;
  std::vector<std::size_t> gpus;  ///< their numbers in the machine, by local rank
};

std::vector<Machine> machines_of(const Cluster& cluster, const std::vector<DeviceId>& ranks) {
  std::vector<Machine> machines;
  std::set<NodeId> seen;
  NodeId last;
  for (const DeviceId device : ranks) {
    const NodeId node = cluster[device].node;
    if (!node.valid()) refuse("devices belong to no machine", "a cluster of machines");
    if (machines.empty() || node != last) {
      if (!seen.insert(node).second) {
        refuse(fmt::format("neighbouring ranks are on other machines than '{}' and then on it "
                           "again",
                           cluster.nodes[node.index()].name),
               "plans whose groups stay together");
      }
      machines.push_back({cluster.nodes[node.index()].name, {}});
      last = node;
    }
    std::size_t number = 0;
    for (std::size_t d = 0; d < device.index(); ++d) {
      const DeviceId other{d};
      number += cluster[other].node == node && cluster.model(other).kind == DeviceKind::gpu ? 1 : 0;
    }
    machines.back().gpus.push_back(number);
  }
  for (const Machine& machine : machines) {
    if (machine.gpus.size() == machines.front().gpus.size()) continue;
    refuse(fmt::format("it uses {} of '{}' and {} of '{}'",
                       counted(std::ssize(machines.front().gpus), "GPU"), machines.front().name,
                       machine.gpus.size(), machine.name),
           "as many GPUs of every machine");
  }
  return machines;
}

std::string script(const std::vector<Machine>& machines,
                   const std::vector<std::string>& arguments) {
  std::string text =
      "#!/usr/bin/env bash\n"
      "# Starts the part of one machine: NODE_RANK=0 MASTER_ADDR=HOST ./run.sh pretrain_gpt.py "
      "ARGUMENTS\n"
      "set -euo pipefail\n"
      "case ${NODE_RANK:?the line of this machine in hostfile, from 0} in\n";
  for (std::size_t m = 0; m < machines.size(); ++m) {
    text += fmt::format("  {}) export CUDA_VISIBLE_DEVICES={} ;;\n", m,
                        fmt::join(machines[m].gpus, ","));
  }
  text += fmt::format(
      "  *) echo \"NODE_RANK is $NODE_RANK, there are {} machines\" >&2; exit 2 ;;\nesac\n"
      "parallelism=(\n",
      machines.size());
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    const bool flag = arguments[a].starts_with("--");
    text += flag ? (a == 0 ? "  " : "\n  ") : " ";
    text += flag ? arguments[a] : fmt::format("'{}'", arguments[a]);
  }
  return text + fmt::format(
                    "\n)\n"
                    "exec torchrun --nnodes {} --nproc-per-node {} --node-rank \"$NODE_RANK\" \\\n"
                    "  --master-addr \"${{MASTER_ADDR:?the first machine of hostfile}}\" \\\n"
                    "  --master-port \"${{MASTER_PORT:-29500}}\" \"$@\" \"${{parallelism[@]}}\"\n",
                    machines.size(), machines.front().gpus.size());
}

/// How many groups of replicas hold all states, with ZeRO within groups.
std::int64_t zero_groups(const Network& network, const Cluster& cluster, const Plan& plan,
                         const strategies::Degrees& degrees) {
  std::set<std::pair<bool, std::int32_t>> kinds;
  for (const LayerPlan& layer : plan.layers) {
    kinds.emplace(layer.zero.group.node, layer.zero.group.ranks);
  }
  if (kinds.size() > 1) refuse("layers have ZeRO groups of their own", "one of --zero-group");
  const auto [by_node, ranks] = *kinds.begin();
  if (*degrees.zero == 0 || (!by_node && ranks == 0)) return 1;
  if (degrees.cp.value_or(1) > 1) refuse("ZeRO groups of parts of the tokens", "no --zero-group");
  std::int64_t size = ranks;
  if (by_node) {  // replicas of the first stage on the first machine
    const std::vector<DeviceId> own =
        group_order(network, plan, strategies::stages_of(network, plan).front());
    size = 0;
    for (std::size_t at = 0; at < own.size(); at += static_cast<std::size_t>(*degrees.tp)) {
      size += cluster[own[at]].node == cluster[own.front()].node ? 1 : 0;
    }
  }
  if (*degrees.dp % size != 0) {
    refuse(fmt::format("ZeRO groups of {} do not divide {} replicas", size, *degrees.dp),
           "--zero-group with a divisor");
  }
  return *degrees.dp / size;
}

}  // namespace

std::vector<DeviceId> megatron_ranks(const Network& network, const Plan& plan) {
  const Stages stages = strategies::stages_of(network, plan);
  const strategies::Degrees degrees = carried_degrees(network, plan);
  std::vector<DeviceId> ranks;
  for (std::size_t s = 0; s < static_cast<std::size_t>(*degrees.pp); ++s) {
    const std::vector<DeviceId> own = group_order(network, plan, stages[s]);
    ranks.insert(ranks.end(), own.begin(), own.end());
  }
  return ranks;
}

std::vector<std::string> megatron_arguments(const Network& network, const Cluster& cluster,
                                            const Plan& plan) {
  const Stages stages = strategies::stages_of(network, plan);
  const strategies::Degrees degrees = carried_degrees(network, plan);
  std::vector<std::string> words;
  const auto flag = [&](std::string_view name) { words.emplace_back(name); };
  const auto value = [&](std::string_view name, auto number) {
    words.emplace_back(name);
    words.push_back(fmt::format("{}", number));
  };
  value("--tensor-model-parallel-size", *degrees.tp);
  if (degrees.sequence_parallel.value_or(false)) flag("--sequence-parallel");
  if (degrees.cp.value_or(1) > 1) {
    value("--context-parallel-size", *degrees.cp);
    value("--cp-comm-type", to_text(exchange_of(network, plan)));
  }
  value("--pipeline-model-parallel-size", *degrees.pp);
  const std::vector<std::int64_t> blocks = blocks_by_stage(network, plan, stages.size());
  const auto other = [&](std::int64_t number) { return number != blocks.front(); };
  if (std::any_of(blocks.begin(), blocks.end(), other)) {
    value("--pipeline-model-parallel-layout", layout_of(blocks));
  } else if (*degrees.vp > 1) {
    value("--num-virtual-stages-per-pipeline-rank", *degrees.vp);
  }
  if (degrees.ep.value_or(1) > 1) value("--expert-model-parallel-size", *degrees.ep);
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
  if (plan.precision == Precision::fp16) flag("--fp16");
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
  }
  if (const std::int64_t groups = zero_groups(network, cluster, plan, degrees); groups > 1) {
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

Launch launch_files(Trainer /*trainer*/, const Network& network, const Cluster& cluster,
                    const Plan& plan) {
  const std::vector<std::string> arguments = megatron_arguments(network, cluster, plan);
  const std::vector<Machine> machines = machines_of(cluster, megatron_ranks(network, plan));
  Launch launch;
  std::string hostfile;
  for (const Machine& machine : machines) {
    hostfile += fmt::format("{} slots={}\n", machine.name, machine.gpus.size());
  }
  launch.not_carried = {"the model and its data: give Megatron-LM its own arguments",
                        "sizes of gradient buckets: Megatron-LM chooses them (--ddp-bucket-size)"};
  if (plan.precision == Precision::tf32) {
    launch.not_carried.emplace_back("tf32: PyTorch decides where products of fp32 use it");
  }
  launch.files = {
      {"run.sh", script(machines, arguments), true},
      {"hostfile", hostfile},
      {"README.md",
       fmt::format(
           "{} on {}, written by parsim for Megatron-LM: {}.\n"
           "On the machine in line N of `hostfile`, counted from 0, run\n"
           "`NODE_RANK=N MASTER_ADDR={} ./run.sh pretrain_gpt.py ARGUMENTS OF THE MODEL`.\n",
           plan.network, plan.cluster,
           strategies::short_text(strategies::degrees_of(network, plan)), machines.front().name)}};
  return launch;
}

}  // namespace parsim::report
