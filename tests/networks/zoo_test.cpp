// The built-in networks against published numbers, and laws that hold for every row of the table.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/network.hpp"
#include "networks/networks.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"

using namespace parsim;
using namespace parsim::networks;

namespace {

Network built_in(const std::string& name) { return load_network(name, {}, "--network"); }

std::int64_t parameters(const std::string& name) { return parameter_count(built_in(name)); }

const Layer& layer(const Network& network, const std::string& name) {
  const auto found = std::find_if(network.layers.begin(), network.layers.end(),
                                  [&](const Layer& l) { return l.name == name; });
  REQUIRE_MESSAGE(found != network.layers.end(), "no layer ", name);
  return *found;
}

std::string map_of(const Network& network, const std::string& name) {
  return to_text(layer(network, name).out);
}

/// Convolutions and dense layers on the longest path, which give networks their numbers.
int depth(const Network& network) {
  std::vector<int> longest;
  for (const Layer& l : network.layers) {
    int before = 0;
    for (const LayerId input : l.inputs) before = std::max(before, longest[input.index()]);
    const bool counts = l.kind.as<Conv>() != nullptr || l.kind.as<Dense>() != nullptr;
    longest.push_back(before + (counts ? 1 : 0));
  }
  return longest.back();
}

}  // namespace

