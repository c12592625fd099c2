// Operators that move, select or make numbers, on constants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "networks/onnx_fold.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Results = std::optional<std::vector<Tensor>>;
using Position = std::span<const std::int64_t>;

std::vector<std::size_t> strides(const Extents& dims) {
  std::vector<std::size_t> out(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) {
    out[i - 1] = out[i] * static_cast<std::size_t>(dims[i]);
  }
  return out;
}

/// A tensor of extents `dims` whose element at a position is `from`'s element at source(position),
/// a row-major index.
Tensor pick(const Tensor& from, Extents dims, const std::function<std::size_t(Position)>& source) {
  Tensor out = Tensor::unknown(from.element, std::move(dims));
  const auto count = elements(out.dims);
  if (!from.known || !count || *count > most_known_elements) return out;
  std::vector<std::int64_t> at(out.dims.size(), 0);
  for (std::int64_t n = 0; n < *count; ++n) {
    const std::size_t index = source(at);
    if (from.element == Element::real) {
      out.reals.push_back(from.reals[index]);
    } else {
      out.integers.push_back(from.integers[index]);
    }
    for (std::size_t axis = out.dims.size(); axis-- > 0;) {
      if (++at[axis] < out.dims[axis]) break;
      at[axis] = 0;
    }
  }
  out.known = true;
  return out;
}

Tensor with_dims(Tensor tensor, Extents dims) {
  tensor.dims = std::move(dims);
  return tensor;
}

Tensor transpose(const Node& node, const Tensor& data) {
  const std::size_t rank = data.dims.size();
  std::vector<std::int64_t> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  if (const auto* given = node.find<std::vector<std::int64_t>>("perm")) order = *given;
  if (order.size() != rank) throw FoldError("its permutation and its operand differ in rank");
  Extents dims;
  std::vector<std::size_t> step;
  const auto stride = strides(data.dims);
  for (const std::int64_t axis : order) {
    dims.push_back(data.dims[normal_axis(axis, rank)]);
    step.push_back(stride[normal_axis(axis, rank)]);
  }
  if (elements(dims) != elements(data.dims)) throw FoldError("its permutation repeats an axis");
  return pick(data, dims, [&](Position at) {
    std::size_t index = 0;
    for (std::size_t i = 0; i < at.size(); ++i) index += static_cast<std::size_t>(at[i]) * step[i];
    return index;
  });
}

Tensor slice(const Node& node, Operands in) {
  const Tensor& data = operand(in, 0);
  Extents dims = data.dims;
  std::vector<std::int64_t> begin(dims.size(), 0), step(dims.size(), 1);
  for (const AxisSlice& s : slices_of(node, in, data.dims)) {
    dims[s.axis] = s.count;
    begin[s.axis] = s.begin;
    step[s.axis] = s.step;
  }
  const auto stride = strides(data.dims);
  return pick(data, dims, [&](Position at) {
    std::size_t index = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      index += static_cast<std::size_t>(begin[i] + at[i] * step[i]) * stride[i];
    }
    return index;
  });
}

/// Throws FoldError for an index, if they are known, that lies outside an axis of this extent.
void check_indices(const Tensor& where, std::int64_t extent) {
  if (where.element == Element::real) throw FoldError("its indices are not integers");
  for (const std::int64_t i : where.integers) {
    if (i < -extent || i >= extent) {
      throw FoldError(fmt::format("index {} is outside an axis of size {}", i, extent));
    }
  }
}

