// Graphs exported by torchvision and PyTorch, weights stripped.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <string>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "tests/support/approx.hpp"

using namespace parsim;
using namespace parsim::networks;

namespace {

std::string data(const std::string& name) {
  return fmt::format("{}/tests/networks/data/{}.onnx", PARSIM_SOURCE_DIR, name);
}

Network read(const std::string& name, const std::map<std::string, std::int64_t>& dims = {}) {
  return read_onnx(data(name), dims);
}

double gmac(const Network& network) { return forward_flops_per_sample(network).value / 2e9; }

}  // namespace

TEST_CASE("onnx: parameters are those that torchvision publishes") {
  const std::map<std::string, std::int64_t> published{
      {"lenet5", 61'706},       {"alexnet", 61'100'840},    {"vgg16", 138'357'544},
      {"resnet18", 11'689'512}, {"resnet50", 25'557'032},   {"inception_v3", 23'834'568},
      {"googlenet", 6'624'904}, {"densenet121", 7'978'856}, {"mobilenet_v2", 3'504'872},
      {"r3d_18", 33'371'472}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    const Network network = read(name);
    CHECK(network.name == name);
    CHECK(parameter_count(network) == count);
    CHECK(network.warnings == std::vector<std::string>{});
    CHECK(network.layers.back().kind == LayerKind(Loss{}));
    CHECK(network.layers.back().name == "loss");
  }
}

TEST_CASE("onnx: parameters and work equal those of the built-in network of the name") {
  for (const NetworkEntry& entry : all()) {
    const bool exported = std::ifstream(data(entry.name)).good();
    if (!exported) continue;
    CAPTURE(entry.name);
    const Network ours = entry.build(), theirs = read(entry.name);
    CHECK(parameter_count(theirs) == parameter_count(ours));
    CHECK(forward_flops_per_sample(theirs) == forward_flops_per_sample(ours));
  }
}

TEST_CASE("onnx: multiply-accumulates are those that torchvision publishes") {
  // In 1e9, as in torchvision's tables of weights, to the digits given there or counted by fvcore.
  const std::map<std::string, double> published{
      {"alexnet", 0.714},     {"resnet50", 4.089},     {"vgg16", 15.470}, {"inception_v3", 5.713},
      {"densenet121", 2.834}, {"mobilenet_v2", 0.301}, {"r3d_18", 40.697}};
  for (const auto& [name, giga] : published) {
    CAPTURE(name);
    CHECK(gmac(read(name)) == testing::approx(giga).epsilon(0.0005 / giga));
  }
}

TEST_CASE("onnx: bert_tiny has the parameters that its export kept") {
  // Tokens 30522·128, positions 128·128 (the exporter cut the model's 512 rows to the sequence's
  // 128), five layer norms of 2·128, the pooler's dense layer, and two blocks of four 128 × 128 and
  // two 128 × 512 dense layers with biases.
  const std::int64_t block = 4 * (128 * 128 + 128) + 128 * 512 + 512 + 512 * 128 + 128;
  CHECK(parameter_count(read("bert_tiny")) ==
        30522 * 128 + 128 * 128 + 5 * 2 * 128 + 128 * 128 + 128 + 2 * block);
  // Per token the dense layers' weights; scores and their use 2·128·128·128 per block; the pooler
  // sees one token.
  const double dense = 128.0 * 2 * (4 * 128 * 128 + 2 * 128 * 512);
  CHECK(gmac(read("bert_tiny")) * 1e9 ==
        testing::approx(dense + 2 * 2 * 128.0 * 128 * 128 + 128 * 128));
}

TEST_CASE("onnx: tables that the exporter computed are named, parameters of the model are not") {
  CHECK(read("bert_tiny").warnings ==
        std::vector<std::string>{
            "1 learned table was computed by the exporter: 'onnx::Add_260' [128 x 128]: the model "
            "may train another number of rows"});
  for (const char* name : {"lenet5", "resnet18", "resnet18_identity", "mobilenet_v2"}) {
    CAPTURE(name);
    CHECK(read(name).warnings.empty());
  }
}

TEST_CASE("onnx: a symbolic batch binds itself, or by name, and leaves no trace in the network") {
  for (const std::map<std::string, std::int64_t>& dims :
       {std::map<std::string, std::int64_t>{}, {{"batch", 8}}, {{"batch", 1}}}) {
    Network bound = read("resnet50_dynbatch", dims);
    bound.name = "resnet50";
    CHECK(bound == read("resnet50"));
  }
  const std::string path = data("resnet50_dynbatch");
  CHECK_THROWS_WITH_AS(
      read("resnet50_dynbatch", {{"bach", 8}}),
      fmt::format("--dim bach=8: {} has no dimension 'bach'; accepted: batch; did you mean "
                  "'batch'?",
                  path)
          .c_str(),
      InputError);
  CHECK_THROWS_WITH_AS(
      read("resnet50_dynbatch", {{"batch", 0}}),
      fmt::format("{}: input 'input': axis 0 has size 0; accepted: 1 or more", path).c_str(),
      InputError);
  CHECK_THROWS_WITH_AS(
      read("resnet50", {{"batch", 8}}),
      fmt::format("--dim batch=8: {} has no dimension 'batch'; accepted: nothing, all its "
                  "dimensions are fixed",
                  data("resnet50"))
          .c_str(),
      InputError);
}

TEST_CASE("onnx: weights that the exporter merged by value are parameters of their own") {
  // All norms start at ones and zeros, so that 72 of 80 of their tensors are written as Identity.
  const Network merged = read("resnet18_identity"), plain = read("resnet18");
  CHECK(parameter_count(merged) == parameter_count(plain));
  CHECK(forward_flops_per_sample(merged) == forward_flops_per_sample(plain));
  CHECK(merged.layers.size() == plain.layers.size());
}

TEST_CASE("onnx: folded batch norms become a warning") {
  const Network folded = read("resnet50_bnfused");
  REQUIRE(folded.warnings.size() == 1);
  CHECK(folded.warnings[0] ==
        "batch normalisation is folded into the convolutions, as in an export for inference: "
        "training "
        "has other layers and parameters; export the model in training mode");
  // Biases in place of scale and shift: 26,560 channels are normalised.
  CHECK(parameter_count(folded) == 25'557'032 - 26'560);
  CHECK(read("vgg16").warnings.empty());
  CHECK(read("alexnet").warnings.empty());
}
