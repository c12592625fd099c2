// read_hugging_face: from the dimensions in a config.json to a Network. Each type of model is a row
// of a table: its name and the function that writes it down. Sources: the classes of that name in
// Hugging Face transformers 4 (modeling_<type>.py), whose parameter counts the tests hold to.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include "core/errors.hpp"
#include "networks/build.hpp"
#include "networks/hf_config.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"

namespace parsim::networks {

namespace {

using hugging_face::Config;
using namespace zoo;

constexpr std::int64_t most_pixels = 1 << 14;  // far above any existing model

/// What every model has.
struct Design : Blocks {
  Design(const Config& from, Network& to, std::int64_t length, const NetworkDefaults& otherwise)
      : config(from), network(to), seq_length(length), defaults(otherwise) {}

  const Config& config;
  Network& network;
  std::int64_t seq_length;  ///< given by --dim seq_length=N; 0: the config's
  NetworkDefaults defaults;
};

std::string activation_of(const Config& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.text_or(key, fallback);
  const std::pair<std::string, std::string> known[] = {
      {"gelu", "gelu"},       {"gelu_new", "gelu"},
      {"gelu_fast", "gelu"},  {"gelu_pytorch_tanh", "gelu"},
      {"quick_gelu", "gelu"}, {"silu", "silu"},
      {"swish", "silu"},      {"relu", "relu"},
      {"tanh", "tanh"}};
  std::vector<std::string> names;
  for (const auto& [word, function] : known) {
    if (word == name) return function;
    names.push_back(word);
  }
  throw InputError(config.where(key), fmt::format("'{}'", name),
                   fmt::format("accepted: {}{}", join(names), did_you_mean(name, names)));
}

/// Fused unless "attn_implementation" is "eager"; transformers' own default is fused, too.
bool attention_is_fused(const Config& config, const NetworkDefaults& defaults) {
  const std::string_view key =
      config.has("_attn_implementation") ? "_attn_implementation" : "attn_implementation";
  if (!config.has(key)) return defaults.fused_attention;
  const std::string name = config.text(key);
  const std::vector<std::string> known{"eager", "sdpa", "flash_attention_2", "flash_attention_3",
                                       "flex_attention"};
  if (std::find(known.begin(), known.end(), name) != known.end()) return name != "eager";
  throw InputError(config.where(key), fmt::format("'{}'", name),
                   fmt::format("accepted: {}{}", join(known), did_you_mean(name, known)));
}

/// Hidden size, blocks and heads under the keys of the model's type.
void read_size(Design& design, std::string_view hidden, std::string_view blocks,
               std::string_view heads) {
  const Config& config = design.config;
  design.hidden = config.count(hidden, most_hidden);
  design.blocks = config.count(blocks, most_blocks);
  SelfAttention& attention = design.attention;
  attention.fused = attention_is_fused(config, design.defaults);
  attention.heads = attention.kv_heads = config.count(heads, most_heads);
  if (!config.has("head_dim")) check_heads(attention.heads, design.hidden, config.where(heads));
  attention.head_dim = design.hidden / attention.heads;
}

/// Tokens of a sample: --dim seq_length, or all the positions that the model has.
std::int64_t seq_length_of(const Design& design, std::string_view key, std::int64_t reserved = 0) {
  const std::int64_t most = design.config.count(key, most_seq_length) - reserved;
  if (design.seq_length > most || most < 1) {
    throw InputError("--dim seq_length", fmt::format("{} tokens", design.seq_length),
                     fmt::format("accepted: at most {}, the positions of the model", most));
  }
  return design.seq_length == 0 ? most : design.seq_length;
}

/// BERT, RoBERTa: the encoder with its pooler; the loss is that of the pooler's output.
void encoder(Design& design, std::int64_t reserved_positions) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  design.dropout = config.rate_or("hidden_dropout_prob", 0.1);
  design.attention.dropout = config.rate_or("attention_probs_dropout_prob", 0.1);
  design.feed_forward = {config.count("intermediate_size", most_ffn_hidden),
                         activation_of(config, "hidden_act", "gelu")};
  const std::int64_t rows = config.count("max_position_embeddings", most_seq_length);
  const std::int64_t seq_length =
      seq_length_of(design, "max_position_embeddings", reserved_positions);
  const LayerId embeddings =
      add_layer(network, "word_embeddings",
                Embedding{config.count("vocab_size", most_vocab_size), design.hidden},
                {token_ids(network, "input_ids", seq_length)});
  const LayerId types =
      add_layer(network, "token_type_embeddings",
                Embedding{config.count_or("type_vocab_size", 2, most_vocab_size), design.hidden},
                {token_ids(network, "token_type_ids", seq_length)});
  LayerId x = sum(network, "embeddings.types", embeddings, types);
  x = sum(network, "embeddings", x,
          positions(network, "position_embeddings", rows, seq_length, design.hidden));
  x = transformer_norm(network, "embeddings.norm", x, design.norm);
  x = post_norm_blocks(network, design, dropout(network, "embeddings.dropout", x, design.dropout),
                       config.file());
  x = first_token(network, "pooler.first", x);
  x = add_layer(network, "pooler", Dense{design.hidden, true}, {x});
  x = add_layer(network, "pooler.tanh", Activation{"tanh"}, {x});
  add_layer(network, "loss", Loss{}, {x});
  network.warnings.push_back(
      "encoder and pooler without a task head: the loss is taken on the pooler's output");
}
void bert(Design& design) { encoder(design, 0); }
// Positions start at padding_idx + 1: two rows are never used.
void roberta(Design& design) { encoder(design, 2); }

void distilbert(Design& design) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "dim", "n_layers", "n_heads");
  design.dropout = config.rate_or("dropout", 0.1);
  design.attention.dropout = config.rate_or("attention_dropout", 0.1);
  design.feed_forward = {config.count("hidden_dim", most_ffn_hidden),
                         activation_of(config, "activation", "gelu")};
  const std::int64_t rows = config.count("max_position_embeddings", most_seq_length);
  const std::int64_t seq_length = seq_length_of(design, "max_position_embeddings");
  LayerId x = add_layer(network, "word_embeddings",
                        Embedding{config.count("vocab_size", most_vocab_size), design.hidden},
                        {token_ids(network, "input_ids", seq_length)});
  x = sum(network, "embeddings", x,
          positions(network, "position_embeddings", rows, seq_length, design.hidden));
  x = transformer_norm(network, "embeddings.norm", x, design.norm);
  x = post_norm_blocks(network, design, dropout(network, "embeddings.dropout", x, design.dropout),
                       config.file());
  add_layer(network, "loss", Loss{}, {x});
  network.warnings.push_back(
      "encoder without a task head: the loss is taken on its last hidden states");
}

