// Whole transformers: bounds, stacks of blocks, heads, and GPT-2. Shared by the reader of
// config.json and by formulas. Private to networks/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/network.hpp"
#include "networks/transformer.hpp"

namespace parsim::networks::zoo {

// Far above any existing model. What grows with the square of the sequence has its own bound.
inline constexpr std::int64_t most_hidden = 1 << 18, most_ffn_hidden = 1 << 22, most_blocks = 4096,
                              most_heads = 4096, most_vocab_size = 1 << 28,
                              most_seq_length = 1 << 22;

/// Where a block has norms, and whether its feed-forward follows its attention.
enum class BlockKind : std::uint8_t {
  pre_norm,           ///< a norm before attention, and one before the feed-forward: GPT-2, LLaMA
  parallel,           ///< both parts read the block's input, each through a norm: GPT-NeoX
  parallel_one_norm,  ///< both through the same norm: Phi
  sandwich,           ///< as pre_norm, and a norm after each part, before the sum: Gemma 2
  output_norm         ///< the norms after the parts alone: OLMo 2
};

/// A stack of equal blocks.
struct Blocks {
  BlockKind kind = BlockKind::pre_norm;
  std::int64_t hidden = 0, blocks = 0;
  SelfAttention attention{};
  FeedForward feed_forward{};
  Experts experts{};               ///< in place of the feed-forward of some blocks
  std::int64_t dense_blocks = 0;   ///< the first ones, which have no experts
  std::int64_t experts_every = 1;  ///< then only blocks whose number it divides have them,
  std::int64_t first_number = 1;   ///< the first of all blocks having this one
  std::vector<std::int64_t> dense_indices{};  ///< others without experts, from 0
  std::vector<std::int64_t> unwindowed{};     ///< blocks whose attention has no window, from 0
  TransformerNorm norm = TransformerNorm::layer;
  double dropout = 0;  ///< after attention and after the feed-forward
};

/// Far above any existing model.
inline constexpr std::int64_t most_experts = 1 << 16;

/// Throws InputError at `where` unless `heads` divides `hidden`.
void check_heads(std::int64_t heads, std::int64_t hidden, const std::string& where);
/// Throws InputError at `where` unless `kv_heads` divides `heads`.
void check_kv_heads(std::int64_t kv_heads, std::int64_t heads, const std::string& where);

/// Warns that no expert is assumed to be busier than another.
void warn_of_balance(Network& network);

/// An input of token ids.
LayerId token_ids(Network& network, const std::string& name, std::int64_t seq_length);

/// Blocks with post-normalisation, as in BERT. Throws InputError at `where` if attention has more
/// scores than any existing model.
LayerId post_norm_blocks(Network& network, const Blocks& design, LayerId from,
                         const std::string& where);
/// Blocks of any kind in which the sums of a block are not normed.
LayerId residual_blocks(Network& network, const Blocks& design, LayerId from,
                        const std::string& where);

/// Logits of the next token and their loss. Tied: with the weights of the embedding layer `table`.
void finish_language_model(Network& network, LayerId from, LayerId table, bool tied,
                           bool bias = false);

/// A language model that predicts the next token.
struct Decoder {
  Blocks blocks{};
  std::int64_t vocab_size = 0;
  std::int64_t seq_length = 0;
  std::int64_t positions = 0;  ///< learned ones, at least seq_length; 0: none
  bool embedding_norm = false;
  double embedding_dropout = 0;
  bool tied = false;  ///< logits with the weights of the token embedding
  bool logits_bias = false;
};
/// GPT-2 and what is built like it: token and position embeddings, blocks, a norm, logits.
/// Added to a network without layers.
void add_gpt(Network& network, const Decoder& design, const std::string& where);
/// LLaMA and what is built like it: the same without learned positions, by LLaMA's names.
void add_llama(Network& network, const Decoder& design, const std::string& where);

}  // namespace parsim::networks::zoo
