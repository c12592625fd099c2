// Small transformers written with the idioms of PyTorch's exports: shapes computed in the graph,
// masks built from ranges, sequence-first attention, windows merged into the batch.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/networks/onnx_writer.hpp"

using namespace parsim;
using namespace parsim::networks;
using test::Numbers;
using test::OnnxWriter;

namespace {

/// Reads the graph for several batches. The batch is the plan's choice, so nothing may differ.
Network read_for_any_batch(const OnnxWriter& graph, std::map<std::string, std::int64_t> dims = {}) {
  dims["batch"] = 1;
  const Network one = graph.read(dims);
  for (const std::int64_t batch : {2, 3, 8}) {
    CAPTURE(batch);
    dims["batch"] = batch;
    CHECK(graph.read(dims) == one);
  }
  return one;
}

double multiply_accumulates(const Network& network) {
  return forward_flops_per_sample(network).value / 2;
}

std::string unsqueezed(OnnxWriter& g, const std::string& x, std::int64_t axis) {
  return g.node("Unsqueeze", {x, g.integers({axis})});
}

/// x.shape[axis] as a vector of one number.
std::string extent(OnnxWriter& g, const std::string& x, std::int64_t axis) {
  const std::string scalar =
      g.node("Gather", {g.node("Shape", {x}), g.integer(axis)}, {{"axis", std::int64_t{0}}});
  return unsqueezed(g, scalar, 0);
}

std::string reshaped(OnnxWriter& g, const std::string& x, const std::vector<std::string>& extents) {
  return g.node("Reshape", {x, g.node("Concat", extents, {{"axis", std::int64_t{0}}})});
}

std::string transposed(OnnxWriter& g, const std::string& x, const Numbers& order) {
  return g.node("Transpose", {x}, {{"perm", order}});
}

std::string layer_norm(OnnxWriter& g, const std::string& x, const std::string& name,
                       std::int64_t width) {
  return g.node("LayerNormalization",
                {x, g.weight(name + ".weight", {width}), g.weight(name + ".bias", {width})},
                {{"axis", std::int64_t{-1}}});
}

/// Hugging Face's Conv1D: everything but the last axis is joined around a Gemm.
std::string conv1d(OnnxWriter& g, const std::string& x, const std::string& name, std::int64_t in,
                   std::int64_t out) {
  const std::string flat = g.node("Reshape", {x, g.integers({-1, in})});
  const std::string product = g.node(
      "Gemm", {flat, g.weight(name + ".weight", {in, out}), g.weight(name + ".bias", {out})});
  return reshaped(g, product, {extent(g, x, 0), extent(g, x, 1), g.integers({out})});
}

/// torch.nn.Linear on more than two axes.
std::string linear(OnnxWriter& g, const std::string& x, const std::string& name, std::int64_t in,
                   std::int64_t out) {
  const std::string product = g.node("MatMul", {x, g.weight("onnx::MatMul_" + name, {in, out})});
  return g.node("Add", {g.weight(name + ".bias", {out}), product});
}

/// The target of torch's expand: -1 keeps an extent.
std::string expanded(OnnxWriter& g, const std::string& x, const std::string& target) {
  const std::string ones = g.filled(g.node("Shape", {target}), 1);
  const std::string kept = g.node("Equal", {target, g.node("Mul", {ones, g.integer(-1)})});
  return g.node("Expand", {x, g.node("Where", {kept, ones, target})});
}

constexpr std::int64_t vocabulary = 50, width = 8, heads = 2, positions = 16;

OnnxWriter gpt2() {
  OnnxWriter g;
  g.input("ids", {"batch", "sequence"}, onnx::TensorProto::INT64);
  const std::string batch = extent(g, "ids", 0), sequence = extent(g, "ids", 1);
  const std::string last = g.node("Squeeze", {sequence, g.integers({0})});
  const std::string range = g.node("Range", {g.integer(0), last, g.integer(1)});
  const std::string table = g.weight("wte", {vocabulary, width});
  std::string x = g.node(
      "Add", {g.node("Gather", {table, "ids"}),
              g.node("Gather", {g.weight("wpe", {positions, width}), unsqueezed(g, range, 0)})});
  const std::string qkv = conv1d(g, layer_norm(g, x, "ln_1", width), "c_attn", width, 3 * width);
  g.node("Split", {qkv, g.integers({width, width, width})}, {{"axis", std::int64_t{2}}},
         {"q", "k", "v"});
  const auto split_heads = [&](const std::string& part, const Numbers& order) {
    return transposed(
        g, reshaped(g, part, {batch, sequence, g.integers({heads}), g.integers({width / heads})}),
        order);
  };
  const std::string v = split_heads("v", {0, 2, 1, 3});
  const std::string scale =
      g.node("Sqrt", {g.node("Cast", {extent(g, v, -1)}, {{"to", std::int64_t{1}}})});
  const std::string scores = g.node(
      "Div",
      {g.node("MatMul", {split_heads("q", {0, 2, 1, 3}), split_heads("k", {0, 2, 3, 1})}), scale});
  // The causal mask, once as a triangle of ones and once by comparing positions.
  const std::string square = g.node("Concat", {sequence, sequence}, {{"axis", std::int64_t{0}}});
  const std::string triangle =
      g.node("Cast", {g.node("Trilu", {g.filled(square, 1)}, {{"upper", std::int64_t{0}}})},
             {{"to", std::int64_t{9}}});
  const std::string earlier =
      g.node("LessOrEqual", {unsqueezed(g, range, 0), unsqueezed(g, range, 1)});
  const std::string mask = g.node(
      "Unsqueeze",
      {g.node("And", {triangle, g.node("Not", {g.node("Not", {earlier})})}), g.integers({0, 1})});
  const std::string attention = g.node("Softmax", {g.node("Where", {mask, scores, g.real(-1e30)})},
                                       {{"axis", std::int64_t{-1}}});
  const std::string mixed =
      reshaped(g, transposed(g, g.node("MatMul", {attention, v}), {0, 2, 1, 3}),
               {batch, sequence, g.integers({width})});
  x = g.node("Add", {x, conv1d(g, mixed, "c_proj", width, width)});
  const std::string h = conv1d(g, layer_norm(g, x, "ln_2", width), "c_fc", width, 4 * width);
  const std::string cube = g.node("Mul", {g.node("Pow", {h, g.real(3)}), g.real(0.044715)});
  const std::string tanh =
      g.node("Tanh", {g.node("Mul", {g.node("Add", {h, cube}), g.real(0.7978845608)})});
  const std::string gelu =
      g.node("Mul", {g.node("Mul", {h, g.real(0.5)}), g.node("Add", {tanh, g.real(1)})});
  x = g.node("Add", {x, conv1d(g, gelu, "mlp.c_proj", 4 * width, width)});
  const std::string logits =
      g.node("MatMul", {layer_norm(g, x, "ln_f", width), transposed(g, table, {1, 0})});
  g.output(logits);
  return g;
}

OnnxWriter vit() {
  OnnxWriter g;
  g.input("image", {"batch", 3, 8, 8});
  const std::string batch = extent(g, "image", 0);
  const std::string patches = g.node("Conv",
                                     {"image", g.weight("conv_proj.weight", {width, 3, 4, 4}),
                                      g.weight("conv_proj.bias", {width})},
                                     {{"strides", Numbers{4, 4}}});
  const std::string tokens = transposed(
      g, reshaped(g, patches, {batch, g.integers({width}), g.integers({-1})}), {0, 2, 1});
  const std::string token = expanded(
      g, g.weight("class_token", {1, 1, width}),
      g.node("Concat", {batch, g.integers({-1}), g.integers({-1})}, {{"axis", std::int64_t{0}}}));
  std::string x = g.node("Concat", {token, tokens}, {{"axis", std::int64_t{1}}});
  x = g.node("Add", {x, g.weight("pos_embedding", {1, 5, width})});
  // torch.nn.MultiheadAttention: sequence first, packed projection, heads merged into the batch.
  const std::string normed = transposed(g, layer_norm(g, x, "ln_1", width), {1, 0, 2});
  const std::string length = extent(g, normed, 0),
                    merged = g.node("Mul", {batch, g.integers({heads})});
  std::string packed = linear(g, normed, "in_proj", width, 3 * width);
  packed = reshaped(g, packed, {length, batch, g.integers({3}), g.integers({width})});
  packed = transposed(g, unsqueezed(g, packed, 0), {3, 1, 2, 0, 4});
  packed = g.node("Squeeze", {packed, g.integers({3})});
  std::vector<std::string> parts;
  for (const std::int64_t i : {0, 1, 2}) {
    const std::string part = g.node("Gather", {packed, g.integer(i)}, {{"axis", std::int64_t{0}}});
    const std::string sequence =
        transposed(g, reshaped(g, part, {length, merged, g.integers({width / heads})}), {1, 0, 2});
    parts.push_back(
        reshaped(g, sequence, {batch, g.integers({heads}), length, g.integers({width / heads})}));
  }
  const std::string scores = g.node(
      "MatMul", {g.node("Mul", {parts[0], g.real(0.5)}), transposed(g, parts[1], {0, 1, 3, 2})});
  std::string mixed =
      g.node("MatMul", {g.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), parts[2]});
  mixed = reshaped(g, transposed(g, mixed, {2, 0, 1, 3}),
                   {g.node("Mul", {batch, length}), g.integers({width})});
  mixed = g.node(
      "Gemm",
      {mixed, g.weight("out_proj.weight", {width, width}), g.weight("out_proj.bias", {width})},
      {{"transB", std::int64_t{1}}});
  mixed = transposed(g, reshaped(g, mixed, {length, batch, g.integers({width})}), {1, 0, 2});
  x = g.node("Add", {mixed, x});
  const std::string h = linear(g, layer_norm(g, x, "ln_2", width), "mlp.0", width, 4 * width);
  const std::string erf = g.node("Erf", {g.node("Div", {h, g.real(1.4142135)})});
  const std::string gelu =
      g.node("Mul", {g.node("Mul", {h, g.node("Add", {erf, g.real(1)})}), g.real(0.5)});
  x = g.node("Add", {x, linear(g, gelu, "mlp.3", 4 * width, width)});
  const std::string first =
      g.node("Gather", {layer_norm(g, x, "ln", width), g.integer(0)}, {{"axis", std::int64_t{1}}});
  g.output(g.node("Gemm",
                  {first, g.weight("head.weight", {10, width}), g.weight("head.bias", {10})},
                  {{"transB", std::int64_t{1}}}));
  return g;
}

