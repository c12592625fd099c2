// What each ONNX operator becomes, by hand.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "tests/networks/onnx_writer.hpp"

template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static doctest::String convert(const std::vector<std::string>& lines) {
    return fmt::format("{}", fmt::join(lines, " | ")).c_str();
  }
};

using namespace parsim;
using namespace parsim::networks;
using test::Attributes;
using test::Dimension;
using test::Numbers;
using test::OnnxWriter;

namespace {

using Lines = std::vector<std::string>;

/// "conv 8x10x10" for every layer but inputs and the loss; rearrangements with what they do.
Lines summary(const Network& network) {
  Lines out;
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<Input>() != nullptr || layer.kind.as<Loss>() != nullptr) continue;
    std::string what(kind_name(layer.kind));
    if (const auto* r = layer.kind.as<Rearrange>()) what = r->what;
    if (const auto* a = layer.kind.as<Activation>()) what = a->function;
    if (const auto* c = layer.kind.as<Combine>()) what = c->function;
    out.push_back(fmt::format("{} {}", what, to_text(layer.out)));
  }
  return out;
}

/// The layers of a graph of one node over one real input of a batch of 2.
Lines layers_of(const std::string& op, std::vector<Dimension> dims, const Attributes& attributes,
                const std::vector<Numbers>& operands = {}, std::int64_t opset = 17) {
  OnnxWriter g(opset);
  dims.insert(dims.begin(), std::int64_t{2});
  g.input("x", dims);
  std::vector<std::string> inputs{"x"};
  for (const Numbers& numbers : operands) {
    inputs.push_back(numbers.empty() ? "" : g.integers(numbers));
  }
  g.output(g.node(op, inputs, attributes));
  return summary(g.read());
}

std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

/// The last layer before the loss.
const Layer& last(const Network& network) { return network.layers[network.layers.size() - 2]; }

constexpr std::int64_t yes = 1, no = 0;

}  // namespace

TEST_CASE("onnx: a function of one tensor is an activation of its name") {
  for (const std::string op : {"Abs",
                               "Acos",
                               "Acosh",
                               "Asin",
                               "Asinh",
                               "Atan",
                               "Atanh",
                               "Ceil",
                               "Celu",
                               "Clip",
                               "Cos",
                               "Cosh",
                               "CumSum",
                               "Elu",
                               "Erf",
                               "Exp",
                               "Floor",
                               "Gelu",
                               "HardSigmoid",
                               "HardSwish",
                               "IsInf",
                               "IsNaN",
                               "LeakyRelu",
                               "Log",
                               "Mish",
                               "Neg",
                               "Not",
                               "Reciprocal",
                               "Relu",
                               "Round",
                               "Selu",
                               "Shrink",
                               "Sigmoid",
                               "Sign",
                               "Sin",
                               "Sinh",
                               "Softplus",
                               "Softsign",
                               "Sqrt",
                               "Swish",
                               "Tan",
                               "Tanh",
                               "ThresholdedRelu",
                               "Trilu",
                               "BitwiseNot"}) {
    CAPTURE(op);
    CHECK(layers_of(op, {4, 5}, {}) == Lines{lower(op) + " 4x5"});
  }
}

TEST_CASE("onnx: a function of several tensors combines them, one of a constant does not") {
  for (const std::string op :
       {"Add",       "Sub",       "Mul",         "Div",      "Pow",
        "Mod",       "Max",       "Min",         "Sum",      "Mean",
        "Equal",     "Less",      "LessOrEqual", "Greater",  "GreaterOrEqual",
        "And",       "Or",        "Xor",         "BitShift", "BitwiseAnd",
        "BitwiseOr", "BitwiseXor"}) {
    CAPTURE(op);
    OnnxWriter two;
    two.input("x", {3, 4, 5});
    two.input("y", {3, 1, 5});
    two.output(two.node(op, {"x", "y"}));
    CHECK(summary(two.read()) == Lines{lower(op) + " 4x5"});
    OnnxWriter one;
    one.input("x", {3, 4, 5});
    one.output(one.node(op, {"x", one.real(2)}));
    CHECK(summary(one.read()) == Lines{lower(op) + " 4x5"});
    CHECK(last(one.read()).kind == LayerKind(Activation{lower(op)}));
  }
}

