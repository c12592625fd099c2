// Files of --layout: which blocks, devices and samples the stages of a plan have.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"
#include "sim/fusion.hpp"
#include "strategies/layout.hpp"

namespace parsim::experiment {

/// A bucket that holds all gradients.
inline constexpr Bytes after_backward{std::numeric_limits<std::int64_t>::max()};

/// What a trainer, most often its tensor-parallel groups, does otherwise than a plan.
struct GroupHabits {
  bool whole_scores = false;  ///< each device gathers all scores and computes the whole loss
  bool whole_words = false;   ///< and holds the whole embedding, unless scores are made with it
  bool sums_apart = false;    ///< of an input's gradient, one for each product that reads it
  /// Tokens gathered for a product stay until its backward pass, unless they are computed again.
  bool keeps_gathered = false;
  bool late_gathers = false;  ///< see Schedule
};
/// transformers, whose plans accelerate and DeepSpeed's AutoTP follow: lm_head is
/// colwise_gather_output in every _tp_plan, and embed_tokens is in none. Each "colwise" product
/// sums its input's gradient itself, and waits (transformers/distributed/tensor_parallel.py,
/// ColwiseParallel; DeepSpeed's module_inject/layers.py, LinearLayer).
inline constexpr GroupHabits habits_of_transformers{true, true, true};
/// DTensor, as torchtitan uses it: F.linear saves its input as PrepareModuleInput has gathered it.
inline constexpr GroupHabits habits_of_dtensor{.keeps_gathered = true};

/// A file with what it decides beyond the layout; what it leaves open, options decide.
struct LayoutFile {
  strategies::Layout layout;
  std::optional<std::int32_t> micro_batches, zero_stage, context;
  std::string micro_batches_at;  ///< for messages; empty: no one place of the file says it
  std::optional<strategies::ContextExchange> context_exchange;
  std::optional<ZeroGroup> zero_group;
  std::optional<strategies::PipelineSchedule> schedule;
  std::optional<strategies::PipelineSends> sends;
  std::optional<strategies::Recompute> recompute;
  std::optional<strategies::ShareRule> shares;
  // Only of files of trainers (trainer_file.hpp):
  std::optional<std::int64_t> batch;
  /// So many get equal numbers of samples of a micro-batch; 1: the numbers may differ.
  std::int64_t replicas = 1;
  std::optional<Precision> precision, reduce_precision;
  /// Gradients are reduced in the precision of the weights, whichever options decide on.
  bool sums_in_weights = false;
  std::optional<Optimizer> optimizer;
  std::optional<ReduceEvery> reduce_every;
  std::optional<sim::Fusion> fusion;
  std::optional<Bytes> bucket;  ///< `after_backward`: sums of gradients do not overlap with it
  std::optional<Bytes> usual_bucket;  ///< the trainer's, where the file names none
  std::optional<bool> sequence_parallel, tensor_overlap;
  std::optional<std::int32_t> expert_parallel, expert_tensor_parallel, recompute_every;
  /// Of FSDP 1: where gradients of several micro-batches are summed once, ZeRO 2 keeps gathered
  /// weights and whole gradients until then (PyTorch's no_sync), as ZeRO 1 does.
  bool keeps_while_accumulating = false;
  GroupHabits habits;
  std::optional<std::int64_t> words_multiple;  ///< to which the trainer pads the vocabulary
  std::vector<std::string> notes;
  std::string trainer;  ///< as plan --launch names it
  /// In place of a layout: a plan of parsim's, by 'compare --plan'.
  std::optional<Plan> plan;
  /// Of a micro-batch, if a stage names samples.
  std::optional<std::int64_t> samples;
  std::string samples_at;  ///< where it does, for messages
};

/// A TOML file:
///
///     micro_batches = 8                # all keys but stages may be left out
///     schedule = "1f1b"                # or gpipe, zero-bubble
///     vp = 2                           # model chunks of each device (interleaved 1F1B): of 2p stages
///                                      # p have groups, stage p + i is on the devices of stage i
///     cp = 2                           # parts of the tokens: a group has so many tensor-parallel ones
///     cp_comm = "p2p"                  # as --cp-comm
///     zero = 1                         # 0 to 3
///     zero_group = "node"              # as --zero-group, or a number
///     recompute = "none"               # as --recompute
///     shares = "proportional"          # or equal: of replicas without samples
///     sends = "blocking"               # or overlapped: as --pipeline-sends
///
///     [[stages]]
///     blocks = "0-11"                  # or "5"; what is around the blocks goes with the first and
///                                      # the last; or by names: layers = "conv1-pool2"
///     groups = [["a.gpu0", "a.gpu1"], ["b.gpu0"]]   # a list for each replica
///     samples = [3, 1]                 # of a micro-batch, for each replica
///     parts = [[5, 3], [1]]            # of each layer, for the devices of a replica; else equal
///
/// Stages follow one another without gaps; data and loss layers need not be named. Throws
/// InputError with file:line:key for bad input, with a "did you mean" for names.
[[nodiscard]] LayoutFile read_layout(std::string_view text, const std::string& file,
                                     const Network& network, const Cluster& cluster);

/// Copies the file's other settings (schedule, ZeRO stage, recomputation, ...) into `input`; the
/// trainer's usual bucket if `input` has none.
void take_decisions(const LayoutFile& file, strategies::StrategyInput& input);

/// Throws InputError for a key of a TOML file that changes nothing: exchanges of keys and values
/// without cp, sends of a single stage, an order of one micro-batch, shares of single replicas or
/// where samples are given. `input`: with what options decide.
void check_keys(const LayoutFile& layout, const std::string& file,
                const strategies::StrategyOptions& input);

/// The JSON Schema of such files.
[[nodiscard]] std::string layout_schema();

}  // namespace parsim::experiment