/// One block of shifted-window attention (Swin): 16 places in 4 windows of 4.
OnnxWriter swin() {
  OnnxWriter g;
  g.input("image", {"batch", width, 4, 4});
  const std::string x = transposed(g, "image", {0, 2, 3, 1});
  const std::string batch = extent(g, x, 0), c = extent(g, x, 3);
  const std::string padded = g.node("Pad", {x, g.integers({0, 0, 0, 0, 0, 0, 0, 0})});
  // torch.roll along the height.
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    return g.node("Slice", {padded, g.integers({begin}), g.integers({end}), g.integers({1})});
  };
  const std::string rolled =
      g.node("Concat", {rows(1, 9223372036854775807), rows(0, 1)}, {{"axis", std::int64_t{1}}});
  const auto two = [&] { return g.integers({2}); };
  const std::string windows = g.node("Mul", {batch, g.integers({4})});
  std::string w = transposed(g, reshaped(g, rolled, {batch, two(), two(), two(), two(), c}),
                             {0, 1, 3, 2, 4, 5});
  w = reshaped(g, w, {windows, g.integers({4}), c});
  std::string packed = linear(g, w, "qkv", width, 3 * width);
  packed = transposed(g,
                      reshaped(g, packed,
                               {windows, g.integers({4}), g.integers({3}), g.integers({heads}),
                                g.integers({width / heads})}),
                      {2, 0, 3, 1, 4});
  const auto part = [&](std::int64_t i) {
    return g.node("Gather", {packed, g.integer(i)}, {{"axis", std::int64_t{0}}});
  };
  const std::string scores = g.node(
      "MatMul", {g.node("Mul", {part(0), g.real(0.5)}), transposed(g, part(1), {0, 1, 3, 2})});
  const std::string index = g.weight("relative_position_index", {16}, onnx::TensorProto::INT64);
  std::string bias =
      g.node("Gather", {g.weight("relative_position_bias_table", {9, heads}), index});
  bias = g.node("Reshape", {bias, g.integers({4, 4, -1})});
  bias = unsqueezed(g, transposed(g, bias, {2, 0, 1}), 0);
  std::string sum = g.node("Add", {scores, bias});
  const std::string mask = g.node("ConstantOfShape", {g.integers({1, 4, 1, 4, 4})});
  sum = reshaped(g, sum,
                 {batch, g.integers({4}), g.integers({heads}), g.integers({4}), g.integers({4})});
  sum = g.node("Reshape", {g.node("Add", {sum, mask}), g.integers({-1, heads, 4, 4})});
  std::string mixed =
      g.node("MatMul", {g.node("Softmax", {sum}, {{"axis", std::int64_t{-1}}}), part(2)});
  mixed = reshaped(g, transposed(g, mixed, {0, 2, 1, 3}), {windows, g.integers({4}), c});
  mixed = linear(g, mixed, "proj", width, width);
  mixed =
      transposed(g, reshaped(g, mixed, {batch, two(), two(), two(), two(), c}), {0, 1, 3, 2, 4, 5});
  mixed = reshaped(g, mixed, {batch, g.integers({4}), g.integers({4}), c});
  const std::string pooled = g.node("ReduceMean", {g.node("Add", {x, mixed})},
                                    {{"axes", Numbers{1, 2}}, {"keepdims", std::int64_t{0}}});
  g.output(linear(g, pooled, "head", width, 10));
  return g;
}

