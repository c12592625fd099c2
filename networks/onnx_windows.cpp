// Convolution and pooling.
#include <fmt/format.h>

#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// Far beyond any real window, and small enough that window arithmetic cannot overflow.
constexpr std::int64_t widest = std::int64_t{1} << 20;

/// The attribute's numbers, one per axis; all `otherwise` if the node has none.
Extents numbers(const Builder& builder, const Node& node, std::string_view attribute,
                std::size_t count, std::int64_t otherwise, std::int64_t least) {
  const auto* given = node.find<std::vector<std::int64_t>>(attribute);
  if (given == nullptr) return Extents(count, otherwise);
  for (const std::int64_t x : *given) {
    if (x < least || x > widest || given->size() != count) {
      builder.refuse(node, fmt::format("{} {}", attribute, to_text(*given)),
                     fmt::format("{} numbers from {} to 2^20", count, least));
    }
  }
  if (given->size() != count) {
    builder.refuse(node, fmt::format("{} {}", attribute, to_text(*given)),
                   fmt::format("{} numbers", count));
  }
  return *given;
}

/// Windows over the spatial axes of `x` (batch × channel × spatial…).
std::vector<Window> windows(const Builder& builder, const Node& node, const Value& x,
                            const Extents& kernel) {
  const std::size_t count = kernel.size();
  const Extents strides = numbers(builder, node, "strides", count, 1, 1);
  const Extents dilations = numbers(builder, node, "dilations", count, 1, 1);
  const Extents pads = numbers(builder, node, "pads", 2 * count, 0, 0);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID" && automatic != "SAME_UPPER" &&
      automatic != "SAME_LOWER") {
    builder.refuse(node, fmt::format("auto_pad '{}'", automatic),
                   "NOTSET, VALID, SAME_UPPER, SAME_LOWER");
  }
  std::vector<Window> out;
  for (std::size_t i = 0; i < count; ++i) {
    Window window{kernel[i], strides[i], pads[i], pads[count + i], dilations[i]};
    if (window.kernel < 1 || window.kernel > widest) {
      builder.refuse(node, fmt::format("kernel size {}", window.kernel), "1 to 2^20");
    }
    if (automatic != "NOTSET") window.pad_begin = window.pad_end = 0;
    if (automatic.starts_with("SAME")) {
      // As many outputs as strides begin inside; an odd padding has its larger half after
      // (SAME_UPPER) or before the input.
      const std::int64_t extent = x.dims()[2 + i];
      const std::int64_t outputs = (extent - 1) / window.stride + 1;
      const std::int64_t reach = window.dilation * (window.kernel - 1) + 1;
      const std::int64_t pad =
          std::max<std::int64_t>(0, (outputs - 1) * window.stride + reach - extent);
      window.pad_begin = automatic == "SAME_LOWER" ? pad - pad / 2 : pad / 2;
      window.pad_end = pad - window.pad_begin;
    }
    out.push_back(window);
  }
  return out;
}

/// The operand as maps; with windows for the extra axis of merged batches.
struct Maps {
  Value value;
  Batch batch;  ///< of the operand
};

Maps maps(Builder& builder, const Node& node, std::vector<Window>& all) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  if (x.batch.merged() > 1) all.insert(all.begin(), Window{});
  return {builder.as_map(node, x), x.batch};
}

void expect_map(const Builder& builder, const Node& node) {
  const Value& x = builder.operand(node, 0);
  if (!x.is(Kind::activation) || x.rank() < 3) {
    builder.refuse(node, fmt::format("its operand has shape {}", to_text(x.dims())),
                   "batch × channel × at least one spatial axis");
  }
}

void conv(Builder& builder, const Node& node) {
  expect_map(builder, node);
  const Value x = builder.operand(node, 0);
  const Value w = weights(builder, node, 1);
  const std::int64_t groups = node.integer("group", 1);
  const auto refuse = [&](const std::string& found) {
    builder.refuse(node, found,
                   "weights of shape filters × channels/groups × kernel…, with groups that divide "
                   "the filters");
  };
  if (w.rank() != x.rank()) {
    refuse(fmt::format("weights of shape {} do not fit an operand of shape {}", to_text(w.dims()),
                       to_text(x.dims())));
  }
  const Extents kernel(w.dims().begin() + 2, w.dims().end());
  if (numbers(builder, node, "kernel_shape", kernel.size(), 1, 1) != kernel &&
      node.find<std::vector<std::int64_t>>("kernel_shape") != nullptr) {
    refuse(fmt::format("kernel_shape differs from that of weights of shape {}", to_text(w.dims())));
  }
  if (groups < 1 || groups > x.dims()[1] || x.dims()[1] % groups != 0 ||
      w.dims()[0] % groups != 0 || w.dims()[1] != x.dims()[1] / groups) {
    refuse(fmt::format("weights of shape {} with group={} do not fit {} channels",
                       to_text(w.dims()), groups, x.dims()[1]));
  }
  std::vector<Value> learned{w};
  const bool bias = builder.find(node, 2) != nullptr;
  if (bias) {
    learned.push_back(weights(builder, node, 2));
    if (learned[1].dims() != Extents{w.dims()[0]}) {
      refuse(fmt::format("a bias of shape {} does not fit {} filters", to_text(learned[1].dims()),
                         w.dims()[0]));
    }
  }
  std::vector<Window> all = windows(builder, node, x, kernel);
  const Maps in = maps(builder, node, all);
  if (in.batch.merged() > 1) learned[0].base.insert(learned[0].base.begin() + 2, 1);
  const Value out =
      builder.emit(node, Conv{w.dims()[0], all, groups, bias}, {in.value}, in.value.batch, learned);
  builder.output(node, 0, builder.from_map(node, out, in.batch));
}

void pool(Builder& builder, const Node& node, PoolKind kind, bool global) {
  expect_map(builder, node);
  const Value& x = builder.operand(node, 0);
  Extents kernel(x.dims().begin() + 2, x.dims().end());
  if (!global) {
    if (node.find<std::vector<std::int64_t>>("kernel_shape") == nullptr) {
      builder.refuse(node, "it has no kernel_shape", "one size per spatial axis");
    }
    kernel = numbers(builder, node, "kernel_shape", kernel.size(), 1, 1);
  }
  std::vector<Window> all = windows(builder, node, x, kernel);
  const Maps in = maps(builder, node, all);
  const Pool layer{kind, all, node.integer("ceil_mode", 0) != 0,
                   node.integer("count_include_pad", 0) != 0};
  const Value out = builder.emit(node, layer, {in.value}, in.value.batch);
  builder.output(node, 0, builder.from_map(node, out, in.batch));
}

constexpr Operator windows_table[] = {
    {"Conv", conv},
    {"MaxPool", [](Builder& b, const Node& n) { pool(b, n, PoolKind::max, false); }},
    {"AveragePool", [](Builder& b, const Node& n) { pool(b, n, PoolKind::average, false); }},
    {"GlobalMaxPool", [](Builder& b, const Node& n) { pool(b, n, PoolKind::max, true); }},
    {"GlobalAveragePool", [](Builder& b, const Node& n) { pool(b, n, PoolKind::average, true); }},
};

}  // namespace

std::span<const Operator> window_operators() { return windows_table; }

}  // namespace parsim::networks::onnx_reader
