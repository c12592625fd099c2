// Kernels of the layer kinds with a contraction. An engine may have a library do them:
//
//     convolve(part, request) -> optional<Action>   see ConvRequest
//     multiply(request) -> optional<Action>         see DenseRequest
//     multiply_each(request) -> optional<Action>    the same, one product for each position of the
//                                                   axes before the last two
//
// Whatever it declines runs as a kernel of ours, an element per thread.
#pragma once

#include <optional>

#include "hw/kernels.hpp"

namespace parsim::hw {

enum class Product : std::uint8_t { forward, data, weights };

/// A convolution of a part, for a library: strided tensors and what they cover.
template <class T>
struct ConvRequest {
  Product product = Product::forward;
  Region x, w, y;  ///< of the part, in the whole tensors
  View<T> x_view, w_view, y_view;
  std::vector<std::int64_t> stride, dilation, pad_begin, pad_end;  ///< for this part's x
  std::int64_t groups = 1;                                         ///< within the part
  bool overwrites = false;  ///< the result may replace what is there; else it is added
  bool atomic = false;
};
/// y = x · wᵀ of a part and its gradients.
template <class T>
struct DenseRequest {
  Product product = Product::forward;
  Region x, w, y;
  View<T> x_view, w_view, y_view;
  bool overwrites = false, atomic = false;
  bool experts = false;  ///< axis 0 alone numbers products; those before the last are rows
};

template <class Engine>
class ProductKernels {
 public:
  using T = typename Engine::Scalar;
  using Actions = std::vector<typename Engine::Action>;

  ProductKernels(Engine& engine, const PartOf<Engine>& part, Actions& out)
      : engine_(engine), p_(part), out_(out), region_(part.part.out) {}

  void operator()(const Conv& conv) {
    const ConvPart<T> part = conv_part(conv);
    const std::optional<ConvRequest<T>> asked = conv_request(conv, part);
    const View<T>& y = p_.forward() ? p_.out : p_.out_gradient;
    if (p_.forward()) {
      ConvPart<T> with_bias = part;
      with_bias.y = y;
      if (library(asked, Product::forward, !p_.slices.adds, false)) {
        if (part.add_bias) add_bias(1);
        return;
      }
      return each(region_.volume(),
                  ConvForward<T>{loops_over(region_, y), with_bias, p_.slices.adds});
    }
    ConvPart<T> backward = part;
    backward.y = y;
    if (p_.wants_input(0)) {
      const TensorSlice& to = p_.slices.input_gradients[0];
      if (!library(asked, Product::data, engine_.overwrites(to.key, to.region), false)) {
        const View<T> dx = engine_.view(to.key);
        each(to.region.volume(), ConvData<T>{loops_over(to.region, dx), backward, dx});
      }
    }
    if (p_.wants_parameter(0)) {
      const TensorSlice& to = p_.slices.parameter_gradients[0];
      const bool atomic = engine_.has_rivals(to.key);
      if (!library(asked, Product::weights, engine_.overwrites(to.key, to.region), atomic)) {
        const View<T> dw = engine_.view(to.key);
        each(to.region.volume(), ConvWeights<T>{loops_over(to.region, dw),
                                                loops_over(region_, y, {1}), backward, dw, atomic});
      }
    }
    if (part.add_bias) bias_gradient(1);
  }

  void operator()(const Dense& dense) {
    const std::size_t last = region_.rank() - 1;
    DensePart<T> part;
    part.x = p_.inputs[0];
    part.w = p_.parameters[0];
    part.out = box_of(region_);
    part.last = static_cast<int>(last);
    const Interval sum = summed(p_.shapes[0].axes[last - 1].extent);
    part.sum_begin = narrow(sum.begin);
    part.sum_end = narrow(sum.end);
    part.add_bias = dense.bias && has_bias();
    if (part.add_bias) part.bias = p_.parameters[1];
    part.y = p_.forward() ? p_.out : p_.out_gradient;
    DenseRequest<T> asked{Product::forward,
                          p_.slices.inputs[0].region,
                          p_.slices.parameters[0].region,
                          region_,
                          part.x,
                          part.w,
                          part.y};
    if (p_.forward()) {
      if (library(asked, Product::forward, !p_.slices.adds, false)) {
        if (part.add_bias) add_bias(last);
        return;
      }
      return each(region_.volume(),
                  DenseForward<T>{loops_over(region_, part.y), part, p_.slices.adds});
    }
    if (p_.wants_input(0)) {
      const TensorSlice& to = p_.slices.input_gradients[0];
      if (!library(asked, Product::data, engine_.overwrites(to.key, to.region), false)) {
        const View<T> dx = engine_.view(to.key);
        each(to.region.volume(), DenseData<T>{loops_over(to.region, dx), part, dx});
      }
    }
    if (p_.wants_parameter(0)) {
      const TensorSlice& to = p_.slices.parameter_gradients[0];
      const bool atomic = engine_.has_rivals(to.key);
      if (!library(asked, Product::weights, engine_.overwrites(to.key, to.region), atomic)) {
        const View<T> dw = engine_.view(to.key);
        each(to.region.volume(),
             DenseWeights<T>{loops_over(to.region, dw), loops_over(region_, part.y, {last}), part,
                             dw, atomic});
      }
    }
    if (part.add_bias) bias_gradient(last);
  }