/// Of every position of the indices, the element that stands where its index says along the axis.
Tensor gather_elements(const Node& node, Operands in) {
  const Tensor& data = operand(in, 0);
  const Tensor& where = operand(in, 1);
  const std::size_t rank = data.dims.size();
  const std::size_t axis = normal_axis(node.integer("axis", 0), rank);
  bool fits = where.dims.size() == rank;
  for (std::size_t i = 0; fits && i < rank; ++i) {
    fits = i == axis || where.dims[i] <= data.dims[i];
  }
  if (!fits) {
    throw FoldError(
        fmt::format("indices of shape {} in shape {}", to_text(where.dims), to_text(data.dims)));
  }
  const std::int64_t extent = data.dims[axis];
  check_indices(where, extent);
  if (!where.known) return Tensor::unknown(data.element, where.dims);
  const auto stride = strides(data.dims), where_stride = strides(where.dims);
  return pick(data, where.dims, [&](Position at) {
    std::size_t which = 0, index = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      which += static_cast<std::size_t>(at[i]) * where_stride[i];
    }
    const std::int64_t chosen = where.integers[which];
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t place = i != axis ? at[i] : chosen < 0 ? chosen + extent : chosen;
      index += static_cast<std::size_t>(place) * stride[i];
    }
    return index;
  });
}

Tensor gather(const Node& node, Operands in) {
  const Tensor& data = operand(in, 0);
  const Tensor& where = operand(in, 1);
  const std::size_t axis = normal_axis(node.integer("axis", 0), data.dims.size());
  Extents dims(data.dims.begin(), data.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  dims.insert(dims.end(), where.dims.begin(), where.dims.end());
  dims.insert(dims.end(), data.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
              data.dims.end());
  const std::int64_t extent = data.dims[axis];
  check_indices(where, extent);
  if (!where.known) return Tensor::unknown(data.element, dims);
  const auto stride = strides(data.dims), where_stride = strides(where.dims);
  const std::size_t inner = where.dims.size();
  return pick(data, dims, [&](Position at) {
    std::size_t which = 0, index = 0;
    for (std::size_t i = 0; i < inner; ++i) {
      which += static_cast<std::size_t>(at[axis + i]) * where_stride[i];
    }
    std::int64_t chosen = where.integers[which];
    if (chosen < 0) chosen += extent;
    for (std::size_t i = 0; i < data.dims.size(); ++i) {
      const std::int64_t value = i < axis ? at[i] : i == axis ? chosen : at[i + inner - 1];
      index += static_cast<std::size_t>(value) * stride[i];
    }
    return index;
  });
}

Tensor concat(const Node& node, Operands in) {
  Tensor out = operand(in, 0);
  const std::size_t rank = out.dims.size();
  const std::size_t axis = normal_axis(node.integer("axis", 0), rank);
  bool known = out.known;
  std::int64_t joined = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Tensor& part = operand(in, i);
    bool fits = part.dims.size() == rank;
    for (std::size_t a = 0; fits && a < rank; ++a) {
      fits = a == axis || part.dims[a] == out.dims[a];
    }
    if (!fits) {
      throw FoldError(fmt::format("shapes {} and {} cannot be concatenated along axis {}",
                                  to_text(out.dims), to_text(part.dims), axis));
    }
    known = known && part.known && part.element == out.element;
    joined += part.dims[axis];
  }
  const Extents first = out.dims;
  out.dims[axis] = joined;
  const auto count = elements(out.dims);
  if (!known || !count || *count > most_known_elements) {
    return Tensor::unknown(out.element, out.dims);
  }
  // Row-major: for every outer index, each part's run of axis × inner elements.
  std::size_t outer = 1, inner = 1;
  for (std::size_t a = 0; a < axis; ++a) outer *= static_cast<std::size_t>(first[a]);
  for (std::size_t a = axis + 1; a < rank; ++a) inner *= static_cast<std::size_t>(first[a]);
  out.integers.clear();
  out.reals.clear();
  for (std::size_t o = 0; o < outer; ++o) {
    for (const Tensor* part : in) {
      const std::size_t run = static_cast<std::size_t>(part->dims[axis]) * inner;
      for (std::size_t i = o * run; i < (o + 1) * run; ++i) {
        if (out.element == Element::real) {
          out.reals.push_back(part->reals[i]);
        } else {
          out.integers.push_back(part->integers[i]);
        }
      }
    }
  }
  return out;
}

