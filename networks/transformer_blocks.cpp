#include "networks/transformer_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::networks::zoo {

namespace {

/// Far above any existing model; times a batch it still fits 64 bits.
void check_scores(const Network& network, const Blocks& design, LayerId from,
                  const std::string& where) {
  constexpr double most_scores = 1LL << 44;
  const auto seq_length = static_cast<double>(network[from].out.axes.front().extent);
  const double scores = static_cast<double>(design.attention.heads) * seq_length * seq_length;
  if (scores <= most_scores) return;
  throw InputError(
      where,
      fmt::format("{} heads and {} tokens give {:.3g} attention scores per sample",
                  design.attention.heads, seq_length, scores),
      fmt::format("accepted: at most {:.3g}, as with a smaller seq_length (--dim, or in a formula)",
                  most_scores));
}

}  // namespace

void check_heads(std::int64_t heads, std::int64_t hidden, const std::string& where) {
  if (hidden % heads == 0) return;
  throw InputError(where,
                   fmt::format("{} heads do not divide the hidden size of {}", heads, hidden),
                   "accepted: a divisor of the hidden size");
}

void check_kv_heads(std::int64_t kv_heads, std::int64_t heads, const std::string& where) {
  if (heads % kv_heads == 0) return;
  throw InputError(where, fmt::format("{} key/value heads do not divide {} heads", kv_heads, heads),
                   "accepted: a divisor of the number of heads");
}

void warn_of_balance(Network& network) {
  network.warnings.push_back(
      "experts are as busy as if the router were in balance; --expert-imbalance says otherwise");
}

LayerId token_ids(Network& network, const std::string& name, std::int64_t seq_length) {
  return add_input(network, name, {{{Dim::token, seq_length}}});
}

LayerId post_norm_blocks(Network& network, const Blocks& design, LayerId from,
                         const std::string& where) {
  check_scores(network, design, from, where);
  LayerId x = from;
  for (std::int64_t i = 0; i < design.blocks; ++i) {
    const std::string name = fmt::format("block{}", i);
    LayerId part = self_attention(network, name + ".attention", x, design.attention);
    part = dropout(network, name + ".attention.out.dropout", part, design.dropout);
    x = transformer_norm(network, name + ".attention.norm",
                         sum(network, name + ".attention.sum", x, part), design.norm);
    part = feed_forward(network, name + ".mlp", x, design.feed_forward);
    part = dropout(network, name + ".mlp.dropout", part, design.dropout);
    x = transformer_norm(network, name + ".mlp.norm", sum(network, name + ".mlp.sum", x, part),
                         design.norm);
  }
  return x;
}

LayerId residual_blocks(Network& network, const Blocks& design, LayerId from,
                        const std::string& where) {
  check_scores(network, design, from, where);
  const BlockKind kind = design.kind;
  const bool parallel = kind == BlockKind::parallel || kind == BlockKind::parallel_one_norm;
  const bool before = kind != BlockKind::output_norm;
  const bool after = kind == BlockKind::sandwich || kind == BlockKind::output_norm;
  const auto norm = [&](bool exists, const std::string& name, LayerId of) {
    return exists ? transformer_norm(network, name, of, design.norm) : of;
  };
  const auto among = [](const std::vector<std::int64_t>& blocks, std::int64_t i) {
    return std::find(blocks.begin(), blocks.end(), i) != blocks.end();
  };
  LayerId x = from;
  for (std::int64_t i = 0; i < design.blocks; ++i) {
    const std::string name = fmt::format("block{}", i);
    const LayerId first = norm(before, name + ".norm1", x);
    SelfAttention attention = design.attention;
    if (among(design.unwindowed, i)) attention.window = 0;
    LayerId part = self_attention(network, name + ".attention", first, attention);
    part = dropout(network, name + ".attention.out.dropout", part, design.dropout);
    part = norm(after, name + ".attention.out.norm", part);
    const LayerId attended = sum(network, name + ".attention.sum", x, part);
    part = kind == BlockKind::parallel_one_norm
               ? first
               : norm(before, name + ".norm2", parallel ? x : attended);
    const bool sparse = design.experts.count > 0 && i >= design.dense_blocks &&
                        (i + design.first_number) % design.experts_every == 0 &&
                        !among(design.dense_indices, i);
    part = sparse ? mixture_of_experts(network, name + ".mlp", part, design.experts,
                                       design.feed_forward)
                  : feed_forward(network, name + ".mlp", part, design.feed_forward);
    part = dropout(network, name + ".mlp.dropout", part, design.dropout);
    part = norm(after, name + ".mlp.out.norm", part);
    x = sum(network, name + ".mlp.sum", attended, part);
  }
  return x;
}

void finish_language_model(Network& network, LayerId from, LayerId table, bool tied, bool bias) {
  std::vector<ParameterId> shared;
  if (tied) shared = network[table].parameters;
  const std::int64_t vocab_size = network[network[table].parameters[0]].extents[0];
  const LayerId logits = add_layer(network, "lm_head", Dense{vocab_size, bias}, {from}, shared);
  add_layer(network, "loss", Loss{}, {logits});
}

void add_gpt(Network& network, const Decoder& design, const std::string& where) {
  const Blocks& blocks = design.blocks;
  const LayerId table = add_layer(network, "wte", Embedding{design.vocab_size, blocks.hidden},
                                  {token_ids(network, "input_ids", design.seq_length)});
  LayerId x = table;
  if (design.positions > 0) {
    x = sum(network, "embeddings", x,
            positions(network, "wpe", design.positions, design.seq_length, blocks.hidden));
  }
  if (design.embedding_norm) x = transformer_norm(network, "embeddings.norm", x, blocks.norm);
  x = dropout(network, "embeddings.dropout", x, design.embedding_dropout);
  x = residual_blocks(network, blocks, x, where);
  finish_language_model(network, transformer_norm(network, "ln_f", x, blocks.norm), table,
                        design.tied, design.logits_bias);
}

void add_llama(Network& network, const Decoder& design, const std::string& where) {
  const Blocks& blocks = design.blocks;
  const LayerId table =
      add_layer(network, "embed_tokens", Embedding{design.vocab_size, blocks.hidden},
                {token_ids(network, "input_ids", design.seq_length)});
  const LayerId x = residual_blocks(network, blocks, table, where);
  finish_language_model(network, transformer_norm(network, "norm", x, blocks.norm), table,
                        design.tied);
}

}  // namespace parsim::networks::zoo