TEST_CASE("onnx: a learned operand becomes a layer of its own and is broadcast") {
  OnnxWriter g;
  g.input("x", {2, 8, 4, 4});
  g.output(g.node("Mul", {"x", g.weight("layer_scale", {8, 1, 1})}));
  const Network network = g.read();
  CHECK(summary(network) == Lines{"learned 8x1x1", "mul 8x4x4"});
  CHECK(network.parameters == std::vector<Parameter>{{"layer_scale", {8, 1, 1}}});
}

TEST_CASE("onnx: a constant operand may enlarge the other") {
  OnnxWriter g;
  g.input("x", {2, 1, 4});
  g.output(g.node("Add", {"x", g.filled(g.integers({1, 5, 1}), 3)}));
  CHECK(summary(g.read()) == Lines{"expand 5x4", "add 5x4"});
}

TEST_CASE("onnx: a choice between activations by a constant mask reads the activations alone") {
  OnnxWriter g;
  g.input("x", {2, 4});
  g.input("y", {2, 4});
  const std::string mask = g.node("Equal", {g.filled(g.integers({4}), 1), g.integer(1)});
  g.output(g.node("Where", {mask, "x", "y"}));
  const Network network = g.read();
  CHECK(last(network).kind == LayerKind(Combine{"where"}));
  CHECK(last(network).inputs == std::vector{LayerId{0}, LayerId{1}});
}

TEST_CASE("onnx: convolutions over one, two and three axes") {
  const auto conv = [](const Numbers& in, const Numbers& weights, const Attributes& attributes) {
    OnnxWriter g;
    std::vector<Dimension> dims{2};
    dims.insert(dims.end(), in.begin(), in.end());
    g.input("x", dims);
    g.output(
        g.node("Conv", {"x", g.weight("w", weights), g.weight("b", {weights[0]})}, attributes));
    return g.read();
  };
  CHECK(summary(conv({3, 20}, {8, 3, 5}, {})) == Lines{"conv 8x16"});
  // ⌊(20 + 2 − 2·(3−1) − 1) / 2⌋ + 1 = 9
  CHECK(summary(conv({4, 20, 20}, {8, 1, 3, 3},
                     {{"group", std::int64_t{4}},
                      {"pads", Numbers{1, 1, 1, 1}},
                      {"strides", Numbers{2, 2}},
                      {"dilations", Numbers{2, 2}}})) == Lines{"conv 8x9x9"});
  const Network volume =
      conv({3, 8, 9, 10}, {6, 3, 1, 2, 3}, {{"pads", Numbers{0, 1, 2, 0, 0, 1}}});
  CHECK(last(volume).kind ==
        LayerKind(Conv{6, {{1, 1, 0, 0, 1}, {2, 1, 1, 0, 1}, {3, 1, 2, 1, 1}}, 1, true}));
  CHECK(summary(volume) == Lines{"conv 6x8x9x11"});
  CHECK(volume.parameters == std::vector<Parameter>{{"w", {6, 3, 1, 2, 3}}, {"b", {6}}});
  // Same size at stride 1, ⌈size/stride⌉ otherwise; an even kernel has its odd padding on one side.
  const Network upper = conv({1, 7, 7}, {1, 1, 4, 4}, {{"auto_pad", std::string("SAME_UPPER")}});
  CHECK(last(upper).kind.as<Conv>()->windows == std::vector<Window>(2, {4, 1, 1, 2, 1}));
  const Network lower = conv({1, 7, 7}, {1, 1, 4, 4},
                             {{"auto_pad", std::string("SAME_LOWER")}, {"strides", Numbers{2, 2}}});
  CHECK(last(lower).kind.as<Conv>()->windows == std::vector<Window>(2, {4, 2, 2, 1, 1}));
  CHECK(summary(lower) == Lines{"conv 1x4x4"});
}