/// Repeats: element of `data` at the position modulo its extents (Expand of extent 1, Tile).
Tensor repeat(const Tensor& data, Extents dims) {
  const Extents from = data.dims;
  const auto stride = strides(from);
  return pick(data, std::move(dims), [&](Position at) {
    std::size_t index = 0;
    const std::size_t skipped = at.size() - from.size();
    for (std::size_t i = 0; i < from.size(); ++i) {
      index += static_cast<std::size_t>(at[skipped + i] % from[i]) * stride[i];
    }
    return index;
  });
}

Tensor tile(Operands in) {
  const Tensor& data = operand(in, 0);
  const auto& times = integers(operand(in, 1), "repeats");
  if (times.size() != data.dims.size()) throw FoldError("it needs one repeat per axis");
  Extents dims = data.dims;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (times[i] < 0 || !elements(std::vector{dims[i], times[i]})) {
      throw FoldError(fmt::format("{} repeats of an axis of size {}", times[i], dims[i]));
    }
    dims[i] *= times[i];
  }
  return repeat(data, std::move(dims));
}

Results split(const Node& node, Operands in) {
  const Tensor& data = operand(in, 0);
  const std::size_t axis = normal_axis(node.integer("axis", 0), data.dims.size());
  const auto stride = strides(data.dims);
  std::vector<Tensor> out;
  std::size_t offset = 0;
  for (const std::int64_t length :
       split_of(node, in.size() > 1 ? in[1] : nullptr, data.dims[axis])) {
    Extents dims = data.dims;
    dims[axis] = length;
    out.push_back(pick(data, dims, [&](Position at) {
      std::size_t index = offset * stride[axis];
      for (std::size_t i = 0; i < at.size(); ++i)
        index += static_cast<std::size_t>(at[i]) * stride[i];
      return index;
    }));
    offset += static_cast<std::size_t>(length);
  }
  return out;
}

Tensor range(Operands in) {
  const Tensor &begin = operand(in, 0), &end = operand(in, 1), &step = operand(in, 2);
  if (!begin.known || !end.known || !step.known || begin.count() != 1 || end.count() != 1 ||
      step.count() != 1) {
    throw FoldError("its limits are not constant");
  }
  const double count = std::ceil((end.real(0) - begin.real(0)) / step.real(0));
  if (!(count <= static_cast<double>(most_elements))) throw FoldError("its range is too long");
  const auto length = count > 0 ? static_cast<std::int64_t>(count) : 0;
  Tensor out = Tensor::unknown(begin.element, {length});
  if (length > most_known_elements) return out;
  for (std::int64_t i = 0; i < length; ++i) {
    if (begin.element == Element::real) {
      out.reals.push_back(begin.real(0) + static_cast<double>(i) * step.real(0));
    } else {
      std::int64_t value = 0;
      if (step.element == Element::real || __builtin_mul_overflow(i, step.integers[0], &value) ||
          __builtin_add_overflow(value, begin.integers[0], &value)) {
        throw FoldError("its range exceeds 64 bits");
      }
      out.integers.push_back(value);
    }
  }
  out.known = true;
  return out;
}

Tensor constant(const Node& node) {
  if (const auto* tensor = node.find<Tensor>("value")) return *tensor;
  if (const auto* number = node.find<std::int64_t>("value_int")) return Tensor::of({}, {*number});
  if (const auto* real = node.find<double>("value_float")) return Tensor::of_reals({}, {*real});
  if (const auto* all = node.find<std::vector<std::int64_t>>("value_ints")) {
    return Tensor::of({static_cast<std::int64_t>(all->size())}, *all);
  }
  if (const auto* all = node.find<std::vector<double>>("value_floats")) {
    return Tensor::of_reals({static_cast<std::int64_t>(all->size())}, *all);
  }
  throw FoldError("it has no numeric value");
}

