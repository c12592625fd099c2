// The kinds of layers that make a mixture of experts: a router's probabilities (a Dense and a
// Softmax) decide which tokens go to which expert, the experts are products of their own, and a
// weighted sum brings their results back to the tokens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace parsim {

/// Copies every token to the `top_k` experts with the largest probabilities (of equal ones the
/// first).
///
///     in       tokens × channels; probabilities: tokens × experts
///     out      experts × slots × channels
///
/// A sample's tokens are in `groups` of neighbours, and each has as many of an expert's slots. A
/// token takes the first free slot that its group has of its expert, in the order of the tokens; if
/// none is free, this expert drops it (GShard, Lepikhin et al. 2020, section 2.2). Slots without a
/// token are zero. Without a capacity, trainers make as many slots as tokens come; a router in
/// balance sends tokens · top_k / experts, which is what a network of a dropless trainer has here
/// (networks::expert_slots).
///
/// groups   divides tokens and slots
///
/// Cut along sample, expert, token (slots) and channel: a part reads the tokens of the groups that
/// it has slots of.
struct ExpertDispatch {
  std::int64_t top_k = 1, slots = 1, groups = 1;
  friend bool operator==(const ExpertDispatch&, const ExpertDispatch&) = default;
};

/// A dense layer for each expert, with weights of its own: one grouped product.
///
///     in       experts × slots × channels
///     weights  experts × units × channels      bias  experts × units
///     out      experts × slots × units
///
/// imbalance   tokens of the busiest expert, which is the first, over those of the average; the
///             others share the rest. It counts in products alone: a device with the busiest expert
///             computes longer, while buffers and messages are those of a router in balance.
///
/// Cut along sample, expert, token, channel (units) and in_channel.
struct ExpertDense {
  std::int64_t units = 0;
  bool bias = false;
  double imbalance = 1;
  friend bool operator==(const ExpertDense&, const ExpertDense&) = default;
};

/// Sums for every token what its experts made of it, times their probabilities, which are divided
/// by their sum if `normalized`. What an expert has dropped counts zero.
///
///     in       experts × slots × channels; probabilities: tokens × experts
///     out      tokens × channels
///
/// groups   as in ExpertDispatch
///
/// Cut along sample, token and channel: a part reads the slots of its tokens' groups.
struct ExpertCombine {
  std::int64_t top_k = 1;
  bool normalized = false;
  std::int64_t groups = 1;
  friend bool operator==(const ExpertCombine&, const ExpertCombine&) = default;
};

}  // namespace parsim
