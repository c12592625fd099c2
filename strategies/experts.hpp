// Expert parallelism: the experts of a mixture, divided among replicas.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The most experts that a layer has; 0 if none has any.
[[nodiscard]] std::int64_t experts_of(const Network& network);

/// Whether the experts' layers may be divided: what lies between a dispatch and its sum.
[[nodiscard]] bool is_of_experts(const Layer& layer);

/// Whether a layer belongs to a mixture of experts: a dispatch, its sum, or what lies between them.
[[nodiscard]] bool is_in_mixture(const Layer& layer);

/// By layer, whether it makes the probabilities of a dispatch: a product and what follows it.
[[nodiscard]] std::vector<bool> routers(const Network& network);

/// Whether a tensor group of so many devices leaves every expert whole, while it splits other
/// layers: expert tensor parallelism of 1 (Megatron-LM's --expert-tensor-parallel-size; Liu et al.
/// 2025, "MoE Parallel Folding", section 3). Its devices then have tokens, or experts, of their
/// own.
[[nodiscard]] bool whole_experts(const StrategyInput& input, std::size_t tensor);

/// Parts of a replica's tokens that are routed by themselves: those of context parallelism, and of
/// each the devices of a tensor group that leaves experts whole.
[[nodiscard]] std::size_t token_parts_of_experts(const StrategyInput& input, std::size_t tensor,
                                                 std::size_t context);

/// Degrees of expert parallelism for so many replicas, of tensor groups of so many devices for each
/// of so many parts of the tokens: the one that is asked for, if it divides them; else all that
/// divide them and the experts. Only 1 without experts. Where a replica's tokens are routed in
/// parts, a degree divides these parts, or is that of the parts of some replicas.
[[nodiscard]] std::vector<std::size_t> expert_degrees(const StrategyInput& input,
                                                      std::size_t replicas, std::size_t tensor = 1,
                                                      std::size_t context = 1);

/// Gives every part of the tokens slots of its own, as many as it would have by itself, where the
/// groups of a dispatch are fewer (ExpertDispatch): capacity is of what a device routes. Nothing
/// changes where so many parts divide the groups, or do not divide the tokens.
void route_in_parts(Network& network, std::int64_t parts);

/// The fewest parts of tokens that give the dispatches of a network the slots that a plan divides;
/// 1 if there are none.
[[nodiscard]] std::int64_t routed_parts(const Network& network, const Plan& plan);

/// Throws InputError if expert parallelism is asked for and the network has no experts, or fewer.
void expect_experts(const StrategyInput& input);

/// Whether a tensor degree goes with the expert tensor parallelism that is asked for, if any: it is
/// the same, or 1 where each device of a group gets slots of every expert.
[[nodiscard]] bool splits_experts_as_asked(const StrategyInput& input, std::size_t tensor,
                                           std::size_t context = 1);

/// Divides the experts of each layer among every `ways` replicas that are neighbours (Lepikhin et
/// al. 2020, "GShard"; Megatron-LM's expert model parallelism): each of them then works for the
/// samples of all with its own experts. Tokens go to their experts and come back in all-to-alls
/// among these devices, and gradients of an expert are summed over those that have it. Where groups
/// of devices share layers, each device of a group sends its tokens if it has its own, else a part
/// of the channels, to the same device of other groups, and the group gathers what its experts read
/// and sums what they make, as Megatron-LM's dispatcher (MoEAlltoAllTokenDispatcher of
/// megatron/core/transformer/moe/token_dispatcher.py).
///
/// Where replicas route their tokens in parts (token_parts_of_experts), those who have parts divide
/// the experts instead: all of `ways / parts` replicas that are neighbours, or every `ways`
/// neighbours of a replica, each sends its own tokens. So Megatron-LM's expert groups span context
/// and data parallelism, and tensor groups with whole experts.
///
/// parts   of a replica's tokens
/// plan    its layers' first cut is by sample, into a multiple of `ways / parts`; else nothing is
///         divided. Of several parts the next one is by token, into `parts`
void divide_experts(const Network& network, std::size_t ways, std::size_t parts, Plan& plan);

}  // namespace parsim::strategies