Tensor constant_of_shape(const Node& node, Operands in) {
  const auto* value = node.find<Tensor>("value");
  const Tensor one = value != nullptr && value->known && value->count() == 1
                         ? with_dims(*value, {})
                         : Tensor::of_reals({}, {0});
  const Extents dims = integers(operand(in, 0), "sizes");
  if (!elements(dims)) throw FoldError(fmt::format("its output has shape {}", to_text(dims)));
  return repeat(one, dims);
}

Tensor trilu(const Node& node, Operands in) {
  Tensor out = operand(in, 0);
  std::int64_t diagonal = 0;
  if (in.size() > 1 && in[1] != nullptr) {
    const auto& given = integers(*in[1], "diagonal");
    if (given.size() != 1) throw FoldError("its diagonal is not one number");
    diagonal = given[0];
  }
  const bool upper = node.integer("upper", 1) != 0;
  if (out.dims.size() < 2) throw FoldError("it needs a matrix");
  if (!out.known) return out;
  const std::int64_t columns = out.dims.back(), rows = out.dims[out.dims.size() - 2];
  for (std::size_t i = 0; i < out.count(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const std::int64_t distance = n % columns - n / columns % rows;
    if (upper ? distance >= diagonal : distance <= diagonal) continue;
    if (out.element == Element::real) {
      out.reals[i] = 0;
    } else {
      out.integers[i] = 0;
    }
  }
  return out;
}

/// Positions of the elements that are not zero: rank × count.
Tensor non_zero(const Tensor& data) {
  if (!data.known) throw FoldError("its operand is not constant");
  const auto stride = strides(data.dims);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < data.count(); ++i) {
    if (data.real(i) != 0) found.push_back(i);
  }
  Tensor out = Tensor::of(
      {static_cast<std::int64_t>(data.dims.size()), static_cast<std::int64_t>(found.size())}, {});
  for (std::size_t axis = 0; axis < data.dims.size(); ++axis) {
    const auto extent = static_cast<std::size_t>(data.dims[axis]);
    for (const std::size_t i : found) {
      out.integers.push_back(static_cast<std::int64_t>(i / stride[axis] % extent));
    }
  }
  return out;
}

}  // namespace

Results fold_layout(const Node& node, Operands in) {
  const auto one = [](Tensor tensor) { return Results({std::move(tensor)}); };
  const std::string& op = node.op;
  if (op == "Constant") return one(constant(node));
  if (op == "ConstantOfShape") return one(constant_of_shape(node, in));
  if (op == "Range") return one(range(in));
  if (op == "Transpose") return one(transpose(node, operand(in, 0)));
  if (op == "Slice") return one(slice(node, in));
  if (op == "Gather") return one(gather(node, in));
  if (op == "GatherElements") return one(gather_elements(node, in));
  if (op == "Concat") return one(concat(node, in));
  if (op == "Split") return split(node, in);
  if (op == "Tile") return one(tile(in));
  if (op == "NonZero") return one(non_zero(operand(in, 0)));
  if (op == "Trilu") return one(trilu(node, in));
  if (op == "Expand") {
    const auto& target = integers(operand(in, 1), "sizes");
    return one(repeat(operand(in, 0), broadcast(operand(in, 0).dims, target)));
  }
  if (op == "Pad") {
    const Tensor& data = operand(in, 0);
    const auto pads = pads_of(node, in, data.dims.size());
    Tensor out = Tensor::unknown(data.element, data.dims);
    for (std::size_t i = 0; i < data.dims.size(); ++i) {
      out.dims[i] += pads[i] + pads[data.dims.size() + i];
    }
    if (out.dims == data.dims) return one(data);
    return one(std::move(out));
  }
  // Masks are written this way; their elements are never needed.
  if (op == "ScatterND" || op == "ScatterElements" || op == "CumSum" || op == "EyeLike") {
    return one(Tensor::unknown(operand(in, 0).element, operand(in, 0).dims));
  }
  return std::nullopt;
}

}  // namespace parsim::networks::onnx_reader
