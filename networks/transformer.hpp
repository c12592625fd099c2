// Words for writing transformers down, layer by layer: norms, attention, feed-forward. Private to
// networks/.
#pragma once

#include <cstdint>
#include <string>

#include "core/network.hpp"

namespace parsim::zoo {

/// Root-mean-square norms have a scale and no shift.
enum class TransformerNorm : std::uint8_t { layer, root_mean_square };

/// Self-attention over token × channel. Its scale and mask belong to the softmax; in one kernel its
/// dropout takes no time.
struct SelfAttention {
  std::int64_t heads = 1;
  std::int64_t key_heads = 1;  ///< fewer than heads: several queries share a key and a value
  std::int64_t head_width = 1;
  bool bias = true;      ///< of queries, keys and values
  bool out_bias = true;  ///< of the projection at the end
  bool rotary = false;   ///< positions are turned into queries and keys
  double dropout = 0;    ///< of the weights after softmax
  bool fused = true;     ///< in one kernel; else as products and a softmax, whose maps are kept
  bool causal = false;   ///< known to a fused kernel only, which skips what is masked
};

struct FeedForward {
  std::int64_t inner = 1;
  std::string activation = "gelu";
  bool gated = false;  ///< activation(gate) · up instead of activation(up)
  bool bias = true;
};

LayerId transformer_norm(Network& network, const std::string& name, LayerId from,
                         TransformerNorm kind);
/// From token × width to token × width.
LayerId self_attention(Network& network, const std::string& name, LayerId from,
                       const SelfAttention& design);
LayerId feed_forward(Network& network, const std::string& name, LayerId from,
                     const FeedForward& design);
/// `from` unless the rate is positive.
LayerId dropout(Network& network, const std::string& name, LayerId from, double rate);
LayerId sum(Network& network, const std::string& name, LayerId a, LayerId b);
/// The first `tokens` rows of a table of `rows` learned positions.
LayerId positions(Network& network, const std::string& name, std::int64_t rows, std::int64_t tokens,
                  std::int64_t width);
/// The first token as a vector.
LayerId first_token(Network& network, const std::string& name, LayerId from);

}  // namespace parsim::zoo
