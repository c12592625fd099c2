// Decoders that are built like LLaMA: RMS norms before attention and feed-forward, rotary
// positions, a gated feed-forward or experts.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "networks/hf_design.hpp"

namespace parsim::networks::hugging_face {

using namespace zoo;

namespace {

/// Experts that no token is turned away from: as many slots as a router in balance fills.
void read_experts(Design& design, std::string_view count) {
  const Config& config = design.config;
  Experts& experts = design.experts;
  experts.count = config.count(count);
  experts.top_k = config.count("num_experts_per_tok");
  if (experts.top_k > experts.count) {
    throw InputError(config.where("num_experts_per_tok"),
                     fmt::format("{} experts a token of {}", experts.top_k, experts.count),
                     "accepted: at most all experts");
  }
  warn_of_balance(design.network);
}

/// In what a type differs from LLaMA.
struct Style {
  bool qkv_bias = false;  ///< if the config does not say
  bool tied = false;      ///< if the config does not say
  bool ffn_bias = false;  ///< and of the last dense layer of attention, if the config does not say
  QueryNorm query_norm = QueryNorm::none;
  BlockKind kind = BlockKind::pre_norm;
  std::int64_t head_dim = 0;  ///< if the config does not say; 0: hidden over heads
  HiddenAct activation = HiddenAct::silu;
  bool latent = false;  ///< multi-head latent attention
  /// The type's own default is neither as many key heads as heads nor known here.
  bool must_say_kv_heads = true;
  Windows windows{};
  /// If the config does not say; 0: it must.
  std::int64_t heads = 0, kv_heads = 0, vocab_size = 0, positions = 0;
};

// Windows of transformers' classes of configurations.

bool every_block(const Config&, std::int64_t) { return true; }
bool every_other_block(const Config&, std::int64_t block) { return block % 2 == 0; }
bool late_blocks(const Config& config, std::int64_t block) {
  return block >= config.value_or("max_window_layers", 28);
}
bool early_odd_blocks(const Config& config, std::int64_t block) {
  return every_other_block(config, block) && !late_blocks(config, block);
}
/// All but each sixth.
bool blocks_of_gemma3(const Config& config, std::int64_t block) {
  return (block + 1) % config.value_or("sliding_window_pattern", 6) != 0;
}
/// Those without rotary embedding.
bool blocks_of_smollm3(const Config& config, std::int64_t block) {
  const auto rotary = config.value_or("no_rope_layers", std::vector<std::int64_t>{});
  if (!rotary.empty())
    return block < std::ssize(rotary) && rotary[static_cast<std::size_t>(block)] == 0;
  return (block + 1) % config.value_or("no_rope_layer_interval", 4) == 0;
}
constexpr Windows qwen{late_blocks, 4096, true};

/// The keys of DeepSeek-V2 and V3. Every head has keys of its own.
void read_latent_attention(Design& design) {
  const Config& config = design.config;
  SelfAttention& attention = design.attention;
  LatentAttention& latent = attention.latent;
  latent.rank = config.count("kv_lora_rank");
  latent.query_rank = config.value_or("q_lora_rank", 0);
  latent.rotary_dim = config.count("qk_rope_head_dim");
  latent.value_dim = config.count("v_head_dim");
  attention.head_dim = config.count("qk_nope_head_dim") + latent.rotary_dim;
  attention.kv_heads = attention.heads;
}

/// LLaMA and what is built like it.
void llama_like(Design& design, const Style& style = {}) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads", style.heads);
  SelfAttention& attention = design.attention;
  if (style.must_say_kv_heads) config.require("num_key_value_heads");
  attention.kv_heads =
      config.value_or("num_key_value_heads", style.kv_heads > 0 ? style.kv_heads : attention.heads);
  check_kv_heads(attention.kv_heads, attention.heads, config.where("num_key_value_heads"));
  attention.head_dim =
      config.value_or("head_dim", style.head_dim > 0 ? style.head_dim : attention.head_dim);
  attention.query_norm = style.query_norm;
  design.kind = style.kind;
  if (style.latent) read_latent_attention(design);
  attention.bias = style.qkv_bias || config.value_or("attention_bias", false);
  attention.out_bias = config.value_or("attention_bias", style.ffn_bias);
  attention.rotary = attention.causal = true;
  attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.norm = TransformerNorm::root_mean_square;
  const std::string_view key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  design.feed_forward = {config.count("intermediate_size"),
                         activation_of(config, key, style.activation), true,
                         config.value_or("mlp_bias", style.ffn_bias)};
  const std::int64_t seq_length =
      seq_length_of(design, "max_position_embeddings", 0, style.positions);
  read_windows(design, style.windows, seq_length);
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count_or("vocab_size", style.vocab_size);
  whole.seq_length = seq_length;
  whole.tied = config.value_or("tie_word_embeddings", style.tied);
  add_llama(network, whole, config.file());
}

}  // namespace