/// Pooling attention (MViT): the heads of the queries are pooled by one convolution for all.
OnnxWriter mvit() {
  OnnxWriter g;
  g.input("tokens", {"batch", 16, width});
  const std::string batch = extent(g, "tokens", 0);
  std::string q = linear(g, "tokens", "q", width, width);
  q = transposed(g, reshaped(g, q, {batch, g.integers({16}), g.integers({heads}), g.integers({4})}),
                 {0, 2, 1, 3});
  q = reshaped(g, transposed(g, q, {0, 1, 3, 2}),
               {g.node("Mul", {batch, g.integers({heads})}), g.integers({4}), g.integers({4}),
                g.integers({4})});
  q = g.node(
      "Conv", {q, g.weight("pool_q.weight", {4, 1, 3, 3})},
      {{"group", std::int64_t{4}}, {"strides", Numbers{2, 2}}, {"pads", Numbers{1, 1, 1, 1}}});
  q = transposed(g, reshaped(g, q, {batch, g.integers({heads}), g.integers({4}), g.integers({4})}),
                 {0, 1, 3, 2});
  // Positions relative to the pooled grid: 2 x 2 places, 4 heights seen from each.
  const std::string grid = reshaped(
      g, q, {batch, g.integers({heads}), g.integers({2}), g.integers({2}), g.integers({4})});
  const std::string along = g.node("Einsum", {grid, g.weight("rel_pos_h", {2, 4, 4})},
                                   {{"equation", std::string("byhwc,hkc->byhwk")}});
  g.output(g.node("ReduceSum", {along, g.integers({1, 2, 3})}, {{"keepdims", std::int64_t{0}}}));
  return g;
}

}  // namespace

