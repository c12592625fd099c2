#include "experiment/call_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"

namespace parsim::experiment {

namespace {

using TensorDims = std::vector<std::int64_t>;

/// Of extents that a trace claims; absurd ones end as a number that nothing has.
std::int64_t volume(const TensorDims& dims) {
  constexpr double most = 1e18;
  double product = 1;
  for (const std::int64_t extent : dims) product *= static_cast<double>(extent);
  return product >= 0 && product <= most ? static_cast<std::int64_t>(product) : -1;
}
std::int64_t volume_but_last(const TensorDims& dims) {
  return volume(TensorDims(dims.begin(), dims.end() - 1));
}

/// Arguments of an operator; what was not recorded is empty.
struct OpCall {
  const OpShapes& shapes;

  [[nodiscard]] const TensorDims& tensor(std::size_t argument) const {
    static const TensorDims none;
    return argument < shapes.dims.size() ? shapes.dims[argument] : none;
  }
  /// The numbers of "[2, 2]" or "2", repeated to `count`; nothing if there are none.
  [[nodiscard]] std::optional<TensorDims> numbers(std::size_t argument, std::size_t count) const {
    if (argument >= shapes.values.size()) return std::nullopt;
    std::string text = shapes.values[argument];
    std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ' '; });
    TensorDims found;
    for (const std::string& part : split_at(text, ',')) {
      const auto number = to_number<std::int64_t>(part);
      if (!number) return std::nullopt;
      found.push_back(*number);
    }
    if (found.size() == 1) found.resize(count, found[0]);
    return found.size() == count ? std::optional(found) : std::nullopt;
  }
};

using MadeShape = std::optional<CallShape>;

/// in … × k, weights n × k.
MadeShape linear(const OpCall& call) {
  const TensorDims &in = call.tensor(0), &weights = call.tensor(1);
  if (in.empty() || weights.size() != 2) return std::nullopt;
  return CallShape{"matmul", {volume_but_last(in), weights[1], weights[0]}};
}
/// a × b, of matrices or of batches of them; the first argument is number `first`.
template <std::size_t first>
MadeShape product(const OpCall& call) {
  const TensorDims &a = call.tensor(first), &b = call.tensor(first + 1);
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  const std::int64_t k = a.back(), n = b.back();
  if (b.size() == 2) return CallShape{"matmul", {volume_but_last(a), k, n}};
  const TensorDims batch(b.begin(), b.end() - 2);
  return CallShape{"batched matmul", {volume(batch), a[a.size() - 2], k, n}};
}
/// input, weight, bias, stride, … Strides are missing where no values were recorded.
MadeShape convolution(const OpCall& call) {
  const TensorDims &in = call.tensor(0), &weights = call.tensor(1);
  if (in.size() < 3 || weights.size() != in.size()) return std::nullopt;
  CallShape made{"conv", in};
  made.extents.push_back(weights[0]);
  made.extents.insert(made.extents.end(), weights.begin() + 2, weights.end());
  if (call.shapes.values.empty()) return made;
  const std::optional<TensorDims> strides = call.numbers(3, in.size() - 2);
  if (!strides) return std::nullopt;
  made.extents.insert(made.extents.end(), strides->begin(), strides->end());
  return made;
}
/// Query and key as samples × heads × tokens × width, or tokens before heads.
template <bool heads_first>
MadeShape attention(const OpCall& call) {
  const TensorDims &query = call.tensor(0), &key = call.tensor(1);
  if (query.size() != 4 || key.size() != 4) return std::nullopt;
  constexpr std::size_t heads = heads_first ? 1 : 2, tokens = heads_first ? 2 : 1;
  return CallShape{"attention", {query[0], query[heads], query[tokens], key[tokens], query[3]}};
}
MadeShape embedding(const OpCall& call) {
  const TensorDims &table = call.tensor(0), &indices = call.tensor(1);
  if (table.size() != 2 || indices.empty()) return std::nullopt;
  return CallShape{"embedding", {table[0], table[1], volume(indices)}};
}
/// Of two tensors; of one and a number nothing.
template <bool add>
MadeShape combination(const OpCall& call) {
  if (call.tensor(0).empty() || call.tensor(1).empty()) return std::nullopt;
  return CallShape{add ? "add" : "mul", {std::max(volume(call.tensor(0)), volume(call.tensor(1)))}};
}

/// Operators that are layers. Without a function the shape is the elements of the first argument,
/// under the name `what`.
struct LayerOp {
  std::string_view name;
  StepPart part;
  MadeShape (*shape)(const OpCall& call);
  std::string_view what = {};

  [[nodiscard]] MadeShape shape_of(const OpCall& call) const {
    if (shape != nullptr) return shape(call);
    if (call.tensor(0).empty()) return std::nullopt;
    return CallShape{std::string(what), {volume(call.tensor(0))}};
  }
};
constexpr auto of_products = StepPart::products, of_attention = StepPart::attention,
               of_elements = StepPart::element_wise;
