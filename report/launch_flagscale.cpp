// FlagScale trains stages of different degrees: Megatron-LM with meshes of processes, each with
// degrees of its own. Source of keys and rules: FlagOpen/FlagScale at da4935e,
// flagscale/train/arguments.py (pre_validate_args), flagscale/train/hetero/parallel_context.py,
// flagscale/runner/utils.py (hostfile, envs) and the hetero examples.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "report/launch_parts.hpp"

namespace parsim::report {

namespace {

/// Stages one after the other with the same degrees, on devices of one type.
struct Mesh {
  std::string type;  ///< FlagScale sorts processes by it, in the order of the meshes
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 0;
  std::size_t first_rank = 0;
};

/// A name of a type of device that no mesh has yet.
std::string type_of(const std::vector<Mesh>& meshes, const std::string& model) {
  const auto has = [&](const std::string& name) {
    return std::any_of(meshes.begin(), meshes.end(),
                       [&](const Mesh& mesh) { return mesh.type == name; });
  };
  std::string name = model;
  for (int number = 2; has(name); ++number) name = fmt::format("{}-{}", model, number);
  return name;
}

std::vector<Mesh> meshes_of(const CarriedPlan& carried) {
  std::vector<Mesh> meshes;
  std::string last;
  std::size_t rank = 0;
  for (const strategies::StageSummary& stage : carried.stages()) {
    const std::string model = carried.cluster.model(carried.ranks_of(stage).front()).name;
    const Mesh own{model, *stage.tp, stage.cp.value_or(1), *stage.dp, 0, rank};
    if (meshes.empty() || model != last || meshes.back().tp != own.tp ||
        meshes.back().dp != own.dp) {
      meshes.push_back(own);
      meshes.back().type = type_of({meshes.begin(), meshes.end() - 1}, model);
      last = model;
    }
    ++meshes.back().pp;
    rank += static_cast<std::size_t>(own.tp * own.cp * own.dp);
  }
  return meshes;
}

/// Whether the first and the last layer with weights share them.
bool ties_embeddings(const Network& network) {
  std::vector<int> users(network.parameters.size());
  for (const Layer& layer : network.layers) {
    for (const ParameterId id : layer.parameters) ++users[id.index()];
  }
  return std::any_of(users.begin(), users.end(), [](int number) { return number > 1; });
}

void check_flagscale(const CarriedPlan& carried, const std::vector<Mesh>& meshes) {
  if (std::any_of(carried.plan.layers.begin(), carried.plan.layers.end(),
                  [](const LayerPlan& layer) { return layer.overlap; })) {
    carried.refuse("its products overlap with collectives", "no --tp-overlap");
  }
  for (const strategies::StageSummary& stage : carried.stages()) {
    carried.require_megatron_groups(*stage.tp, stage.sequence_parallel);
    if (*stage.tp > 1 && stage.sequence_parallel != carried.stages().front().sequence_parallel &&
        *carried.stages().front().tp > 1) {
      carried.refuse("some stages have sequence parallelism, others not", "all or none");
    }
  }
  for (const Mesh& mesh : meshes) {
    if (mesh.cp != meshes.front().cp) {
      carried.refuse("stages have different numbers of parts of the tokens", "one of --cp");
    }
  }
  if (carried.stages().size() > 1 &&
      carried.degrees().schedule != strategies::PipelineSchedule::one_f_one_b) {
    carried.refuse("its schedule is not 1F1B", "--schedule 1f1b");
  }
  if (carried.degrees().vp.value_or(1) > 1) carried.refuse("it has model chunks", "no --vp");
  if (carried.degrees().ep.value_or(1) > 1) carried.refuse("it divides experts", "--ep 1");
  carried.require_split_experts();
  if (*carried.degrees().zero > 1) {
    carried.refuse("it shards more than optimizer states", "--zero 0 or 1");
  }
  if (carried.zero_groups() > 1) carried.refuse("it has ZeRO groups", "no --zero-group");
  if (ties_embeddings(carried.network)) {
    const Mesh &first = meshes.front(), &last = meshes.back();
    if (first.tp != last.tp || (first.dp % last.dp != 0 && last.dp % first.dp != 0)) {
      carried.refuse("the head shares its weights with the embedding, which is on other degrees",
                     "the same tensor-parallel degree in the first and the last stage, and "
                     "replicas of which one number divides the other; or untied weights");
    }
  }
}

std::string yaml_list(const auto& items) { return fmt::format("[{}]", fmt::join(items, ", ")); }

std::string parallelism(const CarriedPlan& carried, const std::vector<Mesh>& meshes) {
  const Plan& plan = carried.plan;
  const strategies::Degrees& degrees = carried.degrees();
  std::vector<std::int64_t> numbers;
  std::vector<std::string> types;
  for (const Mesh& mesh : meshes) {
    numbers.insert(numbers.end(), {mesh.tp, mesh.cp, 1, mesh.dp, mesh.pp});
    types.push_back(fmt::format("\"{}\"", mesh.type));
  }
  const auto& stages = carried.stages();
  // FlagScale turns it off where a mesh has no tensor parallelism.
  const bool shares_tokens =
      std::any_of(stages.begin(), stages.end(),
                  [](const strategies::StageSummary& stage) { return stage.sequence_parallel; });
  std::string text = fmt::format(
      "# Merged by FlagScale with model.yaml, which is yours.\n"
      "system:\n"
      "  tensor_model_parallel_size: {}\n"
      "  context_parallel_size: {}\n"
      "  pipeline_model_parallel_size: {}\n"
      "  sequence_parallel: {}\n"
      "  use_distributed_optimizer: {}\n"
      "  overlap_grad_reduce: True\n",
      meshes.front().tp, meshes.front().cp, carried.stages().size(),
      shares_tokens ? "True" : "False", *degrees.zero == 1 ? "True" : "False");
  if (meshes.front().cp > 1) {
    text += fmt::format("  cp_comm_type: {}\n", to_text(carried.context_exchange()));
  }
  text += fmt::format(
      "  hetero:\n"
      "    enable_hetero: True\n"
      "    hetero_pipeline_layer_split: {}\n"
      "    # tp, cp, ep, dp, pp of each mesh\n"
      "    hetero_process_meshes: {}\n"
      "    hetero_device_types: {}\n"
      "    hetero_current_device_type: {}\n"
      "    standalone_embedding_stage: False\n",
      yaml_list(carried.blocks_by_stage()), yaml_list(numbers), yaml_list(types), types.front());
  if (ties_embeddings(carried.network) && meshes.front().dp != meshes.back().dp) {
    text += "    use_partial_reduce_for_shared_embedding: True\n";
  }
  if (degrees.recompute == strategies::Recompute::full) {
    text +=
        "  recompute:\n    recompute_granularity: full\n    recompute_method: uniform\n"
        "    recompute_num_layers: 1\n";
  } else if (degrees.recompute == strategies::Recompute::selective) {
    text += "  recompute:\n    recompute_granularity: selective\n";
  }
  const bool bf16 = storage_of(plan.precision) == Precision::bf16;
  if (bf16 || plan.precision == Precision::fp16) {
    text += fmt::format("  precision:\n    {}: True\n", bf16 ? "bf16" : "fp16");
    if (plan.reduce_precision == Precision::fp32) {
      text += "    accumulate_allreduce_grads_in_fp32: True\n";
    } else if (bf16) {
      text += "    grad_reduce_in_bf16: True\n";
    }
  }
  return text + fmt::format(
                    "model:\n"
                    "  micro_batch_size: {}\n"
                    "  global_batch_size: {}\n"
                    "  optimizer:\n"
                    "    optimizer: {}\n{}",
                    *carried.stages().front().micro_batch, plan.batch,
                    plan.optimizer == Optimizer::adam ? "adam" : "sgd",
                    plan.optimizer == Optimizer::sgd ? "    sgd_momentum: 0\n" : "");
}

}  // namespace

Launch flagscale_files(const CarriedPlan& carried) {
  carried.require_equal_groups();
  carried.require_recompute(
      {strategies::Recompute::none, strategies::Recompute::selective, strategies::Recompute::full},
      "none, selective or full");
  const std::vector<Mesh> meshes = meshes_of(carried);
  check_flagscale(carried, meshes);
  const std::vector<LaunchMachine> machines = carried.machines();
  std::string hostfile, nodes;
  std::size_t rank = 0;
  for (const LaunchMachine& machine : machines) {
    const auto after = std::find_if(meshes.begin(), meshes.end(),
                                    [&](const Mesh& mesh) { return mesh.first_rank > rank; });
    hostfile += slots_of(machine, (after - 1)->type);
    nodes += fmt::format("      {}:\n        CUDA_VISIBLE_DEVICES: \"{}\"\n", machine.name,
                         fmt::join(machine.gpus, ","));
    rank += machine.gpus.size();
  }
  Launch launch;
  launch.not_carried = {
      "the model, its data and the learning rate: write them to conf/train/model.yaml",
      "sizes of gradient buckets: Megatron-LM chooses them"};
  for (const auto& line : {repeated_key_heads(carried), padded_vocabulary(carried)}) {
    if (line) launch.not_carried.push_back(*line);
  }
  launch.words_multiple = words_multiple(carried);
  launch.files = {
      {"conf/train.yaml", fmt::format("defaults:\n"
                                      "  - train: [model, parallelism]\n"
                                      "  - _self_\n"
                                      "experiment:\n"
                                      "  exp_name: parsim\n"
                                      "  exp_dir: ./outputs\n"
                                      "  task:\n"
                                      "    type: train\n"
                                      "    backend: megatron\n"
                                      "    entrypoint: flagscale/train/train_gpt.py\n"
                                      "  runner:\n"
                                      "    backend: torchrun\n"
                                      "    hostfile: ./hostfile\n"
                                      "  envs:\n"
                                      "    CUDA_DEVICE_MAX_CONNECTIONS: 1\n"
                                      "    node_specific:\n"
                                      "{}"
                                      "action: run\n"
                                      "hydra:\n"
                                      "  run:\n"
                                      "    dir: ${{experiment.exp_dir}}/hydra\n",
                                      nodes)},
      {"conf/train/parallelism.yaml", parallelism(carried, meshes)},
      {"hostfile", hostfile},
      {"README.md",
       fmt::format(
           "{} on {}, written by parsim for FlagScale: {}.\n"
           "Write the model to `conf/train/model.yaml` (as in FlagScale's examples), and run\n"
           "`python run.py --config-path conf --config-name train action=run` with its "
           "`run.py`.\n",
           carried.plan.network, carried.plan.cluster, strategies::short_text(carried.degrees()))}};
  return launch;
}

}  // namespace parsim::report
