// Brings the operands of one layer to a common batch axis; reshapes, repeats, feature maps.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "networks/onnx_builder.hpp"
#include "networks/onnx_roles.hpp"

namespace parsim::networks::onnx_reader {

Batch Builder::common_batch(std::span<const Value> values, std::size_t rank) const {
  for (const Value& value : values) {
    if (!value.is(Value::Kind::activation) || value.batch.none()) continue;
    Batch batch = value.batch;
    batch.axis += static_cast<int>(rank - value.rank());
    return batch;
  }
  return {};
}

std::vector<Value> Builder::aligned(const Node& node, const std::vector<Value>& values,
                                    const Batch& batch, std::size_t rank) {
  std::vector<Value> out;
  for (const Value& value : values) {
    const int axis = batch.axis - static_cast<int>(rank - value.rank());
    const Batch own = value.is(Value::Kind::activation) ? value.batch : Batch{};
    // With one sample every axis of extent 1 may pass for the batch.
    const bool elsewhere =
        !own.none() && (own.axis != axis || own.outer != batch.outer || own.inner != batch.inner);
    if (elsewhere && batch_ > 1) {
      refuse(node, "its operands have the batch on different axes", "the same axis");
    }
    if (!elsewhere && !own.none()) {
      out.push_back(value);
      continue;
    }
    Extents target = value.dims(), base = value.base;
    if (!batch.none() && axis >= 0) {
      const auto at = static_cast<std::size_t>(axis);
      const std::int64_t extent = target[at];
      if (extent != 1 && extent != batch_ * batch.merged()) {
        refuse(node,
               fmt::format("a constant of shape {} differs from sample to sample",
                           to_text(value.dims())),
               "data that differs between samples as an input of the graph");
      }
      if (batch.merged() == 1) {
        target.erase(target.begin() + axis);
        if (!base.empty()) base.erase(base.begin() + axis);
      } else if (extent != 1) {
        target[at] = batch.merged();
        if (!base.empty()) base[at] = std::min(base[at], batch.merged());
      }
    }
    Value moved;
    if (value.is(Value::Kind::weight)) {
      // A weight with an extent per sample was expanded from one: its own extents come first.
      if (elements(base) != elements(value.base)) {
        refuse(node, fmt::format("weights '{}' differ from sample to sample", value.origin),
               "the same weights for every sample");
      }
      moved = wrap(node, learned(node, value, base), {});
    } else {
      moved = activation(node, value);
    }
    const bool same_count = elements(target) == std::optional(network_[moved.layer].out.elements());
    moved.layer =
        relabel(node, moved.layer, target,
                same_count ? reshaped_roles(network_[moved.layer].out, target) : std::vector<Dim>{},
                same_count ? "reshape" : "expand", !same_count);
    out.push_back(wrap(node, moved.layer, {}));
  }
  return out;
}

namespace {

/// Where the samples of a tensor are after it got other extents, by where they are in its flat,
/// row-major order: after them come `after` elements of the same sample.
std::optional<Batch> follow(const Value& value, const Extents& dims, std::int64_t samples) {
  std::int64_t after = value.batch.inner;
  for (std::size_t i = static_cast<std::size_t>(value.batch.axis) + 1; i < value.rank(); ++i) {
    after *= value.dims()[i];
  }
  std::optional<Batch> best;
  std::int64_t suffix = 1;
  // More than one axis fits only if the batch is 1. Then a clean axis is the best guess, next one
  // with the batch outermost, as in merged heads or windows, and the last axis, which holds the
  // features, is the worst; the first of equals.
  const auto rank_of = [&](const Batch& b) {
    if (b.merged() == 1) return 0;
    if (b.axis + 1 == static_cast<int>(dims.size())) return 3;
    return b.outer == 1 ? 1 : 2;
  };
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (after % suffix == 0 && (suffix * dims[i]) % (after * samples) == 0) {
      const Batch found{static_cast<int>(i), suffix * dims[i] / (after * samples), after / suffix};
      if (!best || rank_of(found) <= rank_of(*best)) best = found;
    }
    suffix *= dims[i];
  }
  return best;
}

}  // namespace