TEST_CASE("onnx: a GPT-2 export has its parameters and work, tied weights once") {
  const std::int64_t length = 6;
  const Network network = read_for_any_batch(gpt2(), {{"sequence", length}});
  const std::int64_t dense = width * 3 * width + width * width + 2 * width * 4 * width;
  CHECK(parameter_count(network) ==
        vocabulary * width + positions * width + 3 * 2 * width + dense + (3 + 1 + 4 + 1) * width);
  // Per token the dense layers and the vocabulary; scores and their use for every pair of tokens.
  CHECK(multiply_accumulates(network) ==
        static_cast<double>(length * (dense + width * vocabulary) + 2 * length * length * width));
  CHECK(network.warnings.empty());
  CHECK(to_text(network.layers[network.layers.size() - 2].out) == "6x50");
}

TEST_CASE("onnx: the sequence length of a GPT-2 export changes its work, not its parameters") {
  const Network longer = gpt2().read({{"batch", 2}, {"sequence", 12}});
  const Network shorter = gpt2().read({{"batch", 2}, {"sequence", 6}});
  CHECK(parameter_count(longer) == parameter_count(shorter));
  CHECK(multiply_accumulates(longer) - 2 * multiply_accumulates(shorter) ==
        2.0 * (12 * 12 - 2 * 6 * 6) * width);
}

TEST_CASE("onnx: a ViT export has its parameters and work") {
  const Network network = read_for_any_batch(vit());
  const std::int64_t dense = width * 3 * width + width * width + 2 * width * 4 * width;
  CHECK(parameter_count(network) == width * 3 * 16 + width + width + 5 * width + 3 * 2 * width +
                                        dense + (3 + 1 + 4 + 1) * width + 10 * width + 10);
  // 4 patches of 3·16 numbers, 5 tokens, a head on one of them.
  CHECK(multiply_accumulates(network) ==
        static_cast<double>(4 * 48 * width + 5 * dense + 2 * 5 * 5 * width + 10 * width));
  CHECK(network.warnings.empty());
}

TEST_CASE("onnx: windows merged into the batch stay apart from the samples") {
  const Network network = read_for_any_batch(swin());
  CHECK(parameter_count(network) ==
        4 * width * width + (3 + 1) * width + 9 * heads + 10 * width + 10);
  // 16 tokens through four dense layers' worth of weights; each sees the 4 of its window.
  CHECK(multiply_accumulates(network) ==
        static_cast<double>(16 * 4 * width * width + 2 * 16 * 4 * width + 10 * width));
}

TEST_CASE("onnx: one convolution for every head, heads merged into the batch") {
  const Network network = read_for_any_batch(mvit());
  CHECK(parameter_count(network) == width * width + width + 4 * 9 + 2 * 4 * 4);
  // 16 tokens; 2 heads of 4 channels on a 2 × 2 grid under 3 × 3 kernels; 8 places times 4 heights.
  CHECK(multiply_accumulates(network) ==
        static_cast<double>(16 * width * width + 2 * 4 * 4 * 9 + 8 * 4 * 4));
}