  void operator()(const MatMul&) {
    const std::size_t rank = region_.rank();
    MatMulPart<T> part{p_.inputs[0],
                       p_.inputs[1],
                       p_.forward() ? p_.out : p_.out_gradient,
                       broadcast_of(p_.shapes[0], p_.layer.out),
                       broadcast_of(p_.shapes[1], p_.layer.out),
                       box_of(region_),
                       static_cast<int>(rank) - 2,
                       static_cast<int>(rank) - 1,
                       narrow(p_.shapes[0].axes.back().extent)};
    // With x · wᵀ as a dense layer has it: y = a · b is the gradient of an input whose output's
    // gradient is a, a's gradient is an output, and b's is a gradient of weights.
    DenseRequest<T> asked{
        Product::data, region_,  p_.slices.inputs[1].region, p_.slices.inputs[0].region, part.y,
        part.right,    part.left};
    if (p_.forward()) {
      asked.overwrites = true;
      if (batched(asked)) return;
      return each(region_.volume(), MatMulForward<T>{loops_over(region_, part.y), part});
    }
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      if (!p_.wants_input(i)) continue;
      const TensorSlice& to = p_.slices.input_gradients[i];
      const View<T> d = engine_.view(to.key);
      DenseRequest<T> gradient = asked;
      gradient.product = i == 0 ? Product::forward : Product::weights;
      (i == 0 ? gradient.y_view : gradient.w_view) = d;
      gradient.overwrites = engine_.overwrites(to.key, to.region);
      if (batched(gradient)) {
        if (gradient.overwrites) engine_.note_overwritten(to.key);
        continue;
      }
      // Its batch as the output has it, of which it is one for all along some axes; then its own
      // two axes.
      const Broadcast& own = i == 0 ? part.left_at : part.right_at;
      const SharedAxes axes = shared_axes(own, 2);
      std::vector<std::size_t> rest = axes.one;
      rest.insert(rest.end(), {rank - 2, rank - 1});
      Loops loops = loops_over(region_, part.y, axes.many);
      for (const std::size_t a : {rank - 2, rank - 1}) {
        const Interval whole = to.region[a - static_cast<std::size_t>(own.missing)];
        loops.over(a, narrow(whole.begin), static_cast<std::uint32_t>(whole.size()));
      }
      each(to.region.volume(),
           MatMulBackward<T>{loops, loops_over(region_, part.y, rest), part, d, i == 0});
    }
  }

 private:
  void each(std::int64_t count, auto body) { add_each(engine_, out_, count, body); }

  [[nodiscard]] Interval summed(std::int64_t channels) const {
    return p_.part.contraction.empty() ? Interval{0, channels} : p_.part.contraction;
  }
  /// The first part of the contraction adds the bias.
  [[nodiscard]] bool has_bias() const {
    return p_.part.contraction.empty() || p_.part.contraction.begin == 0;
  }

  [[nodiscard]] ConvPart<T> conv_part(const Conv& conv) const {
    ConvPart<T> part;
    part.x = p_.inputs[0];
    part.w = p_.parameters[0];
    part.add_bias = conv.bias && has_bias();
    if (part.add_bias) part.bias = p_.parameters[1];
    part.out = box_of(region_);
    part.in = box_of(p_.slices.inputs[0].region);
    part.spatial = static_cast<int>(conv.windows.size());
    for (std::size_t s = 0; s < conv.windows.size(); ++s) {
      const Window& w = conv.windows[s];
      part.kernel[s] = narrow(w.kernel);
      part.stride[s] = narrow(w.stride);
      part.pad[s] = narrow(w.pad_begin);
      part.dilation[s] = narrow(w.dilation);
    }
    part.channels = narrow(p_.shapes[0].axes[0].extent / conv.groups);
    part.filters = narrow(conv.filters / conv.groups);
    const Interval sum = summed(part.channels);
    part.sum_begin = narrow(sum.begin);
    part.sum_end = narrow(sum.end);
    return part;
  }

