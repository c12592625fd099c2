#include "experiment/trainer_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "experiment/trainer_hydra.hpp"
#include "experiment/trainer_layout.hpp"
#include "experiment/trainer_model.hpp"
#include "experiment/trainer_words.hpp"
#include "strategies/blocks.hpp"

namespace parsim::experiment {

namespace {

/// Whether one of the names begins a word of the text.
bool mentions(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return text.find(name) != std::string_view::npos;
  });
}

bool is_json(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

bool is_deepspeed(std::string_view text) {
  return is_json(text) && mentions(text, {"\"train_batch_size\"", "\"zero_optimization\"",
                                          "\"train_micro_batch_size_per_gpu\""});
}
bool is_torchtitan(std::string_view text, const std::string& file) {
  return file.ends_with(".toml") && mentions(text, {"[parallelism]"});
}
bool is_accelerate(std::string_view text) { return mentions(text, {"distributed_type:"}); }
bool is_flagscale(std::string_view text) { return mentions(text, {"hetero_process_meshes"}); }
/// The configuration of NeMo 1: degrees have Megatron-LM's names, precision, optimizer, chunks and
/// recomputation others.
bool is_nemo(std::string_view text) {
  const auto has_table = [&](std::string_view name) {
    for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
      if (at == 0 || text[at - 1] == '\n') return true;
    }
    return false;
  };
  return has_table("trainer:") && has_table("model:");
}
bool is_megatron(std::string_view text) {
  return mentions(text, {"tensor-model-parallel-size", "tensor_model_parallel_size",
                         "pipeline-model-parallel-size", "--micro-batch-size"});
}

}  // namespace

bool is_trainer_file(std::string_view text, const std::string& file) {
  if (is_json(text)) return is_deepspeed(text);
  return is_torchtitan(text, file) ||
         (!file.ends_with(".toml") && (is_accelerate(text) || is_flagscale(text) ||
                                       is_megatron(text) || is_experiment_of_hydra(text, file)));
}

namespace {

/// What a trainer does unless its file says otherwise is decided, too: no option may change it.
LayoutFile of_trainer(std::string_view trainer, LayoutFile file) {
  file.trainer = trainer;
  const std::int64_t chunks = file.layout.chunks;
  if (!file.context) file.context = 1;
  if (!file.schedule) file.schedule = strategies::PipelineSchedule::one_f_one_b;
  if (!file.fusion) file.fusion = fusion_of_trainer(trainer);
  if (file.recompute && !file.recompute_every) file.recompute_every = 1;
  // A script of accelerate may set sync_each_batch.
  if (trainer != "accelerate") file.reduce_every = reduced_by(trainer, ReduceEvery::automatic);
  if (!file.sends && std::ssize(file.layout.stages) > chunks) {
    file.sends = sends_of_trainer(trainer, *file.schedule, chunks);
  }
  return file;
}

LayoutFile of_model(const TrainerWords& words, const Network& network, LayoutFile file) {
  if (const auto other = other_model(words, network)) file.notes.push_back(*other);
  return file;
}

}  // namespace

LayoutFile read_trainer_file(std::string_view text, const std::string& file, const Network& network,
                             const Cluster& cluster, std::optional<std::int64_t> asked_batch) {
  if (is_deepspeed(text)) {  // replicas of any network
    return of_trainer("deepspeed",
                      of_deepspeed(read_tables(text, file), network, cluster, asked_batch));
  }
  if (!file.ends_with(".toml") && is_accelerate(text)) {
    return of_trainer("accelerate",
                      of_accelerate(read_words(text, file), network, cluster, asked_batch));
  }
  if (strategies::first_layers_of_blocks(network).empty()) {
    throw InputError(file,
                     fmt::format("for network '{}', which has no transformer blocks", network.name),
                     "accepted: a transformer, or a file of DeepSpeed or accelerate");
  }
  if (is_torchtitan(text, file)) {
    const TrainerWords words = read_tables(text, file);
    return of_model(words, network,
                    of_trainer("torchtitan", of_torchtitan(words, network, cluster)));
  }
  if (is_nemo(text)) {
    throw InputError(file, "a configuration of NeMo, with other names than Megatron-LM's",
                     "accepted: arguments of Megatron-LM, or a file of another trainer");
  }
  const bool hydra = is_experiment_of_hydra(text, file);
  const TrainerWords words = hydra ? read_experiment_of_hydra(text, file) : read_words(text, file);
  const bool meshes = words.has("hetero-process-meshes");
  LayoutFile read = of_model(words, network,
                             of_trainer(hydra || meshes ? "flagscale" : "megatron",
                                        meshes ? of_flagscale(words, network, cluster)
                                               : of_megatron(words, network, cluster)));
  words.check_spelling();
  return read;
}

}  // namespace parsim::experiment
