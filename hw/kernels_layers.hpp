// Kernels of the layer kinds without a contraction. See hw/kernels.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "hw/kernel_maker.hpp"

namespace parsim::hw {

[[nodiscard]] inline Curve curve_of(const Activation& activation) {
  if (activation.parameters > 0) return Curve::prelu;
  constexpr std::array<std::string_view, 8> names{"relu", "leakyrelu", "clip", "sigmoid",
                                                  "tanh", "silu",      "gelu", "hardswish"};
  const auto found = std::find(names.begin(), names.end(), activation.function);
  ensure(found != names.end(), "check_runnable knows the activation");
  return static_cast<Curve>(found - names.begin());
}
template <class Engine>
class LayerKernels : private KernelMaker<Engine> {
 public:
  using typename KernelMaker<Engine>::T;
  using KernelMaker<Engine>::KernelMaker;

  void operator()(const Activation& activation) {
    if (activation.function == "rotary") return rotary();
    if (activation.function == "identity") return remap(0, region_, {});
    const Curve function = curve_of(activation);
    if (function == Curve::prelu) return prelu(activation);
    if (p_.forward()) {
      const std::array<View<T>, 2> views{p_.out, p_.inputs[0]};
      if (packed(region_, views, {}, CurveValue{function})) return;
      each(region_.volume(),
           ActivationForward<T>{walk_over(region_, views), start_of(views[0], region_),
                                start_of(views[1], region_), function});
    } else if (p_.wants_input(0)) {
      const std::array<View<T>, 3> views{gradient(0), p_.inputs[0], p_.out_gradient};
      if (packed(region_, views, 0, CurveSlope{function})) return;
      each(region_.volume(),
           ActivationBackward<T>{walk_over(region_, views), start_of(views[0], region_),
                                 start_of(views[1], region_), start_of(views[2], region_),
                                 function});
    }
  }

  void operator()(const Dropout& dropout) {
    if (!p_.forward() && !p_.wants_input(0)) return;
    Dropped<T> body;
    body.from = p_.forward() ? p_.inputs[0] : p_.out_gradient;
    body.to = p_.forward() ? p_.out : gradient(0);
    body.loops = loops_over(region_, body.to);
    const std::vector<Axis>& axes = p_.layer.out.axes;
    body.plain = !body.loops.channels_last;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      body.extent[a + 1] = narrow(axes[a].extent);
      body.plain = body.plain && region_[a + 1].size() == axes[a].extent;
    }
    body.layer = static_cast<std::uint64_t>(p_.dag.work(p_.op.work).layer.value);
    body.first_sample = p_.op.micro_batch * engine_.samples();
    body.first = (body.first_sample + region_[0].begin) * p_.layer.out.elements();
    body.rate = static_cast<float>(dropout.rate);
    body.backward = !p_.forward();
    const std::optional<std::size_t> to =
        body.backward ? std::optional<std::size_t>{0} : std::nullopt;
    if (packed(region_, std::array{body.to, body.from}, to, body)) return;
    each(region_.volume(), body);
  }
  void operator()(const Flatten&) { reshape(HeadMove::none); }
  void operator()(const Rearrange& rearrange) { reshape(heads_moved(rearrange)); }

  void operator()(const Slicing& slicing) {
    IndexMap map;
    map.axis = static_cast<int>(slicing.axis) + 1;
    map.step = narrow(slicing.step);
    map.offset = narrow(slicing.begin);
    remap(0, region_, map);
  }