void gpt2(Design& design) {
  const Config& config = design.config;
  read_size(design, "n_embd", "n_layer", "n_head");
  design.dropout = config.rate_or("resid_pdrop", 0.1);
  design.attention.dropout = config.rate_or("attn_pdrop", 0.1);
  design.attention.causal = true;
  design.feed_forward = {config.count_or("n_inner", 4 * design.hidden, most_ffn_hidden),
                         activation_of(config, "activation_function", "gelu_new")};
  Gpt whole;
  whole.blocks = design;
  whole.vocab_size = config.count("vocab_size", most_vocab_size);
  whole.positions = config.count("n_positions", most_seq_length);
  whole.seq_length = seq_length_of(design, "n_positions");
  whole.embedding_dropout = config.rate_or("embd_pdrop", 0.1);
  whole.tied = config.flag_or("tie_word_embeddings", true);
  add_gpt(design.network, whole, config.file());
}

void gpt_neox(Design& design) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  design.dropout = config.rate_or("hidden_dropout", 0);
  design.attention.dropout = config.rate_or("attention_dropout", 0);
  design.attention.rotary = design.attention.causal = true;
  design.attention.bias = design.attention.out_bias = config.flag_or("attention_bias", true);
  design.feed_forward = {config.count("intermediate_size", most_ffn_hidden),
                         activation_of(config, "hidden_act", "gelu")};
  const LayerId embeddings = add_layer(
      network, "embed_in", Embedding{config.count("vocab_size", most_vocab_size), design.hidden},
      {token_ids(network, "input_ids", seq_length_of(design, "max_position_embeddings"))});
  LayerId x = pre_norm_blocks(network, design, embeddings, config.file(),
                              config.flag_or("use_parallel_residual", true));
  finish_language_model(network, transformer_norm(network, "final_norm", x, design.norm),
                        embeddings, config.flag_or("tie_word_embeddings", false));
}

/// Throws InputError unless a token goes to at most all experts.
void check_top_k(const Config& config, std::string_view key, const Experts& experts) {
  if (experts.top_k <= experts.count) return;
  throw InputError(config.where(key),
                   fmt::format("{} experts a token of {}", experts.top_k, experts.count),
                   "accepted: at most all experts");
}