TEST_CASE("onnx: pooling") {
  // 3 x 3 windows at stride 2 on 6 x 6: two fit, a third hangs over.
  const Attributes three{{"kernel_shape", Numbers{3, 3}}, {"strides", Numbers{2, 2}}};
  Attributes ceil = three;
  ceil["ceil_mode"] = yes;
  CHECK(layers_of("MaxPool", {4, 6, 6}, three) == Lines{"pool 4x2x2"});
  CHECK(layers_of("MaxPool", {4, 6, 6}, ceil) == Lines{"pool 4x3x3"});
  CHECK(layers_of("AveragePool", {4, 6, 6}, three) == Lines{"pool 4x2x2"});
  CHECK(layers_of("GlobalAveragePool", {4, 6, 7}, {}) == Lines{"pool 4x1x1"});
  CHECK(layers_of("GlobalMaxPool", {4, 5, 6, 7}, {}) == Lines{"pool 4x1x1x1"});
  CHECK(layers_of("ReduceMean", {4, 6, 7}, {{"axes", Numbers{-1, -2}}}) == Lines{"pool 4x1x1"});
  CHECK(layers_of("ReduceMean", {4, 6, 7}, {{"axes", Numbers{2, 3}}, {"keepdims", no}}) ==
        Lines{"pool 4x1x1", "flatten 4"});
  OnnxWriter g;
  g.input("x", {2, 4, 6, 6});
  g.output(g.node("AveragePool", {"x"},
                  {{"kernel_shape", Numbers{3, 3}},
                   {"pads", Numbers{1, 1, 1, 1}},
                   {"count_include_pad", yes}}));
  CHECK(last(g.read()).kind ==
        LayerKind(Pool{PoolKind::average, {2, Window{3, 1, 1, 1, 1}}, false, true}));
}

TEST_CASE("onnx: batch normalisation learns scale and shift, not its running statistics") {
  OnnxWriter g;
  g.input("x", {2, 8, 4, 4});
  g.output(g.node("BatchNormalization", {"x", g.weight("scale", {8}), g.weight("shift", {8}),
                                         g.weight("mean", {8}), g.weight("var", {8})}));
  const Network network = g.read();
  CHECK(last(network).kind == LayerKind(Norm{NormKind::batch, true, 0}));
  CHECK(network.parameters == std::vector<Parameter>{{"scale", {8}}, {"shift", {8}}});
}

TEST_CASE("onnx: layer normalisation over one axis, over several, and without shift") {
  const auto norm = [](std::int64_t axis, const Numbers& learned, bool shift) {
    OnnxWriter g;
    g.input("x", {2, 3, 4, 5});
    std::vector<std::string> inputs{"x", g.weight("scale", learned)};
    if (shift) inputs.push_back(g.weight("shift", learned));
    g.output(g.node("LayerNormalization", inputs, {{"axis", axis}}));
    return g.read();
  };
  CHECK(summary(norm(-1, {5}, true)) == Lines{"norm 3x4x5"});
  CHECK(summary(norm(1, {3, 4, 5}, true)) == Lines{"flatten 60", "norm 60", "reshape 3x4x5"});
  CHECK(parameter_count(norm(1, {3, 4, 5}, true)) == 2 * 60);
  CHECK(summary(norm(-1, {5}, false)) == Lines{"norm 3x4x5", "learned 5", "mul 3x4x5"});
}

