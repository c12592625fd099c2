// The parts of a transformer block: norms, attention, feed-forward. Private to networks/.
#pragma once

#include <cstdint>
#include <string>

#include "core/network.hpp"

namespace parsim::networks::zoo {

/// Root-mean-square norms have a scale and no shift.
enum class TransformerNorm : std::uint8_t { layer, root_mean_square };

/// Multi-head latent attention: queries, keys and values are made from few channels, each after an
/// RMS norm; of a head's channels the last `rotary_dim` have the rotary embedding, and all heads'
/// keys share them (DeepSeek-AI 2024, "DeepSeek-V2", equations 9 to 19).
struct LatentAttention {
  std::int64_t rank = 0;        ///< channels that keys and values are made from; 0: the usual kind
  std::int64_t query_rank = 0;  ///< 0: queries are made from the hidden size
  std::int64_t rotary_dim = 1;  ///< of a head's channels, less than head_dim
  std::int64_t value_dim = 1;   ///< channels of a head's values
};

/// RMS norms of queries and keys: none, of every head with one scale for all of them (Qwen3), or of
/// all channels together (OLMo 2).
enum class QueryNorm : std::uint8_t { none, of_heads, whole };

/// Self-attention over token × channel. Scale and mask belong to the softmax; in a fused kernel the
/// dropout takes no time.
struct SelfAttention {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< fewer than heads: grouped-query attention
  std::int64_t head_dim = 1;
  bool bias = true;      ///< of queries, keys and values
  bool out_bias = true;  ///< of the projection at the end
  QueryNorm query_norm = QueryNorm::none;
  bool rotary = false;  ///< rotary position embedding of queries and keys
  double dropout = 0;   ///< of the attention probabilities
  LatentAttention latent{};
  bool fused = true;        ///< one kernel; else two matmuls and a softmax, and the scores are kept
  bool causal = false;      ///< a fused kernel skips what is masked; eager attention computes it
  std::int64_t window = 0;  ///< of tokens that a causal token sees; 0: all
};

struct FeedForward {
  std::int64_t ffn_hidden = 1;
  std::string activation = "gelu";
  bool gated = false;  ///< activation(gate) · up instead of activation(up)
  bool bias = true;
};

/// A mixture of experts in place of a feed-forward. The router is a Dense and a Softmax.
struct Experts {
  std::int64_t count = 0;              ///< 0: none, a feed-forward
  std::int64_t top_k = 1;              ///< experts that a token goes to
  std::int64_t ffn_hidden = 1;         ///< of an expert
  std::int64_t shared_ffn_hidden = 0;  ///< of what every token goes through as well; 0: nothing
  bool sigmoid = false;                ///< the router's probabilities are sigmoids, not a softmax
  bool shared_gate = false;  ///< the shared part times a sigmoid of one more router output
  bool normalized = false;   ///< a token's probabilities are made to sum to one
  double capacity =
      1;  ///< slots of all experts over tokens · top_k; 1 for dropless, see ExpertDispatch
};
/// Slots of an expert for a sample: capacity · tokens · top_k / count, rounded up.
[[nodiscard]] std::int64_t expert_slots(const Experts& experts, std::int64_t tokens);

LayerId transformer_norm(Network& network, const std::string& name, LayerId from,
                         TransformerNorm kind);
/// From token × hidden to token × hidden.
LayerId self_attention(Network& network, const std::string& name, LayerId from,
                       const SelfAttention& design);
LayerId feed_forward(Network& network, const std::string& name, LayerId from,
                     const FeedForward& design);
/// `design` says how an expert is made; its size is that of `experts`. Devices that share the
/// tokens route their own alone, as trainers do, so the groups of ExpertDispatch are as small as
/// can be.
LayerId mixture_of_experts(Network& network, const std::string& name, LayerId from,
                           const Experts& experts, FeedForward design);
/// `from` unless the rate is positive.
LayerId dropout(Network& network, const std::string& name, LayerId from, double rate);
LayerId sum(Network& network, const std::string& name, LayerId a, LayerId b);
/// The first `seq_length` rows of a table of `rows` learned position embeddings.
LayerId positions(Network& network, const std::string& name, std::int64_t rows,
                  std::int64_t seq_length, std::int64_t hidden);
/// The first token as a vector.
LayerId first_token(Network& network, const std::string& name, LayerId from);

}  // namespace parsim::networks::zoo
