#include "report/launch_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/vocabulary.hpp"
#include "strategies/blocks.hpp"

namespace parsim::report {

CarriedPlan::CarriedPlan(Trainer trainer, const Network& network_of_plan,
                         const Cluster& cluster_of_plan, const Plan& plan_of_user)
    : network(network_of_plan),
      cluster(cluster_of_plan),
      plan(plan_of_user),
      trainer_(trainer),
      stages_(strategies::stages_of(network, plan)),
      degrees_(strategies::degrees_of(network, plan, stages_)) {
  const auto layers = [&](auto member) {
    return std::any_of(plan.layers.begin(), plan.layers.end(), member);
  };
  if (layers([](const LayerPlan& layer) { return layer.sync.kind == Sync::Kind::server; })) {
    refuse("gradients meet on a parameter server", "--sync ring");
  }
  if (!degrees_.zero) refuse("layers have ZeRO stages of their own", "one of --zero");
  if (!degrees_.recompute) {
    refuse("it recomputes layers of its own choice",
           "one of --recompute but optimal, without --recompute-every");
  }
  for (const strategies::StageSummary& stage : stages_) {
    for (const LayerId layer : stage.layers) {
      std::int64_t parts = 1;
      for (const Cut& cut : plan.layers[layer.index()].cuts) {
        if (cut.dim == Dim::sample)
          parts *= std::ssize(cut.sizes) - std::ranges::count(cut.sizes, 0);
      }
      if (parts <= stage.dp.value_or(parts)) continue;
      refuse(fmt::format("layer '{}' has its samples on {} devices, of {} replicas",
                         network[layer].name, parts, *stage.dp),
             "layers that all follow the degrees, as with --strategy tensor");
    }
  }
}

void CarriedPlan::refuse(const std::string& found, const std::string& accepted) const {
  throw InputError("--launch", fmt::format("{} cannot run this plan: {}", name_of(trainer_), found),
                   "accepted: " + accepted);
}

void CarriedPlan::require_equal_degrees(bool zero_bubble_chunks) const {
  if (!degrees_.tp || !degrees_.dp || !degrees_.pp || !degrees_.vp) {
    refuse("layers or stages have degrees of their own",
           "equal degrees, as with --strategy tensor and --tp, --pp, --dp; stages of different "
           "degrees with --launch flagscale");
  }
  if (!degrees_.micro_batch) refuse("replicas have unequal shares", "equal ones");
  const bool in_chunks = zero_bubble_chunks && *degrees_.vp > 1 &&
                         degrees_.schedule == strategies::PipelineSchedule::zero_bubble;
  const bool as_1f1b = degrees_.schedule == strategies::PipelineSchedule::one_f_one_b;
  if (*degrees_.pp > 1 && !as_1f1b && !in_chunks) {
    refuse("its schedule is not 1F1B", "--schedule 1f1b");
  }
}

void CarriedPlan::require_equal_groups() const {
  for (const strategies::StageSummary& stage : stages_) {
    if (!stage.tp || !stage.dp) {
      refuse(
          "the replicas of a stage have groups of different size, or layers of a stage degrees "
          "of their own",
          "one degree for each stage");
    }
    if (!stage.micro_batch) {
      refuse("the replicas of a stage have unequal shares",
             "another --dp or --micro-batches; in a layout equal samples");
    }
  }
}

void CarriedPlan::require_recompute(const std::set<strategies::Recompute>& known,
                                    const std::string& accepted) const {
  if (known.contains(*degrees_.recompute)) return;
  refuse(fmt::format("it recomputes '{}'", to_text(*degrees_.recompute)),
         "--recompute " + accepted);
}

void CarriedPlan::require_megatron_groups(std::int64_t tp, bool sequence_parallel) const {
  const Precision stored = storage_of(plan.precision);
  if (plan.reduce_precision != Precision::fp32 && plan.reduce_precision != stored) {
    refuse(fmt::format("it adds up gradients in {}, of weights in {}",
                       to_text(plan.reduce_precision), to_text(stored)),
           "--reduce-precision fp32");
  }
  for (const Layer& layer : network.layers) {
    const Attention* attention = layer.kind.as<Attention>();
    if (attention == nullptr) continue;
    if (attention->window > 0) {
      refuse(fmt::format("attention with a window of {} tokens", attention->window),
             "a network without windows, as from a config.json with \"sliding_window\": null");
    }
    // megatron/core/transformer/transformer_config.py, __post_init__
    if (attention->heads % tp != 0) {
      refuse(fmt::format("{} on groups of {} devices", counted(attention->heads, "attention head"),
                         tp),
             "--tp with a divisor of the heads");
    }
    if (attention->key_heads % tp != 0 && tp % attention->key_heads != 0) {
      refuse(fmt::format("{} on groups of {} devices",
                         counted(attention->key_heads, "key/value head"), tp),
             "--tp with a divisor or a multiple of the key/value heads");
    }
  }
  // megatron/core/transformer/moe/moe_layer.py, forward
  const auto routes = [](const Layer& layer) { return layer.kind.as<ExpertDispatch>() != nullptr; };
  if (tp > 1 && !sequence_parallel &&
      std::any_of(network.layers.begin(), network.layers.end(), routes)) {
    refuse("experts and tensor parallelism without sequence parallelism", "--sequence-parallel");
  }
}

void CarriedPlan::require_split_experts() const {
  if (!degrees_.etp || degrees_.etp == degrees_.tp) return;
  refuse("groups of devices leave experts whole", "--etp with the number of --tp");
}

strategies::ContextExchange CarriedPlan::context_exchange() const {
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

std::vector<std::int64_t> CarriedPlan::blocks_by_stage() const {
  const std::vector<std::int64_t> blocks = strategies::blocks_of(network);
  const std::int64_t count = std::ssize(strategies::first_layers_of_blocks(network));
  if (count == 0) refuse("the network has no transformer blocks", "a transformer");
  std::vector<std::optional<std::size_t>> stage_of(static_cast<std::size_t>(count));
  std::vector<std::int64_t> number(stages_.size());
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_layer[l]);
    const std::int64_t block = blocks[l];
    if ((block < 0 && stage != 0) || (block >= count && stage + 1 != stages_.size())) {
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

std::vector<DeviceId> CarriedPlan::ranks_of(const strategies::StageSummary& stage) const {
  const auto all = static_cast<std::size_t>(*stage.tp * stage.cp.value_or(1) * *stage.dp);
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (const LayerId id : stage.layers) {
    std::vector<Cell> own = cells(network, id, plan.layers[id.index()], samples);
    const auto before = [](const Cell& a, const Cell& b) {
      return a.part.out[0].begin < b.part.out[0].begin;
    };
    // Cells are large, and mostly in order.
    if (!std::is_sorted(own.begin(), own.end(), before))
      std::stable_sort(own.begin(), own.end(), before);
    std::vector<DeviceId> devices;
    for (const Cell& cell : own) devices.push_back(cell.device);
    std::vector<DeviceId> sorted = devices;
    std::sort(sorted.begin(), sorted.end());
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (devices.size() == all && distinct) return devices;
  }
  refuse("no layer of a stage is shared by all its devices", "equal degrees");
}

const std::vector<DeviceId>& CarriedPlan::ranks() const {
  if (!ranks_.empty()) return ranks_;
  const auto chunks = static_cast<std::size_t>(degrees_.vp.value_or(1));
  std::vector<DeviceId> all;
  for (std::size_t s = 0; s < stages_.size() / chunks; ++s) {
    const std::vector<DeviceId> own = ranks_of(stages_[s]);
    all.insert(all.end(), own.begin(), own.end());
  }
  return ranks_ = std::move(all);
}

/// Scripts hold names of machines, and a shell reads them.
void CarriedPlan::check_host_name(const std::string& name) const {
  constexpr std::string_view accepted =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (name.find_first_not_of(accepted) == std::string::npos && !name.starts_with('-')) return;
  throw InputError("--launch", fmt::format("a machine called '{}'", name),
                   "accepted: names of letters, digits, '.', '-' and '_'");
}

std::vector<LaunchMachine> CarriedPlan::machines() const {
  std::vector<std::size_t> numbers;  // of each device among the GPUs of its machine
  std::map<NodeId, std::size_t> gpus;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    std::size_t& next = gpus[cluster.devices[d].node];
    numbers.push_back(next);
    next += cluster.model(DeviceId{d}).kind == DeviceKind::gpu ? 1 : 0;
  }
  std::vector<LaunchMachine> machines;
  std::set<NodeId> seen;
  NodeId last;
  for (const DeviceId device : ranks()) {
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
      check_host_name(machines.back().name);
      last = node;
    }
    machines.back().gpus.push_back(numbers[device.index()]);
  }
  return machines;
}

std::vector<LaunchMachine> CarriedPlan::equal_machines() const {
  const std::vector<LaunchMachine> all = machines();
  for (const LaunchMachine& machine : all) {
    if (machine.gpus.size() == all.front().gpus.size()) continue;
    refuse(fmt::format("it uses {} of '{}' and {} of '{}'",
                       counted(std::ssize(all.front().gpus), "GPU"), all.front().name,
                       machine.gpus.size(), machine.name),
           "as many GPUs of every machine");
  }
  return all;
}

std::int64_t CarriedPlan::zero_groups() const {
  std::set<std::pair<bool, std::int32_t>> kinds;
  for (const LayerPlan& layer : plan.layers) {
    kinds.emplace(layer.zero.group.node, layer.zero.group.ranks);
  }
  if (kinds.size() > 1) refuse("layers have ZeRO groups of their own", "one of --zero-group");
  const auto [by_node, group] = *kinds.begin();
  if (*degrees_.zero == 0 || (!by_node && group == 0)) return 1;
  if (!degrees_.dp) refuse("ZeRO groups of stages of different degrees", "no --zero-group");
  std::int64_t size = group;
  if (by_node) {  // of the first stage on the first machine
    const std::vector<DeviceId> own = ranks_of(stages_.front());
    size = 0;
    for (std::size_t at = 0; at < own.size(); at += static_cast<std::size_t>(*degrees_.tp)) {
      size += cluster[own[at]].node == cluster[own.front()].node ? 1 : 0;
    }
  }
  const std::int64_t context = degrees_.cp.value_or(1), sharding = *degrees_.dp * context;
  if (sharding % size != 0) {
    refuse(fmt::format("ZeRO groups of {} do not divide {} replicas{}", size, *degrees_.dp,
                       context > 1 ? fmt::format(" times {} parts of the tokens", context) : ""),
           "--zero-group with a divisor");
  }
  const bool fsdp = trainer_ == Trainer::torchtitan || trainer_ == Trainer::accelerate;
  if (fsdp && size == 1 && sharding > 1) {
    refuse("its ZeRO groups have one GPU each, so that FSDP shards nothing",
           "--zero 0, or a larger --zero-group");
  }
  return sharding / size;
}

std::string habits_line(std::string_view who) {
  return fmt::format(
      "scores divided among tensor-parallel GPUs, and one sum of gradients for all products of an "
      "input: {} gathers scores, so that each GPU computes the whole loss and holds the whole "
      "embedding, and sums behind each product, as in the predicted step",
      who);
}

std::string slots_of(const LaunchMachine& machine, const std::string& type) {
  std::string text = fmt::format("{} slots={}{}", machine.name, machine.gpus.size(),
                                 type.empty() ? "" : " type=" + type);
  std::size_t next = 0;
  const bool in_order = std::all_of(machine.gpus.begin(), machine.gpus.end(),
                                    [&](std::size_t gpu) { return gpu == next++; });
  if (!in_order) text += fmt::format(" # gpus {}", fmt::join(machine.gpus, ","));
  return text + "\n";
}

std::optional<std::string> repeated_key_heads(const CarriedPlan& carried) {
  std::int64_t most = 1;
  for (const strategies::StageSummary& stage : carried.stages())
    most = std::max<std::int64_t>(most, stage.tp.value_or(1));
  for (const Layer& layer : carried.network.layers) {
    const Attention* attention = layer.kind.as<Attention>();
    if (attention == nullptr || attention->key_heads >= most) continue;
    return fmt::format(
        "{} on groups of {} devices: Megatron-LM shards their weights and all-gathers their "
        "output, "
        "the predicted step replicates them",
        counted(attention->key_heads, "key/value head"), most);
  }
  return std::nullopt;
}

constexpr std::int64_t multiple_by_default = 128;

std::int64_t words_multiple(const CarriedPlan& carried) {
  return multiple_by_default * carried.stages().front().tp.value_or(1);
}

std::optional<std::string> padded_vocabulary(const CarriedPlan& carried) {
  const std::optional<std::int64_t> words = vocabulary_of(carried.network);
  const std::int64_t multiple = words_multiple(carried);
  if (!words || *words % multiple == 0) return std::nullopt;
  return fmt::format(
      "a vocabulary of {}: Megatron-LM pads it to {}, a multiple of {} x {} "
      "(--make-vocab-size-divisible-by x tensor-parallel degree)",
      *words, (*words + multiple - 1) / multiple * multiple, multiple_by_default,
      multiple / multiple_by_default);
}

std::string hostfile_of(const std::vector<LaunchMachine>& machines) {
  std::string text;
  for (const LaunchMachine& machine : machines) text += slots_of(machine);
  return text;
}

std::string machine_script(const std::vector<LaunchMachine>& machines, const std::string& usage) {
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# Starts the part of one machine: NODE_RANK=0 MASTER_ADDR=HOST ./run.sh {}\n"
      "set -euo pipefail\n"
      "case ${{NODE_RANK:?the line of this machine in hostfile, from 0}} in\n",
      usage);
  for (std::size_t m = 0; m < machines.size(); ++m) {
    text += fmt::format("  {}) export CUDA_VISIBLE_DEVICES={} ;;\n", m,
                        fmt::join(machines[m].gpus, ","));
  }
  return text + fmt::format(
                    "  *) echo \"NODE_RANK is $NODE_RANK, there are {} machines\" >&2; "
                    "exit 2 ;;\nesac\n",
                    machines.size());
}

std::string torchrun_script(const std::vector<LaunchMachine>& machines, const std::string& usage,
                            const std::vector<std::string>& command) {
  std::string text = machine_script(machines, usage);
  for (std::size_t line = 0; line + 1 < command.size(); ++line) text += command[line] + "\n";
  return text + fmt::format(
                    "exec torchrun --nnodes {} --nproc-per-node {} --node-rank \"$NODE_RANK\" \\\n"
                    "  --master-addr \"${{MASTER_ADDR:?the first machine of hostfile}}\" \\\n"
                    "  --master-port \"${{MASTER_PORT:-29500}}\" {}\n",
                    machines.size(), machines.front().gpus.size(), command.back());
}

}  // namespace parsim::report