/// Experts that no token is turned away from: as many slots as a router in balance fills.
void read_experts(Design& design, std::string_view count) {
  const Config& config = design.config;
  Experts& experts = design.experts;
  experts.count = config.count(count, most_experts);
  experts.top_k = config.count("num_experts_per_tok", most_experts);
  check_top_k(config, "num_experts_per_tok", experts);
  design.network.warnings.push_back(
      "experts are as busy as if the router were in balance; --expert-imbalance says otherwise");
}

/// LLaMA and what is built like it.
void llama_like(Design& design, bool qkv_bias, bool tied, std::string_view activation) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  SelfAttention& attention = design.attention;
  attention.kv_heads = config.count_or("num_key_value_heads", attention.heads, most_heads);
  check_kv_heads(attention.kv_heads, attention.heads, config.where("num_key_value_heads"));
  attention.head_dim = config.count_or("head_dim", attention.head_dim, most_hidden);
  attention.bias = qkv_bias || config.flag_or("attention_bias", false);
  attention.out_bias = config.flag_or("attention_bias", false);
  attention.rotary = attention.causal = true;
  attention.dropout = config.rate_or("attention_dropout", 0);
  design.norm = TransformerNorm::root_mean_square;
  const std::string_view key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  design.feed_forward = {config.count("intermediate_size", most_ffn_hidden),
                         activation_of(config, key, activation), true,
                         config.flag_or("mlp_bias", false)};
  const std::int64_t seq_length = seq_length_of(design, "max_position_embeddings");
  const bool slides = config.has("sliding_window") && config.flag_or("use_sliding_window", true);
  const std::int64_t window = slides ? config.count("sliding_window", most_seq_length) : seq_length;
  if (window < seq_length) {
    network.warnings.push_back(
        fmt::format("attention covers all {} tokens: the sliding window of {} is not modelled",
                    seq_length, window));
  }
  const LayerId embeddings =
      add_layer(network, "embed_tokens",
                Embedding{config.count("vocab_size", most_vocab_size), design.hidden},
                {token_ids(network, "input_ids", seq_length)});
  const LayerId x = pre_norm_blocks(network, design, embeddings, config.file());
  finish_language_model(network, transformer_norm(network, "norm", x, design.norm), embeddings,
                        config.flag_or("tie_word_embeddings", tied));
}
void llama(Design& design) { llama_like(design, false, false, "silu"); }
void mistral(Design& design) { llama_like(design, false, false, "silu"); }
void qwen2(Design& design) { llama_like(design, true, false, "silu"); }

void mixtral(Design& design) {
  read_experts(design, "num_local_experts");
  design.experts.ffn_hidden = design.config.count("intermediate_size", most_ffn_hidden);
  design.experts.normalized = true;
  llama_like(design, false, false, "silu");
}

void qwen2_moe(Design& design) {
  const Config& config = design.config;
  Experts& experts = design.experts;
  read_experts(design, "num_experts");
  experts.ffn_hidden = config.count("moe_intermediate_size", most_ffn_hidden);
  experts.shared_ffn_hidden = config.count("shared_expert_intermediate_size", most_ffn_hidden);
  experts.shared_gate = true;
  experts.normalized = config.flag_or("norm_topk_prob", false);
  design.experts_every = config.count_or("decoder_sparse_step", 1, most_blocks);
  llama_like(design, true, false, "silu");
}

void gemma(Design& design) { llama_like(design, false, true, "gelu"); }

/// Classes: `num_labels`, or the entries of `id2label`; 2 by default, as in transformers.
std::int64_t labels_of(const Config& config) {
  constexpr std::int64_t by_default = 2;
  const std::int64_t named = config.entries("id2label");
  return config.count_or("num_labels", named > 0 ? named : by_default, most_vocab_size);
}