TEST_CASE("zoo: parameters equal the published counts") {
  // torchvision's model cards; alexnet_grouped: Caffe's bvlc_alexnet.
  const std::vector<std::pair<std::string, std::int64_t>> published{{"lenet5", 61'706},
                                                                    {"alexnet", 61'100'840},
                                                                    {"alexnet_grouped", 60'965'224},
                                                                    {"vgg11", 132'863'336},
                                                                    {"vgg16", 138'357'544},
                                                                    {"vgg19", 143'667'240},
                                                                    {"resnet18", 11'689'512},
                                                                    {"resnet34", 21'797'672},
                                                                    {"resnet50", 25'557'032},
                                                                    {"resnet101", 44'549'160},
                                                                    {"resnet152", 60'192'808},
                                                                    {"resnext50_32x4d", 25'028'904},
                                                                    {"wide_resnet50_2", 68'883'240},
                                                                    {"inception_v3", 23'834'568},
                                                                    {"googlenet", 6'624'904},
                                                                    {"densenet121", 7'978'856},
                                                                    {"mobilenet_v2", 3'504'872},
                                                                    {"r3d_18", 33'371'472}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(parameters(name) == count);
  }
}

TEST_CASE("zoo: language models have the published parameters") {
  const std::vector<std::pair<std::string, std::int64_t>> published{
      // meta-llama/Meta-Llama-3-8B, Meta-Llama-3-70B and Llama-3.1-405B, and
      // mistralai/Mixtral-8x7B-v0.1: elements of the published weights.
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3-405b", 405'853'388'800},
      {"mixtral-8x7b", 46'702'792'704},
      // DeepseekV3ForCausalLM without the corrections of scores, which no gradient trains.
      {"deepseek-v3", 671'026'404'352},
      // Qwen/Qwen3-30B-A3B and Qwen3-235B-A22B: elements of the published weights.
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      // GptOssForCausalLM has 116,829,156,672 (116.83 billion in the model card): with a bias of
      // the router for 128 experts and a sink for each of 64 heads, in 36 blocks.
      {"gpt-oss-120b", 116'829'156'672 - 36 * (128 + 64)},
      // Model card of bigscience/bloom.
      {"bloom", 176'247'271'424}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(parameters(name) == count);
  }
  // "174,600M" (Brown et al. 2020, table D.1). A block has 12 d² weights and 13 d biases, scales
  // and shifts; d = 12288. 50257 tokens and 2048 positions; two more norm vectors.
  constexpr std::int64_t d = 12288;
  CHECK(parameters("gpt-3-175b") == 96 * (12 * d * d + 13 * d) + (50257 + 2048) * d + 2 * d);
  CHECK(parameters("gpt-3-175b") == 174'604'259'328);
}

TEST_CASE("zoo: language models take samples of any length their positions allow") {
  const Network network = load_network("bloom", {{"seq_length", 128}}, "--network");
  CHECK(map_of(network, "block69.mlp.sum") == "128x14336");
  CHECK(parameter_count(network) == parameters("bloom"));
  CHECK(map_of(load_network("gpt-3-175b", {{"seq_length", 100}}, "--network"), "wpe.used") ==
        "100x12288");
  const auto refused = [](const std::string& name, const std::string& dim, std::int64_t value) {
    return testing::refusal_of([&] { return load_network(name, {{dim, value}}, "--network"); });
  };
  CHECK(refused("gpt-3-175b", "seq_length", 2049) ==
        "--dim seq_length: 2049 tokens; accepted: at most 2048, the positions of the model");
  CHECK(refused("llama-3-8b", "seq_length", -1) ==
        "--dim seq_length: -1 tokens; accepted: a whole number from 1 to 4194304");
  CHECK(refused("llama-3-8b", "batch", 2) ==
        "--dim: the built-in network 'llama-3-8b' has no dimension 'batch'; accepted: seq_length "
        "(tokens per sample); --batch sets the samples");
}

TEST_CASE("zoo: parameters equal our own arithmetic where no count is published") {
  // torchvision's AlexNet; fc6 reads 7·7·256 numbers instead of 6·6·256.
  CHECK(parameters("alexnet_one_tower") == 61'100'840 + (7 * 7 - 6 * 6) * 256 * 4096);

  // Kernels 11, 5, 3, 3, 3 and dense layers, each with a bias per output.
  CHECK(parameters("overfeat") == 96 * (3 * 121 + 1) + 256 * (96 * 25 + 1) + 512 * (256 * 9 + 1) +
                                      1024 * (512 * 9 + 1) + 1024 * (1024 * 9 + 1) +
                                      3072 * (36'864 + 1) + 4096 * (3072 + 1) + 1000 * (4096 + 1));

  // A bottleneck w wide after 4w channels has (4 + 9 + 4)·w² + 12·w: 70,400, 280,064, 1,117,184 and
  // 4,462,592 for w = 64 … 512; the first of each stage, with its shortcut: 75,008, 379,392,
  // 1,512,448, 6,039,552. Stem 9,536, classifier 2,049,000.
  CHECK(parameters("resnet200") == 9'536 + 75'008 + 2 * 70'400 + 379'392 + 23 * 280'064 +
                                       1'512'448 + 35 * 1'117'184 + 6'039'552 + 2 * 4'462'592 +
                                       2'049'000);
  CHECK(parameters("resnet50_v1") == parameters("resnet50"));
  CHECK(parameters("resnet101_v1") == parameters("resnet101"));
  CHECK(parameters("resnet152_v1") == parameters("resnet152"));

  // In 32 groups after 2w channels: (2 + 9/32 + 2)·w² + 8·w: 71,168, 282,624, 1,126,400, 4,497,408
  // for w = 128 … 1024; first ones 63,488, 349,184, 1,390,592, 5,550,080.
  const std::int64_t resnext = 9'536 + 63'488 + 2 * 71'168 + 349'184 + 3 * 282'624 + 1'390'592 +
                               22 * 1'126'400 + 5'550'080 + 2 * 4'497'408 + 2'049'000;
  CHECK(parameters("resnext101_32x4d") == resnext);
  // Two dense maps c → c/16 → c with biases: c²/8 + c/16 + c for c = 256, 512, 1024, 2048.
  CHECK(parameters("se_resnext101_32x4d") ==
        resnext + 3 * 8'464 + 4 * 33'312 + 23 * 132'160 + 3 * 526'464);

  // c → f: 9·c + 2·c + c·f + 2·f, thirteen times.
  CHECK(parameters("mobilenet_v1") == 928 + 2'528 + 9'152 + 18'048 + 34'688 + 68'864 + 134'912 +
                                          5 * 268'800 + 531'968 + 1'061'888 + 1'025'000);

  // R3D-18 with a stem of 7·7·7·64 instead of 3·3·7·7·64, 2 classes instead of 400, and attention:
  // query and key c²/8 + c/8 each, value c² + c, gamma 1: 20,641, 82,241, 328,321.
  const std::int64_t resattnet18 =
      33'371'472 + (7 * 7 * 7 - 3 * 3 * 7 * 7) * 64 - (400 - 2) * 513 + 20'641 + 82'241 + 328'321;
  CHECK(parameters("3d-resattnet18") == resattnet18);
  // 1, 2, 4 and 1 more basic blocks of 2·27·c² + 4·c.
  CHECK(parameters("3d-resattnet34") ==
        resattnet18 + 221'440 + 2 * 885'248 + 4 * 3'539'968 + 14'157'824);

  CHECK(parameters("hmp_mnist") ==
        60 * 49 + 120 * 60 * 25 + 240 * 120 * 9 + 128 * (240 * 14 * 14 + 1) + 10 * (128 + 1));
  CHECK(parameters("hmp_cifar10") == 9 * (3 * 60 + 60 * 60 + 60 * 120 + 120 * 120 + 120 * 240 +
                                          240 * 240 + 240 * 480 + 480 * 480) +
                                         256 * (480 * 2 * 2 + 1) + 10 * (256 + 1));
  CHECK(parameters("mlp") == 1024 * 785 + 1024 * 1025 + 10 * 1025);
}

TEST_CASE("zoo: multiply-accumulates equal the published ones") {
  // torchvision's model cards; alexnet_grouped: Caffe's; mobilenet_v1: Howard et al. 2017, table 4.
  const std::vector<std::pair<std::string, double>> published_gmac{
      {"alexnet", 0.714},      {"alexnet_grouped", 0.724}, {"vgg11", 7.61},
      {"vgg16", 15.470},       {"vgg19", 19.63},           {"resnet18", 1.814},
      {"resnet34", 3.664},     {"resnet50", 4.089},        {"resnet101", 7.801},
      {"resnet152", 11.514},   {"resnext50_32x4d", 4.230}, {"wide_resnet50_2", 11.398},
      {"googlenet", 1.498},    {"inception_v3", 5.713},    {"densenet121", 2.834},
      {"mobilenet_v1", 0.569}, {"mobilenet_v2", 0.301},    {"r3d_18", 40.697}};
  for (const auto& [name, gmac] : published_gmac) {
    CAPTURE(name);
    CHECK(forward_flops_per_sample(built_in(name)).value ==
          testing::approx(2e9 * gmac).epsilon(0.005));
  }
  // By hand: 28²·6·25 + 10²·16·150 + 400·120 + 120·84 + 84·10.
  CHECK(forward_flops_per_sample(built_in("lenet5")).value == 2.0 * 416'520);
}

TEST_CASE("zoo: v1 strides in the first 1x1 and saves what it computes at the full extent") {
  const Network v1 = built_in("resnet50_v1"), v1_5 = built_in("resnet50");
  CHECK(map_of(v1, "layer2.0.conv1") == "128x28x28");
  CHECK(map_of(v1_5, "layer2.0.conv1") == "128x56x56");
  CHECK(map_of(v1, "layer2.0.conv2") == map_of(v1_5, "layer2.0.conv2"));
  // Stages 2, 3, 4: 256·128·(56² − 28²) = 512·256·(28² − 14²) = 1024·512·(14² − 7²).
  CHECK(forward_flops_per_sample(v1_5).value - forward_flops_per_sample(v1).value ==
        2.0 * 3 * 77'070'336);
}

TEST_CASE("zoo: the maps of alexnet_one_tower") {
  std::vector<std::string> maps;
  const Network network = built_in("alexnet_one_tower");
  for (const Layer& l : network.layers) {
    if (l.kind.as<Activation>() == nullptr && l.kind.as<Dropout>() == nullptr) {
      maps.push_back(l.name + " " + to_text(l.out));
    }
  }
  CHECK(maps == std::vector<std::string>{"input 3x224x224", "conv1 64x55x55", "pool1 64x28x28",
                                         "conv2 192x28x28", "pool2 192x14x14", "conv3 384x14x14",
                                         "conv4 256x14x14", "conv5 256x14x14", "pool5 256x7x7",
                                         "flatten 12544", "fc6 4096", "fc7 4096", "fc8 1000",
                                         "loss scalar"});
}

TEST_CASE("zoo: maps at the joints of the other families") {
  const Network grouped = built_in("alexnet_grouped");
  CHECK(map_of(grouped, "conv1") == "96x55x55");
  CHECK(map_of(grouped, "pool5") == "256x6x6");
  CHECK(map_of(built_in("overfeat"), "pool5") == "1024x6x6");
  const Network inception = built_in("inception_v3");
  CHECK(map_of(inception, "Mixed_5d.concat") == "288x35x35");
  CHECK(map_of(inception, "Mixed_6e.concat") == "768x17x17");
  CHECK(map_of(inception, "Mixed_7c.concat") == "2048x8x8");
  const Network google = built_in("googlenet");
  CHECK(map_of(google, "inception3b.concat") == "480x28x28");
  CHECK(map_of(google, "inception5b.concat") == "1024x7x7");
  CHECK(map_of(built_in("densenet121"), "denseblock4.concat") == "1024x7x7");
  CHECK(map_of(built_in("mobilenet_v2"), "features.18.relu6") == "1280x7x7");
  CHECK(map_of(built_in("r3d_18"), "layer4.1.relu") == "512x2x7x7");
  CHECK(map_of(built_in("resnet200"), "layer4.2.relu") == "2048x7x7");
  CHECK(map_of(built_in("se_resnext101_32x4d"), "layer4.2.se.scale") == "2048x7x7");
  CHECK(map_of(built_in("hmp_cifar10"), "pool8") == "480x2x2");
  const Network scans = built_in("3d-resattnet34");
  CHECK(map_of(scans, "attention2.scores") == "2016x2016");
  CHECK(map_of(scans, "attention4.add") == "512x3x4x3");
}

TEST_CASE("zoo: a number in a name is the number of weighted layers on the longest path") {
  const std::vector<std::pair<std::string, int>> depths{
      {"lenet5", 5},        {"vgg11", 11},      {"vgg16", 16},           {"vgg19", 19},
      {"resnet18", 18},     {"resnet34", 34},   {"resnet50", 50},        {"resnet101", 101},
      {"resnet152", 152},   {"resnet200", 200}, {"resnext50_32x4d", 50}, {"wide_resnet50_2", 50},
      {"densenet121", 121}, {"r3d_18", 18}};
  for (const auto& [name, layers] : depths) {
    CAPTURE(name);
    CHECK(depth(built_in(name)) == layers);
  }
}

TEST_CASE("zoo: every network of the table is well formed") {
  std::set<std::string> names;
  for (const NetworkEntry& entry : all()) {
    CAPTURE(entry.name);
    CHECK(names.insert(entry.name).second);
    CHECK_FALSE(entry.summary.empty());
    const Network network = entry.build();
    CHECK(network.name == entry.name);
    const bool routes =
        std::any_of(network.layers.begin(), network.layers.end(),
                    [](const Layer& l) { return l.kind.as<ExpertDispatch>() != nullptr; });
    CHECK(network.warnings.size() == (routes ? 1 : 0));  // what is assumed of the router
    CHECK(parameter_count(network) > 0);
    CHECK(forward_flops_per_sample(network).value > 0);

    const std::vector<std::vector<Consumer>> readers = consumers(network);
    std::set<std::string> layer_names;
    std::vector<int> uses(network.parameters.size());
    std::size_t losses = 0;
    for (std::size_t i = 0; i < network.layers.size(); ++i) {
      const Layer& l = network.layers[i];
      CAPTURE(l.name);
      CHECK(layer_names.insert(l.name).second);
      for (const LayerId input : l.inputs) CHECK(input.index() < i);
      for (const Axis& axis : l.out.axes) CHECK(axis.extent > 0);
      for (const ParameterId parameter : l.parameters) ++uses[parameter.index()];
      const bool loss = l.kind.as<Loss>() != nullptr;
      losses += loss ? 1 : 0;
      CHECK(readers[i].empty() == loss);
    }
    CHECK(losses == 1);
    CHECK(network.layers.back().name == "loss");
    CHECK(network.layers.back().kind.as<Loss>() != nullptr);
    const Layer& logits = network[network.layers.back().inputs.at(0)];
    CHECK(logits.kind.as<Dense>() != nullptr);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      CAPTURE(network.parameters[i].name);
      // The logits of some language models are made with the table of tokens; nothing else is tied.
      const bool table = network.parameters[i].name.starts_with("wte.") &&
                         logits.parameters.front() == ParameterId{i};
      CHECK(uses[i] == (table ? 2 : 1));
      CHECK(network.parameters[i].elements() > 0);
    }
  }
}

TEST_CASE("zoo: a convolution before batch normalisation has no bias") {
  for (const NetworkEntry& entry : all()) {
    const Network network = entry.build();
    for (const Layer& l : network.layers) {
      const Norm* norm = l.kind.as<Norm>();
      if (norm == nullptr || norm->kind != NormKind::batch) continue;
      const Conv* conv = network[l.inputs[0]].kind.as<Conv>();
      CAPTURE(entry.name);
      CAPTURE(l.name);
      if (conv != nullptr) CHECK_FALSE(conv->bias);
    }
  }
}