TEST_CASE("onnx: group, instance and local response normalisation") {
  OnnxWriter g;
  g.input("x", {2, 8, 4, 4});
  g.output(g.node("GroupNormalization", {"x", g.weight("scale", {8}), g.weight("shift", {8})},
                  {{"num_groups", std::int64_t{4}}}));
  CHECK(last(g.read()).kind == LayerKind(Norm{NormKind::group, true, 4}));
  // PyTorch writes group normalisation as instance normalisation of groups, with constant ones and
  // zeros, and the true scale and shift behind it.
  OnnxWriter h;
  h.input("x", {2, 8, 4, 4});
  const std::string groups = h.node("Reshape", {"x", h.integers({0, 4, -1})});
  const std::string ones = h.node("Cast", {h.integers({1, 1, 1, 1})}, {{"to", std::int64_t{1}}});
  const std::string zeros = h.node("Cast", {h.integers({0, 0, 0, 0})}, {{"to", std::int64_t{1}}});
  const std::string normed = h.node("InstanceNormalization", {groups, ones, zeros});
  const std::string back = h.node("Reshape", {normed, h.integers({2, 8, 4, 4})});
  const std::string scaled = h.node("Mul", {back, h.weight("scale", {8, 1, 1})});
  h.output(h.node("Add", {scaled, h.weight("shift", {8, 1, 1})}));
  const Network network = h.read();
  CHECK(parameter_count(network) == 16);
  CHECK(std::count_if(network.layers.begin(), network.layers.end(), [](const Layer& layer) {
          return layer.kind == LayerKind(Norm{NormKind::instance, false, 0});
        }) == 1);
  CHECK(layers_of("LRN", {8, 4, 4}, {{"size", std::int64_t{5}}}) == Lines{"norm 8x4x4"});
}

TEST_CASE("onnx: PRelu learns a slope per channel or one for all") {
  for (const std::int64_t slopes : {1, 8}) {
    OnnxWriter g;
    g.input("x", {2, 8, 4, 4});
    g.output(g.node("PRelu", {"x", g.weight("slope", {slopes, 1, 1})}));
    const Network network = g.read();
    CHECK(last(network).kind == LayerKind(Activation{"prelu", slopes}));
    CHECK(parameter_count(network) == slopes);
  }
}

TEST_CASE("onnx: Dropout has its rate as attribute or operand") {
  OnnxWriter g;
  g.input("x", {2, 8});
  g.output(g.node("Dropout", {"x", g.real(0.25)}, {}, {"y", "mask"}));
  CHECK(last(g.read()).kind == LayerKind(Dropout{0.25}));
  OnnxWriter h(11);
  h.input("x", {2, 8});
  h.output(h.node("Dropout", {"x"}, {{"ratio", 0.125}}));
  CHECK(last(h.read()).kind == LayerKind(Dropout{0.125}));
}

TEST_CASE("onnx: Gemm and MatMul with weights are dense layers, a bias behind joins them") {
  const std::vector<Parameter> both{{"w", {7, 5}}, {"b", {7}}};
  for (const bool transposed : {false, true}) {
    OnnxWriter g;
    g.input("x", {2, 5});
    const Numbers extents = transposed ? Numbers{7, 5} : Numbers{5, 7};
    g.output(g.node("Gemm", {"x", g.weight("w", extents), g.weight("b", {7})},
                    {{"transB", transposed ? yes : no}}));
    CHECK(last(g.read()).kind == LayerKind(Dense{7, true}));
    CHECK(g.read().parameters == both);
  }
  OnnxWriter g;
  g.input("x", {2, 3, 5});
  const std::string product = g.node("MatMul", {"x", g.weight("w", {5, 7})});
  g.output(g.node("Add", {g.weight("b", {7}), product}));
  CHECK(summary(g.read()) == Lines{"dense 3x7"});
  CHECK(g.read().parameters == both);
  // A product that is read twice keeps its own value.
  OnnxWriter twice;
  twice.input("x", {2, 5});
  const std::string y = twice.node("MatMul", {"x", twice.weight("w", {5, 7})});
  twice.output(twice.node("Mul", {twice.node("Add", {y, twice.weight("b", {7})}), y}));
  CHECK(summary(twice.read()) == Lines{"dense 7", "learned 7", "add 7", "mul 7"});
}

TEST_CASE("onnx: products of two activations") {
  OnnxWriter g;
  g.input("x", {2, 4, 3, 5});
  g.input("y", {2, 1, 5, 6});
  g.output(g.node("MatMul", {"x", "y"}));
  CHECK(summary(g.read()) == Lines{"matmul 4x3x6"});
  OnnxWriter rows;  // the rows are the samples
  rows.input("x", {2, 5});
  const std::string w = rows.node("Sigmoid", {rows.weight("w", {5, 6})});
  rows.output(rows.node("MatMul", {"x", w}));
  CHECK(summary(rows.read()) ==
        Lines{"learned 5x6", "sigmoid 5x6", "reshape 1x5", "matmul 1x6", "flatten 6"});
}

