// Recomputation: outputs that are dropped after forward and computed again when the backward pass
// needs them (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.2).
#pragma once

#include <span>
#include <vector>

#include "core/plan.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim {

/// By layer: whether its output is dropped. Of the layers marked in the plan, those that only
/// layers of their own stage read: what another stage reads has to stay.
[[nodiscard]] std::vector<bool> dropped_outputs(const Network& network, const Plan& plan);

/// One layer's turn when a stage goes through a micro-batch.
struct Turn {
  LayerId layer;
  bool forward = false;  ///< maybe once more; else its backward
  friend bool operator==(const Turn&, const Turn&) = default;
};
/// The turns of a stage on the way back, in order: its layers' backward, last layer first, each as
/// soon as what it reads, and was dropped, is there again.
///
/// dropped   by layer, see above
/// members   the stage's layers, ascending
[[nodiscard]] std::vector<Turn> backward_turns(const Network& network, const GradientFlow& flow,
                                               const std::vector<bool>& dropped,
                                               std::span<const LayerId> members);

/// An element of a chain that is cut into segments: `bytes` that its segment's backward keeps, and
/// `whole` that must stay if something after the segment reads it, until element `last_reader`.
struct Checkpoint {
  double bytes = 0, whole = 0;
  std::size_t last_reader = 0;
};
/// First element of every segment so that the peak is low: what the segments up to one keep, and
/// all that one makes, for the worst of them; and what all segments keep of every other micro-batch
/// in flight. The lowest if there is but one in flight, else within a twentieth. O(n² · log bytes).
///
/// Checked against all cuts: tests/lowering/recompute_test.cpp.
[[nodiscard]] std::vector<std::size_t> checkpoint_segments(const std::vector<Checkpoint>& chain,
                                                           std::int64_t in_flight = 1);

/// Marks what to recompute: every stage in segments, by checkpoint_segments of the bytes of all
/// devices together, of which only what later segments read is kept. The last segment of a stage
/// that goes backward right after it went forward is kept, too. Layers whose contraction is cut sum
/// over their group again.
void recompute_segments(const Network& network, Plan& plan);

/// The layers whose outputs are the maps of attention: from the product of queries and keys to what
/// the product with the values reads. Empty if the network has no softmax between two products.
[[nodiscard]] std::vector<LayerId> attention_maps(const Network& network);

/// Marks the maps of attention, which are large and quickly made, and nothing else (Korthikanti et
/// al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 5). Fused
/// kernels do the same.
void recompute_attention(const Network& network, Plan& plan);

}  // namespace parsim
