// The blocks of a network: the unit in which stages of large transformers are cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The block of a layer, by its name: "block3.mlp.up" is of block 3. Nothing for what is around the
/// blocks.
[[nodiscard]] std::optional<std::int64_t> block_of(const Network& network, LayerId layer);

/// By layer its block; -1 before the first one, and after the last one as if it were one more. All
/// -1: the network has no blocks.
[[nodiscard]] std::vector<std::int64_t> blocks_of(const Network& network);

/// By block its first layer: 0 for the first, to which belongs all that is before it. Empty if the
/// network has no blocks. What is after the last block belongs to it.
[[nodiscard]] std::vector<std::size_t> first_layers_of_blocks(const Network& network);

/// By unit its first layer: the first layers at which stages may begin. Units are the blocks, what
/// is before the first and what is after the last one; or single layers, by choice or if the
/// network has no blocks.
[[nodiscard]] std::vector<std::size_t> units_of(const Network& network,
                                                std::optional<Granularity> granularity);

/// A line about what the finer cut, of layers, would gain: `step` with whole blocks in each stage,
/// `finer` without, both by the same closed form. Empty if stages are cut by layer already.
[[nodiscard]] std::string finer_cut_note(const StrategyInput& input, double step, double finer);

/// Marks what to recompute: everything within a block, so that its input is its only checkpoint, as
/// with Megatron-LM's --recompute-granularity full, --recompute-method uniform and one layer to a
/// group. Layers whose contraction is cut sum over their group again. What is around the blocks is
/// kept.
void recompute_blocks(const Network& network, Plan& plan);

/// Marks what to recompute: everything within a block but attention, tokens that came to experts,
/// sums over a group, and every other dense layer (the first, third, ... of the block), as
/// torchtitan's selective_ac_option = "op" (torchtitan/parallelisms/parallelize_llama.py,
/// _save_list and _custom_policy: every second matrix product is not saved).
void recompute_operations(const Network& network, Plan& plan);

/// Marks what to recompute: outputs of norms and activation functions, and their products with
/// gates, within a block, as Megatron-LM's --recompute-modules layernorm moe_act
/// (megatron/core/transformer/transformer_config.py), but for the activation functions of dense
/// feed-forwards, too.
void recompute_pointwise(const Network& network, Plan& plan);

/// Marks what devices of a group exchange for recomputed layers to be exchanged again: tokens of
/// experts, and heads of attention whose tokens are divided (all-to-alls).
///
/// again   or unmarks it
void exchange_again(const Network& network, bool again, Plan& plan);

/// Takes the marks off all blocks but every `every`-th: block `every` - 1 is the first that is
/// recomputed, as torchtitan's selective_ac_option = "2" counts.
void keep_other_blocks(const Network& network, std::int32_t every, Plan& plan);

}  // namespace parsim::strategies
