// Published language models by name. Their dimensions are those of the papers named below, checked
// against the published parameter counts (tests/networks/zoo_test.cpp). No dropout: none of the
// papers mentions any in pretraining.
#include <fmt/format.h>

#include <span>

#include "core/call.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

struct LanguageModel {
  std::string name, summary;
  Decoder decoder;
  void (*add)(Network& network, const Decoder& design, const std::string& where);
};

/// A table of learned positions has no more rows.
void check_positions(const LanguageModel& model, std::int64_t seq_length) {
  const std::int64_t most = model.decoder.positions;
  if (seq_length >= 1 && seq_length <= (most > 0 ? most : most_seq_length)) return;
  throw InputError("--dim seq_length", fmt::format("{} tokens", seq_length),
                   most > 0
                       ? fmt::format("accepted: at most {}, the positions of the model", most)
                       : fmt::format("accepted: a whole number from 1 to {}", most_seq_length));
}

constexpr Option sizes[] = {{"layers", "", "transformer blocks"},
                            {"dense", "", "with experts: the first blocks, which have none"}};

/// "deepseek-v3:layers=4,dense=1": as many blocks, as runs that need a few GPUs have.
void take_sizes(const std::string& call, const std::string& where, LanguageModel& model) {
  const std::size_t colon = call.find(':');
  if (colon == std::string::npos) return;
  const std::vector<std::string> parts = split_at(std::string_view(call).substr(colon + 1), ',');
  Blocks& blocks = model.decoder.blocks;
  const std::span accepted(sizes, blocks.experts.count > 0 ? 2 : 1);
  const CallOptions given(call, model.name + ":", accepted, parts, where);
  blocks.blocks = given.integer_or("layers", blocks.blocks, 1, most_blocks);
  if (given.has("dense")) blocks.dense_blocks = given.integer("dense", 0, blocks.blocks);
  if (blocks.dense_blocks > blocks.blocks) {
    throw InputError(
        given.where("layers"),
        fmt::format("{} blocks, but the first {} of {} have no experts", blocks.blocks,
                    blocks.dense_blocks, model.name),
        fmt::format("accepted: at least {}, or dense=N with layers", blocks.dense_blocks));
  }
  model.name = call;
}

/// seq_length   0: as in pretraining
Network built(LanguageModel model, const std::string& call, const std::string& where,
              std::int64_t seq_length, const NetworkDefaults& defaults) {
  take_sizes(call, where, model);
  if (seq_length != 0) {
    check_positions(model, seq_length);
    model.decoder.seq_length = seq_length;
  }
  model.decoder.blocks.attention.fused = defaults.fused_attention;
  Network network{model.name, {}, {}, {}};
  if (model.decoder.blocks.experts.count > 0) warn_of_balance(network);
  model.add(network, model.decoder, where);
  return network;
}

/// Brown et al. 2020 ("Language Models are Few-Shot Learners"), table 2.1; vocabulary and tied
/// embeddings as in GPT-2.
LanguageModel gpt_3() {
  Decoder whole;
  whole.blocks.hidden = 12288;
  whole.blocks.blocks = 96;
  whole.blocks.attention = {.heads = 96, .kv_heads = 96, .head_dim = 128, .causal = true};
  whole.blocks.feed_forward = {.ffn_hidden = 4 * 12288};
  whole.vocab_size = 50257;
  whole.seq_length = whole.positions = 2048;
  whole.tied = true;
  return {"gpt-3-175b",
          "GPT-3 175B; dense attention in every block, where every other one of the paper's is "
          "banded",
          whole, add_gpt};
}

/// Le Scao et al. 2022 ("BLOOM: A 176B-Parameter Open-Access Multilingual Language Model"), table 3
/// and section 3.2: ALiBi, which has no parameters, and a norm after the embedding.
LanguageModel bloom() {
  Decoder whole;
  whole.blocks.hidden = 14336;
  whole.blocks.blocks = 70;
  whole.blocks.attention = {.heads = 112, .kv_heads = 112, .head_dim = 128, .causal = true};
  whole.blocks.feed_forward = {.ffn_hidden = 4 * 14336};
  whole.vocab_size = 250880;
  whole.seq_length = 2048;
  whole.embedding_norm = true;
  whole.tied = true;
  return {"bloom", "BLOOM, 176 billion parameters", whole, add_gpt};
}

struct LlamaSize {
  std::string name, summary;
  std::int64_t blocks, hidden, heads, ffn_hidden;
};

/// A decoder as LLaMA, without biases.
Decoder llama_decoder(const LlamaSize& size, std::int64_t vocab_size, std::int64_t seq_length) {
  Decoder whole;
  whole.blocks.hidden = size.hidden;
  whole.blocks.blocks = size.blocks;
  whole.blocks.norm = TransformerNorm::root_mean_square;
  whole.blocks.attention = {.heads = size.heads,
                            .kv_heads = 8,
                            .head_dim = size.hidden / size.heads,
                            .bias = false,
                            .out_bias = false,
                            .rotary = true,
                            .causal = true};
  whole.blocks.feed_forward = {
      .ffn_hidden = size.ffn_hidden, .activation = "silu", .gated = true, .bias = false};
  whole.vocab_size = vocab_size;
  whole.seq_length = seq_length;
  return whole;
}

