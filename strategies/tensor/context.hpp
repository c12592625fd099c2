// Context parallelism: the tokens of a sample divided among groups of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies::tensor {

/// How the devices of a replica share a layer. Device (c, k), the k-th of those that have the c-th
/// tokens, is number c · tensor + k, so that tensor-parallel groups are neighbours (Megatron-LM's
/// order tp-cp-ep-dp-pp, megatron/core/parallel_state.py).
struct LayerShare {
  std::vector<Cut> cuts;    ///< none: one device has all
  std::size_t context = 1;  ///< of the heads that device k would have, so many parts, one for each
                            ///< (c, k): all-to-all attention; else 1
  std::int32_t zigzag = 0;  ///< as in LayerPlan
  bool regather = false;    ///< as in LayerPlan
  bool ring = false;        ///< as in LayerPlan
  std::int32_t token_parts = 0;  ///< as in LayerPlan, if `last_reader` is in the layer's stage
  std::size_t last_reader = 0;
};

/// By layer, how tensor · context devices share it:
///
/// - The tokens of every layer that has them are cut into `context` parts, and each part as
///   tensor::split does.
/// - Layers without tokens are computed by all.
/// - Learned positions and scales are weights like others: all parts have them whole, as in
///   Megatron-LM (position_embeddings of megatron/core/models/common/embeddings/
///   language_model_embedding.py is a whole torch.nn.Embedding; its gradients are in the buffers of
///   the group over data and context).
/// - A loss averages the tokens of each device, and these sums are summed.
/// - Attention needs the keys and values of all tokens. They go round a ring while each device
///   attends to those that it has (p2p; Liu et al. 2023, "Ring Attention with Blockwise
///   Transformers", section 3), or all devices gather them before it, and sum and scatter their
///   gradients after it (all_gather; Llama Team 2024, section 3.3.2), again in
///   backward, as TransformerEngine does (AttnFuncWithCPAndKVAllGather of
///   transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py). Or heads
///   instead of tokens are divided in it (a2a; Jacobs et al. 2023, "DeepSpeed Ulysses", section
///   3.1): four all-to-alls forward, of queries, keys, values and the output.
/// - With a causal mask tokens are in zigzag order, so that all parts have as much work.
///
/// context   2 or more; divides the tokens (expect_context)
[[nodiscard]] std::vector<LayerShare> share_tokens(const StrategyInput& input, std::size_t tensor,
                                                   std::size_t context);

/// Gives the devices of every replica their parts of a layer.
///
/// groups    by replica its devices, as many as `share` has parts
/// samples   of a micro-batch, by replica
/// end       of the layers of its stage
void divide(const LayerShare& share, std::span<const std::vector<DeviceId>> groups,
            const std::vector<std::int64_t>& samples, std::size_t end, LayerPlan& layer);

/// From its first one to before its end.
struct LayerRange {
  std::size_t begin = 0, end = 0;
};
/// Divides layers of a stage so. Throws InputError with `where` unless its groups have one size
/// that can be divided as asked.
void divide_tokens(const StrategyInput& input, LayerRange layers,
                   std::span<const std::vector<DeviceId>> groups,
                   const std::vector<std::int64_t>& samples, const std::string& where,
                   std::vector<LayerPlan>& plans);

/// Whether attention's heads can be divided among so many devices, where all-to-alls divide them.
[[nodiscard]] bool has_heads_for(const StrategyInput& input, std::size_t tensor,
                                 std::size_t context);

/// Degrees that a search tries: the one asked for, or powers of two, up to `devices`, that leave
/// each part at least 2,048 tokens.
[[nodiscard]] std::vector<std::size_t> context_degrees(const StrategyInput& input,
                                                       std::size_t devices);

/// Throws InputError if the network's tokens cannot be divided as asked (--cp).
void expect_context(const StrategyInput& input);

}  // namespace parsim::strategies::tensor
