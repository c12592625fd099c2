#include "networks/transformer_blocks.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"

namespace parsim::zoo {

namespace {

/// Far above any model there is, and times a batch still a number.
void check_scores(const Network& network, const Blocks& design, LayerId from,
                  const std::string& where) {
  constexpr double most_scores = 1LL << 42;
  const auto tokens = static_cast<double>(network[from].out.axes.front().extent);
  const double scores = static_cast<double>(design.attention.heads) * tokens * tokens;
  if (scores <= most_scores) return;
  throw InputError(
      where,
      fmt::format("{} heads that score {} tokens against each other: {:.3g} scores a sample",
                  design.attention.heads, tokens, scores),
      fmt::format("accepted: at most {:.3g}", most_scores));
}

}  // namespace

void check_heads(std::int64_t heads, std::int64_t width, const std::string& where) {
  if (width % heads == 0) return;
  throw InputError(where, fmt::format("{} heads share {} channels", heads, width),
                   "a number that divides the width");
}

void check_key_heads(std::int64_t key_heads, std::int64_t heads, const std::string& where) {
  if (heads % key_heads == 0) return;
  throw InputError(where, fmt::format("{} heads share {} keys", heads, key_heads),
                   "a number that divides that of the heads");
}

LayerId token_ids(Network& network, const std::string& name, std::int64_t tokens) {
  return add_input(network, name, {{{Dim::token, tokens}}});
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

LayerId pre_norm_blocks(Network& network, const Blocks& design, LayerId from,
                        const std::string& where, bool parallel) {
  check_scores(network, design, from, where);
  LayerId x = from;
  for (std::int64_t i = 0; i < design.blocks; ++i) {
    const std::string name = fmt::format("block{}", i);
    LayerId part = transformer_norm(network, name + ".norm1", x, design.norm);
    part = self_attention(network, name + ".attention", part, design.attention);
    part = dropout(network, name + ".attention.out.dropout", part, design.dropout);
    const LayerId attended = sum(network, name + ".attention.sum", x, part);
    part = transformer_norm(network, name + ".norm2", parallel ? x : attended, design.norm);
    part = feed_forward(network, name + ".mlp", part, design.feed_forward);
    part = dropout(network, name + ".mlp.dropout", part, design.dropout);
    x = sum(network, name + ".mlp.sum", attended, part);
  }
  return x;
}

void finish_language_model(Network& network, LayerId from, LayerId table, bool tied) {
  std::vector<ParameterId> shared;
  if (tied) shared = network[table].parameters;
  const std::int64_t words = network[network[table].parameters[0]].extents[0];
  const LayerId logits = add_layer(network, "lm_head", Dense{words, false}, {from}, shared);
  add_layer(network, "loss", Loss{}, {logits});
}

void add_gpt(Network& network, const Gpt& design, const std::string& where) {
  const Blocks& blocks = design.blocks;
  const LayerId words = add_layer(network, "wte", Embedding{design.words, blocks.width},
                                  {token_ids(network, "input_ids", design.tokens)});
  LayerId x = words;
  if (design.rows > 0) {
    x = sum(network, "embeddings", x,
            positions(network, "wpe", design.rows, design.tokens, blocks.width));
  }
  x = dropout(network, "embeddings.dropout", x, design.embedding_dropout);
  x = pre_norm_blocks(network, blocks, x, where);
  finish_language_model(network, transformer_norm(network, "ln_f", x, blocks.norm), words,
                        design.tied);
}

}  // namespace parsim::zoo
