// gpt:layers=24,hidden=1024,heads=16: a decoder-only transformer of any size, as GPT-2.
#include <fmt/format.h>

#include "core/call.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

constexpr Option options[] = {
    {"layers", "", "transformer blocks"},
    {"hidden", "", "hidden size", "width"},
    {"heads", "", "attention heads"},
    {"seq_length", "1024", "tokens per sample", "tokens"},
    {"vocab_size", "50257", "vocabulary, with padding", "words"},
    {"ffn_hidden", "", "hidden size of the feed-forward; default 4 x hidden", "inner"},
    {"kv_heads", "", "key and value heads; default heads", "key_heads"},
    {"dropout", "0.1", "after embeddings, attention and feed-forward"},
    {"attention", "",
     "fused (one kernel) or eager (scores are written and kept); default fused, but eager where "
     "all "
     "GPUs are older than fused kernels"},
    {"bias", "yes", "of dense layers: yes or no"},
    {"positions", "learned", "learned or none"},
    {"experts", "", "in place of each feed-forward; default none"},
    {"top_k", "2", "experts that a token goes to"},
    {"shared_ffn_hidden", "", "hidden size of an expert that every token goes to; default none"},
    {"capacity", "1", "slots of the experts over those that the tokens need"}};

std::vector<std::string> parts_of(const std::string& call) {
  const std::size_t colon = call.find(':');
  if (colon == std::string::npos || colon + 1 == call.size()) return {};
  return split_at(std::string_view(call).substr(colon + 1), ',');
}

/// Names all missing options at once.
void check_given(const CallOptions& given) {
  std::vector<std::string> missing;
  for (const std::string key : {"layers", "hidden", "heads"}) {
    if (!given.has(key)) missing.push_back(key);
  }
  if (missing.empty()) return;
  throw InputError(given.where(), fmt::format("'{}' needs {}", given.text(), join(missing)),
                   "write gpt:layers=24,hidden=1024,heads=16");
}

bool fused_attention(const CallOptions& given, const NetworkDefaults& defaults) {
  if (!given.has("attention")) return defaults.fused_attention;
  if (given.value("attention") == "maps") {
    throw InputError(given.where("attention"), "'maps'",
                     "accepted: fused, eager; did you mean 'eager'?");
  }
  return given.either("attention", "fused", "eager");
}

double capacity_of(const CallOptions& given) {
  const std::string& text = given.value("capacity");
  const auto number = to_number<double>(text);
  if (number && *number >= 0.01 && *number <= 100) return *number;
  throw InputError(given.where("capacity"), fmt::format("'{}'", text),
                   "accepted: a number from 0.01 to 100");
}

void read_experts(const CallOptions& given, Blocks& blocks) {
  if (!given.has("experts")) {
    for (const std::string key : {"top_k", "shared_ffn_hidden", "capacity"}) {
      const CallOptions::Value* value = given.find(key);
      if (value == nullptr || !value->by_user) continue;
      throw InputError(given.where(key), "no experts", "accepted: with experts=N");
    }
    return;
  }
  Experts& experts = blocks.experts;
  experts.count = given.integer("experts", 1, most_experts);
  experts.top_k = given.integer("top_k", 1, experts.count);
  experts.ffn_hidden = blocks.feed_forward.ffn_hidden;
  experts.shared_ffn_hidden = given.integer_or("shared_ffn_hidden", 0, 1, most_ffn_hidden);
  experts.capacity = capacity_of(given);
}

}  // namespace

std::string gpt_summary() {
  return fmt::format("gpt:key=value,… a decoder-only transformer as GPT-2; {}",
                     summary_of(options));
}

Network gpt(const std::string& call, const std::string& where, const NetworkDefaults& defaults) {
  const CallOptions given(call, "gpt:", options, parts_of(call), where);
  check_given(given);
  Decoder design;
  design.tied = true;
  Blocks& blocks = design.blocks;
  blocks.blocks = given.integer("layers", 1, most_blocks);
  blocks.hidden = given.integer("hidden", 1, most_hidden);
  SelfAttention& attention = blocks.attention;
  attention.heads = given.integer("heads", 1, most_heads);
  check_heads(attention.heads, blocks.hidden, given.where("heads"));
  attention.kv_heads = given.integer_or("kv_heads", attention.heads, 1, most_heads);
  check_kv_heads(attention.kv_heads, attention.heads, given.where("kv_heads"));
  attention.head_dim = blocks.hidden / attention.heads;
  attention.fused = fused_attention(given, defaults);
  attention.causal = true;
  attention.bias = attention.out_bias = blocks.feed_forward.bias =
      given.either("bias", "yes", "no");
  blocks.feed_forward.ffn_hidden =
      given.integer_or("ffn_hidden", 4 * blocks.hidden, 1, most_ffn_hidden);
  read_experts(given, blocks);
  attention.dropout = blocks.dropout = design.embedding_dropout = given.rate("dropout");
  design.vocab_size = given.integer("vocab_size", 1, most_vocab_size);
  design.seq_length = given.integer("seq_length", 1, most_seq_length);
  design.positions = given.either("positions", "learned", "none") ? design.seq_length : 0;
  Network network{call, {}, {}, {}};
  add_gpt(network, design, where);
  return network;
}

}  // namespace parsim::networks::zoo
