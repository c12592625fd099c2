// From a plan to the files that start a trainer with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::report {

enum class Trainer : std::uint8_t { megatron, flagscale, deepspeed, torchtitan, accelerate };
constexpr std::array<std::string_view, 5> spellings(Trainer) {
  return {"megatron", "flagscale", "deepspeed", "torchtitan", "accelerate"};
}
/// As its makers write it.
[[nodiscard]] std::string_view name_of(Trainer trainer);

struct LaunchFile {
  std::string name, text;  ///< the name may have folders
  bool runs = false;       ///< a script
};
struct Launch {
  std::vector<LaunchFile> files;
  std::vector<std::string>
      not_carried;                  ///< what the files leave out, and what the trainer does instead
  std::int64_t words_multiple = 1;  ///< to which the trainer pads a vocabulary
};

/// The devices of a plan in the order of Megatron-LM's ranks: those of a tensor-parallel group are
/// neighbours, then replicas, then stages (megatron/core/parallel_state.py, order
/// tp-cp-ep-dp-pp).
/// Throws InputError (place --launch) for plans that Megatron-LM cannot run: degrees that differ
/// between layers or stages, unequal shares, stages that begin inside blocks, other schedules than
/// 1F1B, and machines with different numbers of GPUs in use.
[[nodiscard]] std::vector<DeviceId> megatron_ranks(const Network& network, const Cluster& cluster,
                                                   const Plan& plan);

/// Arguments of Megatron-LM that parallelize as the plan does: "--tensor-model-parallel-size", "2",
/// … Those of the model are the user's. Throws as megatron_ranks.
/// Source of names: megatron/training/arguments.py; of the layout: its
/// --pipeline-model-parallel-layout (E embedding, t a block, L head and loss, | between stages).
[[nodiscard]] std::vector<std::string> megatron_arguments(const Network& network,
                                                          const Cluster& cluster, const Plan& plan);

/// Throws InputError (place --launch) for what the trainer cannot run in any plan: a number format,
/// an optimizer.
void check_training(Trainer trainer, Precision precision, Optimizer optimizer);

/// The trainer's files, a hostfile and README.md. Throws InputError (place --launch) for plans that
/// the trainer cannot run, saying which option makes one that it can, and for devices of no
/// machine.
///
/// compiles   the model, where a trainer's files say that (torchtitan)
[[nodiscard]] Launch launch_files(Trainer trainer, const Network& network, const Cluster& cluster,
                                  const Plan& plan, bool compiles = false);

/// Whether launch_files would not refuse the plan.
[[nodiscard]] bool can_launch(Trainer trainer, const Network& network, const Cluster& cluster,
                              const Plan& plan);
/// The trainers whose files can carry the plan: those whose writers do not refuse it.
[[nodiscard]] std::vector<Trainer> trainers_of(const Network& network, const Cluster& cluster,
                                               const Plan& plan);
/// The same in the words of --launch.
[[nodiscard]] std::vector<std::string> trainer_words(const Network& network, const Cluster& cluster,
                                                     const Plan& plan);

}  // namespace parsim::report
