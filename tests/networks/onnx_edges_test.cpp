// ONNX graphs at the edges of what the reader takes: constants at their limit, axes other than the
// batch.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "tests/networks/onnx_writer.hpp"

using namespace parsim;
using namespace parsim::networks;
using test::Numbers;
using test::OnnxWriter;
using test::Reals;

namespace {

std::string refusal(const OnnxWriter& graph) {
  try {
    (void)graph.read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// What one sample of the last layer before the loss looks like.
std::string sample(const OnnxWriter& graph) {
  const Network network = graph.read();
  return to_text(network.layers[network.layers.size() - 2].out);
}

}  // namespace

TEST_CASE("onnx: numbers of constants are kept up to 4,194,304 of them, and not one more") {
  constexpr std::int64_t limit = 4'194'304, most_of_one = 4'096;
  for (const std::int64_t beyond : {0, 1}) {
    CAPTURE(beyond);
    OnnxWriter g;
    g.input("x", {2, 3, 4});
    const std::string large = g.integers({most_of_one});
    std::int64_t left = limit - 1;
    std::vector<std::string> tables;  // outputs, too, or they would not be read
    for (; left > most_of_one; left -= most_of_one) tables.push_back(g.filled(large, 7));
    // Then a table whose extent is a constant as well, and the two numbers of a shape.
    tables.push_back(g.filled(g.integers({left - 3 + beyond}), 7));
    g.output(g.node("Reshape", {"x", g.integers({2, 12})}));
    for (const std::string& table : tables) g.output(table);
    if (beyond == 0) {
      CHECK(sample(g) == "12");
    } else {
      CHECK(refusal(g).ends_with("(Reshape): its sizes are not constant"));
    }
  }
}

TEST_CASE("onnx: products of all samples with all samples are refused") {
  OnnxWriter gram;
  gram.input("x", {"n", 3, 4});
  const std::string flat = gram.node("Flatten", {"x"});
  const std::string turned = gram.node("Transpose", {flat}, {{"perm", Numbers{1, 0}}});
  gram.output(gram.node("MatMul", {flat, turned}));
  OnnxWriter gemm;
  gemm.input("x", {"n", 12});
  gemm.output(gemm.node("Gemm", {"x", "x"}, {{"transB", std::int64_t{1}}}));
  for (const OnnxWriter* g : {&gram, &gemm}) {
    CHECK(
        refusal(*g).ends_with("it multiplies across samples of the batch; accepted: operators "
                              "that work on each sample"));
  }
}

TEST_CASE("onnx: products of two vectors leave no axis") {
  for (const bool learned : {false, true}) {
    CAPTURE(learned);
    OnnxWriter g;
    g.input("x", {"n", 5});
    const std::string a = learned ? g.weight("a", {3}) : g.integers({1, 2, 3});
    const std::string b = learned ? g.weight("b", {3}) : g.integers({4, 5, 6});
    const std::string dot = g.node("MatMul", {a, b});
    g.output(
        g.node("Mul", {"x", learned ? dot : g.node("Cast", {dot}, {{"to", std::int64_t{1}}})}));
    CHECK(sample(g) == "5");
  }
}

TEST_CASE("onnx: matrices in nodes Constant are learned as initializers are") {
  for (const bool node : {false, true}) {
    CAPTURE(node);
    const auto table = [&](OnnxWriter& g, const std::string& name) {
      return node ? g.reals({12, 5}) : g.weight(name, {12, 5});
    };
    OnnxWriter product;
    product.input("x", {"n", 12});
    const std::string w = table(product, "w");
    product.output(product.node("MatMul", {"x", w}));
    const Network dense = product.read();
    CHECK(parameter_count(dense) == 60);
    CHECK(dense.layers[1].kind.as<Dense>() != nullptr);
    OnnxWriter lookup;
    lookup.input("x", {"n", 3}, onnx::TensorProto::INT64);
    const std::string rows = table(lookup, "w");
    lookup.output(lookup.node("Gather", {rows, "x"}));
    CHECK(parameter_count(lookup.read()) == 60);
  }
}

TEST_CASE("onnx: nodes that no output needs are left out, with a warning") {
  OnnxWriter g;
  g.input("x", {"n", 12});
  const std::string used = g.weight("w", {12, 5}), idle = g.weight("v", {12, 99});
  g.node("Relu", {g.node("MatMul", {"x", idle})});
  g.output(g.node("MatMul", {"x", used}));
  const Network network = g.read();
  CHECK(parameter_count(network) == 60);
  CHECK(network.warnings ==
        std::vector<std::string>{"2 nodes that no output needs are left out, 'MatMul_0' first"});
}

TEST_CASE("onnx: an axis of one may come before the batch") {
  OnnxWriter g;
  g.input("x", {2, 4, 6});
  const std::string wider = g.node("Unsqueeze", {"x", g.integers({0})});
  // Now 1 x 2 x 4 x 6: axis 2 is the first of a sample.
  g.output(g.node("ReduceMax", {wider}, {{"axes", Numbers{2}}, {"keepdims", std::int64_t{0}}}));
  CHECK(sample(g) == "1x6");
}

TEST_CASE("onnx: images are scaled by numbers in an attribute, in a constant, or by sizes") {
  OnnxWriter attribute(7);
  attribute.input("x", {2, 3, 4, 5});
  attribute.output(attribute.node("Upsample", {"x"}, {{"scales", Reals{1, 1, 2, 3}}}));
  CHECK(sample(attribute) == "3x8x15");

  // PyTorch's newer exporter lifts constants to initializers.
  OnnxWriter lifted;
  lifted.input("x", {2, 3, 4, 5});
  lifted.output(lifted.node("Resize", {"x", "", lifted.numbers("scales", {4}, {1, 1, 2, 3})}));
  CHECK(sample(lifted) == "3x8x15");

  OnnxWriter wrong(7);
  wrong.input("x", {2, 3, 4, 5});
  wrong.output(wrong.node("Upsample", {"x"}, {{"scales", Reals{2, 3}}}));
  CHECK(refusal(wrong).ends_with(
      "neither sizes nor scales are constant; accepted: constants, one per axis"));

  OnnxWriter batch(7);
  batch.input("x", {2, 3, 4, 5});
  batch.output(batch.node("Upsample", {"x"}, {{"scales", Reals{2, 1, 1, 1}}}));
  CHECK(refusal(batch).ends_with("it resizes the batch axis; accepted: sizes of other axes"));
}

TEST_CASE("onnx: a mask of attention in an initializer is not learned, weights are") {
  // 80 x 80 tokens: more numbers than are kept.
  constexpr std::size_t tokens = 80;
  const auto parameters = [&](float low, float kept) {
    std::vector<float> mask(tokens * tokens, kept);
    for (std::size_t i = 0; i < tokens; ++i) {
      for (std::size_t j = i + 1; j < tokens; ++j) mask[i * tokens + j] = low;
    }
    OnnxWriter g;
    g.input("x", {2, 4, 80, 80});
    g.output(g.node("Add", {"x", g.numbers("mask", {1, 1, 80, 80}, mask)}));
    return parameter_count(g.read());
  };
  CHECK(parameters(-10000, 0) == 0);
  CHECK(parameters(-HUGE_VALF, 0) == 0);
  CHECK(parameters(-1, 0) == 80 * 80);
  CHECK(parameters(-10000, 0.5F) == 80 * 80);
  CHECK(parameters(0, 0) == 80 * 80);
}

TEST_CASE("onnx: a softmax over samples is refused, also where it joins all axes after them") {
  for (const std::int64_t opset : {11, 13}) {
    CAPTURE(opset);
    OnnxWriter g(opset);
    g.input("x", {2, 3, 4});
    g.output(g.node("Softmax", {"x"}, {{"axis", std::int64_t{0}}}));
    CHECK(refusal(g).ends_with(
        "it works across samples of the batch; accepted: operators that work on each sample"));
  }
}
