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
#include "networks/hf_design.hpp"

namespace parsim::networks {

namespace {

using namespace hugging_face;
using namespace zoo;

/// BERT, RoBERTa: the encoder with its pooler; the loss is that of the pooler's output.
void encoder(Design& design, std::int64_t reserved_positions) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  design.dropout = config.value_or("hidden_dropout_prob", Rate{0.1}).value;
  design.attention.dropout = config.value_or("attention_probs_dropout_prob", Rate{0.1}).value;
  design.feed_forward = {config.count("intermediate_size"),
                         activation_of(config, "hidden_act", HiddenAct::gelu)};
  const std::int64_t rows = config.count("max_position_embeddings");
  const std::int64_t seq_length =
      seq_length_of(design, "max_position_embeddings", reserved_positions);
  const LayerId embeddings =
      add_layer(network, "word_embeddings", Embedding{config.count("vocab_size"), design.hidden},
                {token_ids(network, "input_ids", seq_length)});
  const LayerId types = add_layer(network, "token_type_embeddings",
                                  Embedding{config.value_or("type_vocab_size", 2), design.hidden},
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
  design.dropout = config.value_or("dropout", Rate{0.1}).value;
  design.attention.dropout = config.value_or("attention_dropout", Rate{0.1}).value;
  design.feed_forward = {config.count("hidden_dim"),
                         activation_of(config, "activation", HiddenAct::gelu)};
  const std::int64_t rows = config.count("max_position_embeddings");
  const std::int64_t seq_length = seq_length_of(design, "max_position_embeddings");
  LayerId x =
      add_layer(network, "word_embeddings", Embedding{config.count("vocab_size"), design.hidden},
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

/// Classes: `num_labels`, or the entries of `id2label`; 2 by default, as in transformers.
std::int64_t labels_of(const Config& config) {
  constexpr std::int64_t by_default = 2;
  const std::int64_t named = config.value_or("id2label", Members{}).count;
  return config.value_or("num_labels", named > 0 ? named : by_default);
}

void vit(Design& design) {
  const Config& config = design.config;
  Network& network = design.network;
  read_size(design, "hidden_size", "num_hidden_layers", "num_attention_heads");
  if (design.seq_length > 0) {
    throw InputError("--dim seq_length", "a vision model has no sequence length",
                     "accepted: with language models");
  }
  const std::int64_t pixels = config.count("image_size"),
                     patch = config.count("patch_size", pixels),
                     channels = config.value_or("num_channels", 3);
  design.dropout = config.value_or("hidden_dropout_prob", Rate{0}).value;
  design.attention.dropout = config.value_or("attention_probs_dropout_prob", Rate{0}).value;
  design.attention.bias = config.value_or("qkv_bias", true);
  design.feed_forward = {config.count("intermediate_size"),
                         activation_of(config, "hidden_act", HiddenAct::gelu)};
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
  x = residual_blocks(network, design, dropout(network, "embeddings.dropout", x, design.dropout),
                      config.file());
  x = transformer_norm(network, "layernorm", x, design.norm);
  finish(network, first_token(network, "classifier.first", x), labels_of(config), "classifier");
}

constexpr ModelType model_types[] = {{"bert", bert},
                                     {"roberta", roberta},
                                     {"distilbert", distilbert},
                                     {"gpt2", gpt2},
                                     {"gpt_neox", gpt_neox},
                                     {"opt", opt},
                                     {"bloom", bloom},
                                     {"falcon", falcon},
                                     {"phi", phi},
                                     {"starcoder2", starcoder2},
                                     {"llama", llama},
                                     {"mistral", mistral},
                                     {"granite", llama},
                                     {"smollm3", smollm3},
                                     {"phi3", phi3},
                                     {"olmo2", olmo2},
                                     {"qwen2", qwen2},
                                     {"qwen3", qwen3},
                                     {"gemma", gemma},
                                     {"gemma2", gemma2},
                                     {"gemma3_text", gemma3},
                                     {"mixtral", mixtral},
                                     {"olmoe", olmoe},
                                     {"qwen2_moe", qwen2_moe},
                                     {"qwen3_moe", qwen3_moe},
                                     {"deepseek_v2", deepseek_v2},
                                     {"deepseek_v3", deepseek_v3},
                                     {"kimi_k2", deepseek_v3},
                                     {"gpt_oss", gpt_oss},
                                     {"vit", vit}};

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

bool hugging_face::is_model_type(std::string_view name) {
  return std::any_of(std::begin(model_types), std::end(model_types),
                     [&](const ModelType& known) { return known.name == name; });
}

void hugging_face::get_special(const json::Node& node, ModelType& type) {
  const std::string& name = node.text();
  std::vector<std::string> names;
  for (const ModelType& known : model_types) {
    names.emplace_back(known.name);
    if (known.name == name) type = known;
  }
  if (type.build != nullptr) return;
  node.refuse(fmt::format("unknown model type '{}'", json::shown(name)),
              fmt::format("accepted: {}{}", join(names), did_you_mean(name, names)));
}

void hugging_face::put_special_schema(json::Writer& out, const ModelType&) {
  out.key("enum").open_array();
  for (const ModelType& known : model_types) out.text(known.name);
  out.close_array();
}

Network read_hugging_face(const std::string& path, const std::map<std::string, std::int64_t>& dims,
                          const NetworkDefaults& defaults) {
  return parse_hugging_face(config_text(path), path, dims, defaults);
}

namespace {

/// A line if a language model is built for an architecture with another head, or none.
std::optional<std::string> other_head(const Config& config, const Network& network) {
  const auto architectures = config.value_or("architectures", std::vector<std::string>{});
  const bool generates =
      std::any_of(architectures.begin(), architectures.end(), [](std::string_view name) {
        return name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel") ||
               name.ends_with("ForConditionalGeneration");
      });
  const bool has_head = std::any_of(network.layers.begin(), network.layers.end(),
                                    [](const Layer& layer) { return layer.name == "lm_head"; });
  if (architectures.empty() || generates || !has_head) return std::nullopt;
  return fmt::format(
      "architecture {} is simulated with a language-model head, which has logits for every token",
      json::shown(architectures.front()));
}

}  // namespace

Network parse_hugging_face(const std::string& text, const std::string& path,
                           const std::map<std::string, std::int64_t>& dims,
                           const NetworkDefaults& defaults) {
  const Config config(text, path);
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
  const ModelType type = config.model_type();
  const std::filesystem::path file(path);
  std::string name = file.stem().string();
  if (name == "config") name = file.parent_path().filename().string();
  if (name.empty() || name == "." || name == "..") name = type.name;
  Network network{name, {}, {}, {}};
  Design design(config, network, seq_length, defaults);
  type.build(design);
  if (!config.text_of().empty()) {
    network.warnings.push_back(
        fmt::format("only the text model of {} is simulated", json::shown(config.text_of())));
  }
  if (const auto head = other_head(config, network)) network.warnings.push_back(*head);
  if (config.has("quantization_config")) {
    network.warnings.push_back(
        "'quantization_config' is ignored: all weights are trained in the precision of the step");
  }
  const std::vector<std::string> unread = config.unread_shapes();
  if (!unread.empty()) {
    constexpr std::size_t most = 3;
    const std::size_t more = unread.size() - std::min(most, unread.size());
    std::vector<std::string> names;
    for (std::size_t i = 0; i + more < unread.size(); ++i) names.push_back(json::shown(unread[i]));
    network.warnings.push_back(fmt::format("ignored keys that may change shapes: {}{}", join(names),
                                           more == 0 ? "" : fmt::format(" ({} more)", more)));
  }
  return network;
}

}  // namespace parsim::networks
