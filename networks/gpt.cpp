// gpt:layers=24,width=1024,heads=16: a decoder-only transformer of any size, built as GPT-2.
#include <fmt/format.h>

#include "core/call.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"
#include "networks/zoo.hpp"

namespace parsim::zoo {

namespace {

constexpr Option options[] = {
    {"layers", "", "blocks of attention and feed-forward"},
    {"width", "", "channels of a token"},
    {"heads", "", "of attention; they share the width"},
    {"tokens", "1024", "of a sample"},
    {"words", "50257", "of the vocabulary, with padding"},
    {"inner", "", "channels of the feed-forward; default 4 x width"},
    {"key_heads", "", "of keys and values; default heads"},
    {"dropout", "0.1", "after the embeddings, attention's weights and each part; 0: none"},
    {"attention", "",
     "fused: in one kernel, or maps: with maps of weights that are kept; default fused, but maps "
     "where a GPU is older than fused kernels"},
    {"bias", "yes", "of dense layers, yes or no"},
    {"positions", "learned", "learned or none"}};

std::vector<std::string> parts_of(const std::string& call) {
  const std::size_t colon = call.find(':');
  if (colon == std::string::npos || colon + 1 == call.size()) return {};
  return split_at(std::string_view(call).substr(colon + 1), ',');
}

/// All of them at once: nobody wants to be told one after another.
void check_given(const CallOptions& given) {
  std::vector<std::string> missing;
  for (const std::string key : {"layers", "width", "heads"}) {
    if (!given.has(key)) missing.push_back(key);
  }
  if (missing.empty()) return;
  throw InputError(given.where(), fmt::format("'{}' lacks {}", given.text(), join(missing)),
                   "write gpt:layers=24,width=1024,heads=16");
}

}  // namespace

std::string gpt_summary() {
  return fmt::format("gpt:key=value,… a decoder-only transformer, built as GPT-2; {}",
                     summary_of(options));
}

Network gpt(const std::string& call, const std::string& where, const NetworkDefaults& defaults) {
  const CallOptions given(call, "gpt:", options, parts_of(call), where);
  check_given(given);
  Gpt design;
  Blocks& blocks = design.blocks;
  blocks.blocks = given.integer("layers", 1, most_blocks);
  blocks.width = given.integer("width", 1, most_width);
  SelfAttention& attention = blocks.attention;
  attention.heads = given.integer("heads", 1, most_heads);
  check_heads(attention.heads, blocks.width, given.where("heads"));
  attention.key_heads = given.integer_or("key_heads", attention.heads, 1, most_heads);
  check_key_heads(attention.key_heads, attention.heads, given.where("key_heads"));
  attention.head_width = blocks.width / attention.heads;
  attention.fused = given.has("attention") ? given.either("attention", "fused", "maps")
                                           : defaults.fused_attention;
  attention.causal = true;
  attention.bias = attention.out_bias = blocks.feed_forward.bias =
      given.either("bias", "yes", "no");
  blocks.feed_forward.inner = given.integer_or("inner", 4 * blocks.width, 1, most_inner);
  attention.dropout = blocks.dropout = design.embedding_dropout = given.rate("dropout");
  design.words = given.integer("words", 1, most_words);
  design.tokens = given.integer("tokens", 1, most_tokens);
  design.rows = given.either("positions", "learned", "none") ? design.tokens : 0;
  Network network{call, {}, {}, {}};
  add_gpt(network, design, where);
  return network;
}

}  // namespace parsim::zoo