void llama(Design& design) { llama_like(design, {.must_say_kv_heads = false}); }
void mistral(Design& design) { llama_like(design, {.windows = {every_block, 4096}}); }
void smollm3(Design& design) {
  llama_like(design, {.tied = true, .windows = {blocks_of_smollm3, 0, true}});
}
void olmo2(Design& design) {
  llama_like(
      design,
      {.query_norm = QueryNorm::whole, .kind = BlockKind::output_norm, .must_say_kv_heads = false});
}
void phi3(Design& design) {
  design.dropout = design.config.value_or("resid_pdrop", Rate{0}).value;
  llama_like(design, {.must_say_kv_heads = false, .windows = {every_block}});
}
void qwen2(Design& design) { llama_like(design, {.qkv_bias = true, .windows = qwen}); }
void qwen3(Design& design) {
  llama_like(design, {.query_norm = QueryNorm::of_heads, .head_dim = 128, .windows = qwen});
}

void olmoe(Design& design) {
  read_experts(design, "num_experts");
  design.experts.ffn_hidden = design.config.count("intermediate_size");
  design.experts.normalized = design.config.value_or("norm_topk_prob", false);
  llama_like(design, {.query_norm = QueryNorm::whole, .must_say_kv_heads = false});
}

void mixtral(Design& design) {
  read_experts(design, "num_local_experts");
  design.experts.ffn_hidden = design.config.count("intermediate_size");
  design.experts.normalized = true;
  llama_like(design, {.windows = {every_block}});
}

namespace {

/// What both mixtures of Qwen have.
void read_qwen_experts(Design& design) {
  const Config& config = design.config;
  read_experts(design, "num_experts");
  design.experts.ffn_hidden = config.count("moe_intermediate_size");
  design.experts.normalized = config.value_or("norm_topk_prob", false);
  design.experts_every = config.value_or("decoder_sparse_step", 1);
  design.dense_indices = config.value_or("mlp_only_layers", std::vector<std::int64_t>{});
}

}  // namespace

void qwen2_moe(Design& design) {
  read_qwen_experts(design);
  design.experts.shared_ffn_hidden = design.config.count("shared_expert_intermediate_size");
  design.experts.shared_gate = true;
  llama_like(design, {.qkv_bias = design.config.value_or("qkv_bias", true),
                      .windows = {early_odd_blocks, 4096, true}});
}

void qwen3_moe(Design& design) {
  read_qwen_experts(design);
  llama_like(
      design,
      {.query_norm = QueryNorm::of_heads, .head_dim = 128, .windows = {every_block, 4096, true}});
}

namespace {

void deepseek(Design& design, Scoring scoring) {
  const Config& config = design.config;
  Experts& experts = design.experts;
  read_experts(design, "n_routed_experts");
  experts.ffn_hidden = config.count("moe_intermediate_size");
  experts.shared_ffn_hidden =
      experts.ffn_hidden *
      config.value_or("n_shared_experts", std::int64_t{0}, most_ffn_hidden / experts.ffn_hidden);
  experts.normalized = config.value_or("norm_topk_prob", false);
  experts.sigmoid = config.value_or("scoring_func", scoring) == Scoring::sigmoid;
  design.dense_blocks = config.value_or("first_k_dense_replace", 0);
  design.experts_every = config.value_or("moe_layer_freq", 1);
  design.first_number = 0;
  if (config.value_or("num_nextn_predict_layers", 0) > 0) {
    design.network.warnings.push_back(
        "the multi-token prediction of 'num_nextn_predict_layers' is not modelled: only the main "
        "model is trained");
  }
  // Absent, they would be the type's defaults.
  for (const std::string_view key : {"q_lora_rank", "n_shared_experts", "first_k_dense_replace"}) {
    config.require(key);
  }
  llama_like(design, {.latent = true, .must_say_kv_heads = false});
}

}  // namespace

void deepseek_v2(Design& design) { deepseek(design, Scoring::softmax); }
void deepseek_v3(Design& design) { deepseek(design, Scoring::sigmoid); }

void gpt_oss(Design& design) {
  read_experts(design, "num_local_experts");
  design.experts.ffn_hidden = design.config.count("intermediate_size");
  design.experts.normalized = true;
  const bool biased = design.config.value_or("attention_bias", true);
  llama_like(
      design,
      {.qkv_bias = biased, .ffn_bias = true, .head_dim = 64, .windows = {every_other_block, 128}});
}

void gemma(Design& design) {
  llama_like(design,
             {.tied = true, .head_dim = 256, .activation = HiddenAct::gelu, .positions = 8192});
}

namespace {

void warn_of_soft_caps(const Design& design) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (!design.config.has(key)) continue;
    design.network.warnings.push_back(fmt::format("'{}' is not modelled", key));
  }
}

}  // namespace

void gemma2(Design& design) {
  warn_of_soft_caps(design);
  llama_like(design, {.tied = true,
                      .kind = BlockKind::sandwich,
                      .head_dim = 256,
                      .activation = HiddenAct::gelu_pytorch_tanh,
                      .windows = {every_other_block, 4096},
                      .positions = 8192});
}

void gemma3(Design& design) {
  warn_of_soft_caps(design);
  llama_like(design, {.tied = true,
                      .query_norm = QueryNorm::of_heads,
                      .kind = BlockKind::sandwich,
                      .head_dim = 256,
                      .activation = HiddenAct::gelu_pytorch_tanh,
                      .must_say_kv_heads = false,
                      .windows = {blocks_of_gemma3, 4096},
                      .heads = 8,
                      .kv_heads = 4,
                      .vocab_size = 262208,
                      .positions = 131072});
}

}  // namespace parsim::networks::hugging_face
