// Networks from Hugging Face configs against the published parameter counts and closed forms.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "networks/networks.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::networks {
namespace {

const std::string folder = std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/";

Network published(const std::string& name, const std::map<std::string, std::int64_t>& dims = {}) {
  return load_network(folder + name + ".json", dims, "--network");
}

std::string text_of(const std::string& name) {
  std::ifstream stream(folder + name + ".json");
  std::stringstream all;
  all << stream.rdbuf();
  return all.str();
}

TEST_CASE("language models: as many blocks as a call says") {
  const auto parameters = [](const std::string& call) {
    return parameter_count(load_network(call, {}, "--network"));
  };
  const std::int64_t embeddings = 2 * 128256 * 8192 + 8192;
  CHECK(80 * (parameters("llama-3-70b:layers=12") - embeddings) ==
        12 * (parameters("llama-3-70b") - embeddings));
  CHECK(load_network("llama-3-70b:layers=12", {}, "--network").name == "llama-3-70b:layers=12");
  // A block of 256 experts and one shared, 2048 wide, and their router, in place of 18432.
  const std::int64_t sparse = 257LL * 3 * 2048 * 7168 + 256 * 7168, dense = 3LL * 18432 * 7168;
  CHECK(parameters("deepseek-v3:layers=4,dense=1") - parameters("deepseek-v3:layers=4") ==
        2 * (sparse - dense));
  CHECK(parameters("deepseek-v3:layers=61,dense=3") == parameters("deepseek-v3"));
  const Network shorter =
      load_network("mixtral-8x7b:layers=2", {{"seq_length", 64}}, "--network", {});
  CHECK(shorter.layers.size() < load_network("mixtral-8x7b", {}, "--network").layers.size());
  CHECK(shorter.layers.front().out.extent(Dim::token) == 64);
}

TEST_CASE("language models: a wrong size is refused with what is accepted") {
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"llama-3-8b:", "is not of the form key=value"},
      {"llama-3-8b:layer=2", "did you mean 'layers'?"},
      {"llama-3-8b:layers=4,hidden=5", "llama-3-8b has no option 'hidden'; accepted: layers"},
      {"llama-3-8b:layers=0", "--network:layers: '0'; accepted: a whole number from 1 to 4096"},
      {"llama-3-8b:layers=4,dense=1", "llama-3-8b has no option 'dense'; accepted: layers"},
      {"deepseek-v3:layers=2",
       "--network:layers: 2 blocks, but the first 3 of deepseek-v3 have no experts; accepted: at "
       "least 3, or dense=N with layers"},
      {"deepseek-v3:layers=4,dense=5", "accepted: a whole number from 0 to 4"},
      {"resnet50:layers=3",
       "'resnet50:layers=3': resnet50 takes no options; accepted: resnet50; built-in language "
       "models take layers=N"}};
  for (const auto& [call, message] : refusals) {
    CAPTURE(call);
    CHECK_THROWS_WITH_AS(load_network(call, {}, "--network"), doctest::Contains(message.c_str()),
                         InputError);
  }
}

