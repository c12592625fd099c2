// What files of all trainers have in common: which plans they can carry, and the order of its
// devices as ranks. Used by the writers of launch files alone.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "report/launch.hpp"
#include "strategies/degrees.hpp"

namespace parsim::report {

/// The ranks of one machine.
struct LaunchMachine {
  std::string name;
  std::vector<std::size_t> gpus;  ///< their numbers in the machine, by local rank
};

/// A plan that a trainer is asked to carry. All members throw InputError (place --launch) for what
/// no trainer carries, or what this one does not.
class CarriedPlan {
 public:
  /// Refuses parameter servers, and layers with ZeRO stages, ZeRO groups or recomputation of their
  /// own.
  CarriedPlan(Trainer trainer, const Network& network, const Cluster& cluster, const Plan& plan);

  /// Asks another trainer from now on.
  void ask(Trainer trainer) { trainer_ = trainer; }
  [[noreturn]] void refuse(const std::string& found, const std::string& accepted) const;
  /// Refuses stages of different degrees, unequal shares, and of several stages other schedules
  /// than 1F1B; but ZB-H1 with model chunks, if `zero_bubble_chunks`.
  void require_equal_degrees(bool zero_bubble_chunks = false) const;
  /// Refuses stages whose groups of devices differ within the stage, and unequal shares.
  void require_equal_groups() const;
  /// Refuses whole experts in tensor groups.
  void require_split_experts() const;
  /// Refuses recomputation other than these.
  void require_recompute(const std::set<strategies::Recompute>& known,
                         const std::string& accepted) const;

  [[nodiscard]] const strategies::Degrees& degrees() const { return degrees_; }
  [[nodiscard]] const std::vector<strategies::StageSummary>& stages() const { return stages_; }
  /// By stage how many blocks it has: none may be in two stages, the embedding is in the first, the
  /// head in the last.
  [[nodiscard]] std::vector<std::int64_t> blocks_by_stage() const;
  /// What attention of a plan with parts of the tokens exchanges.
  [[nodiscard]] strategies::ContextExchange context_exchange() const;
  /// Refuses what Megatron-LM's model cannot do in groups of `tp` devices, which FlagScale trains,
  /// too: heads that they do not divide, experts without sequence parallelism, and sums of
  /// gradients in neither FP32 nor the weights' precision.
  void require_megatron_groups(std::int64_t tp, bool sequence_parallel) const;
  /// The devices of a stage: replica after replica, of each its parts of the tokens, of each its
  /// tensor-parallel group.
  [[nodiscard]] std::vector<DeviceId> ranks_of(const strategies::StageSummary& stage) const;
  /// The devices of one stage after the other; of further model chunks of a device none.
  [[nodiscard]] const std::vector<DeviceId>& ranks() const;
  /// In the order of the ranks. Refuses devices of no machine, and machines that come twice.
  [[nodiscard]] std::vector<LaunchMachine> machines() const;
  /// The same; refuses different numbers of GPUs, too.
  [[nodiscard]] std::vector<LaunchMachine> equal_machines() const;
  /// How many groups of replicas hold all states, with ZeRO within groups.
  [[nodiscard]] std::int64_t zero_groups() const;
  const Network& network;
  const Cluster& cluster;
  const Plan& plan;
  bool compiles = false;  ///< as for launch_files

 private:
  void check_host_name(const std::string& name) const;

  Trainer trainer_;
  std::vector<strategies::StageSummary> stages_;
  strategies::Degrees degrees_;
  mutable std::vector<DeviceId> ranks_;  ///< once asked for: trainers ask one after another
};

/// A line where stages have tensor-parallel groups of more devices than key/value heads. There
/// Megatron-LM divides the fused product for queries, keys and values all the same, and all-gathers
/// its output (megatron/core/transformer/attention.py, get_query_key_value_tensors); plans have
/// each device compute the keys and values that it needs.
[[nodiscard]] std::optional<std::string> repeated_key_heads(const CarriedPlan& carried);

/// To a multiple of so many words Megatron-LM pads the vocabulary (--make-vocab-size-divisible-by,
/// 128 unless it is given, times the tensor-parallel degree).
[[nodiscard]] std::int64_t words_multiple(const CarriedPlan& carried);
/// A line where it does.
[[nodiscard]] std::optional<std::string> padded_vocabulary(const CarriedPlan& carried);

/// A line of what tensor parallelism by transformers' plans does otherwise than a plan's
/// (experiment::habits_of_transformers).
[[nodiscard]] std::string habits_line(std::string_view who);

/// "NAME slots=8", with "# gpus 4,5" where they are not the first ones, and a line end.
[[nodiscard]] std::string slots_of(const LaunchMachine& machine, const std::string& type = "");
/// A line for each machine.
[[nodiscard]] std::string hostfile_of(const std::vector<LaunchMachine>& machines);

/// The beginning of a script that starts the part of one machine: $NODE_RANK is its line in
/// `machines`, whose GPUs it makes visible.
/// usage   what to write after ./run.sh
[[nodiscard]] std::string machine_script(const std::vector<LaunchMachine>& machines,
                                         const std::string& usage);
/// A script that starts torchrun with `command`, a line of it each, on one machine of `machines`.
[[nodiscard]] std::string torchrun_script(const std::vector<LaunchMachine>& machines,
                                          const std::string& usage,
                                          const std::vector<std::string>& command);

/// The writers. Throw as CarriedPlan.
[[nodiscard]] Launch megatron_files(const CarriedPlan& carried);
[[nodiscard]] Launch flagscale_files(const CarriedPlan& carried);
[[nodiscard]] Launch deepspeed_files(const CarriedPlan& carried);
[[nodiscard]] Launch torchtitan_files(const CarriedPlan& carried);
[[nodiscard]] Launch accelerate_files(const CarriedPlan& carried);

}  // namespace parsim::report
