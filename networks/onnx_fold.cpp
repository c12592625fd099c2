#include "networks/onnx_fold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace parsim::networks::onnx_reader {

namespace {

/// The same numbers under other extents.
std::optional<std::vector<Tensor>> fold_views(const Node& node, Operands in, std::int64_t opset) {
  if (node.op == "Identity" || node.op == "Dropout") return {{operand(in, 0)}};
  if (node.op != "Reshape" && node.op != "Flatten" && node.op != "Squeeze" &&
      node.op != "Unsqueeze") {
    return std::nullopt;
  }
  const Tensor& data = operand(in, 0);
  Extents dims;
  if (node.op == "Reshape") {
    const auto* attribute = node.find<std::vector<std::int64_t>>("shape");  // opset 1
    const auto& target =
        opset < 5 && attribute != nullptr ? *attribute : integers(operand(in, 1), "sizes");
    dims = reshaped(data, target, node.integer("allowzero", 0) == 0);
  } else if (node.op == "Flatten") {
    const std::int64_t given = node.integer("axis", 1);
    const auto rank = static_cast<std::int64_t>(data.dims.size());
    const auto axis = given == rank
                          ? data.dims.size()
                          : normal_axis(given, std::max<std::size_t>(1, data.dims.size()));
    const std::span<const std::int64_t> all(data.dims);
    dims = {elements(all.first(axis)).value_or(0), elements(all.subspan(axis)).value_or(0)};
  } else {
    const Tensor* given = in.size() > 1 ? in[1] : nullptr;
    dims = data.dims;
    if (node.op == "Squeeze") {
      auto axes = axes_of(node, given, dims.size());
      if (axes.empty()) {
        for (std::size_t i = 0; i < dims.size(); ++i) {
          if (dims[i] == 1) axes.push_back(i);
        }
      }
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        if (dims[*axis] != 1) throw FoldError(fmt::format("axis {} does not have size 1", *axis));
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(*axis));
      }
    } else {
      const auto* attribute = node.find<std::vector<std::int64_t>>("axes");
      const std::size_t added = given != nullptr       ? integers(*given, "axes").size()
                                : attribute != nullptr ? attribute->size()
                                                       : 0;
      if (added + dims.size() > most_axes) throw FoldError("its output has too many axes");
      for (const std::size_t axis : axes_of(node, given, dims.size() + added)) {
        if (axis > dims.size()) throw FoldError("its axes repeat");
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), 1);
      }
    }
  }
  Tensor out = data;
  out.dims = std::move(dims);
  return {{std::move(out)}};
}

}  // namespace

std::optional<std::vector<Tensor>> fold(const Node& node, Operands in, std::int64_t opset) {
  auto result = fold_arithmetic(node, in);
  if (!result) result = fold_layout(node, in);
  if (!result) result = fold_views(node, in, opset);
  if (!result) return std::nullopt;
  for (const Tensor& tensor : *result) {
    if (!elements(tensor.dims) || tensor.dims.size() > most_axes) {
      throw FoldError(fmt::format("its output of shape {} is too large", to_text(tensor.dims)));
    }
  }
  return result;
}

Extents broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  const auto longer = a.size() >= b.size() ? a : b;
  const auto shorter = a.size() >= b.size() ? b : a;
  Extents out(longer.begin(), longer.end());
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& extent = out[out.size() - shorter.size() + i];
    if (extent != shorter[i] && extent != 1 && shorter[i] != 1) {
      throw FoldError(fmt::format("shapes {} and {} cannot be broadcast", to_text(a), to_text(b)));
    }
    if (extent == 1) extent = shorter[i];
  }
  return out;
}

std::size_t normal_axis(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    throw FoldError(fmt::format("axis {} of a tensor with {} axes", axis, rank));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

const std::vector<std::int64_t>& integers(const Tensor& tensor, std::string_view what) {
  if (!tensor.known || tensor.element == Element::real) {
    throw FoldError(fmt::format("its {} are not constant", what));
  }
  return tensor.integers;
}

const Tensor& operand(Operands in, std::size_t i) {
  if (i >= in.size() || in[i] == nullptr)
    throw FoldError(fmt::format("operand {} is missing or not constant", i));
  return *in[i];
}

Extents reshaped(const Tensor& data, std::span<const std::int64_t> target, bool zero_copies) {
  Extents out(target.begin(), target.end());
  const auto wrong = [&] {
    return FoldError(fmt::format("shape {} cannot become {}", to_text(data.dims), to_text(target)));
  };
  std::optional<std::size_t> open;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0 && zero_copies) {
      if (i >= data.dims.size()) throw wrong();
      out[i] = data.dims[i];
    } else if (out[i] == -1) {
      if (open) throw wrong();
      open = i;
      out[i] = 1;
    }
  }
  const auto have = elements(data.dims), want = elements(out);
  if (!have || !want) throw wrong();
  if (open) {
    if (*want == 0 || *have % *want != 0) throw wrong();
    out[*open] = *have / *want;
  } else if (*have != *want) {
    throw wrong();
  }
  return out;
}