TEST_CASE("hugging face: parameters equal the published counts") {
  // num_parameters() of the classes in transformers: BertModel, RobertaModel, DistilBertModel,
  // …ForCausalLM and ViTForImageClassification.
  const std::vector<std::pair<std::string, std::int64_t>> counts{
      {"bert-base-uncased", 109'482'240},
      {"bert-large-uncased", 335'141'888},
      {"roberta-base", 124'645'632},
      {"distilbert-base-uncased", 66'362'880},
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-xl", 1'557'611'200},
      {"pythia-70m", 70'426'624},
      {"llama-2-7b", 6'738'415'616},
      {"llama-3-8b", 8'030'261'248},
      {"tinyllama-1.1b", 1'100'048'384},
      {"mistral-7b", 7'241'732'096},
      {"qwen2-0.5b", 494'032'768},
      {"gemma-2b", 2'506'172'416},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-30b-a3b", 30'532'122'624},
      // GptOssForCausalLM with a bias of the router for 32 experts and a sink for each of 64 heads.
      {"gpt-oss-20b", 20'914'757'184 - 24 * (32 + 64)},
      {"deepseek-v2-lite", 15'706'484'224},
      {"deepseek-v2", 235'741'434'880},
      // DeepseekV3ForCausalLM has 671,026,419,200: with a correction of the scores of 256 experts
      // in 58 blocks, which no gradient trains.
      {"deepseek-v3", 671'026'419'200 - 58 * 256},
      {"opt-125m", 125'239'296},
      {"bloom-560m", 559'214'592},
      {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},
      {"falcon-rw-1b", 1'311'625'216},
      {"phi-2", 2'779'683'840},
      {"starcoder2-3b", 3'030'371'328},
      {"granite-3.0-2b", 2'533'531'648},
      {"smollm3-3b", 3'075'098'624},
      {"phi-3-mini-4k", 3'821'079'552},
      {"olmo-2-7b", 7'298'617'344},
      {"olmoe-1b-7b", 6'919'161'856},
      {"gemma-2-2b", 2'614'341'888},
      {"gemma-3-1b", 999'885'952},
      // Corrections of scores as in DeepseekV3ForCausalLM.
      {"kimi-k2", 1'026'408'232'448 - 60 * 384},
      {"vit-base-patch16-224", 86'567'656},
      {"vit-large-patch16-224", 304'326'632}};
  for (const auto& [name, count] : counts) {
    CAPTURE(name);
    const Network network = published(name);
    CHECK(network.name == name);
    CHECK(parameter_count(network) == count);
    CHECK(network.layers.back().kind.as<Loss>() != nullptr);
    // Red before: a shared expert's sum had the name of the block's, its gated output that of the
    // product with its gate.
    std::set<std::string> names;
    for (const Layer& layer : network.layers) CHECK(names.insert(layer.name).second);
  }
}

TEST_CASE("hugging face: experts that a token does not go to are not active") {
  // Mixtral: 12.9 B of 46.7 B (Jiang et al. 2024, table 1); its 32 blocks have 8 experts of 3
  // products of 4096 x 14336, of which a token uses 2.
  constexpr std::int64_t all = 46'702'792'704, expert = 3LL * 4096 * 14336;
  CHECK(active_parameter_count(published("mixtral-8x7b")) == all - 32 * 6 * expert);
  CHECK(all - 32 * 6 * expert == 12'879'925'248);
  // Qwen1.5-MoE-A2.7B: 2.7 B of 14.3 B, 24 blocks, 56 of 60 experts of 3 x 2048 x 1408 not used.
  CHECK(active_parameter_count(published("qwen1.5-moe-a2.7b")) ==
        14'315'784'192 - 24LL * 56 * 3 * 2048 * 1408);
  // Qwen3-30B-A3B: 3.3 B of 30.5 B, 48 blocks, 120 of 128 experts of 3 x 2048 x 768 not used.
  CHECK(active_parameter_count(published("qwen3-30b-a3b")) ==
        30'532'122'624 - 48LL * 120 * 3 * 2048 * 768);
  // DeepSeek-V3: 37 B of 671 B (DeepSeek-AI 2024), 58 blocks, 248 of 256 experts of 3 x 7168 x
  // 2048.
  CHECK(active_parameter_count(published("deepseek-v3")) ==
        671'026'404'352 - 58LL * 248 * 3 * 7168 * 2048);
  CHECK(active_parameter_count(published("llama-3-8b")) == 8'030'261'248);
}

TEST_CASE("hugging face: experts work as much as their tokens need, by hand") {
  // A block of Mixtral for 4096 tokens: each goes to 2 experts of three products of 4096 x 14336,
  // and through a router of 4096 x 8.
  const Network network = published("mixtral-8x7b", {{"seq_length", 4096}});
  double experts = 0, router = 0;
  std::vector<std::string> kinds;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    if (!layer.name.starts_with("block3.mlp.")) continue;
    kinds.emplace_back(kind_name(layer.kind));
    const std::vector<Shape> shapes = input_shapes(network, LayerId{l});
    const double flops =
        forward_flops(layer.kind, shapes, layer.out, {whole(layer.out, 1), {}}).value;
    (layer.kind.as<ExpertDense>() != nullptr ? experts : router) += flops;
    if (layer.kind.as<ExpertDispatch>() != nullptr) CHECK(to_text(layer.out) == "8x1024x4096");
  }
  CHECK(experts == 2.0 * 4096 * 2 * 3 * 4096 * 14336);
  CHECK(router == 2.0 * 4096 * 4096 * 8);
  CHECK(std::count(kinds.begin(), kinds.end(), "expert_dense") == 3);
}

TEST_CASE("hugging face: built-in language models are what their configs say") {
  for (const std::string name : {"llama-3-8b", "mixtral-8x7b"}) {
    CAPTURE(name);
    Network by_config = published(name);
    std::erase_if(by_config.warnings, [](const std::string& warning) {  // of Mixtral's 32,768
      return warning.find("--dim seq_length=N") != std::string::npos;
    });
    CHECK(load_network(name, {}, "--network") == by_config);
    CHECK(load_network(name, {{"seq_length", 512}}, "--network", {.fused_attention = false}) ==
          load_network(folder + name + ".json", {{"seq_length", 512}}, "--network",
                       {.fused_attention = false}));
  }
}

TEST_CASE("hugging face: DeepSeek-V3 by name is what its config says, but for its warning") {
  const Network by_name = load_network("deepseek-v3", {}, "--network");
  Network by_config = published("deepseek-v3", {{"seq_length", 4096}});
  REQUIRE(by_config.warnings.size() == 2);
  CHECK(by_config.warnings.back().find("num_nextn_predict_layers") != std::string::npos);
  by_config.warnings.pop_back();
  CHECK(by_name == by_config);
}

TEST_CASE("hugging face: blocks of mlp_only_layers have no experts") {
  const testing::TemporaryFolder temporary;
  const auto parameters = [&](const std::string& dense) {
    const std::string config = R"({"model_type": "qwen2_moe", "vocab_size": 1000,
      "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 32,
      "shared_expert_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2,
      "decoder_sparse_step": 1, "max_position_embeddings": 128, "tie_word_embeddings": false)" +
                               dense + "}";
    return parameter_count(
        load_network(temporary.write("config.json", config), {{"seq_length", 128}}, "--network"));
  };
  // A block has 8 experts of 3 x 64 x 32, a router of 8 x 64, a shared expert of 3 x 64 x 48 and
  // its gate of 64, or a feed-forward of 3 x 64 x 256.
  const std::int64_t fewer = 8 * 3 * 64 * 32 + 8 * 64 + 3 * 64 * 48 + 64 - 3 * 64 * 256;
  CHECK(parameters(R"(, "mlp_only_layers": [])") == parameters(""));
  CHECK(parameters(R"(, "mlp_only_layers": [0, 3])") == parameters("") - 2 * fewer);
  CHECK(testing::refusal_of(
            [&] { static_cast<void>(parameters(R"(, "mlp_only_layers": [-1])")); }) != "accepted");
}

TEST_CASE("hugging face: blocks with experts start and repeat as DeepSeek's config says") {
  const testing::TemporaryFolder temporary;
  std::string config = text_of("deepseek-v2-lite");
  config = testing::with(config, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 4");
  config = testing::with(config, "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 5");
  const Network network =
      load_network(temporary.write("config.json", config), {{"seq_length", 64}}, "--network");
  std::vector<std::string> sparse;
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<ExpertDispatch>() != nullptr) sparse.push_back(layer.name);
  }
  // Of 27 blocks, counted from 0, those from 5 on that 4 divides.
  CHECK(sparse == std::vector<std::string>{"block8.mlp.dispatch", "block12.mlp.dispatch",
                                           "block16.mlp.dispatch", "block20.mlp.dispatch",
                                           "block24.mlp.dispatch"});
}

TEST_CASE("hugging face: latent attention of DeepSeek-V3, by hand") {
  // For 100 tokens of a block: 7168 to 1536 to 128 heads of 128 + 64 for queries; 7168 to 512 to
  // 128 heads of 128 for keys and 128 for values, 7168 to 64 for what all keys share; 128 · 128
  // back to 7168. Scores sum over 192 channels, their product with the values makes 128, and the
  // mask leaves 50.5 of 100 keys.
  const auto block = [](bool fused) {
    const Network network =
        load_network("deepseek-v3", {{"seq_length", 100}}, "--network", {.fused_attention = fused});
    double flops = 0;
    std::vector<std::string> shapes;
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const Layer& layer = network.layers[l];
      if (!layer.name.starts_with("block7.attention.")) continue;
      flops += forward_flops(layer.kind, input_shapes(network, LayerId{l}), layer.out,
                             {whole(layer.out, 1), {}})
                   .value;
      shapes.push_back(layer.name.substr(17) + " " + to_text(layer.out));
    }
    return std::pair{flops, shapes};
  };
  const double products =
      2.0 * 100 *
      (7168 * 1536 + 1536 * 128 * 192 + 7168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7168);
  const double scores = 2.0 * 100 * 128 * (192 + 128);
  const auto [fused, shapes] = block(true);
  CHECK(fused == products + scores * 50.5);
  CHECK(shapes ==
        std::vector<std::string>{"query.latent 100x1536", "query.latent.norm.norm 100x1536",
                                 "query.latent.norm.scale 1536", "query.latent.norm 100x1536",
                                 "query 100x24576", "query.rotary 100x24576", "latent 100x512",
                                 "latent.norm.norm 100x512", "latent.norm.scale 512",
                                 "latent.norm 100x512", "key.shared 100x64", "key.rotary 100x64",
                                 "key.own 100x16384", "key 100x24576", "value 100x16384",
                                 "fused 100x16384", "output 100x7168", "sum 100x7168"});
  CHECK(block(false).first == products + scores * 100);
}

TEST_CASE("hugging face: Qwen3 norms the queries and keys of every head, by hand") {
  // 16 heads of queries and 8 of keys, each of 128 channels, with one scale for all.
  const Network network = published("qwen3-0.6b", {{"seq_length", 64}});
  std::vector<std::string> shapes;
  for (const Layer& layer : network.layers) {
    const bool of_heads = layer.name.starts_with("block2.attention.query.norm") ||
                          layer.name.starts_with("block2.attention.key.norm");
    if (of_heads) shapes.push_back(to_text(layer.out));
  }
  CHECK(shapes == std::vector<std::string>{"16x64x128", "16x64x128", "128", "16x64x128", "64x2048",
                                           "8x64x128", "8x64x128", "128", "8x64x128", "64x1024"});
}

TEST_CASE("hugging face: arithmetic of GPT-2 and of grouped queries by closed form") {
  // Per token and block: 2 x (3 C² + C² + 8 C²) of dense layers, 2 x 2 (T + 1) / 2 C of the two
  // matmuls, whose mask hides half; 2 V C for the logits. C = 768, 12 blocks, V = 50257.
  const auto gpt2 = [](double tokens) {
    constexpr double hidden = 768, vocab = 50257, blocks = 12;
    return tokens *
           (blocks * (24 * hidden * hidden + 2 * (tokens + 1) * hidden) + 2 * vocab * hidden);
  };
  for (const std::int64_t tokens : {1024, 128, 1}) {
    CHECK(forward_flops_per_sample(published("gpt2", {{"seq_length", tokens}})).value ==
          gpt2(static_cast<double>(tokens)));
  }
  // TinyLlama: 32 query heads of 64, 4 key/value heads: 2048² for queries and output, 2048·256 for
  // keys and for values; three matrices of 2048·5632; the matmuls are those of 32 heads.
  constexpr double hidden = 2048, keys = 256, ffn_hidden = 5632, tokens = 100, vocab = 32000;
  const double block = 2 * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * ffn_hidden) +
                       2 * (tokens + 1) * hidden;
  CHECK(forward_flops_per_sample(published("tinyllama-1.1b", {{"seq_length", 100}})).value ==
        tokens * (22 * block + 2 * vocab * hidden));
}

TEST_CASE("hugging face: attention is fused unless it is to be eager, with as many parameters") {
  const auto kinds_of = [](const std::string& implementation) {
    const testing::TemporaryFolder temporary;
    std::string config = text_of("gpt2");
    config.insert(config.find('{') + 1, "\"attn_implementation\": \"" + implementation + "\",");
    const Network network = load_network(temporary.write("config.json", config), {}, "--network");
    CHECK(parameter_count(network) == 124'439'808);
    std::pair<int, int> found;
    for (const Layer& layer : network.layers) {
      found.first += layer.kind.as<Attention>() != nullptr ? 1 : 0;
      found.second += layer.kind.as<Softmax>() != nullptr ? 1 : 0;
    }
    return found;
  };
  CHECK(kinds_of("flash_attention_2") == std::pair{12, 0});
  CHECK(kinds_of("eager") == std::pair{0, 12});
  CHECK(
      testing::refusal_of([&] { kinds_of("eagre"); })
          .find("accepted: eager, sdpa, flash_attention_2, flash_attention_3, flex_attention; did "
                "you mean 'eager'?") != std::string::npos);
}

TEST_CASE("hugging face: ViT-B/16 has the published multiply-accumulates") {
  CHECK(forward_flops_per_sample(published("vit-base-patch16-224")).value / 2 ==
        testing::approx(17.564e9).epsilon(1e-3));
}

TEST_CASE("hugging face: fewer tokens leave the parameters as they are") {
  CHECK(parameter_count(published("bert-base-uncased", {{"seq_length", 128}})) == 109'482'240);
  CHECK(parameter_count(published("gpt2", {{"seq_length", 128}})) == 124'439'808);
}

TEST_CASE("hugging face: a folder with a config.json names the network") {
  const testing::TemporaryFolder temporary;
  const std::string model = temporary.folder() + "/my-model";
  std::filesystem::create_directory(model);
  std::ofstream(model + "/config.json") << text_of("gpt2");
  CHECK(load_network(model, {}, "--network").name == "my-model");
  CHECK(load_network(model + "/config.json", {}, "--network").name == "my-model");
  // Without the ending the first character decides.
  std::ofstream(model + "/dimensions") << text_of("pythia-70m");
  CHECK(load_network(model + "/dimensions", {}, "--network").layers.size() == 89);
}

TEST_CASE("hugging face: classes are counted by their names") {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary.folder() + "/three.json";
  std::ofstream(path) << testing::with(text_of("vit-base-patch16-224"), "\"num_labels\": 1000",
                                       R"("id2label": {"0": "a", "1": "b", "2": "c"})");
  CHECK(parameter_count(load_network(path, {}, "--network")) == 86'567'656 - 997 * 769);
  std::string names;
  for (int i = 0; i < 1000; ++i) {
    names += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": \"a\"";
  }
  std::ofstream(path) << testing::with(text_of("vit-base-patch16-224"), "\"num_labels\": 1000",
                                       "\"id2label\": {" + names + "}");
  CHECK(parameter_count(load_network(path, {}, "--network")) == 86'567'656);
}

struct Slip {
  std::string name, from, to, message;
};

TEST_CASE("hugging face: every mistake gets its place, what was found and what is accepted") {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary.folder() + "/slip.json";
  const std::string model_types =
      "bert, roberta, distilbert, gpt2, gpt_neox, opt, bloom, falcon, phi, starcoder2, llama, "
      "mistral, granite, smollm3, phi3, olmo2, qwen2, qwen3, gemma, gemma2, gemma3_text, mixtral, "
      "olmoe, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, kimi_k2, gpt_oss, vit";
  const Slip slips[] = {
      {"gpt2", "\"gpt2\"", "\"gtp2\"",
       ":12:model_type: unknown model type 'gtp2'; accepted: " + model_types +
           "; did you mean 'gpt2'?"},
      {"gpt2", "\"gpt2\"", "\"mamba\"",
       ":12:model_type: unknown model type 'mamba'; accepted: " + model_types},
      {"deepseek-v3", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": 0",
       ":15:kv_lora_rank: 0; accepted: a whole number from 1 to 262144"},
      {"deepseek-v3", "\"q_lora_rank\": 1536", "\"q_lora_rank\": -1",
       ":29:q_lora_rank: -1; accepted: a whole number from 0 to 262144"},
      {"deepseek-v3", "\"sigmoid\"", "\"sigmod\"",
       ":40:scoring_func: 'sigmod'; accepted: softmax, sigmoid; did you mean 'sigmoid'?"},
      {"mixtral-8x7b", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9",
       ":15:num_experts_per_tok: 9 experts a token of 8; accepted: at most all experts"},
      {"gpt2", "\"model_type\"", "\"modeltype\"",
       ":model_type: missing; accepted: a string; did you mean 'modeltype'?"},
      {"gpt2", "\"n_embd\": 768", "\"n_embed\": 768",
       ":n_embd: missing; accepted: a whole number from 1 to 262144; did you mean 'n_embed'?"},
      {"gpt2", "768", "-768", ":14:n_embd: -768; accepted: a whole number from 1 to 262144"},
      {"gpt2", "768", "\"768\"", ":14:n_embd: '768'; accepted: a whole number from 1 to 262144"},
      {"gpt2", "768", "18446744073709551615",
       ":14:n_embd: 1.8446744073709552e+19; accepted: a whole number from 1 to 262144"},
      {"gpt2", "\"n_head\": 12", "\"n_head\": 11",
       ":15:n_head: 11 heads do not divide the hidden size of 768; accepted: a "
       "divisor of the hidden size"},
      {"gpt2", "gelu_new", "gleu_new",
       ":2:activation_function: 'gleu_new'; accepted: gelu, gelu_new, gelu_fast, "
       "gelu_pytorch_tanh, quick_gelu, silu, swish, relu, tanh; did you mean 'gelu_new'?"},
      {"gpt2", "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1.5",
       ":19:resid_pdrop: 1.5; accepted: a number from 0 to below 1"},
      {"llama-3-8b", "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7",
       ":15:num_key_value_heads: 7 key/value heads do not divide 32 heads; accepted: "
       "a divisor of the number of heads"},
      {"llama-3-8b", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": \"no\"",
       ":19:tie_word_embeddings: 'no'; accepted: true or false"},
      {"vit-base-patch16-224", "\"patch_size\": 16", "\"patch_size\": 225",
       ":17:patch_size: 225; accepted: a whole number from 1 to 224"},
      {"mistral-7b", "\"num_key_value_heads\": 8,", "",
       ":num_key_value_heads: missing; accepted: its value, or null for none"},
      {"deepseek-v3", "\"n_shared_experts\": 1,", "",
       ":n_shared_experts: missing; accepted: its value, or null for none; did you mean "
       "'n_routed_experts'?"},
      {"gpt2", "\"n_embd\": 768,", "\"n_embd\": 768",
       ":15:10: not JSON: syntax error while parsing object - unexpected string literal; expected "
       "'}'"},
      {"gpt2", "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1",
       ":19:resid_pdrop: 1; accepted: a number from 0 to below 1"},
      {"gpt2", "\"n_embd\": 768", "\"n_embd\": null",
       ":14:n_embd: null; accepted: a whole number from 1 to 262144"},
      {"gpt2", "\"n_embd\": 768", "\"n_embd\": {\"a\": [1]}",
       ":14:n_embd: an object of 1 members; accepted: a whole number from 1 to 262144"},
      {"gpt2", "\"n_embd\": 768", "\"n_embd\": 768, \"n_embd\": 768",
       ":14: key 'n_embd' twice in an object; every key once"},
  };
  for (const Slip& slip : slips) {
    CAPTURE(slip.to);
    std::ofstream(path) << testing::with(text_of(slip.name), slip.from, slip.to);
    CHECK(testing::refusal_of([&] { return load_network(path, {}, "--network"); }) ==
          path + slip.message);
  }
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  std::ofstream(path) << testing::with(text_of("gpt2"), "\"n_embd\": 768", "\"n_embd\": " + deep);
  CHECK(testing::refusal_of([&] { return load_network(path, {}, "--network"); }) ==
        path + ":14: nested deeper than 32 levels");
  // 4096 heads over 2^20 tokens.
  std::ofstream(path) << testing::with(
      testing::with(text_of("gpt2"), "\"n_positions\": 1024", "\"n_positions\": 1048576"),
      "\"n_head\": 12", "\"n_head\": 768");
  CHECK(testing::refusal_of([&] { return load_network(path, {}, "--network"); }) ==
        path +
            ": 768 heads and 1048576 tokens give 8.44e+14 attention scores per sample; "
            "accepted: at most 1.76e+13, as with a smaller seq_length (--dim, or in a formula)");
  std::ofstream(path) << testing::with(text_of("gpt2"), "\"gpt2\"", "\"gpt2\\u0000\\nx\"");
  CHECK(testing::refusal_of([&] {
          return load_network(path, {}, "--network");
        }).find("unknown model type 'gpt2  x'; accepted: ") != std::string::npos);
  std::ofstream(path) << "[1, 2]";
  CHECK(testing::refusal_of([&] { return load_network(path, {}, "--network"); }) ==
        path + ": an array of 2 items; accepted: an object, as in a Hugging Face config.json");
  CHECK(testing::refusal_of([] {
          return published("gpt2", {{"seq_length", 1025}});
        }) == "--dim seq_length: 1025 tokens; accepted: at most 1024, the positions of the model");
  CHECK(testing::refusal_of([] {
          return published("gpt2", {{"batch", 2}});
        }) ==
        "--dim: a config.json has no dimension 'batch'; accepted: seq_length (tokens per sample); "
        "--batch sets the samples");
  CHECK(testing::refusal_of([] {
          return published("gpt2", {{"sequence", 2}});
        }).ends_with("--batch sets the samples; did you mean 'seq_length'?"));
}

TEST_CASE("hugging face: a quantized model is trained unquantized, with a warning") {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary.write(
      "config.json", testing::with(text_of("gpt2"), "\"n_embd\": 768,",
                                   "\"n_embd\": 768, \"quantization_config\": {\"bits\": 4},"));
  const Network network = load_network(path, {}, "--network");
  CHECK(parameter_count(network) == parameter_count(published("gpt2")));
  REQUIRE(network.warnings.size() == published("gpt2").warnings.size() + 1);
  CHECK(network.warnings.back().ends_with("all weights are trained in the precision of the step"));
}

TEST_CASE("hugging face: samples of more than 8,192 tokens that were not asked for are said") {
  const testing::TemporaryFolder temporary;
  const auto said = [&](const std::string& positions,
                        const std::map<std::string, std::int64_t>& dims) {
    const std::string path = temporary.write(
        "config.json", testing::with(text_of("llama-3-8b"), "\"max_position_embeddings\": 8192",
                                     "\"max_position_embeddings\": " + positions));
    std::string all;
    for (const std::string& warning : load_network(path, dims, "--network").warnings)
      all += warning;
    return all.find("--dim seq_length=N") != std::string::npos;
  };
  CHECK_FALSE(said("8192", {}));
  CHECK(said("131072", {}));
  CHECK_FALSE(said("131072", {{"seq_length", 131072}}));
}

TEST_CASE("hugging face: heads of Gemma are 256 wide unless the config says otherwise") {
  const testing::TemporaryFolder temporary;
  const std::int64_t hidden = 1024, heads = 16, ffn = 2816, vocabulary = 32000, wide = 256;
  const Network network = load_network(
      temporary.write("config.json",
                      R"({"model_type": "gemma", "hidden_size": 1024, "intermediate_size": 2816,
                          "num_hidden_layers": 2, "num_attention_heads": 16,
                          "num_key_value_heads": 16, "vocab_size": 32000,
                          "max_position_embeddings": 2048})"),
      {}, "--network");
  const std::int64_t block = 4 * hidden * heads * wide + 3 * hidden * ffn + 2 * hidden;
  CHECK(parameter_count(network) == vocabulary * hidden + 2 * block + hidden);
}

TEST_CASE("hugging face: an architecture with another head than a language model's is said") {
  const testing::TemporaryFolder temporary;
  const auto last_warning = [&](const std::string& model, const std::string& classes) {
    std::string text = text_of(model);
    const std::size_t begin = text.find("\"architectures\""), end = text.find(']', begin);
    REQUIRE(end != std::string::npos);
    text.replace(begin, end + 1 - begin, "\"architectures\": " + classes);
    const Network network = load_network(temporary.write("config.json", text), {}, "--network");
    CHECK(parameter_count(network) == parameter_count(published(model)));
    const std::vector<std::string>& warnings = network.warnings;
    return warnings.size() == published(model).warnings.size() ? "" : warnings.back();
  };
  CHECK(
      last_warning("tinyllama-1.1b", "[\"LlamaForSequenceClassification\"]") ==
      "architecture LlamaForSequenceClassification is simulated with a language-model head, which "
      "has logits for every token");
  CHECK(last_warning("gpt2", "[\"GPT2Model\"]").starts_with("architecture GPT2Model"));
  CHECK(last_warning("gpt2", "[\"GPT2LMHeadModel\"]").empty());
  CHECK(last_warning("tinyllama-1.1b", "[\"LlamaForCausalLM\"]").empty());
  CHECK(last_warning("tinyllama-1.1b", "null").empty());
  // Encoders say of their own that they have no head.
  CHECK(last_warning("bert-base-uncased", "[\"BertForMaskedLM\"]").empty());
}

TEST_CASE("hugging face: unread keys that may change shapes become one warning") {
  const testing::TemporaryFolder temporary;
  const auto warnings_with = [&](const std::string& keys) {
    std::vector<std::string> warnings =
        load_network(
            temporary.write("config.json", testing::with(text_of("gpt2"), "\"n_embd\": 768,",
                                                         "\"n_embd\": 768, " + keys)),
            {}, "--network")
            .warnings;
    const std::vector<std::string> usual = published("gpt2").warnings;
    CHECK(warnings.size() >= usual.size());
    return std::vector(warnings.begin() + static_cast<std::ptrdiff_t>(usual.size()),
                       warnings.end());
  };
  const std::string ignored = "ignored keys that may change shapes: ";
  using Lines = std::vector<std::string>;
  CHECK(warnings_with("\"qk_layernorm\": true,") == Lines{ignored + "qk_layernorm"});
  CHECK(warnings_with("\"n_experts\": 8, \"kept\": [1, 3], \"adapter\": {\"rank\": 4}, "
                      "\"add_cross_attention\": true,") ==
        Lines{ignored + "adapter, add_cross_attention, kept (1 more)"});
  CHECK(warnings_with("\"position_embedding_type\": \"relative_key\",") ==
        Lines{ignored + "position_embedding_type"});
  // Off, empty, a rate, a name, or known to say nothing of shapes.
  CHECK(warnings_with("\"qk_layernorm\": false, \"n_experts\": 0, \"kept\": [], \"adapter\": null, "
                      "\"scale\": 2.5, \"variant\": \"large\", \"mask_token_id\": 103, "
                      "\"position_embedding_type\": \"absolute\",")
            .empty());
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    CAPTURE(file.path());
    for (const std::string& warning : published(file.path().stem()).warnings) {
      CHECK(!warning.starts_with(ignored));
    }
  }
}

}  // namespace
}  // namespace parsim::networks