TEST_CASE("onnx: Einsum is a matrix product between transposes") {
  const auto work = [](const std::string& equation, const std::vector<Dimension>& x,
                       const std::vector<Dimension>& y) {
    OnnxWriter g;
    g.input("x", x);
    g.input("y", y);
    g.output(g.node("Einsum", {"x", "y"}, {{"equation", equation}}));
    const Network network = g.read();
    return fmt::format("{} {}", to_text(last(network).out),
                       forward_flops_per_sample(network).value / 2);
  };
  // heads 4, lengths 5 and 6, width 3: 4·5·6·3 = 360
  CHECK(work("bhid,bhjd->bhij", {2, 4, 5, 3}, {2, 4, 6, 3}) == "4x5x6 360");
  CHECK(work("bihd, bjhd -> bhij", {2, 5, 4, 3}, {2, 6, 4, 3}) == "4x5x6 360");
  CHECK(work("bhij,bhjd->bihd", {2, 4, 5, 6}, {2, 4, 6, 3}) == "5x4x3 360");
}

TEST_CASE("onnx: tied weights count once, through Transpose and Identity too") {
  OnnxWriter g;
  g.input("ids", {2, 6}, onnx::TensorProto::INT64);
  const std::string table = g.weight("table", {50, 8});
  const std::string x = g.node("Gather", {table, "ids"});
  const std::string tied = g.node("Transpose", {g.node("Identity", {table})});
  g.output(g.node("MatMul", {x, tied}));
  const Network network = g.read();
  CHECK(summary(network) == Lines{"embedding 6x8", "dense 6x50"});
  CHECK(network.parameters == std::vector<Parameter>{{"table", {50, 8}}});
  CHECK(network.warnings.empty());
}

TEST_CASE("onnx: a copied table is warned of") {
  OnnxWriter g;
  g.input("ids", {2, 6}, onnx::TensorProto::INT64);
  const std::string x = g.node("Gather", {g.weight("table", {50, 8}), "ids"});
  g.output(g.node("MatMul", {x, g.weight("onnx::MatMul_9", {8, 50})}));
  CHECK(
      g.read().warnings ==
      std::vector<std::string>{
          "'onnx::MatMul_9' has the shape of the embedding table 'table': if the model ties them, "
          "the exporter has copied the weights and they are counted twice"});
}

TEST_CASE("onnx: biased convolutions of a network with layer norms are not folded batch norms") {
  // A block of ConvNeXt: opset 17 has LayerNormalization, earlier ones write it as a mean and more.
  for (const bool decomposed : {false, true}) {
    CAPTURE(decomposed);
    OnnxWriter g(decomposed ? 13 : 17);
    g.input("x", {2, 3, 16, 16});
    const std::string stem =
        g.node("Conv", {"x", g.weight("onnx::Conv_1", {8, 3, 4, 4}), g.weight("onnx::Conv_2", {8})},
               {{"strides", Numbers{4, 4}}});
    const std::string mixed =
        g.node("Conv", {stem, g.weight("dw", {8, 1, 3, 3}), g.weight("dw.bias", {8})},
               {{"group", 8}, {"pads", Numbers{1, 1, 1, 1}}});
    const std::string last = g.node("Transpose", {mixed}, {{"perm", Numbers{0, 2, 3, 1}}});
    std::string normed;
    if (decomposed) {
      const std::string centred =
          g.node("Sub", {last, g.node("ReduceMean", {last}, {{"axes", Numbers{-1}}})});
      const std::string variance =
          g.node("ReduceMean", {g.node("Mul", {centred, centred})}, {{"axes", Numbers{-1}}});
      normed = g.node(
          "Mul", {g.node("Div", {centred, g.node("Sqrt", {variance})}), g.weight("scale", {8})});
    } else {
      normed = g.node("LayerNormalization", {last, g.weight("scale", {8})}, {{"axis", -1}});
    }
    const std::string first = g.node("Transpose", {normed}, {{"perm", Numbers{0, 3, 1, 2}}});
    g.output(g.node("Add", {stem, first}));
    CHECK(g.read().warnings.empty());
  }
}

