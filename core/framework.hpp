// The framework that trains: what it keeps in memory besides tensors and optimizer states, and what
// it gathers again.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/spelling.hpp"

namespace parsim {

///   pytorch   gradients of replicas that shard nothing travel in buckets of their own, a second
///             copy of all (torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets, unless
///             gradient_as_bucket_view); the loss of scores in 16 bits keeps their logarithms in
///             FP32, and its backward pass makes two more such tensors (cross_entropy of
///             pred.float(): log_softmax and nll_loss); what a repeated forward pass has gathered
///             for a dense layer stays for its backward pass; a pipeline stage keeps its output
///             until its backward pass (torch/distributed/pipelining/stage.py, fwd_cache), as
///             DeepSpeed's do without tensor parallelism
///   megatron  gradients travel where they add up (megatron/core/distributed/
///             param_and_grad_buffer.py); the loss works in place
///             (megatron/core/tensor_parallel/cross_entropy.py); dense layers gather their operands
///             for each pass (megatron/core/tensor_parallel/layers.py,
///             LinearWithGradAccumulationAndAsyncCommunication); a pipeline stage frees its output
///             once it has been sent (megatron/core/pipeline_parallel/schedules.py,
///             deallocate_output_tensor; Korthikanti et al. 2022, appendix B), and without sequence
///             parallelism sends all of it from every GPU of a tensor-parallel group
///             (get_tensor_shapes)
///   megatron_deepspeed  as megatron, in DeepSpeed's pipelines, whose stages send a share from each
///             GPU of a group and free the rest (deepspeed/runtime/pipe/engine.py,
///             is_pipe_partitioned), as Megatron-LM's did until 2023 (Narayanan et al. 2021, 4.1)
enum class Framework : std::uint8_t { pytorch, megatron, megatron_deepspeed };
constexpr std::array<std::string_view, 3> spellings(Framework) {
  return {"pytorch", "megatron", "megatron-deepspeed"};
}

/// Whose layers, loss and buffers of gradients are Megatron-LM's.
constexpr bool of_megatron(Framework framework) { return framework != Framework::pytorch; }

}  // namespace parsim
