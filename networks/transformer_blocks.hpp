// Whole transformers in a few words: bounds, stacks of blocks, heads, and GPT-2. What reads a
// config.json and networks by formula share it. Private to networks/.
#pragma once

#include <cstdint>
#include <string>

#include "core/network.hpp"
#include "networks/transformer.hpp"

namespace parsim::zoo {

// Far above any model there is. What grows with the square of the tokens has a bound of its own.
inline constexpr std::int64_t most_width = 1 << 18, most_inner = 1 << 22, most_blocks = 4096,
                              most_heads = 4096, most_words = 1 << 28, most_tokens = 1 << 22;

/// A stack of equal blocks.
struct Blocks {
  std::int64_t width = 0, blocks = 0;
  SelfAttention attention{};
  FeedForward feed_forward{};
  TransformerNorm norm = TransformerNorm::layer;
  double dropout = 0;  ///< of what each part gives
};

/// Throws InputError at `where` unless the heads share the channels evenly.
void check_heads(std::int64_t heads, std::int64_t width, const std::string& where);
/// Throws InputError at `where` unless the heads share keys evenly.
void check_key_heads(std::int64_t key_heads, std::int64_t heads, const std::string& where);

/// An input of token numbers.
LayerId token_ids(Network& network, const std::string& name, std::int64_t tokens);

/// Blocks that normalise after each sum, as BERT. Throws InputError at `where` if attention has
/// more scores than any model.
LayerId post_norm_blocks(Network& network, const Blocks& design, LayerId from,
                         const std::string& where);
/// Blocks that normalise before each part, as GPT-2; `parallel`: both parts read the block's input.
LayerId pre_norm_blocks(Network& network, const Blocks& design, LayerId from,
                        const std::string& where, bool parallel = false);

/// The scores of the next word and their loss. Tied: with the table of words, a layer.
void finish_language_model(Network& network, LayerId from, LayerId table, bool tied);

/// GPT-2 and what is built like it: words and learned positions, blocks that normalise first, a
/// norm, the scores of the next word.
struct Gpt {
  Blocks blocks{};
  std::int64_t words = 0;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;  ///< learned positions, at least as many as tokens; 0: none
  double embedding_dropout = 0;
  bool tied = true;
};
/// Adds it to a network without layers.
void add_gpt(Network& network, const Gpt& design, const std::string& where);

}  // namespace parsim::zoo