TEST_CASE("onnx: a residual network without norms, or with scaled weights, has none folded") {
  // As in EDSR, biased convolutions and a sum; as in NFNets, weights that the exporter computed.
  for (const char* weights : {"conv.weight", "onnx::Conv_3"}) {
    OnnxWriter g;
    g.input("x", {2, 8, 16, 16});
    const std::string conv =
        g.node("Conv", {"x", g.weight(weights, {8, 8, 3, 3}), g.weight("conv.bias", {8})},
               {{"pads", Numbers{1, 1, 1, 1}}});
    g.output(g.node("Add", {"x", conv}));
    CHECK(g.read().warnings.empty());
  }
}

TEST_CASE("onnx: outputs that the loss does not see are named") {
  OnnxWriter g;
  g.input("x", {2, 8});
  const std::string trunk = g.node("Relu", {"x"});
  g.output(g.node("Gemm", {trunk, g.weight("w", {8, 4})}));
  g.output(g.node("Gemm", {trunk, g.weight("v", {8, 4})}));
  g.output(trunk);
  CHECK(
      g.read().warnings ==
      std::vector<std::string>{"the loss is taken on output 'Gemm_1_out' only, not on Gemm_2_out"});
  CHECK(parameter_count(g.read()) == 64);
}

TEST_CASE(
    "onnx: reshapes and transposes are free or not, and left out where a sample looks the same") {
  CHECK(layers_of("Flatten", {4, 5, 6}, {}) == Lines{"flatten 120"});
  CHECK(layers_of("Flatten", {7}, {}) == Lines{});
  CHECK(layers_of("Reshape", {4, 6}, {}, {{0, 2, 2, -1}}) == Lines{"reshape 2x2x6"});
  CHECK(layers_of("Reshape", {4, 6}, {}, {{-1, 6}}) == Lines{});  // tokens of all samples
  CHECK(layers_of("Transpose", {4, 6}, {{"perm", Numbers{0, 2, 1}}}) == Lines{"transpose 6x4"});
  CHECK(layers_of("Transpose", {4, 6}, {{"perm", Numbers{1, 0, 2}}}) == Lines{});
  CHECK(layers_of("Unsqueeze", {4}, {}, {{1, -1}}) == Lines{"reshape 1x4x1"});
  CHECK(layers_of("Squeeze", {1, 4, 1}, {}, {{1, 3}}) == Lines{"flatten 4"});
  CHECK(layers_of("Squeeze", {1, 4, 1}, {{"axes", Numbers{1}}}, {}, 11) == Lines{"reshape 4x1"});
}

TEST_CASE("onnx: joining and cutting") {
  OnnxWriter g;
  g.input("x", {2, 4, 5});
  g.input("y", {2, 3, 5});
  const std::string joined = g.node("Concat", {"x", "y", "x"}, {{"axis", std::int64_t{-2}}});
  g.node("Split", {joined, g.integers({2, 9})}, {{"axis", std::int64_t{1}}}, {"a", "b"});
  g.output(g.node("ReduceMax", {"b"}, {{"axes", Numbers{1}}}));
  CHECK(summary(g.read()) == Lines{"concat 11x5", "slice 9x5", "reduce 1x5"});
  // Indices 1, 3, 5 of the first axis; the last but one of the second; from the back.
  CHECK(layers_of("Slice", {7, 4}, {}, {{1, -2}, {6, -1}, {1, 2}, {2, 1}}) ==
        Lines{"slice 3x4", "slice 3x1"});
  CHECK(layers_of("Slice", {7, 4}, {}, {{0}, {9223372036854775807}, {1}}) == Lines{});
  CHECK(layers_of("Slice", {7, 4}, {}, {{-1}, {-100}, {1}, {-1}}) == Lines{"flip 7x4"});
  CHECK(layers_of("Gather", {7, 4}, {{"axis", std::int64_t{1}}}, {{2, 3, 4}}) ==
        Lines{"slice 3x4"});
  CHECK(layers_of("Gather", {7, 4}, {{"axis", std::int64_t{1}}}, {{2, 4, 3}}) ==
        Lines{"gather 3x4"});
}

