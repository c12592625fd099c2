// What single types of models in Hugging Face configs have that others do not.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
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
  Changed(const std::string& name, const std::string& from, const std::string& to)
      : Changed(testing::with(config_of(name), from, to)) {}
  explicit Changed(const std::string& text) : path(folder.folder() + "/changed.json") {
    std::ofstream(path) << text;
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

/// The windows of a network's blocks: "4096 x 32", "512 x 5, all, 512 x 5, all".
std::string windows_of(const std::string& path, std::int64_t tokens) {
  const Network network = load_network(path, {{"seq_length", tokens}}, "--network");
  std::vector<std::pair<std::int64_t, int>> runs;
  for (const Layer& layer : network.layers) {
    const auto* attention = layer.kind.as<Attention>();
    if (attention == nullptr) continue;
    if (runs.empty() || runs.back().first != attention->window) {
      runs.emplace_back(attention->window, 0);
    }
    ++runs.back().second;
  }
  std::vector<std::string> words;
  for (const auto& [window, blocks] : runs) words.push_back(fmt::format("{} x {}", window, blocks));
  return fmt::format("{}", fmt::join(words, ", "));
}

TEST_CASE("hugging face: the windows of each type, as transformers' classes have them") {
  const auto windows = [](const std::string& name, std::int64_t tokens = 8192) {
    return windows_of(configs + name + ".json", tokens);
  };
  CHECK(windows("mistral-7b") == "4096 x 32");
  CHECK(windows("mistral-7b", 4096) == "0 x 32");
  CHECK(windows("mixtral-8x7b") == "0 x 32");
  CHECK(windows("phi-3-mini-4k", 4096) == "2047 x 32");
  CHECK(windows("starcoder2-3b") == "4096 x 30");
  CHECK(windows("qwen2-0.5b") == "0 x 24");
  CHECK(windows("qwen1.5-moe-a2.7b") == "0 x 24");
  CHECK(windows("smollm3-3b") == "0 x 36");
  CHECK(windows("gemma-3-4b", 2048) ==
        "1024 x 5, 0 x 1, 1024 x 5, 0 x 1, 1024 x 5, 0 x 1, 1024 x 5, 0 x 1, 1024 x 5, 0 x 1, "
        "1024 x 4");
  CHECK(windows("gpt-oss-20b").starts_with("128 x 1, 0 x 1, 128 x 1, 0 x 1"));
  CHECK(windows("gemma-2-2b").starts_with("4096 x 1, 0 x 1, 4096 x 1, 0 x 1"));
  // The classes' own rules for blocks.
  const auto changed = [](const std::string& name, const std::string& from, const std::string& to) {
    return windows_of(Changed(name, from, to).path, 8192);
  };
  const std::string asks = "\"use_sliding_window\": false", asked = "\"use_sliding_window\": true";
  CHECK(changed("qwen2-0.5b", asks, asked) == "0 x 24");
  CHECK(changed("qwen3-0.6b", asks, asked) == "0 x 28");
  const Changed late(testing::with(testing::with(config_of("qwen2-0.5b"), asks, asked),
                                   "\"max_window_layers\": 24", "\"max_window_layers\": 20"));
  CHECK(windows_of(late.path, 8192) == "0 x 20, 4096 x 4");
  CHECK(changed("smollm3-3b", asks,
                asked + ", \"sliding_window\": 512, "
                        "\"no_rope_layers\": [1, 0, 1, 0]") ==
        "0 x 1, 512 x 1, 0 x 1, 512 x 1, 0 x 32");
  CHECK(changed("mistral-7b", "\"sliding_window\": 4096", "\"sliding_window\": null") == "0 x 32");
}

TEST_CASE("hugging face: a config's own list of windows comes first") {
  std::string kinds;
  for (int i = 0; i < 32; ++i) {
    kinds += fmt::format("{}\"{}_attention\"", i == 0 ? "" : ", ", i < 3 ? "sliding" : "full");
  }
  const auto listed = [](const std::string& types) {
    return Changed("mistral-7b", "\"sliding_window\"",
                   "\"layer_types\": [" + types + "], \"sliding_window\"");
  };
  CHECK(windows_of(listed(kinds).path, 8192) == "4096 x 3, 0 x 29");
  const Changed short_list = listed("\"full_attention\"");
  CHECK(testing::refusal_of([&] {
          windows_of(short_list.path, 8192);
        }).ends_with("1 block; accepted: 32, as num_hidden_layers says"));
  const Changed eager("mistral-7b", "\"sliding_window\"",
                      "\"attn_implementation\": \"eager\", \"sliding_window\"");
  CHECK(load_network(eager.path, {{"seq_length", 8192}}, "--network").warnings ==
        Lines{"eager attention computes the scores outside of a sliding window, too"});
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
