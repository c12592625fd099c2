// The parts of a transformer block: norms, attention, feed-forward. Private to networks/.
#pragma once

#include <cstdint>
#include <string>

#include "core/network.hpp"

namespace parsim::networks::zoo {

/// Root-mean-square norms have a scale and no shift.
enum class TransformerNorm : std::uint8_t { layer, root_mean_square };

/// Self-attention over token × channel. Scale and mask belong to the softmax; in a fused kernel the
/// dropout takes no time.
struct SelfAttention {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< fewer than heads: grouped-query attention
  std::int64_t head_dim = 1;
  bool bias = true;      ///< of queries, keys and values
  bool out_bias = true;  ///< of the projection at the end
  bool rotary = false;   ///< rotary position embedding of queries and keys
  double dropout = 0;    ///< of the attention probabilities
  bool fused = true;     ///< one kernel; else two matmuls and a softmax, and the scores are kept
  bool causal = false;   ///< a fused kernel skips what is masked; eager attention computes it
};

struct FeedForward {
  std::int64_t ffn_hidden = 1;
  std::string activation = "gelu";
  bool gated = false;  ///< activation(gate) · up instead of activation(up)
  bool bias = true;
};

LayerId transformer_norm(Network& network, const std::string& name, LayerId from,
                         TransformerNorm kind);
/// From token × hidden to token × hidden.
LayerId self_attention(Network& network, const std::string& name, LayerId from,
                       const SelfAttention& design);
LayerId feed_forward(Network& network, const std::string& name, LayerId from,
                     const FeedForward& design);
/// `from` unless the rate is positive.
LayerId dropout(Network& network, const std::string& name, LayerId from, double rate);
LayerId sum(Network& network, const std::string& name, LayerId a, LayerId b);
/// The first `seq_length` rows of a table of `rows` learned position embeddings.
LayerId positions(Network& network, const std::string& name, std::int64_t rows,
                  std::int64_t seq_length, std::int64_t hidden);
/// The first token as a vector.
LayerId first_token(Network& network, const std::string& name, LayerId from);

}  // namespace parsim::networks::zoo