  /// What a library would be asked for; nothing if the part cuts through groups.
  [[nodiscard]] std::optional<ConvRequest<T>> conv_request(const Conv& conv,
                                                           const ConvPart<T>& part) const {
    ConvRequest<T> r;
    r.x = p_.slices.inputs[0].region;
    r.w = p_.slices.parameters[0].region;
    r.y = region_;
    r.x_view = part.x;
    r.w_view = part.w;
    r.y_view = p_.forward() ? p_.out : p_.out_gradient;
    for (std::size_t s = 0; s < conv.windows.size(); ++s) {
      const Window& w = conv.windows[s];
      const Interval out = region_[s + 2];
      const std::int64_t first = out.begin * w.stride - w.pad_begin;
      const std::int64_t last =
          (out.end - 1) * w.stride - w.pad_begin + (w.kernel - 1) * w.dilation;
      r.stride.push_back(w.stride);
      r.dilation.push_back(w.dilation);
      r.pad_begin.push_back(r.x[s + 2].begin - first);
      r.pad_end.push_back(last - (r.x[s + 2].end - 1));
      if (r.pad_begin.back() < 0 || r.pad_end.back() < 0) return std::nullopt;
    }
    if (conv.groups > 1) {
      const Interval f = region_[1];
      if (f.begin % part.filters != 0 || f.end % part.filters != 0) return std::nullopt;
      r.groups = f.size() / part.filters;
      if (r.x[1].size() != r.groups * part.channels) return std::nullopt;
    }
    return r;
  }