/// Grattafiori et al. 2024 ("The Llama 3 Herd of Models"), table 3 and section 3.2; 8192 tokens as
/// in section 3.4.1. The vocabulary of 128,000 tokens has 256 special ones besides.
LanguageModel llama_3(const LlamaSize& size) {
  return {size.name, size.summary, llama_decoder(size, 128256, 8192), add_llama};
}

/// Jiang et al. 2024 ("Mixtral of Experts"), table 1.
LanguageModel mixtral_8x7b() {
  const LlamaSize size{"mixtral-8x7b", "Mixtral 8x7B, dropless", 32, 4096, 32, 14336};
  Decoder whole = llama_decoder(size, 32000, 32768);
  whole.blocks.experts = {.count = 8, .top_k = 2, .ffn_hidden = 14336, .normalized = true};
  return {size.name, size.summary, whole, add_llama};
}

/// DeepSeek-AI 2024 ("DeepSeek-V3 Technical Report"), section 4.2, and the vocabulary and dense
/// feed-forward of its config.json. Without the multi-token prediction.
LanguageModel deepseek_v3() {
  Decoder whole = llama_decoder({"", "", 61, 7168, 128, 18432}, 129280, 4096);
  SelfAttention& attention = whole.blocks.attention;
  attention.kv_heads = attention.heads;
  attention.head_dim = 128 + 64;
  attention.latent = {.rank = 512, .query_rank = 1536, .rotary_dim = 64, .value_dim = 128};
  whole.blocks.experts = {.count = 256,
                          .top_k = 8,
                          .ffn_hidden = 2048,
                          .shared_ffn_hidden = 2048,
                          .sigmoid = true,
                          .normalized = true};
  whole.blocks.dense_blocks = 3;
  return {"deepseek-v3", "DeepSeek-V3, dropless, without multi-token prediction", whole, add_llama};
}

/// Yang et al. 2025 ("Qwen3 Technical Report"), table 2; other sizes from the config.json.
LanguageModel qwen_3(const LlamaSize& size, std::int64_t kv_heads) {
  Decoder whole = llama_decoder(size, 151936, 4096);
  SelfAttention& attention = whole.blocks.attention;
  attention.kv_heads = kv_heads;
  attention.head_dim = 128;
  attention.query_norm = QueryNorm::of_heads;
  whole.blocks.experts = {
      .count = 128, .top_k = 8, .ffn_hidden = size.ffn_hidden, .normalized = true};
  return {size.name, size.summary, whole, add_llama};
}

/// OpenAI 2025 ("gpt-oss-120b & gpt-oss-20b Model Card"), section 2, and the config.json. Without
/// the attention sinks, one number a head.
LanguageModel gpt_oss_120b() {
  const LlamaSize size{"gpt-oss-120b",
                       "GPT-OSS 120B, dropless; full attention in every block, where every other "
                       "one of the model's sees 128 tokens",
                       36,
                       2880,
                       64,
                       2880};
  Decoder whole = llama_decoder(size, 201088, 4096);
  whole.blocks.attention.head_dim = 64;
  whole.blocks.attention.bias = whole.blocks.attention.out_bias = true;
  whole.blocks.feed_forward.bias = true;
  whole.blocks.experts = {.count = 128, .top_k = 4, .ffn_hidden = 2880, .normalized = true};
  return {size.name, size.summary, whole, add_llama};
}

}  // namespace

std::vector<NetworkEntry> language_models() {
  std::vector<NetworkEntry> entries;
  for (const LanguageModel& model :
       {gpt_3(), bloom(), llama_3({"llama-3-8b", "Llama 3 8B", 32, 4096, 32, 14336}),
        llama_3({"llama-3-70b", "Llama 3 70B", 80, 8192, 64, 28672}),
        llama_3({"llama-3-405b", "Llama 3 405B", 126, 16384, 128, 53248}), mixtral_8x7b(),
        qwen_3({"qwen3-30b-a3b", "Qwen3-30B-A3B, dropless", 48, 2048, 32, 768}, 4),
        qwen_3({"qwen3-235b-a22b", "Qwen3-235B-A22B, dropless", 94, 4096, 64, 1536}, 4),
        gpt_oss_120b(), deepseek_v3()}) {
    entries.push_back({model.name,
                       fmt::format("{}; samples of {} tokens unless --dim seq_length=N says "
                                   "otherwise",
                                   model.summary, model.decoder.seq_length),
                       [model] { return built(model, model.name, "--network", 0, {}); },
                       [model](const std::string& call, const std::string& where,
                               std::int64_t seq_length, const NetworkDefaults& defaults) {
                         return built(model, call, where, seq_length, defaults);
                       }});
  }
  return entries;
}

}  // namespace parsim::networks::zoo
