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
///             for a dense layer stays for its backward pass; pipelines keep what they send
///   megatron  gradients travel where they add up (megatron/core/distributed/
///             param_and_grad_buffer.py); the loss works in place (megatron/core/tensor_parallel/
///             cross_entropy.py); dense layers gather operands for each pass (layers.py there,
///             LinearWithGradAccumulationAndAsyncCommunication); pipelines free what they have
///             sent (megatron/core/pipeline_parallel/schedules.py, deallocate_output_tensor)
enum class Framework : std::uint8_t { pytorch, megatron };
constexpr std::array<std::string_view, 2> spellings(Framework) { return {"pytorch", "megatron"}; }

}  // namespace parsim
