// Decoders that are built like GPT-2: layer norms with a shift, a feed-forward without a gate.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "networks/build.hpp"
#include "networks/hf_design.hpp"

namespace parsim::networks::hugging_face {

using namespace zoo;

void gpt2(Design& design) {
  const Config& config = design.config;
  read_size(design, "n_embd", "n_layer", "n_head");
  design.dropout = config.value_or("resid_pdrop", Rate{0.1}).value;
  design.attention.dropout = config.value_or("attn_pdrop", Rate{0.1}).value;
  design.attention.causal = true;
  design.feed_forward = {config.value_or("n_inner", 4 * design.hidden),
                         activation_of(config, "activation_function", HiddenAct::gelu_new)};
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.positions = config.count("n_positions");
  whole.seq_length = seq_length_of(design, "n_positions");
  whole.embedding_dropout = config.value_or("embd_pdrop", Rate{0.1}).value;
  whole.tied = config.value_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

void gpt_neox(Design& design) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  design.dropout = config.value_or("hidden_dropout", Rate{0}).value;
  design.attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.attention.rotary = design.attention.causal = true;
  design.attention.bias = design.attention.out_bias = config.value_or("attention_bias", true);
  design.feed_forward = {config.count("intermediate_size"),
                         activation_of(config, "hidden_act", HiddenAct::gelu)};
  const LayerId embeddings = add_layer(
      network, "embed_in", Embedding{config.count("vocab_size"), design.hidden},
      {token_ids(network, "input_ids", seq_length_of(design, "max_position_embeddings"))});
  if (config.value_or("use_parallel_residual", true)) design.kind = BlockKind::parallel;
  const LayerId x = residual_blocks(network, design, embeddings, config.file());
  finish_language_model(network, transformer_norm(network, "final_norm", x, design.norm),
                        embeddings, config.value_or("tie_word_embeddings", false));
}

void opt(Design& design) {
  const Config& config = design.config;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  // What OPT-350M alone has.
  if (!config.value_or("do_layer_norm_before", true)) {
    throw InputError(config.where("do_layer_norm_before"), "false",
                     "accepted: true, norms before attention and feed-forward");
  }
  if (config.value_or("word_embed_proj_dim", design.hidden) != design.hidden) {
    throw InputError(config.where("word_embed_proj_dim"), "embeddings of another width",
                     fmt::format("accepted: the hidden size, {}", design.hidden));
  }
  design.dropout = config.value_or("dropout", Rate{0.1}).value;
  design.attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.attention.causal = true;
  const bool bias = config.value_or("enable_bias", true);
  design.attention.bias = design.attention.out_bias = bias;
  design.feed_forward = {config.count("ffn_dim"),
                         activation_of(config, "activation_function", HiddenAct::relu), false,
                         bias};
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.positions = config.count("max_position_embeddings") + 2;  // the first two are never used
  whole.seq_length = seq_length_of(design, "max_position_embeddings");
  whole.tied = config.value_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

namespace {

/// The first of two spellings, unless the config has only the second.
std::string_view spelling(const Config& config, std::string_view first, std::string_view second) {
  return config.has(second) && !config.has(first) ? second : first;
}

/// Models without a table of positions take samples of any length.
std::int64_t any_length(const Design& design, std::string_view key, std::int64_t otherwise) {
  return design.seq_length > 0 ? design.seq_length : design.config.value_or(key, otherwise);
}

void warn_of_alibi(const Design& design) {
  if (!design.attention.fused) return;
  design.network.warnings.push_back(
      "ALiBi is not modelled: attention is priced as a fused kernel without it");
}

}  // namespace

void bloom(Design& design) {
  const Config& config = design.config;
  read_size(design, spelling(config, "hidden_size", "n_embed"),
            spelling(config, "num_hidden_layers", "n_layer"),
            spelling(config, "num_attention_heads", "n_head"));
  design.dropout = config.value_or("hidden_dropout", Rate{0}).value;
  design.attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.attention.causal = true;
  design.feed_forward = {4 * design.hidden, "gelu"};
  warn_of_alibi(design);
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.seq_length = any_length(design, "seq_length", 2048);
  whole.embedding_norm = true;
  whole.tied = config.value_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

void falcon(Design& design) {
  const Config& config = design.config;
  read_size(design, "hidden_size", spelling(config, "num_hidden_layers", "n_layer"),
            spelling(config, "num_attention_heads", "n_head"));
  SelfAttention& attention = design.attention;
  const bool newer = config.value_or("new_decoder_architecture", false);
  if (newer) {
    attention.kv_heads = config.value_or("num_kv_heads", attention.heads);
    check_kv_heads(attention.kv_heads, attention.heads, config.where("num_kv_heads"));
  } else if (config.value_or("multi_query", true)) {
    attention.kv_heads = 1;
  }
  design.dropout = config.value_or("hidden_dropout", Rate{0}).value;
  attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  attention.causal = true;
  attention.rotary = !config.value_or("alibi", false);
  if (!attention.rotary) warn_of_alibi(design);
  const bool bias = config.value_or("bias", false);
  attention.bias = attention.out_bias = bias;
  design.feed_forward = {config.value_or("ffn_hidden_size", 4 * design.hidden),
                         activation_of(config, "activation", HiddenAct::gelu), false, bias};
  const bool two = newer && config.value_or("num_ln_in_parallel_attn", 2) == 2;
  if (config.value_or("parallel_attn", true) || newer) {
    design.kind = two ? BlockKind::parallel : BlockKind::parallel_one_norm;
  }
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.seq_length = any_length(design, "max_position_embeddings", 2048);
  whole.tied = config.value_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

void phi(Design& design) {
  const Config& config = design.config;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  SelfAttention& attention = design.attention;
  attention.kv_heads = config.value_or("num_key_value_heads", attention.heads);
  check_kv_heads(attention.kv_heads, attention.heads, config.where("num_key_value_heads"));
  attention.rotary = attention.causal = true;
  attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.dropout = config.value_or("resid_pdrop", Rate{0}).value;
  design.kind = BlockKind::parallel_one_norm;
  design.feed_forward = {config.value_or("intermediate_size", 4 * design.hidden),
                         activation_of(config, "hidden_act", HiddenAct::gelu_new)};
  Decoder whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.seq_length = seq_length_of(design, "max_position_embeddings");
  whole.embedding_dropout = config.value_or("embd_pdrop", Rate{0}).value;
  whole.tied = config.value_or("tie_word_embeddings", false);
  whole.logits_bias = !whole.tied;
  add_gpt(design.network, whole, config.file());
}

void starcoder2(Design& design) {
  const Config& config = design.config;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  SelfAttention& attention = design.attention;
  attention.kv_heads = config.count("num_key_value_heads");
  check_kv_heads(attention.kv_heads, attention.heads, config.where("num_key_value_heads"));
  attention.rotary = attention.causal = true;
  attention.dropout = config.value_or("attention_dropout", Rate{0}).value;
  design.dropout = config.value_or("residual_dropout", Rate{0}).value;
  const bool bias = config.value_or("use_bias", true);
  attention.bias = attention.out_bias = bias;
  design.feed_forward = {config.count("intermediate_size"),
                         activation_of(config, "hidden_act", HiddenAct::gelu_pytorch_tanh), false,
                         bias};
  Decoder whole;
  whole.seq_length = seq_length_of(design, "max_position_embeddings");
  read_windows(design, {[](const Config&, std::int64_t) { return true; }}, whole.seq_length);
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size");
  whole.embedding_dropout = config.value_or("embedding_dropout", Rate{0}).value;
  whole.tied = config.value_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

}  // namespace parsim::networks::hugging_face
