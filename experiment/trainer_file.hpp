// Files of trainers, read as layouts: what a run that exists already does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "experiment/layout_file.hpp"

namespace parsim::experiment {

/// Whether these are arguments of Megatron-LM (a script or YAML), FlagScale's or
/// accelerate's YAML, DeepSpeed's JSON or torchtitan's TOML.
[[nodiscard]] bool is_trainer_file(std::string_view text, const std::string& file);

/// What plan --launch writes to a folder, and what is read of one: the first that is there.
inline constexpr std::string_view trainer_files[] = {
    "conf/train.yaml", "ds_config.json",   "parallelism.toml", "accelerate.yaml",
    "run.sh",          "parallelism.yaml", "train.yaml"};
/// The file of a folder that plan --launch wrote, or of FlagScale's conf or conf/train, else `path`
/// itself. Throws InputError for a folder without such a file.
[[nodiscard]] std::string trainer_file_in(const std::string& path);

/// The layout that the trainer would run on all GPUs of the cluster, or those that a file
/// `hostfile` lists ("NAME slots=8", "# gpus 4,5" for others than the first), which is in the same
/// folder or that of a `conf/train`. Ranks are numbered as the trainers do: tensor-parallel groups,
/// parts of the tokens, replicas, stages. Settings that do not change the parallelization are left
/// alone.
///
/// Throws InputError with file:line:name for a setting that changes the step and that a layout
/// cannot express, and for numbers that do not fit the network or the cluster.
/// Source of names: report/launch_*.cpp.
///
/// asked_batch   --batch, in place of what a file of DeepSpeed leaves "auto", or one of accelerate
/// out
[[nodiscard]] LayoutFile read_trainer_file(std::string_view text, const std::string& file,
                                           const Network& network, const Cluster& cluster,
                                           std::optional<std::int64_t> asked_batch = {});

/// How stages of a trainer ("megatron", …) send, `chunks` of them on each device. Blocking:
/// DeepSpeed (send of deepspeed/runtime/pipe/p2p.py refuses async_op); Megatron-LM, and FlagScale
/// after it, without model chunks (_communicate of
/// megatron/core/pipeline_parallel/p2p_communication.py waits for its requests; of chunks
/// --overlap-p2p-communication, the default, does not); PyTorch's 1F1B (Schedule1F1B of
/// torch/distributed/pipelining/schedules.py waits for a send with the receive that follows).
[[nodiscard]] strategies::PipelineSends sends_of_trainer(std::string_view trainer,
                                                         strategies::PipelineSchedule schedule,
                                                         std::int64_t chunks);

/// When a trainer reduces gradients. torchtitan after every micro-batch (train.py,
/// forward_backward_step, without no_sync or set_requires_all_reduce); accelerate once a step,
/// unless a plan says otherwise, as a script may with sync_each_batch (src/accelerate/
/// accelerator.py, accumulate); others as ReduceEvery::automatic says.
[[nodiscard]] ReduceEvery reduced_by(std::string_view trainer, ReduceEvery planned);

/// The kernels that a trainer runs between matrix products: its own (Megatron-LM's flags all ask
/// not to fuse: megatron/training/arguments.py), or those of the script that it runs, one for each
/// layer unless the script compiles the model.
[[nodiscard]] sim::Fusion fusion_of_trainer(std::string_view trainer);

/// Whether sums of gradients begin in the backward pass by the files that `plan --launch` writes
/// for a trainer and a ZeRO stage. Not those of DeepSpeed without ZeRO (allreduce_gradients of
/// deepspeed/runtime/engine.py), nor by its defaults, which accelerate leaves alone: `overlap_comm`
/// of deepspeed/runtime/zero/config.py is on for stage 3 only; nor in pipelines of PyTorch, which
/// reduce after the last backward pass (perform_reduce_grad of
/// torch/distributed/pipelining/stage.py).
///
/// stages   of the pipeline
[[nodiscard]] bool overlaps_sums(std::string_view trainer, std::int32_t zero_stage,
                                 std::int64_t stages);

}  // namespace parsim::experiment