// Names and orders of arguments: PyTorch's aten/src/ATen/native/native_functions.yaml; the last
// two of attention are custom operators of flash-attn (flash_attn_interface.py).
constexpr LayerOp layer_ops[] = {
    {"linear", of_products, linear},
    {"addmm", of_products, product<1>},
    {"mm", of_products, product<0>},
    {"matmul", of_products, product<0>},
    {"bmm", of_attention, product<0>},
    {"baddbmm", of_attention, product<1>},
    {"conv1d", of_products, convolution},
    {"conv2d", of_products, convolution},
    {"conv3d", of_products, convolution},
    {"convolution", of_products, convolution},
    {"scaled_dot_product_attention", of_attention, attention<true>},
    {"_scaled_dot_product_flash_attention", of_attention, attention<true>},
    {"_scaled_dot_product_efficient_attention", of_attention, attention<true>},
    {"_scaled_dot_product_cudnn_attention", of_attention, attention<true>},
    {"_flash_attn_forward", of_attention, attention<false>},
    {"flash_attn_func", of_attention, attention<false>},
    {"softmax", of_attention, nullptr, "softmax"},
    {"_softmax", of_attention, nullptr, "softmax"},
    {"layer_norm", of_elements, nullptr, "layer norm"},
    {"native_layer_norm", of_elements, nullptr, "layer norm"},
    {"rms_norm", of_elements, nullptr, "layer norm"},
    {"_fused_rms_norm", of_elements, nullptr, "layer norm"},
    {"batch_norm", of_elements, nullptr, "batch norm"},
    {"group_norm", of_elements, nullptr, "group norm"},
    {"embedding", of_elements, embedding},
    {"dropout", of_elements, nullptr, "dropout"},
    {"native_dropout", of_elements, nullptr, "dropout"},
    {"max_pool2d", of_elements, nullptr, "max pooling"},
    {"avg_pool2d", of_elements, nullptr, "average pooling"},
    {"adaptive_avg_pool2d", of_elements, nullptr, "average pooling"},
    {"cross_entropy_loss", of_elements, nullptr, "loss"},
    {"relu", of_elements, nullptr, "relu"},
    {"relu_", of_elements, nullptr, "relu"},
    {"gelu", of_elements, nullptr, "gelu"},
    {"silu", of_elements, nullptr, "silu"},
    {"sigmoid", of_elements, nullptr, "sigmoid"},
    {"tanh", of_elements, nullptr, "tanh"},
    {"add", of_elements, combination<true>},
    {"add_", of_elements, combination<true>},
    {"mul", of_elements, combination<false>},
};

/// The name without its namespace: "linear" of "aten::linear".
std::string_view bare_name(std::string_view op) {
  const std::size_t colons = op.rfind("::");
  return colons == std::string_view::npos ? op : op.substr(colons + 2);
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

/// Extents of a part's input, samples first.
Region input_of(const Network& network, LayerId layer, const Part& part, std::size_t input) {
  const std::vector<Shape> inputs = input_shapes(network, layer);
  return input_region(network[layer].kind, inputs, network[layer].out, input, part);
}

/// The tensor that an operator gets for a window's part: all of an axis whose outputs are all
/// computed, also what a stride leaves out at its end.
Region windowed_input_of(const Network& network, LayerId layer, const Part& part) {
  Region in = input_of(network, layer, part, 0);
  const Shape full = input_shapes(network, layer)[0];
  const Shape& out = network[layer].out;
  for (std::size_t a = 2; a < std::min(in.rank(), part.out.rank()); ++a) {
    if (part.out[a].size() == out.axes[a - 1].extent) in[a] = {0, full.axes[a - 1].extent};
  }
  return in;
}

CallShape shape_of_conv(const Conv& conv, const Region& in, const Part& part) {
  CallShape made{"conv", {}};
  for (std::size_t a = 0; a < in.rank(); ++a) made.extents.push_back(in[a].size());
  made.extents.push_back(part.out[1].size());
  for (const Window& window : conv.windows) made.extents.push_back(window.kernel);
  for (const Window& window : conv.windows) made.extents.push_back(window.stride);
  return made;
}

}  // namespace

std::string text_of(const CallShape& shape) {
  std::string text = shape.what;
  for (std::size_t i = 0; i < shape.extents.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : "x", shape.extents[i]);
  }
  return text;
}

bool is_layer_op(std::string_view op) {
  return std::any_of(std::begin(layer_ops), std::end(layer_ops),
                     [&](const LayerOp& known) { return known.name == bare_name(op); });
}

std::optional<CallShape> shape_of_call(std::string_view op, const OpShapes& shapes) {
  for (const LayerOp& known : layer_ops) {
    if (known.name == bare_name(op)) return known.shape_of({shapes});
  }
  return std::nullopt;
}

