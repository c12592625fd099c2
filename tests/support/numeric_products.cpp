#include "core/errors.hpp"
#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {
namespace {

/// Input channels that a part sums over: its share of the contraction, or all.
Interval summed(const PartInput& input, std::int64_t channels) {
  return input.part.contraction.empty() ? Interval{0, channels} : input.part.contraction;
}

/// The first part of the contraction adds the bias.
bool adds_bias(const PartInput& input, bool bias) {
  return bias && (input.part.contraction.empty() || input.part.contraction.begin == 0);
}

/// Calls visit(output offset, first input offset, first weight offset, channels) for every output
/// element and kernel tap that does not fall into the padding. The input and weight channels of one
/// call are neighbours at the blocks' channel strides.
template <class Visit>
void for_each_tap(const PartInput& input, const Conv& conv, const Block& out, Visit&& visit) {
  const Shape& shape = input.inputs[0];
  const Block& x = input.activations[0];
  const Block& weights = input.parameters[0];
  const std::size_t spatial = conv.windows.size();
  ensure(spatial + 1 == shape.axes.size(), "a convolution has a window for every spatial axis");
  const std::int64_t channels = shape.axes[0].extent / conv.groups;  // of one group
  const std::int64_t filters = conv.filters / conv.groups;
  const Interval sum = summed(input, channels);
  ensure(conv.groups == 1 || sum.size() == channels, "grouped convolutions sum over whole groups");
  Region taps;
  for (const Window& window : conv.windows) taps.push_back({0, window.kernel});
  // The last channel of a call must lie in the blocks too.
  const auto run = static_cast<std::size_t>(sum.size());
  ensure(weights.box()[1].end >= sum.end, "a part has the weights of all channels it sums over");
  std::size_t o_offset = 0;
  for_each_index(out.box(), [&](const Index& o) {
    Index in = o;
    in[1] = o[1] / filters * channels + sum.begin;
    ensure(x.box()[1].end >= in[1] + sum.size(), "a part has all channels it sums over");
    for_each_index(taps, [&](const Index& tap) {
      Index weight{o[1], sum.begin};
      for (std::size_t s = 0; s < spatial; ++s) {
        const Window& w = conv.windows[s];
        in[s + 2] = o[s + 2] * w.stride - w.pad_begin + tap[s] * w.dilation;
        weight[s + 2] = tap[s];
        if (in[s + 2] < 0 || in[s + 2] >= shape.axes[s + 1].extent) return;
      }
      visit(o_offset, x.offset(in), weights.offset(weight), run);
    });
    ++o_offset;
  });
}

}  // namespace

Block conv_forward(const PartInput& input, const Conv& conv) {
  Block out(input.part.out);
  const double* x = input.activations[0].values().data();
  const double* w = input.parameters[0].values().data();
  const std::size_t x_step = input.activations[0].stride(1);
  const std::size_t w_step = input.parameters[0].stride(1);
  double* y = out.values().data();
  for_each_tap(input, conv, out,
               [&](std::size_t o, std::size_t xi, std::size_t wi, std::size_t channels) {
                 double sum = 0;
                 for (std::size_t c = 0; c < channels; ++c) {
                   sum += x[xi + c * x_step] * w[wi + c * w_step];
                 }
                 y[o] += sum;
               });
  if (adds_bias(input, conv.bias)) {
    for_each_index(out.box(), [&](const Index& o) { out.at(o) += input.parameters[1].at({o[1]}); });
  }
  return out;
}

PartGradients conv_backward(const PartInput& input, const Conv& conv, const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const double* x = input.activations[0].values().data();
  const double* w = input.parameters[0].values().data();
  double* dx = result.activations[0].values().data();
  double* dw = result.parameters[0].values().data();
  const std::size_t x_step = input.activations[0].stride(1);
  const std::size_t w_step = input.parameters[0].stride(1);
  const Block gradient = out_gradient.piece(input.part.out);
  const double* dy = gradient.values().data();
  for_each_tap(input, conv, gradient,
               [&](std::size_t o, std::size_t xi, std::size_t wi, std::size_t channels) {
                 for (std::size_t c = 0; c < channels; ++c) {
                   dx[xi + c * x_step] += dy[o] * w[wi + c * w_step];
                   dw[wi + c * w_step] += dy[o] * x[xi + c * x_step];
                 }
               });
  if (adds_bias(input, conv.bias)) {
    for_each_index(gradient.box(),
                   [&](const Index& o) { result.parameters[1].at({o[1]}) += gradient.at(o); });
  }
  return result;
}

Block dense_forward(const PartInput& input, const Dense& dense) {
  Block out(input.part.out);
  const std::size_t last = out.box().rank() - 1;
  const Interval sum = summed(input, input.inputs[0].axes[last - 1].extent);
  for_each_index(out.box(), [&](const Index& o) {
    double y = adds_bias(input, dense.bias) ? input.parameters[1].at({o[last]}) : 0;
    Index in = o;
    for (in[last] = sum.begin; in[last] < sum.end; ++in[last]) {
      y += input.activations[0].at(in) * input.parameters[0].at({o[last], in[last]});
    }
    out.at(o) = y;
  });
  return out;
}

PartGradients dense_backward(const PartInput& input, const Dense& dense,
                             const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const std::size_t last = input.part.out.rank() - 1;
  const Interval sum = summed(input, input.inputs[0].axes[last - 1].extent);
  for_each_index(input.part.out, [&](const Index& o) {
    const double g = out_gradient.at(o);
    if (adds_bias(input, dense.bias)) result.parameters[1].at({o[last]}) += g;
    Index in = o;
    for (in[last] = sum.begin; in[last] < sum.end; ++in[last]) {
      const Index weight{o[last], in[last]};
      result.activations[0].at(in) += g * input.parameters[0].at(weight);
      result.parameters[0].at(weight) += g * input.activations[0].at(in);
    }
  });
  return result;
}

namespace {

/// Calls visit(output index, left index, right index) for every product of the sums.
template <class Visit>
void for_each_product(const PartInput& input, Visit&& visit) {
  const std::size_t rank = input.part.out.rank();
  const std::size_t left_rank = input.inputs[0].axes.size();
  const std::size_t right_rank = input.inputs[1].axes.size();
  const std::int64_t inner = input.inputs[0].axes[left_rank - 1].extent;
  for_each_index(input.part.out, [&](const Index& o) {
    Index left = broadcast_index(o, input.out, input.inputs[0], 2);
    Index right = broadcast_index(o, input.out, input.inputs[1], 2);
    left[left_rank - 1] = o[rank - 2];
    right[right_rank] = o[rank - 1];
    for (std::int64_t k = 0; k < inner; ++k) {
      left[left_rank] = k;
      right[right_rank - 1] = k;
      visit(o, left, right);
    }
  });
}

}  // namespace

Block matmul_forward(const PartInput& input) {
  Block out(input.part.out);
  for_each_product(input, [&](const Index& o, const Index& left, const Index& right) {
    out.at(o) += input.activations[0].at(left) * input.activations[1].at(right);
  });
  return out;
}

PartGradients matmul_backward(const PartInput& input, const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  for_each_product(input, [&](const Index& o, const Index& left, const Index& right) {
    const double g = out_gradient.at(o);
    result.activations[0].at(left) += g * input.activations[1].at(right);
    result.activations[1].at(right) += g * input.activations[0].at(left);
  });
  return result;
}

}  // namespace parsim::testing
