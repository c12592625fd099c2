// How much memory a plan needs on each device.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::lowering {

struct PlanFragments;

/// Peak memory of one device and what it is made of.
struct MemoryUse {
  Bytes weights, gradients, optimizer_state, activations, communication;
  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer_state + activations + communication;
  }
};

/// Whether a layer's output overwrites its input (as frameworks do for ReLU), is a view of it, or
/// makes it unnecessary to keep (softmax).
[[nodiscard]] bool works_in_place(const LayerKind& kind);

/// Bytes of a parameter's gradient: those of its sum, of the kernels' precision if that is larger.
/// Kernels add into sums of another size themselves, as Megatron-LM's do with FP32 sums, which has
/// 2 + 4 + 12 bytes a parameter in 16 bits with Adam (Megatron Core User Guide, "Distributed
/// Optimizer").
[[nodiscard]] std::int64_t gradient_bytes(Precision precision, Precision reduce);
/// Bytes of a parameter's optimizer states: fp32 numbers, and an fp32 copy of a 16-bit weight.
[[nodiscard]] std::int64_t optimizer_bytes(Precision precision, Optimizer optimizer);

/// Gradients of a single bucket that are in a buffer of their own at a time: DeepSpeed's
/// elements_per_buffer (deepspeed/runtime/engine.py, buffered_allreduce_fallback) and
/// reduce_bucket_size, of which ZeRO 2 fills one after the other during the backward pass, also
/// without overlap_comm (deepspeed/runtime/zero/stage_1_and_2.py).
inline constexpr std::int64_t most_flattened = 500'000'000;

/// By layer, bytes of an element that the backward pass keeps: of its output, if its own gradient
/// or that of a layer that reads it follows from it, and a byte of a dropout's mask. Functions that
/// work in place keep nothing of their own: what they need counts where their memory is. A loss
/// keeps its operand in at least four bytes: trainers compute it in fp32 (PyTorch's automatic mixed
/// precision, operations that autocast to float32; Megatron-LM's cross entropy), and PyTorch its
/// gradient, too (core/framework.hpp). Layers that
/// multiply in FP8 keep their operand as a byte, in addition to what other layers need of it
/// (Transformer Engine: Linear saves its input as it was cast; scales of blocks, a thirtieth more,
/// do not count).
[[nodiscard]] std::vector<std::int64_t> kept_bytes(const Network& network, Precision precision);

/// By device id.
///
///     weights, gradients   the parts that a device's cells use, at the plan's element size, with
///                          their copies in FP8 (core/fp8.hpp), and at gradient_bytes, or its share of them if they are split; in a pipeline
///                          gradients of several micro-batches are whole until they are summed
///     optimizer_state      optimizer_bytes each
///     activations          outputs that the backward pass reads, and received pieces, from forward
///                          to backward, for as many micro-batches as the schedule has in flight
///                          (where backward is split, operands and gradients of matrix products to
///                          their weight gradients),
///                          and the largest gradient with its input's. Activation functions and
///                          views take their input's place. Dropped outputs count from when they
///                          are computed again to their backward, and keep what they are made of
///     communication        the largest received piece; buckets of gradients that replicas sum:
///                          under PyTorch all of them, of a single one most_flattened gradients,
///                          with ZeRO the two largest; in place under Megatron-LM
///                          (core/framework.hpp); and the sharded weights and gradients that are
///                          whole at a time (zero_schedule.hpp)
///
/// A parameter server holds weights, gradients and states of what it serves. Workspaces of
/// libraries, their buffers and fragmentation are not counted (headroom.hpp).
[[nodiscard]] std::vector<MemoryUse> memory_use(const Network& network, const Cluster& cluster,
                                                const Plan& plan);
/// The same of a plan whose fragments have been found.
[[nodiscard]] std::vector<MemoryUse> memory_use(const PlanFragments& parts);

}  // namespace parsim::lowering