void vit(Design& design) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  if (design.seq_length > 0) {
    throw InputError("--dim seq_length", "a vision model has no sequence length",
                     "accepted: with language models");
  }
  const std::int64_t pixels = config.count("image_size", most_pixels),
                     patch = config.count("patch_size", pixels),
                     channels = config.count_or("num_channels", 3, most_hidden);
  design.dropout = config.rate_or("hidden_dropout_prob", 0);
  design.attention.dropout = config.rate_or("attention_probs_dropout_prob", 0);
  design.attention.bias = config.flag_or("qkv_bias", true);
  design.feed_forward = {config.count("intermediate_size", most_ffn_hidden),
                         activation_of(config, "hidden_act", "gelu")};
  const std::int64_t patches = (pixels / patch) * (pixels / patch);
  const LayerId image = add_input(network, "pixels", image_shape(channels, pixels, pixels));
  const LayerId embedded =
      add_layer(network, "patches", Conv{design.hidden, square(patch, patch), 1, true}, {image});
  const auto tokens = [&](std::int64_t count) {
    return Shape{{{Dim::token, count}, {Dim::channel, design.hidden}}};
  };
  LayerId x = add_layer(network, "patches.tokens", Rearrange{"transpose", tokens(patches), true},
                        {embedded});
  const LayerId cls = add_layer(network, "cls_token", Learned{tokens(1)}, {});
  x = add_layer(network, "tokens", Concat{0}, {cls, x});
  x = sum(network, "embeddings", x,
          positions(network, "position_embeddings", patches + 1, patches + 1, design.hidden));
  x = pre_norm_blocks(network, design, dropout(network, "embeddings.dropout", x, design.dropout),
                      config.file());
  x = transformer_norm(network, "layernorm", x, design.norm);
  finish(network, first_token(network, "classifier.first", x), labels_of(config), "classifier");
}

struct ModelType {
  std::string_view name;
  void (*build)(Design&);
};
constexpr ModelType model_types[] = {
    {"bert", bert},         {"roberta", roberta}, {"distilbert", distilbert}, {"gpt2", gpt2},
    {"gpt_neox", gpt_neox}, {"llama", llama},     {"mistral", mistral},       {"qwen2", qwen2},
    {"gemma", gemma},       {"mixtral", mixtral}, {"qwen2_moe", qwen2_moe},   {"vit", vit}};

std::string config_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(path, "cannot be read", "accepted: a Hugging Face config.json");
  constexpr std::size_t largest = 64 << 20;
  std::string text;
  char buffer[1 << 14];
  while (text.size() <= largest && (stream.read(buffer, sizeof buffer), stream.gcount() > 0)) {
    text.append(buffer, static_cast<std::size_t>(stream.gcount()));
  }
  if (text.size() > largest) {
    throw InputError(path, "larger than 64 MiB", "accepted: a Hugging Face config.json");
  }
  return text;
}

}  // namespace

Network read_hugging_face(const std::string& path, const std::map<std::string, std::int64_t>& dims,
                          const NetworkDefaults& defaults) {
  const Config config(config_text(path), path);
  std::int64_t seq_length = 0;
  for (const auto& [name, value] : dims) {
    if (name != "seq_length") {
      throw InputError("--dim", fmt::format("a config.json has no dimension '{}'", name),
                       fmt::format("accepted: seq_length (tokens per sample); --batch sets "
                                   "the samples{}",
                                   name == "sequence" ? "; did you mean 'seq_length'?" : ""));
    }
    seq_length = value;
  }
  const std::string type = config.text("model_type");
  std::vector<std::string> names;
  for (const ModelType& known : model_types) {
    names.emplace_back(known.name);
    if (known.name != type) continue;
    const std::filesystem::path file(path);
    std::string name = file.stem().string();
    if (name == "config") name = file.parent_path().filename().string();
    if (name.empty() || name == "." || name == "..") name = type;
    Network network{name, {}, {}, {}};
    Design design(config, network, seq_length, defaults);
    known.build(design);
    if (config.has("quantization_config")) {
      network.warnings.push_back(
          "'quantization_config' is ignored: all weights are trained in the precision of the step");
    }
    const std::vector<std::string> unread = config.unread_shapes();
    if (!unread.empty()) {
      constexpr std::size_t shown = 3;
      const std::size_t more = unread.size() - std::min(shown, unread.size());
      network.warnings.push_back(fmt::format("ignored keys that may change shapes: {}{}",
                                             join(std::span(unread).first(unread.size() - more)),
                                             more == 0 ? "" : fmt::format(" ({} more)", more)));
    }
    return network;
  }
  const bool latent = type == "deepseek_v2" || type == "deepseek_v3";
  throw InputError(
      config.where("model_type"),
      latent ? fmt::format("'{}' has multi-head latent attention, which is not modelled", type)
             : fmt::format("unknown model type '{}'", type),
      fmt::format("accepted: {}{}", join(names), did_you_mean(type, names)));
}

}  // namespace parsim::networks