std::vector<std::size_t> axes_of(const Node& node, const Tensor* operand, std::size_t rank) {
  std::vector<std::int64_t> given;
  if (operand != nullptr) {
    given = integers(*operand, "axes");
  } else if (const auto* attribute = node.find<std::vector<std::int64_t>>("axes")) {
    given = *attribute;
  }
  std::vector<std::size_t> axes;
  for (const std::int64_t axis : given) axes.push_back(normal_axis(axis, rank));
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

std::vector<AxisSlice> slices_of(const Node& node, Operands in,
                                 std::span<const std::int64_t> dims) {
  // Up to opset 9 attributes, later operands.
  const auto numbers = [&](std::size_t i, std::string_view name) -> std::vector<std::int64_t> {
    if (i < in.size() && in[i] != nullptr) return integers(*in[i], name);
    const auto* attribute = node.find<std::vector<std::int64_t>>(name);
    return attribute == nullptr ? std::vector<std::int64_t>{} : *attribute;
  };
  const auto starts = numbers(1, "starts"), ends = numbers(2, "ends");
  auto axes = numbers(3, "axes"), steps = numbers(4, "steps");
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    throw FoldError("starts, ends, axes and steps differ in number");
  }
  std::vector<AxisSlice> out;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    AxisSlice slice{normal_axis(axes[i], dims.size()), 0, steps[i], 0};
    const std::int64_t extent = dims[slice.axis];
    if (slice.step == 0 || std::abs(slice.step / 2) > most_elements) {
      throw FoldError(fmt::format("step {}", slice.step));
    }
    const bool forward = slice.step > 0;
    const auto clip = [&](std::int64_t at) {
      if (at < 0) at = at < -extent ? -1 - extent : at;  // avoid overflow before adding
      if (at < 0) at += extent;
      return std::clamp(at, forward ? 0 : std::int64_t{-1}, forward ? extent : extent - 1);
    };
    // An end far below zero runs a backward slice to the first element.
    slice.begin = clip(starts[i]);
    const std::int64_t end = clip(ends[i]);
    const std::int64_t length = forward ? end - slice.begin : slice.begin - end;
    const std::int64_t stride = std::abs(slice.step);
    if (length > 0) slice.count = (length - 1) / stride + 1;
    out.push_back(slice);
  }
  return out;
}

std::vector<std::int64_t> split_of(const Node& node, const Tensor* lengths, std::int64_t extent) {
  std::vector<std::int64_t> out;
  if (lengths != nullptr) {
    out = integers(*lengths, "lengths");
  } else if (const auto* attribute = node.find<std::vector<std::int64_t>>("split")) {
    out = *attribute;
  } else {
    const auto parts = static_cast<std::int64_t>(node.outputs.size());
    if (parts == 0) throw FoldError("it has no output");
    const std::int64_t each = (extent + parts - 1) / parts;
    for (std::int64_t left = extent; out.size() < node.outputs.size(); left -= each)
      out.push_back(std::min(each, left));
  }
  std::int64_t sum = 0;
  for (const std::int64_t length : out) {
    if (length < 0 || length > extent - sum) throw FoldError("its parts exceed the axis");
    sum += length;
  }
  if (sum != extent || out.size() < node.outputs.size()) {
    throw FoldError(
        fmt::format("parts {} do not add up to an axis of size {}", to_text(out), extent));
  }
  return out;
}

std::vector<std::int64_t> pads_of(const Node& node, Operands in, std::size_t rank) {
  std::vector<std::int64_t> given;
  if (in.size() > 1 && in[1] != nullptr) {
    given = integers(*in[1], "paddings");
  } else if (const auto* attribute = node.find<std::vector<std::int64_t>>("pads")) {
    given = *attribute;
  }
  std::vector<std::int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (in.size() > 3 && in[3] != nullptr) axes = integers(*in[3], "axes");
  if (given.size() != 2 * axes.size()) {
    throw FoldError(fmt::format("{} paddings for {} axes", given.size(), axes.size()));
  }
  std::vector<std::int64_t> out(2 * rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = normal_axis(axes[i], rank);
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const std::int64_t pad = given[side * axes.size() + i];
      if (std::abs(pad / 2) > most_elements) throw FoldError(fmt::format("padding {}", pad));
      out[side * rank + axis] = pad;
    }
  }
  return out;
}

}  // namespace parsim::networks::onnx_reader