std::optional<CallShape> shape_of_module(std::string_view name, const OpShapes& first) {
  // Hugging Face writes these as several operators of the same elements.
  constexpr std::pair<std::string_view, std::string_view> known[] = {
      {"RMSNorm", "layer norm"}, {"LayerNorm", "layer norm"}, {"GELU", "gelu"}};
  const TensorDims& in = OpCall{first}.tensor(0);
  if (in.empty()) return std::nullopt;
  for (const auto& [part_of_name, what] : known) {
    if (name.find(part_of_name) != name.npos) return CallShape{std::string(what), {volume(in)}};
  }
  return std::nullopt;
}

std::optional<CallShape> shape_of_part(const Network& network, LayerId id, const Part& part) {
  const Layer& layer = network[id];
  const LayerKind& kind = layer.kind;
  const std::int64_t made = part.out.volume();
  const std::size_t last = part.out.rank() - 1;
  if (kind.as<Dense>() != nullptr) {
    const std::int64_t n = part.out[last].size();
    const Region in = input_of(network, id, part, 0);
    return CallShape{"matmul", {made / n, in[in.rank() - 1].size(), n}};
  }
  if (kind.as<MatMul>() != nullptr) {
    const std::int64_t m = part.out[last - 1].size(), n = part.out[last].size();
    const Region in = input_of(network, id, part, 0);
    return CallShape{"batched matmul", {made / (m * n), m, in[in.rank() - 1].size(), n}};
  }
  if (const auto* conv = kind.as<Conv>()) {
    return shape_of_conv(*conv, windowed_input_of(network, id, part), part);
  }
  if (const auto* attention = kind.as<Attention>()) {
    const Region queries = input_of(network, id, part, 0), keys = input_of(network, id, part, 1);
    const std::int64_t width = input_shapes(network, id)[0].axes.back().extent / attention->heads;
    return CallShape{
        "attention",
        {part.out[0].size(), queries[2].size() / width, queries[1].size(), keys[1].size(), width}};
  }
  if (const auto* table = kind.as<Embedding>()) {
    const std::int64_t width = part.out[last].size();
    const std::int64_t rows = part.contraction.empty() ? table->rows : part.contraction.size();
    return CallShape{"embedding", {rows, width, made / width}};
  }
  if (const auto* norm = kind.as<Norm>()) {
    return CallShape{fmt::format("{} norm", to_text(norm->kind)), {made}};
  }
  if (const auto* activation = kind.as<Activation>()) {
    return CallShape{activation->function, {made}};
  }
  if (kind.as<Softmax>() != nullptr) return CallShape{"softmax", {made}};
  if (kind.as<Dropout>() != nullptr) return CallShape{"dropout", {made}};
  if (const auto* combine = kind.as<Combine>()) return CallShape{combine->function, {made}};
  if (const auto* pool = kind.as<Pool>()) {
    return CallShape{pool->kind == PoolKind::max ? "max pooling" : "average pooling",
                     {windowed_input_of(network, id, part).volume()}};
  }
  if (kind.as<Loss>() != nullptr) {
    return CallShape{"loss", {input_of(network, id, part, 0).volume()}};
  }
  return std::nullopt;
}

bool is_of_both_passes(std::string_view op) {
  const std::string_view name = bare_name(op);
  return name == "mm" || name == "addmm" || name == "bmm" || name == "baddbmm" || name == "add" ||
         name == "add_" || name == "mul";
}

std::optional<StepPart> part_of_op(std::string_view op) {
  const std::string_view name = bare_name(op);
  for (const LayerOp& known : layer_ops) {
    if (known.name == name) return known.part;
  }
  if (has_any(name, {"log_softmax"})) return StepPart::element_wise;
  if (has_any(name, {"attention", "flash_attn", "softmax", "bmm"})) return StepPart::attention;
  if (has_any(name, {"conv", "_mm", "mm_", "linear"})) return StepPart::products;
  if (op.starts_with("aten::") || op.starts_with("triton")) return StepPart::element_wise;
  return std::nullopt;
}

std::optional<StepPart> part_of_kernel(std::string_view name) {
  if (has_any(name, {"nccl", "rccl", "nvshmem", "AllReduce", "all_reduce", "allreduce"})) {
    return StepPart::exposed_sends;
  }
  if (has_any(name, {"flash_", "fmha", "attention", "Attention"})) return StepPart::attention;
  if (has_any(name, {"multi_tensor_apply", "adam", "Adam"})) return StepPart::optimizer;
  if (has_any(name,
              {"gemm", "Gemm", "GEMM", "cutlass", "xmma", "nvjet", "wgrad", "dgrad", "conv",
               "winograd", "splitK", "cublas", "triton_tem_fused_mm", "triton_tem_fused_addmm"})) {
    return StepPart::products;
  }
  if (has_any(name, {"elementwise", "reduce", "norm", "Norm", "softmax", "SoftMax", "triton",
                     "dropout", "embedding", "copy", "Copy", "index", "pool", "Functor"})) {
    return StepPart::element_wise;
  }
  return std::nullopt;
}

}  // namespace parsim::experiment
