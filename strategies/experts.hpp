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

/// Degrees of expert parallelism for so many replicas: the one that is asked for, if it divides
/// them; else all that divide them and the experts. Only 1 without experts.
[[nodiscard]] std::vector<std::size_t> expert_degrees(const StrategyInput& input,
                                                      std::size_t replicas);

/// Throws InputError if expert parallelism is asked for and the network has no experts, or fewer.
void expect_experts(const StrategyInput& input);

/// Divides the experts of each layer among every `ways` replicas that are neighbours (Lepikhin et
/// al. 2020, "GShard"; Megatron-LM's expert model parallelism): each of them then works for the
/// samples of all with its own experts. Tokens go to their experts and come back in all-to-alls
/// among these devices, and gradients of an expert are summed over those that have it. Where groups
/// of devices share layers, each device of a group sends a part of the channels.
///
/// plan   its layers' first cut is by sample, into a multiple of `ways`; else nothing is divided
void divide_experts(const Network& network, std::size_t ways, Plan& plan);

}  // namespace parsim::strategies