TEST_CASE("onnx: repeating, padding and resampling") {
  CHECK(layers_of("Expand", {1, 4}, {}, {{2, 3, 4}}) == Lines{"expand 3x4"});
  CHECK(layers_of("Tile", {3, 4}, {}, {{1, 2, 1}}) == Lines{"tile 6x4"});
  CHECK(layers_of("Pad", {3, 4}, {}, {{0, 1, 0, 0, 2, -1}}) == Lines{"pad 6x3"});
  CHECK(layers_of("Pad", {3, 4}, {}, {{0, 0, 0, 0, 0, 0}}) == Lines{});
  CHECK(layers_of("Resize", {3, 4, 4}, {}, {{}, {}, {2, 3, 8, 6}}) == Lines{"resize 3x8x6"});
  CHECK(layers_of("Upsample", {3, 4, 4}, {}, {{1, 1, 2, 2}}, 9) == Lines{"resize 3x8x8"});
  CHECK(layers_of("DepthToSpace", {12, 4, 4}, {{"blocksize", std::int64_t{2}}}) ==
        Lines{"depth-to-space 3x8x8"});
  CHECK(layers_of("SpaceToDepth", {3, 8, 8}, {{"blocksize", std::int64_t{2}}}) ==
        Lines{"space-to-depth 12x4x4"});
}

TEST_CASE("onnx: reductions and softmax") {
  for (const std::string op :
       {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}) {
    CAPTURE(op);
    CHECK(layers_of(op, {3, 4}, {{"axes", Numbers{-1}}, {"keepdims", no}}) == Lines{"reduce 3"});
    CHECK(layers_of(op, {3, 4}, {}, {{2}}, 18) == Lines{"reduce 3x1"});
  }
  CHECK(layers_of("Softmax", {3, 4}, {}) == Lines{"softmax 3x4"});
  CHECK(layers_of("Softmax", {3, 4}, {}, {}, 11) ==
        Lines{"flatten 12", "softmax 12", "reshape 3x4"});
  CHECK(layers_of("LogSoftmax", {4}, {}) == Lines{"softmax 4", "log 4"});
}

TEST_CASE("onnx: a training graph's own loss is the loss") {
  OnnxWriter g;
  g.input("x", {2, 8});
  g.input("labels", {2}, onnx::TensorProto::INT64);
  g.output(g.node("SoftmaxCrossEntropyLoss", {"x", "labels"}));
  const Network network = g.read();
  REQUIRE(network.layers.size() == 3);
  CHECK(network.layers[2].kind == LayerKind(Loss{}));
  CHECK(network.layers[2].inputs == std::vector{LayerId{0}});
}

TEST_CASE("onnx: axes get the roles that cuts need") {
  const auto roles = [](const std::vector<Dimension>& dims, const std::string& op,
                        const Attributes& attributes) {
    OnnxWriter g;
    g.input("x", dims);
    g.output(g.node(op, {"x"}, attributes));
    std::string out;
    const Network network = g.read();
    for (const Axis& axis : last(network).out.axes) out += fmt::format("{} ", to_text(axis.dim));
    return out;
  };
  CHECK(roles({2, 7}, "Relu", {}) == "channel ");
  CHECK(roles({2, 6, 7}, "Relu", {}) == "token channel ");
  CHECK(roles({2, 3, 6, 7}, "Relu", {}) == "channel height width ");
  CHECK(roles({2, 3, 5, 6, 7}, "Relu", {}) == "channel depth height width ");
  CHECK(roles({2, 3, 6, 7}, "Transpose", {{"perm", Numbers{0, 2, 3, 1}}}) ==
        "height width channel ");
  CHECK(roles({2, 6, 7}, "GlobalAveragePool", {}) == "channel width ");
}