Value Builder::reshape(const Node& node, const Value& value, Extents dims,
                       std::optional<Batch> batch) {
  if (elements(dims) != elements(value.dims())) {
    refuse(node, fmt::format("shape {} cannot become {}", to_text(value.dims()), to_text(dims)),
           "a shape of as many elements");
  }
  if (!batch && !value.batch.none()) batch = follow(value, dims, batch_);
  if (!batch && !value.batch.none() && batch_ > 1) {
    refuse(node,
           fmt::format("reshaping {} to {} splits the batch of {} samples", to_text(value.dims()),
                       to_text(dims), batch_),
           "a shape that keeps the batch in one axis");
  }
  const Batch where = batch.value_or(Batch{});
  const Extents next = sample_extents(dims, where);
  const Shape& now = network_[value.layer].out;
  Value out = value;
  if (next.size() == 1 && now.axes.size() > 1) {
    out = emit(node, Flatten{}, {value}, where);
  } else {
    out.layer = relabel(node, value.layer, next, reshaped_roles(now, next), "reshape", false);
  }
  out.tensor.element = value.tensor.element;
  out.tensor.dims = std::move(dims);
  out.batch = where;
  return out;
}

Value Builder::rearrange(const Node& node, std::string what, const Value& value,
                         const Extents& dims, const Batch& batch, const std::vector<Dim>& roles,
                         bool moves_data) {
  if (dims.size() > most_axes || !elements(dims)) {
    refuse(node, fmt::format("its output has shape {}", to_text(dims)),
           fmt::format("at most {} axes and 2^40 elements", most_axes));
  }
  Value out = emit(
      node, Rearrange{std::move(what), shape_of(sample_extents(dims, batch), roles), moves_data},
      {value}, batch);
  out.tensor.element = value.tensor.element;
  return out;
}

Value Builder::expand(const Node& node, const Value& value, const Extents& dims) {
  Batch batch = value.batch;
  const std::size_t added = dims.size() - value.rank();
  if (batch.none()) {
    // Repeated along a first axis as long as the batch: the same for every sample.
    const bool per_sample =
        batch_ > 1 && !dims.empty() && dims[0] == batch_ && (added > 0 || value.dims()[0] == 1);
    if (per_sample) batch = {0, 1, 1};
  } else {
    batch.axis += static_cast<int>(added);
    const std::int64_t extent = dims[static_cast<std::size_t>(batch.axis)];
    // A batch of one may be repeated within the sample.
    if (extent != value.dims()[static_cast<std::size_t>(value.batch.axis)]) batch.inner *= extent;
  }
  Value out = value;
  const Extents target = sample_extents(dims, batch);
  const Shape& now = network_[value.layer].out;
  if (elements(target) == std::optional(now.elements())) {
    out.layer = relabel(node, value.layer, target, reshaped_roles(now, target), "reshape", false);
    out.batch = batch;
    out.tensor.dims = dims;
    return out;
  }
  std::vector<Dim> kept = roles(value);
  if (kept.size() > target.size()) kept.clear();
  kept.insert(kept.begin(), target.size() - kept.size(), Dim::other);
  return rearrange(node, "expand", value, dims, batch, kept);
}

Value Builder::as_map(const Node& node, const Value& value) {
  if (value.batch.axis != 0 || value.batch.outer != 1 || value.rank() < 2) {
    refuse(node,
           fmt::format("its operand of shape {} does not have the batch on the first axis",
                       to_text(value.dims())),
           "batch × channel × …");
  }
  Value out = value;
  if (value.batch.inner > 1) {
    // Several feature maps of a sample are merged into the batch: they become one more axis behind
    // the channel, which no window covers.
    Extents dims = value.dims();
    dims[0] = batch_;
    dims.insert(dims.begin() + 2, value.batch.inner);
    return rearrange(node, "transpose", value, dims, {0, 1, 1}, map_roles(dims.size() - 1));
  }
  const Shape& shape = network_[value.layer].out;
  const std::vector<Dim> wanted = map_roles(shape.axes.size());
  if (roles(value) != wanted) {
    out = rearrange(node, "reshape", value, value.dims(), value.batch, wanted, false);
  }
  return out;
}

Value Builder::from_map(const Node& node, const Value& map, const Batch& batch) {
  if (batch.merged() == 1) return map;
  Extents dims = map.dims();
  dims[0] *= batch.merged();
  dims.erase(dims.begin() + 2);
  std::vector<Dim> kept = roles(map);
  kept.erase(kept.begin() + 1);
  kept.insert(kept.begin(), Dim::other);
  return rearrange(node, "transpose", map, dims, batch, kept);
}

}  // namespace parsim::networks::onnx_reader
