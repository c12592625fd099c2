// From the degrees that a trainer's file names to a layout. Used by the readers of such files
// alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/layout_file.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

/// Stages that have the same degrees.
struct TrainerGroups {
  std::int64_t tensor = 1, context = 1, data = 1, pipeline = 1;
  [[nodiscard]] std::size_t devices() const {
    return static_cast<std::size_t>(tensor * context * data * pipeline);
  }
};

/// How many replicas there are of groups on so many devices. Throws InputError at `name`, if none
/// fit exactly.
[[nodiscard]] std::int64_t replicas_of(const TrainerWords& words, std::string_view name,
                                       std::size_t devices, const TrainerGroups& groups);

/// blocks   of each stage; of model chunks those of the first pass over the devices first
[[nodiscard]] strategies::Layout uniform_layout(const TrainerWords& words, const Network& network,
                                                const std::vector<std::int64_t>& blocks,
                                                const TrainerGroups& groups, std::int64_t chunks,
                                                const std::vector<DeviceId>& devices);

/// Stages of different degrees: `pipeline` stages of the first groups, and so on. Throws InputError
/// at `name` unless `blocks` are those of all stages.
[[nodiscard]] strategies::Layout mesh_layout(const TrainerWords& words, std::string_view name,
                                             const Network& network,
                                             const std::vector<std::int64_t>& blocks,
                                             const std::vector<TrainerGroups>& groups,
                                             const std::vector<DeviceId>& devices);

/// The batch and its micro-batches of `samples`; one without a batch. Throws InputError at `name`
/// if they do not divide it.
void set_batch(const TrainerWords& words, std::string_view name, std::optional<std::int64_t> batch,
               std::int64_t samples, LayoutFile& file);

/// Elements that DeepSpeed's stage 3 gathers ahead of their use, at most (runtime/zero/config.py,
/// stage3_prefetch_bucket_size): here what it gathers and reduces at once, unless one parameter has
/// more. Its gradients wait for reduce_bucket_size.
inline constexpr std::int64_t deepspeed_prefetch = 50'000'000;

/// The bucket of a trainer's gradients where its file names no size. 500 million elements of
/// DeepSpeed (runtime/zero/config.py, reduce_bucket_size), in stage 3 deepspeed_prefetch; 40
/// million, or 1 million for each replica and part of the tokens, of Megatron-LM and FlagScale
/// (training/training.py; stages after the first have one bucket there, whose sums have time until
/// the first ends). Tensor-parallel GPUs count shares. FSDP of torchtitan and accelerate, and stage
/// 3 of Megatron-LM, have a unit for each block; PyTorch's others and the bucket of one replica are
/// ddp_bucket; after_backward where sums do not overlap with the backward pass.
[[nodiscard]] Bytes usual_bucket(std::string_view trainer, std::int32_t zero_stage,
                                 const TrainerGroups& groups, Precision reduced);

/// Where a trainer's file says how gradients are summed.
struct BucketWords {
  std::string_view name;  ///< of the setting of a size, in elements
  std::string at;         ///< begins the note that nothing overlaps in stage 3
  bool overlaps = false;
  std::optional<std::int64_t> automatic = {};  ///< what "auto" is
};
/// The buckets of gradients, once the stage of ZeRO and precisions are known: of as many elements
/// as the file says or as is usual, or sums after the backward pass if they do not overlap with it.
/// In stage 3 they also say which weights are gathered at once (lowering/zero_schedule.hpp):
/// blocks, or what a file of DeepSpeed says.
void set_bucket(const TrainerWords& words, const BucketWords& how, std::string_view trainer,
                const TrainerGroups& groups, LayoutFile& file);

/// Once the stage of ZeRO is known: notes where DeepSpeed all-reduces gradients that a plan
/// reduce-scatters, or sums them in one bucket in stage 3. Throws InputError for parameters that
/// stage 3 would not shard.
void check_deepspeed_zero(const TrainerWords& words, const Network& network, std::int64_t replicas,
                          bool overlaps, LayoutFile& file);

/// Transformer blocks.
[[nodiscard]] std::int64_t blocks_of_network(const Network& network);
/// "AdamW", …, as PyTorch names it, in any case. Throws InputError for one that plans do not know.
[[nodiscard]] Optimizer optimizer_named(const TrainerWords& words, std::string_view key);
/// "bfloat16", "fp32", … Throws InputError for others.
[[nodiscard]] Precision precision_named(const TrainerWords& words, std::string_view key,
                                        std::string_view fallback);

/// Arguments of Megatron-LM, and FlagScale's YAML with `hetero_process_meshes`. Throw as
/// read_trainer_file.
[[nodiscard]] LayoutFile of_megatron(const TrainerWords& words, const Network& network,
                                     const Cluster& cluster);
[[nodiscard]] LayoutFile of_flagscale(const TrainerWords& words, const Network& network,
                                      const Cluster& cluster);
/// DeepSpeed's JSON and torchtitan's TOML. Throw as read_trainer_file.
///
/// asked_batch   --batch, in place of what is "auto"
[[nodiscard]] LayoutFile of_deepspeed(TrainerWords words, const Network& network,
                                      const Cluster& cluster,
                                      std::optional<std::int64_t> asked_batch);
/// accelerate's YAML, which leaves the batch to the script: `asked_batch` has to be there.
[[nodiscard]] LayoutFile of_accelerate(const TrainerWords& words, const Network& network,
                                       const Cluster& cluster,
                                       std::optional<std::int64_t> asked_batch);
[[nodiscard]] LayoutFile of_torchtitan(const TrainerWords& words, const Network& network,
                                       const Cluster& cluster);

}  // namespace parsim::experiment
