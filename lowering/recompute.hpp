// Recomputation: outputs that are dropped after forward and computed again when the backward pass
// needs them (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.2).
#pragma once

#include <span>
#include <vector>

#include "core/plan.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::lowering {

/// By layer: whether its output is dropped after forward. An output that another stage reads is
/// kept even if the plan marks its layer for recomputation.
[[nodiscard]] std::vector<bool> dropped_outputs(const Network& network, const Plan& plan);

/// Whether what devices have gathered for a layer is gathered once for the recomputation of its
/// output and once more for its backward pass, not kept in between: keys and values of attention
/// (TransformerEngine's AttnFuncWithCPAndKVAllGather, PyTorch's
/// _templated_ring_attention_backward), and operands of Megatron-LM's dense layers
/// (core/framework.hpp), but not those of experts.
[[nodiscard]] bool gathers_for_each_pass(const Layer& reader, Framework framework);

/// A layer's forward, recompute or backward pass, while a stage processes a micro-batch.
struct LayerVisit {
  LayerId layer;
  bool forward = false;  ///< forward or recompute; else backward
  friend bool operator==(const LayerVisit&, const LayerVisit&) = default;
};
/// The visits of a stage's backward pass, in order: the layers' backward, last layer first, and
/// before each the recomputation of the dropped outputs that it reads.
///
/// dropped   by layer, see above
/// members   the stage's layers, ascending
[[nodiscard]] std::vector<LayerVisit> backward_visits(const Network& network,
                                                      const GradientFlow& flow,
                                                      const std::vector<bool>& dropped,
                                                      std::span<const LayerId> members);

/// An element of a chain that is cut into segments: `bytes` that its segment's backward needs, and
/// `whole` that is kept if an element after the segment reads it, the last one being `last_reader`.
struct Checkpoint {
  double bytes = 0, whole = 0;
  std::size_t last_reader = 0;
};
/// First element of every segment, such that peak memory is low. The peak is the maximum over
/// segments of the bytes kept by the segments before it, plus all bytes of its own, plus the bytes
/// that every other micro-batch in flight keeps. Optimal with one micro-batch in flight, else
/// within 5 %. O(n² · log bytes).
///
/// Checked against all cuts: tests/lowering/recompute_test.cpp.
[[nodiscard]] std::vector<std::size_t> checkpoint_segments(const std::vector<Checkpoint>& chain,
                                                           std::int64_t in_flight = 1);

/// Marks what to recompute. Every stage is cut into segments by checkpoint_segments of the bytes on
/// all devices, and only outputs that later segments read are kept. Where a stage runs backward
/// right after forward, its last segment is kept, too. Layers whose contraction is cut repeat their
/// all-reduce.
void recompute_segments(const Network& network, Plan& plan);

/// The layers whose outputs are attention scores: from the matmul of queries and keys to the
/// operand of the matmul with the values. Empty if the network has no softmax between two matmuls.
[[nodiscard]] std::vector<LayerId> attention_scores(const Network& network);

/// Marks the attention scores, which are large and cheap to recompute, and nothing else
/// (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
/// section 5: selective recomputation). Fused attention kernels do the same.
void recompute_attention(const Network& network, Plan& plan);

}  // namespace parsim::lowering