  void operator()(const Concat& concat) {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      const std::int64_t extent = p_.shapes[i].axes[concat.axis].extent;
      Region piece = region_;
      piece[concat.axis + 1] = intersect(piece[concat.axis + 1], {before, before + extent});
      IndexMap map;
      map.axis = static_cast<int>(concat.axis) + 1;
      map.offset = narrow(-before);
      remap(i, piece, map);
      before += extent;
    }
  }

  /// Head by head: its own channels, then the shared ones.
  void operator()(const HeadConcat& concat) {
    const std::int64_t own = p_.shapes[0].axes[1].extent / concat.heads;
    const std::int64_t both = own + p_.shapes[1].axes[1].extent;
    for (std::int64_t head = 0; head < concat.heads; ++head) {
      for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        const Interval channels = i == 0 ? Interval{head * both, head * both + own}
                                         : Interval{head * both + own, (head + 1) * both};
        Region piece = region_;
        piece[2] = intersect(piece[2], channels);
        IndexMap map;
        map.axis = 2;
        map.offset = narrow((i == 0 ? head * own : 0) - channels.begin);
        remap(i, piece, map);
      }
    }
  }

  void operator()(const Learned&) {
    if (p_.forward()) {
      IndexMap map;
      map.kind = IndexMap::Kind::drop_sample;
      each(region_.volume(),
           Remap<T>{loops_over(region_, p_.out), map, p_.parameters[0], p_.out, false});
    } else if (p_.wants_parameter(0)) {
      const TensorSlice& to = p_.slices.parameter_gradients[0];
      LearnedGradient<T> body{loops_over(region_, p_.out_gradient, {0}), p_.out_gradient,
                              engine_.view(to.key), narrow(region_[0].begin),
                              engine_.has_rivals(to.key)};
      reduction(region_.volume() / std::max<std::int64_t>(1, region_[0].size()), region_[0].size(),
                body);
    }
  }

  void operator()(const Pool& pool) {
    if (!p_.forward() && !p_.wants_input(0)) return;
    // Neighbouring channels together, where all tensors have them side by side.
    constexpr int width = 16 / sizeof(T);
    const View<T> dx = p_.forward() ? View<T>{} : gradient(0);
    const auto fits = [&](const View<T>& view, const Region& region) {
      bool all = region.rank() == pool.windows.size() + 2 && view.stride[1] == 1 &&
                 reinterpret_cast<std::uintptr_t>(start_of(view, region)) % 16 == 0;
      for (std::size_t a = 0; all && a < region.rank(); ++a) {
        all = a == 1 ? region[a].size() % width == 0 : view.stride[a] % width == 0;
      }
      return all;
    };
    const Region& in = p_.slices.inputs[0].region;
    const bool wide = fits(p_.inputs[0], in) &&
                      fits(p_.forward() ? p_.out : p_.out_gradient, region_) &&
                      (p_.forward() || fits(dx, in));
    wide ? pooling<width>(pool, dx) : pooling<1>(pool, dx);
  }

  void operator()(const Reduce& reduce) {
    FoldAxes<T> body;
    body.x = p_.inputs[0];
    body.y = p_.forward() ? p_.out : p_.out_gradient;
    body.loops = loops_over(region_, body.y);
    body.out_rank = static_cast<int>(region_.rank());
    body.fold = reduce.function == "mean"  ? Fold::mean
                : reduce.function == "sum" ? Fold::sum
                                           : Fold::max;
    const Shape& shape = p_.shapes[0];
    std::size_t out_axis = 1;
    for (std::size_t a = 0; a < shape.axes.size(); ++a) {
      const bool folded = std::find(reduce.axes.begin(), reduce.axes.end(), a) != reduce.axes.end();
      if (folded) {
        body.folded.over(a + 1, 0, static_cast<std::uint32_t>(shape.axes[a].extent));
      }
      if (!folded || reduce.keep) body.kept[out_axis++] = folded ? -1 : static_cast<int>(a) + 1;
    }
    if (!p_.forward()) {
      if (!p_.wants_input(0)) return;
      body.dx = gradient(0);
    }
    each(region_.volume(), body);
  }

  void operator()(const Softmax& softmax) {
    if (!p_.forward() && !p_.wants_input(0)) return;
    SoftmaxLines<T> lines = lines_along(softmax.axis + 1, region_);
    lines.y = p_.forward() ? p_.out : p_.out_gradient;
    const bool along = lines.x.stride[lines.axis] == 1;
    reduction(lines.count, lines.extent, SoftmaxDivisor<T>{lines, along});
    if (!p_.forward()) {
      lines.dot = engine_.scratch(lines.count);
      lines.dx = gradient(0);
      reduction(lines.count, lines.extent, SoftmaxDot<T>{lines, along});
    }
    each(region_.volume(), SoftmaxWrite<T>{lines, along});
  }

  void operator()(const Loss&) {
    const Work work = p_.dag.work(p_.op.work);
    const bool cut = work.class_parts > 0;
    if (!p_.forward() && !cut && !p_.wants_input(0)) return;
    const std::size_t axis = class_axis(p_.shapes[0]);
    const Region& in = p_.slices.inputs[0].region;
    CrossEntropy<T> loss;
    loss.lines = lines_along(axis, in);
    loss.first_sample = p_.op.micro_batch * engine_.samples();
    loss.positions = loss.lines.count / region_[0].size();
    loss.classes = p_.shapes[0].axes[axis - 1].extent;
    loss.first_class = p_.part.contraction.begin;
    loss.all_positions = p_.shapes[0].elements() / loss.classes;
    loss.first_position = region_.rank() > 1 ? region_[1].begin : 0;  // of tokens
    loss.share = static_cast<Wide<T>>(1 / static_cast<double>(p_.dag.batch * loss.all_positions));
    const bool along = loss.lines.x.stride[loss.lines.axis] == 1;
    const LossStatistics<T> statistics = cut ? statistics_of(work, loss) : LossStatistics<T>{};
    loss.lines.dot = engine_.scratch(loss.lines.count);
    if (p_.forward()) {
      reduction(loss.lines.count, loss.lines.extent, CrossEntropyDivisor<T>{loss, along});
      if (cut) return each(loss.lines.count, CrossEntropyShare<T>{loss, statistics});
      return loss_values(loss, statistics);
    }
    if (cut) {
      loss_values(loss, statistics);
      if (!p_.wants_input(0)) return;
      each(loss.lines.count, CrossEntropyJoin<T>{loss, statistics});
    } else if (along && !loss.lines.lines.channels_last &&
               walk_over(in, std::array{gradient(0), loss.lines.x}).is_packed()) {
      const CrossEntropyRows<T> body{loss, start_of(loss.lines.x, in), start_of(gradient(0), in),
                                     adds(0, in)};
      out_.push_back(engine_.each_row(loss.lines.count, loss.lines.extent, body));
      return;
    } else {
      reduction(loss.lines.count, loss.lines.extent, CrossEntropyDivisor<T>{loss, along});
    }
    loss.lines.dx = gradient(0);
    each(in.volume(), CrossEntropyBackward<T>{loss, along});
  }

  void operator()(const Norm& norm) {
    norm.kind == NormKind::local_response ? response(norm) : statistics(norm);
  }

 private:
  [[nodiscard]] LossStatistics<T> statistics_of(const Work& work, const CrossEntropy<T>& loss) {
    const Region& region = p_.slices.statistics.region;
    LossStatistics<T> statistics;
    statistics.view = engine_.view(p_.slices.statistics.key);
    statistics.parts = work.class_parts;
    statistics.part = work.class_part;
    statistics.first_sample = narrow(region[0].begin);
    statistics.first_position = narrow(region[1].begin);
    statistics.positions = static_cast<std::uint32_t>(loss.positions);
    return statistics;
  }

  void loss_values(const CrossEntropy<T>& loss, const LossStatistics<T>& statistics) {
    CrossEntropyForward<T> body{loss, statistics, loops_over(region_, p_.out), p_.out};
    const std::int64_t elements = region_.volume();
    body.positions = static_cast<std::uint32_t>(loss.lines.count / elements);
    if (body.positions == 1) return each(elements, body);
    reduction(elements, body.positions, body);
  }

  [[nodiscard]] SoftmaxLines<T> lines_along(std::size_t axis, const Region& region) {
    SoftmaxLines<T> lines;
    lines.x = p_.inputs[0];
    lines.axis = static_cast<int>(axis);
    lines.first = narrow(region[axis].begin);
    lines.extent = static_cast<std::uint32_t>(region[axis].size());
    lines.stride = lines.x.stride[axis];
    lines.lines = loops_over(region, lines.x, {axis});
    lines.count = lines.lines.size();
    lines.top = engine_.scratch(lines.count);
    lines.sum = engine_.scratch(lines.count);
    return lines;
  }

  void remap(std::size_t i, const Region& piece, const IndexMap& map) {
    if (piece.empty()) return;
    if (map.kind == IndexMap::Kind::shift && map.step == 1) {
      if (!p_.forward() && !p_.wants_input(i)) return;
      View<T> own = p_.forward() ? p_.inputs[i] : gradient(i);
      own.begin[map.axis] -= map.offset;  // positions are the output's
      const std::array<View<T>, 2> views =
          p_.forward() ? std::array{p_.out, own} : std::array{own, p_.out_gradient};
      const std::optional<std::size_t> to =
          p_.forward() ? std::nullopt : std::optional<std::size_t>{i};
      if (map.offset == 0 && packed(piece, views, to, Same{})) return;
      return each(piece.volume(),
                  Copy<T>{walk_over(piece, views), start_of(views[0], piece),
                          start_of(views[1], piece), p_.forward() ? Move::copy : Move::add});
    }
    if (p_.forward()) {
      each(piece.volume(), Remap<T>{loops_over(piece, p_.out), map, p_.inputs[i], p_.out, false});
    } else if (p_.wants_input(i)) {
      each(piece.volume(),
           Remap<T>{loops_over(piece, p_.out_gradient), map, gradient(i), p_.out_gradient, true});
    }
  }

  void reshape(HeadMove heads) {
    IndexMap map;
    map.kind = IndexMap::Kind::reshape;
    if (heads != HeadMove::none) {
      const bool join = heads == HeadMove::join;
      map.kind = join ? IndexMap::Kind::join_heads : IndexMap::Kind::split_heads;
      // The last two axes of the side with heads, whose sample is axis 0.
      const auto last = static_cast<int>((join ? p_.shapes[0] : p_.layer.out).axes.size());
      map.tokens = heads == HeadMove::split_transposed ? last : last - 1;
      map.width = heads == HeadMove::split_transposed ? last - 1 : last;
    }
    const auto extents = [](const Shape& shape, std::int32_t(&to)[most_axes]) {
      for (std::size_t a = 0; a < shape.axes.size(); ++a) to[a + 1] = narrow(shape.axes[a].extent);
    };
    extents(p_.layer.out, map.out_extent);
    extents(p_.shapes[0], map.in_extent);
    map.in_rank = static_cast<int>(p_.shapes[0].axes.size()) + 1;
    remap(0, region_, map);
  }

  void rotary() {
    if (!p_.forward() && !p_.wants_input(0)) return;
    const Region& in = p_.slices.inputs[0].region;  // whole pairs
    const std::size_t last = in.rank() - 1;
    Rotary<T> body;
    body.samples = static_cast<std::uint32_t>(in[0].size());
    body.first_sample = narrow(in[0].begin);
    body.from = p_.forward() ? p_.inputs[0] : p_.out_gradient;
    body.to = p_.forward() ? p_.out : gradient(0);
    body.out = box_of(region_);
    body.axis = static_cast<int>(last);
    body.channels = narrow(p_.shapes[0].axes.back().extent);
    body.backward = !p_.forward();
    body.pairs = loops_over(in, body.from, {0, last});
    const std::int64_t pairs = (in[last].size() + 1) / 2;
    body.pairs.over(last, narrow(in[last].begin), static_cast<std::uint32_t>(pairs), 2);
    each(body.pairs.size(), body);
  }

  void prelu(const Activation& activation) {
    const bool per_channel = activation.parameters > 1;
    Prelu<T> body{{}, p_.inputs[0], p_.parameters[0], {}, {}, per_channel, false};
    if (p_.forward()) {
      body.y = p_.out;
      body.loops = loops_over(region_, p_.out);
      return each(region_.volume(), body);
    }
    if (p_.wants_input(0)) {
      body.y = p_.out_gradient;
      body.dx = gradient(0);
      body.backward = true;
      body.loops = loops_over(region_, body.dx);
      each(region_.volume(), body);
    }
    if (!p_.wants_parameter(0)) return;
    const TensorSlice& to = p_.slices.parameter_gradients[0];
    std::vector<std::size_t> row_axes;
    if (per_channel) row_axes.push_back(1);
    const Loops positions = loops_over(region_, p_.out_gradient, row_axes);
    reduction(
        per_channel ? region_[1].size() : 1, positions.size(),
        PreluSlope<T>{positions, p_.inputs[0], p_.out_gradient, engine_.view(to.key), per_channel,
                      engine_.has_rivals(to.key), per_channel ? narrow(region_[1].begin) : 0});
  }

  template <int width>
  void pooling(const Pool& pool, const View<T>& dx) {
    const auto in_lanes = [](T* data) { return reinterpret_cast<Lanes<T, width>*>(data); };
    const View<T>& x = p_.inputs[0];
    const View<T>& y = p_.forward() ? p_.out : p_.out_gradient;
    const Region& in = p_.slices.inputs[0].region;
    const std::size_t first_axis = region_.rank() - pool.windows.size();
    ensure(first_axis <= 2, "check_runnable knows the pooling");
    Index origin = first_of(region_);
    for (std::size_t a = first_axis; a < region_.rank(); ++a) origin.at[a] = 0;
    PoolPart<T, width> body;
    body.x = in_lanes(x.data + x.offset(origin));
    body.y = in_lanes(start_of(y, region_));
    body.x_sample = x.stride[0] / width;
    body.y_sample = y.stride[0] / width;
    body.maximum = pool.kind == PoolKind::max;
    body.count_padding = pool.count_padding;
    PoolGradient<T, width> back;
    back.sample = dx.stride[0] / width;
    if (first_axis == 2) {
      body.channels = static_cast<std::uint32_t>(region_[1].size() / width);
      body.x_channel = x.stride[1];
      body.y_channel = y.stride[1];
      back.channel = dx.stride[1];
      body.channels_last = has_channels_last(region_, y);
    }
    for (std::size_t s = 0; s < pool.windows.size(); ++s) {
      const Window& w = pool.windows[s];
      const std::size_t axis = first_axis + s;
      const PoolWindow window{narrow(w.kernel),
                              narrow(w.stride),
                              narrow(w.pad_begin),
                              narrow(w.pad_end),
                              narrow(w.dilation),
                              narrow(p_.shapes[0].axes[axis - 1].extent),
                              narrow(region_[axis].begin),
                              static_cast<std::uint32_t>(region_[axis].size()),
                              x.stride[axis] / width,
                              y.stride[axis] / width};
      const std::int64_t stride = dx.stride[axis] / width;
      const std::int32_t begin = narrow(in[axis].begin);
      const auto count = static_cast<std::uint32_t>(in[axis].size());
      if (s + 1 == pool.windows.size()) {
        body.w2 = window;
        std::tie(back.stride2, back.begin2, back.count2) = std::tuple{stride, begin, count};
      } else if (s + 2 == pool.windows.size()) {
        body.w1 = window;
        std::tie(back.stride1, back.begin1, back.count1) = std::tuple{stride, begin, count};
      } else {
        body.w0 = window;
        std::tie(back.stride0, back.begin0, back.count0) = std::tuple{stride, begin, count};
      }
    }
    const std::int64_t outputs = region_.volume() / width;
    if (p_.forward()) return each(outputs, body);
    if (body.maximum) {
      using Taken = typename PoolPart<T, width>::Taken;
      const std::size_t bytes = static_cast<std::size_t>(outputs) * sizeof(Taken);
      body.taken = reinterpret_cast<Taken*>(
          engine_.scratch(static_cast<std::int64_t>(bytes / sizeof(Wide<T>) + 1)));
      each(outputs, body);
    }
    back.part = body;
    back.dx = in_lanes(start_of(dx, in));
    back.adds = adds(0, in);
    each(in.volume() / width, back);
  }

  void response(const Norm& norm) {
    ResponsePart<T> part{p_.inputs[0], narrow(p_.shapes[0].axes[0].extent), narrow(norm.size),
                         box_of(region_)};
    if (p_.forward()) {
      each(region_.volume(), ResponseForward<T>{loops_over(region_, p_.out), part, p_.out});
    } else if (p_.wants_input(0)) {
      const Region& in = p_.slices.inputs[0].region;
      each(in.volume(),
           ResponseBackward<T>{loops_over(in, gradient(0)), part, p_.out_gradient, gradient(0)});
    }
  }

  void statistics(const Norm& norm) {
    const Region& in = p_.slices.inputs[0].region;
    const std::size_t rank = in.rank();
    const std::size_t channel =
        norm.kind == NormKind::layer ? rank - 1 : p_.shapes[0].region_axis(Dim::channel);
    NormPart<T> part;
    part.x = p_.inputs[0];
    part.out = box_of(region_);
    part.channel_axis = static_cast<int>(channel);
    part.affine = norm.affine;
    // Which axes tell groups apart. A group normalisation's channel is both: number of the group,
    // and position within it.
    part.groups.channels_last = part.members.channels_last = has_channels_last(in, part.x);
    std::vector<std::size_t> averaged;
    std::vector<std::size_t> apart;
    for (std::size_t a = 0; a < rank; ++a) {
      const auto extent = static_cast<std::uint32_t>(in[a].size());
      const std::int32_t begin = narrow(in[a].begin);
      if (a == channel && norm.kind == NormKind::group) {
        const std::int64_t width = p_.shapes[0].axes[channel - 1].extent / norm.size;
        part.groups.over(a, begin, extent / static_cast<std::uint32_t>(width), narrow(width));
        part.members.over(a, 0, static_cast<std::uint32_t>(width));
        continue;
      }
      const bool member =
          a == 0 ? norm.kind == NormKind::batch : (a == channel) == (norm.kind == NormKind::layer);
      (member ? part.members : part.groups).over(a, begin, extent);
      (member ? averaged : apart).push_back(a);
    }
    const std::int64_t rows = part.groups.size();
    const std::int64_t count = part.members.size();
    part.mean = engine_.scratch(rows);
    part.scatter = engine_.scratch(rows);
    if (norm.affine) {
      part.scale = p_.parameters[0];
      part.shift = p_.parameters[1];
    }
    const bool backward = !p_.forward();
    part.dy = p_.out_gradient;
    const View<T> result = !backward ? p_.out : p_.wants_input(0) ? gradient(0) : part.x;
    part.plain = (norm.kind == NormKind::batch || norm.kind == NormKind::layer) &&
                 in.contains(region_) && region_.contains(in) && is_packed(in, part.x) &&
                 same_place(in, part.x, result) && (!backward || same_place(in, part.x, part.dy)) &&
                 (norm.kind == NormKind::batch || memory_order(in, part.x).back() == channel);
    if (part.plain) {
      part.channel_is_group = norm.kind == NormKind::batch;
      part.first = part.x.offset(first_of(in));
      part.first_channel = narrow(in[channel].begin);
      part.group_walk = walk_over(in, std::array{part.x}, averaged);
      part.member_walk = walk_over(in, std::array{part.x}, apart);
      part.inner =
          narrow(norm.kind == NormKind::layer ? in[channel].size() : part.x.stride[channel]);
    }
    const bool adjacent = part.plain && !part.channel_is_group;
    const auto groups = static_cast<std::uint32_t>(rows);
    const bool by_rows = adjacent && (!backward || p_.wants_input(0));
    if (by_rows) {
      const NormRows<T> body{part, start_of(result, in), backward, backward && adds(0, in)};
      out_.push_back(engine_.each_row(groups, static_cast<std::uint32_t>(count), body));
      if (!backward) return;
    } else {
      NormStatistics<T> body{part, adjacent, {}};
      if (part.by_columns()) body.columns = {{part.x.data + part.first}, groups};
      reduction(rows, count, body);
    }
    if (!backward) {
      const NormForward<T> body{loops_over(region_, p_.out), part, p_.out, groups};
      if (part.plain && packed(in, std::array{p_.out, part.x}, {}, body)) return;
      return each(region_.volume(), body);
    }
    const bool wants_parameters = norm.affine && p_.wants_parameter(0);
    const bool at_once = wants_parameters && part.plain && part.channel_is_group;
    View<T> scale, shift;
    bool atomic = false;
    if (wants_parameters) {
      const StoreKey& key = p_.slices.parameter_gradients[0].key;
      scale = engine_.view(key);
      shift = engine_.view(p_.slices.parameter_gradients[1].key);
      atomic = engine_.has_rivals(key);
    }
    if (!by_rows && (p_.wants_input(0) || at_once)) {
      part.gradient_sum = engine_.scratch(rows);
      part.gradient_dot = engine_.scratch(rows);
      NormGradientSums<T> sums{part, {}, {}, atomic, adjacent, {}};
      if (part.by_columns()) {
        sums.columns = {{part.x.data + part.first, part.dy.data + part.first}, groups};
      }
      if (at_once) {
        sums.scale_gradient = scale;
        sums.shift_gradient = shift;
      }
      reduction(rows, count, sums);
    }
    if (!by_rows && p_.wants_input(0)) {
      const NormBackward<T> body{loops_over(in, gradient(0)), part, gradient(0), groups};
      if (!part.plain || !packed(in, std::array{gradient(0), part.x, part.dy}, 0, body)) {
        each(in.volume(), body);
      }
    }
    if (!wants_parameters || at_once) return;
    const Loops positions = loops_over(region_, p_.out_gradient, {channel});
    reduction(
        region_[channel].size(), positions.size(),
        NormParameters<T>{part, positions, narrow(region_[channel].begin), scale, shift, atomic});
  }

  using KernelMaker<Engine>::engine_, KernelMaker<Engine>::p_, KernelMaker<Engine>::out_,
      KernelMaker<Engine>::region_, KernelMaker<Engine>::each, KernelMaker<Engine>::reduction,
      KernelMaker<Engine>::adds, KernelMaker<Engine>::packed, KernelMaker<Engine>::gradient;
};

}  // namespace parsim::hw
