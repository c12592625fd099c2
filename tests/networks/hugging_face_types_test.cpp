// What single types of models in Hugging Face configs have that others do not.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "networks/networks.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::networks {
namespace {

const std::string configs = std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/";

std::string config_of(const std::string& name) {
  std::ifstream stream(configs + name + ".json");
  std::stringstream all;
  all << stream.rdbuf();
  return all.str();
}

/// With samples of 64 tokens.
Network short_samples(const std::string& path) {
  return load_network(path, {{"seq_length", 64}}, "--network");
}

/// A published config with `from` replaced by `to`, once.
struct Changed {
  explicit Changed(const std::string& name, const std::string& from, const std::string& to)
      : path(folder.folder() + "/changed.json") {
    std::ofstream(path) << testing::with(config_of(name), from, to);
  }
  testing::TemporaryFolder folder;
  std::string path;
};

/// The layers of the third block that are norms or sums, each with its inputs but scales.
std::vector<std::string> norms_and_sums(const std::string& path) {
  const Network network = short_samples(path);
  std::vector<std::string> lines;
  for (const Layer& layer : network.layers) {
    if (!layer.name.starts_with("block2.")) continue;
    const std::string name = layer.name.substr(7);
    const bool norm = layer.kind.as<Norm>() != nullptr;
    if (!norm && !name.ends_with(".sum")) continue;
    std::string line = name + ":";
    for (const LayerId in : layer.inputs) line += " " + network[in].name;
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("hugging face: a window that no block uses is not worth a warning") {
  const auto warned = [](const std::string& kinds) {
    const Changed config("mistral-7b", "\"sliding_window\"",
                         "\"layer_types\": " + kinds + ", \"sliding_window\"");
    return !load_network(config.path, {{"seq_length", 8192}}, "--network").warnings.empty();
  };
  CHECK(warned("[]"));
  CHECK(warned(R"(["full_attention", "sliding_attention"])"));
  CHECK_FALSE(warned(R"(["full_attention", "full_attention"])"));
}

TEST_CASE("hugging face: where a block has its norms") {
  CHECK(norms_and_sums(configs + "gemma-2-2b.json") ==
        Lines{"norm1.norm: block1.mlp.sum", "attention.out.norm.norm: block2.attention.output",
              "attention.sum: block1.mlp.sum block2.attention.out.norm",
              "norm2.norm: block2.attention.sum", "mlp.out.norm.norm: block2.mlp.down",
              "mlp.sum: block2.attention.sum block2.mlp.out.norm"});
  CHECK(norms_and_sums(configs + "olmo-2-7b.json") ==
        Lines{"attention.query.norm.norm: block2.attention.query",
              "attention.key.norm.norm: block2.attention.key",
              "attention.out.norm.norm: block2.attention.output",
              "attention.sum: block1.mlp.sum block2.attention.out.norm",
              "mlp.out.norm.norm: block2.mlp.down",
              "mlp.sum: block2.attention.sum block2.mlp.out.norm"});
  // Phi's feed-forward reads what its attention reads.
  CHECK(norms_and_sums(configs + "phi-2.json") ==
        Lines{"norm1: block1.mlp.sum", "attention.sum: block1.mlp.sum block2.attention.out.dropout",
              "mlp.sum: block2.attention.sum block2.mlp.dropout"});
}

TEST_CASE("hugging face: the three designs of Falcon") {
  const Lines one{"norm1: block1.mlp.sum", "attention.sum: block1.mlp.sum block2.attention.output",
                  "mlp.sum: block2.attention.sum block2.mlp.down"};
  CHECK(norms_and_sums(configs + "falcon-7b.json") == one);
  CHECK(norms_and_sums(configs + "falcon-40b.json") ==
        Lines{one[0], one[1], "norm2: block1.mlp.sum", one[2]});
  CHECK(norms_and_sums(configs + "falcon-rw-1b.json") ==
        Lines{one[0], one[1], "norm2: block2.attention.sum", one[2]});
  // Falcon 11B: the newer design with one norm.
  const Changed single("falcon-40b", "\"num_kv_heads\"",
                       "\"num_ln_in_parallel_attn\": 1, \"num_kv_heads\"");
  CHECK(norms_and_sums(single.path) == one);
}

TEST_CASE("hugging face: a model of several modalities is its text model, with a warning") {
  // Gemma3ForConditionalGeneration of 4 B without its vision model: 34 blocks of 2560 x 10240, 8
  // heads and 4 of keys, 256 wide, and 262208 embeddings, by the type's own defaults.
  const Network network = short_samples(configs + "gemma-3-4b.json");
  constexpr std::int64_t h = 2560;
  const std::int64_t attention = 2 * h * 8 * 256 + 2 * h * 4 * 256 + 2 * 256;
  CHECK(parameter_count(network) == 262208 * h + 34 * (attention + 3 * h * 10240 + 4 * h) + h);
  CHECK(network.warnings == Lines{"only the text model of gemma3 is simulated"});
  const Changed unknown("gemma-3-4b", "gemma3_text", "gemma4_text");
  CHECK(testing::refusal_of([&] {
          short_samples(unknown.path);
        }).find(":11:text_config/model_type: unknown model type 'gemma4_text'; accepted: bert") !=
        std::string::npos);
  const Changed untyped("gemma-3-4b", "\"model_type\": \"gemma3_text\",", "");
  CHECK(testing::refusal_of([&] {
          short_samples(untyped.path);
        }).find("unknown model type 'gemma3'") != std::string::npos);
}

TEST_CASE("hugging face: what is not modelled is said") {
  CHECK(short_samples(configs + "gemma-2-2b.json").warnings ==
        Lines{"'attn_logit_softcapping' is not modelled",
              "'final_logit_softcapping' is not modelled"});
  const std::string alibi =
      "ALiBi is not modelled: attention is priced as a fused kernel without it";
  CHECK(short_samples(configs + "bloom-560m.json").warnings == Lines{alibi});
  CHECK(short_samples(configs + "falcon-rw-1b.json").warnings == Lines{alibi});
  CHECK(short_samples(configs + "falcon-7b.json").warnings.empty());
  CHECK(short_samples(configs + "phi-3-mini-4k.json").warnings.empty());
}

TEST_CASE("hugging face: biases of attention that a config turns off, by hand") {
  const auto fewer = [](const std::string& name, const std::string& from, const std::string& to) {
    const Changed changed(name, from, to);
    return parameter_count(short_samples(configs + name + ".json")) -
           parameter_count(short_samples(changed.path));
  };
  // Of queries, keys and values, and in gpt-oss of the output.
  CHECK(fewer("gpt-oss-20b", "\"attention_bias\": true", "\"attention_bias\": false") ==
        24 * (64 * 64 + 2 * 8 * 64 + 2880));
  CHECK(fewer("qwen1.5-moe-a2.7b", "\"hidden_size\": 2048",
              "\"qkv_bias\": false, \"hidden_size\": 2048") == 24 * 3 * 2048);
}

TEST_CASE("hugging face: Gemma has 8192 positions unless its config says otherwise") {
  for (const char* name : {"gemma-2b", "gemma-2-2b"}) {  // as PaliGemma's text_config
    const Changed open(name, "\"max_position_embeddings\": 8192,", "");
    CHECK(load_network(open.path, {}, "--network").layers[0].out.axes[0].extent == 8192);
  }
}

TEST_CASE("hugging face: models without a table of positions take samples of any length") {
  for (const char* name : {"bloom-560m", "falcon-7b"}) {
    const auto tokens = [&](const std::map<std::string, std::int64_t>& dims) {
      return load_network(configs + name + ".json", dims, "--network").layers[0].out.axes[0].extent;
    };
    CHECK(tokens({}) == 2048);
    CHECK(tokens({{"seq_length", 4096}}) == 4096);
  }
  CHECK_THROWS_WITH_AS(load_network(configs + "opt-125m.json", {{"seq_length", 2049}}, "--network"),
                       doctest::Contains("accepted: at most 2048, the positions of the model"),
                       InputError);
}

TEST_CASE("hugging face: OPT with norms after its sums, or narrower embeddings, is refused") {
  const Changed norms("opt-125m", "\"do_layer_norm_before\": true",
                      "\"do_layer_norm_before\": false");
  CHECK(testing::refusal_of([&] { short_samples(norms.path); }) ==
        norms.path +
            ":7:do_layer_norm_before: false; accepted: true, norms before attention and "
            "feed-forward");
  const Changed narrow("opt-125m", "\"word_embed_proj_dim\": 768", "\"word_embed_proj_dim\": 512");
  CHECK(testing::refusal_of([&] { short_samples(narrow.path); }) ==
        narrow.path +
            ":16:word_embed_proj_dim: embeddings of another width; accepted: the hidden size, 768");
}

}  // namespace
}  // namespace parsim::networks
