// The kernels of an optimizer's step.
#pragma once

#include <cstdint>

#include "core/cost_model.hpp"
#include "sim/fusion.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

struct OptimizerKernels {
  Operator op = Operator::other;
  Bytes touched;              ///< read and written by all of them
  std::int64_t launches = 1;  ///< one kernel takes 320 chunks of 65,536 elements of any tensors
};

/// update_traffic() in multi-tensor kernels; weights in 16 bits are a copy, for which a kernel more
/// reads four bytes and writes two. With Fusion::none one kernel and no copy; SGD's is then
/// PyTorch's default, several kernels over lists of tensors (torch.optim, foreach), Adam's the
/// fused one. With Fusion::megatron sums of gradients are also written as zeros, read and written
/// to scale them before they are reduced, and read for their norm; of states that replicas shard
/// only the shard's are counted. Source: PyTorch, MultiTensorApply.cuh and fused_adam_utils.cuh;
/// apex, multi_tensor_adam.cu; copies: Megatron-LM's _copy_main_params_to_model_params, FSDP's cast
/// of its shard; sums: Megatron-LM's reset and start_grad_sync
/// (core/distributed/param_and_grad_buffer.py) and get_grad_norm_fp32
/// (core/optimizer/clip_grads.py).
[[nodiscard]] OptimizerKernels optimizer_kernels(const OptimizerStep& step, Fusion fusion);

}  // namespace parsim::sim