  bool library(const std::optional<ConvRequest<T>>& asked, Product product, bool overwrites,
               bool atomic) {
    if constexpr (requires(Engine& e, const ConvRequest<T>& r) { e.convolve(r); }) {
      return asked && noted(runs(completed(*asked, product, overwrites, atomic),
                                 [&](const ConvRequest<T>& r) { return engine_.convolve(r); }),
                            product, overwrites);
    }
    return false;
  }
  bool library(const DenseRequest<T>& asked, Product product, bool overwrites, bool atomic) {
    if constexpr (requires(Engine& e, const DenseRequest<T>& r) { e.multiply(r); }) {
      return noted(runs(completed(asked, product, overwrites, atomic),
                        [&](const DenseRequest<T>& r) { return engine_.multiply(r); }),
                   product, overwrites);
    }
    return false;
  }
  /// Returns `done`, and notes that a gradient has been overwritten.
  bool noted(bool done, Product product, bool overwrites) {
    if (done && overwrites && product != Product::forward) {
      engine_.note_overwritten(product == Product::data ? p_.slices.input_gradients[0].key
                                                        : p_.slices.parameter_gradients[0].key);
    }
    return done;
  }
  /// Products of the last two axes, one for each position of the others.
  bool batched(const DenseRequest<T>& request) {
    if constexpr (requires(Engine& e) { e.multiply_each(request); }) {
      const std::optional<DenseRequest<T>> plain = without_broadcast(request);
      return plain &&
             runs(*plain, [&](const DenseRequest<T>& r) { return engine_.multiply_each(r); });
    }
    return false;
  }
  /// Where the right operand is one for all positions along the last axes of the batch, these are
  /// rows of one product (queries that share keys and values). Nothing if another operand or other
  /// axes are broadcast, or the rows do not follow each other.
  [[nodiscard]] std::optional<DenseRequest<T>> without_broadcast(DenseRequest<T> r) const {
    const std::size_t rank = region_.rank();
    if (r.y.rank() != rank) return std::nullopt;
    for (std::size_t a = 1; a + 2 < rank; ++a) {
      if (r.y[a].size() != region_[a].size()) return std::nullopt;
    }
    std::size_t first = rank - 2;  // of the axes that become rows
    const std::size_t missing = rank - r.w.rank();
    const auto repeats = [&](std::size_t a) {
      return a <= missing || r.w[a - missing].size() != region_[a].size();
    };
    while (first > 1 && repeats(first - 1)) --first;
    for (std::size_t a = 1; a < first; ++a) {
      if (repeats(a)) return std::nullopt;
    }
    if (first == rank - 2) return r;
    // Left operand and output: the batch that is left, all rows, columns.
    const auto with_rows = [&](Region& region, View<T>& view) {
      Region box;
      View<T> merged;
      const auto take = [&](std::size_t a) {
        merged.begin[box.rank()] = view.begin[a];
        merged.stride[box.rank()] = view.stride[a];
        box.push_back(region[a]);
      };
      merged.data = view.data;
      for (std::size_t a = 0; a < first; ++a) take(a);
      std::int64_t rows = 1;
      for (std::size_t a = rank - 1; a-- > first;) {
        if (region[a].size() > 1 && view.stride[a] != view.stride[rank - 2] * rows) return false;
        rows *= region[a].size();
        merged.data += (region[a].begin - view.begin[a]) * view.stride[a];
      }
      merged.stride[box.rank()] = view.stride[rank - 2];
      box.push_back({0, rows});
      take(rank - 1);
      region = box;
      view = merged;
      return true;
    };
    if (!with_rows(r.x, r.x_view) || !with_rows(r.y, r.y_view)) return std::nullopt;
    // Right operand: without the axes of one element.
    Region box;
    View<T> view;
    view.data = r.w_view.data;
    for (std::size_t a = 0; a < r.w.rank(); ++a) {
      const std::size_t out = a == 0 ? 0 : a + missing;
      if (out >= first && out < rank - 2) {
        view.data += (r.w[a].begin - r.w_view.begin[a]) * r.w_view.stride[a];
        continue;
      }
      view.begin[box.rank()] = r.w_view.begin[a];
      view.stride[box.rank()] = r.w_view.stride[a];
      box.push_back(r.w[a]);
    }
    r.w = box;
    r.w_view = view;
    return r;
  }
  /// The request for one of its products, whose result goes to where the gradient lies.
  template <class Request>
  Request completed(Request request, Product product, bool overwrites, bool atomic) const {
    request.product = product;
    request.overwrites = overwrites;
    request.atomic = atomic;
    if (product == Product::data) {
      request.x_view = engine_.view(p_.slices.input_gradients[0].key);
    } else if (product == Product::weights) {
      request.w_view = engine_.view(p_.slices.parameter_gradients[0].key);
    }
    return request;
  }
  /// Adds the library's action to the operation's; false if the library has none.
  template <class Request, class Make>
  bool runs(const Request& request, Make make) {
    auto action = make(request);
    if (!action) return false;
    out_.push_back(std::move(*action));
    return true;
  }

  /// Adds the bias to an output that a library has written.
  void add_bias(std::size_t channel) {
    View<T> bias;  // the same number for all positions
    bias.data = p_.parameters[1].data;
    bias.begin[channel] = p_.parameters[1].begin[0];
    bias.stride[channel] = p_.parameters[1].stride[0];
    T* y = start_of(p_.out, region_);
    if (is_packed(region_, p_.out) && bias.stride[channel] == 1) {
      return each(region_.volume(),
                  Packed<T, 1, AddBias<T>>{
                      y,
                      {y},
                      false,
                      {start_of(bias, region_), static_cast<std::uint32_t>(p_.out.stride[channel]),
                       static_cast<std::uint32_t>(region_[channel].size())}});
    }
    const std::array<View<T>, 2> views{p_.out, bias};
    each(region_.volume(),
         Copy<T>{walk_over(region_, views), y, start_of(views[1], region_), Move::add});
  }

  void bias_gradient(std::size_t channel) {
    if (!p_.wants_parameter(1)) return;
    const StoreKey& to = p_.slices.parameter_gradients[1].key;
    const Walk<1> positions = walk_over(region_, std::array{p_.out_gradient}, {channel});
    add_reduction(engine_, out_, region_[channel].size(), positions.size(),
                  BiasGradient<T>{positions, start_of(p_.out_gradient, region_),
                                  p_.out_gradient.stride[channel], engine_.view(to),
                                  narrow(region_[channel].begin), engine_.has_rivals(to)});
  }

  Engine& engine_;
  const PartOf<Engine>& p_;
  Actions& out_;
  const Region& region_;
};

}  // namespace parsim::hw
