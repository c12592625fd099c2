#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/errors.hpp"
#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double bell(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

/// Value and slope of an element-wise function.
struct Curve {
  double value = 0, slope = 0;
};

Curve curve(const std::string& function, double x) {
  if (function == "identity") return {x, 1};
  if (function == "relu") return x > 0 ? Curve{x, 1} : Curve{0, 0};
  if (function == "leakyrelu") return x > 0 ? Curve{x, 1} : Curve{0.01 * x, 0.01};
  if (function == "clip") return x > 0 && x < 6 ? Curve{x, 1} : Curve{std::clamp(x, 0.0, 6.0), 0};
  if (function == "sigmoid") return {sigmoid(x), sigmoid(x) * (1 - sigmoid(x))};
  if (function == "tanh") return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
  if (function == "silu") return {x * sigmoid(x), sigmoid(x) * (1 + x * (1 - sigmoid(x)))};
  if (function == "gelu") {
    const double half = (1 + std::erf(x / std::numbers::sqrt2)) / 2;
    return {x * half, half + x * bell(x)};
  }
  if (function == "hardswish") {
    if (x <= -3) return {0, 0};
    return x >= 3 ? Curve{x, 1} : Curve{x * (x + 3) / 6, (2 * x + 3) / 6};
  }
  ensure(false, "an activation function without mathematics: " + function);
  return {};
}

/// Calls add(index, coefficient) for the input elements that make an output element of a rotary
/// embedding.
void for_each_turned(const PartInput& input, const Index& out, const auto& add) {
  const std::size_t last = input.part.out.rank() - 1;
  const std::int64_t channels = input.out.axes.back().extent, channel = out[last];
  const std::int64_t pair = channel - channel % 2;
  if (pair + 1 == channels) return add(out, 1.0);
  const double token = last > 1 ? static_cast<double>(out[last - 1]) : 0;
  const double angle =
      token * std::pow(10000.0, -static_cast<double>(pair) / static_cast<double>(channels));
  Index other = out;
  other[last] = channel == pair ? pair + 1 : pair;
  add(out, std::cos(angle));
  add(other, channel == pair ? -std::sin(angle) : std::sin(angle));
}

/// The learned slope of a PRelu for an element: one for all, or one per channel.
Index slope_index(const Activation& activation, const Index& index) {
  return {activation.parameters == 1 ? 0 : index[1]};
}

/// ∂(combination)/∂(operand i) at the given operands.
double combine_slope(const std::string& function, const std::vector<double>& v, std::size_t i) {
  if (function == "add") return 1;
  if (function == "sub") return i == 0 ? 1 : -1;
  if (function == "div") return i == 0 ? 1 / v[1] : -v[0] / (v[1] * v[1]);
  if (function == "mul") {
    double product = 1;
    for (std::size_t k = 0; k < v.size(); ++k) product *= k == i ? 1 : v[k];
    return product;
  }
  // max, min: the first of the extreme operands
  const auto extreme = function == "max" ? std::max_element(v.begin(), v.end())
                                         : std::min_element(v.begin(), v.end());
  return extreme == v.begin() + static_cast<std::ptrdiff_t>(i) ? 1 : 0;
}

double combine_value(const std::string& function, const std::vector<double>& v) {
  if (function == "max") return *std::max_element(v.begin(), v.end());
  if (function == "min") return *std::min_element(v.begin(), v.end());
  double value = v[0];
  for (std::size_t k = 1; k < v.size(); ++k) {
    if (function == "add") {
      value += v[k];
    } else if (function == "sub") {
      value -= v[k];
    } else if (function == "mul") {
      value *= v[k];
    } else {
      ensure(function == "div", "a combination without mathematics: " + function);
      value /= v[k];
    }
  }
  return value;
}

std::vector<double> operands_at(const PartInput& input, const Index& out) {
  std::vector<double> values;
  for (std::size_t i = 0; i < input.activations.size(); ++i) {
    values.push_back(input.activations[i].at(broadcast_index(out, input.out, input.inputs[i])));
  }
  return values;
}

/// Softmax along `axis` of the line through `index`; the whole axis is read.
std::vector<double> softmax_line(const Block& x, Index index, std::size_t axis,
                                 std::int64_t extent) {
  std::vector<double> line;
  for (index[axis] = 0; index[axis] < extent; ++index[axis]) line.push_back(x.at(index));
  const double top = *std::max_element(line.begin(), line.end());
  double sum = 0;
  for (double& v : line) sum += v = std::exp(v - top);
  for (double& v : line) v /= sum;
  return line;
}

std::int64_t table_row(double token, std::int64_t rows) {
  // Training data lies in (−1, 1): spread it over the rows.
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::floor((token + 1) / 2 * static_cast<double>(rows))), 0,
      rows - 1);
}

/// Class axis of the loss's operand, counted with the sample: the channel's, if it is the first.
std::size_t class_axis(const PartInput& input) {
  const std::vector<Axis>& axes = input.inputs[0].axes;
  return axes[0].dim == Dim::channel ? 1 : axes.size();
}

/// Whether a row of the table is among the part's.
bool has_row(const PartInput& input, std::int64_t row) {
  const Interval rows = input.parameters[0].box()[0];
  return rows.begin <= row && row < rows.end;
}

}  // namespace

Index broadcast_index(const Index& out, const Shape& out_shape, const Shape& operand,
                      std::size_t skip) {
  Index index{};
  index[0] = out[0];
  const std::size_t missing = out_shape.axes.size() - operand.axes.size();
  for (std::size_t a = 0; a + skip < operand.axes.size(); ++a) {
    index[a + 1] = operand.axes[a].extent == 1 ? 0 : out[a + 1 + missing];
  }
  return index;
}

Block activation_forward(const PartInput& input, const Activation& activation) {
  Block out(input.part.out);
  for_each_index(out.box(), [&](const Index& i) {
    const double x = input.activations[0].at(i);
    if (activation.function == "rotary") {
      for_each_turned(input, i, [&](const Index& from, double coefficient) {
        out.at(i) += coefficient * input.activations[0].at(from);
      });
    } else if (activation.parameters == 0) {
      out.at(i) = curve(activation.function, x).value;
    } else {
      out.at(i) = x > 0 ? x : x * input.parameters[0].at(slope_index(activation, i));
    }
  });
  return out;
}

PartGradients activation_backward(const PartInput& input, const Activation& activation,
                                  const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  for_each_index(input.part.out, [&](const Index& i) {
    const double x = input.activations[0].at(i);
    double slope = 1;
    if (activation.function == "rotary") {
      return for_each_turned(input, i, [&](const Index& from, double coefficient) {
        result.activations[0].at(from) += coefficient * out_gradient.at(i);
      });
    }
    if (activation.parameters == 0) {
      slope = curve(activation.function, x).slope;
    } else if (x <= 0) {
      slope = input.parameters[0].at(slope_index(activation, i));
      result.parameters[0].at(slope_index(activation, i)) += out_gradient.at(i) * x;
    }
    result.activations[0].at(i) += out_gradient.at(i) * slope;
  });
  return result;
}

Block combine_forward(const PartInput& input, const Combine& combine) {
  Block out(input.part.out);
  for_each_index(out.box(), [&](const Index& i) {
    out.at(i) = combine_value(combine.function, operands_at(input, i));
  });
  return out;
}

PartGradients combine_backward(const PartInput& input, const Combine& combine,
                               const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  for_each_index(input.part.out, [&](const Index& i) {
    const std::vector<double> values = operands_at(input, i);
    for (std::size_t k = 0; k < values.size(); ++k) {
      result.activations[k].at(broadcast_index(i, input.out, input.inputs[k])) +=
          out_gradient.at(i) * combine_slope(combine.function, values, k);
    }
  });
  return result;
}

Block softmax_forward(const PartInput& input, const Softmax& softmax) {
  Block out(input.part.out);
  const std::int64_t extent = input.out.axes[softmax.axis].extent;
  for_each_index(out.box(), [&](const Index& i) {
    const auto line = softmax_line(input.activations[0], i, softmax.axis + 1, extent);
    out.at(i) = line[static_cast<std::size_t>(i[softmax.axis + 1])];
  });
  return out;
}

PartGradients softmax_backward(const PartInput& input, const Softmax& softmax,
                               const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const std::int64_t extent = input.out.axes[softmax.axis].extent;
  for_each_index(input.part.out, [&](const Index& i) {
    const auto line = softmax_line(input.activations[0], i, softmax.axis + 1, extent);
    const double own = line[static_cast<std::size_t>(i[softmax.axis + 1])];
    // ∂p_i/∂x_k = p_i (δ_ik − p_k)
    Index k = i;
    for (k[softmax.axis + 1] = 0; k[softmax.axis + 1] < extent; ++k[softmax.axis + 1]) {
      const double other = line[static_cast<std::size_t>(k[softmax.axis + 1])];
      result.activations[0].at(k) += out_gradient.at(i) * own * ((k == i ? 1 : 0) - other);
    }
  });
  return result;
}

Block embedding_forward(const PartInput& input, const Embedding& embedding) {
  Block out(input.part.out);
  const std::size_t last = out.box().rank() - 1;
  for_each_index(out.box(), [&](const Index& i) {
    const std::int64_t row = table_row(input.activations[0].at(i), embedding.rows);
    if (has_row(input, row)) out.at(i) = input.parameters[0].at({row, i[last]});
  });
  return out;
}

PartGradients embedding_backward(const PartInput& input, const Embedding& embedding,
                                 const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const std::size_t last = input.part.out.rank() - 1;
  for_each_index(input.part.out, [&](const Index& i) {
    const std::int64_t row = table_row(input.activations[0].at(i), embedding.rows);
    if (has_row(input, row)) result.parameters[0].at({row, i[last]}) += out_gradient.at(i);
  });
  return result;
}

/// Calls `line(index, label, lines)` for every line of a sample, whose labels go by its number
/// among all lines of the batch.
void for_each_line(const PartInput& input, std::int64_t sample, const auto& line) {
  const std::size_t axis = class_axis(input);
  const std::int64_t classes = input.inputs[0].axes[axis - 1].extent;
  Region lines = whole(input.inputs[0], sample + 1);
  lines[0] = {sample, sample + 1};
  lines[axis] = {0, 1};
  const std::int64_t count = lines.volume();
  std::int64_t next = (input.first_sample + sample) * count;
  const bool of_tokens = !input.out.axes.empty();
  for_each_index(lines, [&](const Index& i) {
    const std::int64_t truth = label(next++, classes);
    const Interval own = of_tokens ? input.part.out[1] : Interval{i[1], i[1] + 1};
    if (i[1] >= own.begin && i[1] < own.end) line(i, truth, count);
  });
}

/// The classes that the part has.
Interval own_classes(const PartInput& input) {
  const Interval all{0, input.inputs[0].axes[class_axis(input) - 1].extent};
  return input.part.contraction.empty() ? all : input.part.contraction;
}

/// Of a line of the loss: the logarithm of the sum of exp(score) over all classes, and the label's
/// score.
struct LossLine {
  double logarithm = 0, score = 0;
};
LossLine loss_line(const PartInput& input, const Index& at, std::int64_t truth) {
  const std::size_t axis = class_axis(input);
  const Interval own = own_classes(input);
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  LossLine line;
  for (std::int64_t c = own.begin; c < own.end; ++c) {
    Index from = at;
    from[axis] = c;
    top = std::max(top, input.activations[0].at(from));
    if (c == truth) line.score = input.activations[0].at(from);
  }
  for (std::int64_t c = own.begin; c < own.end; ++c) {
    Index from = at;
    from[axis] = c;
    sum += std::exp(input.activations[0].at(from) - top);
  }
  line.logarithm = top + std::log(sum);
  return line;
}

/// The same from what the parts of the classes gave.
LossLine joined_line(const Block& statistics, std::int64_t sample, std::int64_t position) {
  LossLine line;
  double sum = 0;
  const Interval numbers = statistics.box()[2];
  for (std::int64_t n = numbers.begin; n < numbers.end; n += 4) {
    sum += std::exp(statistics.at({sample, position, n}));
    line.score += statistics.at({sample, position, n + 2});
  }
  line.logarithm = std::log(sum);
  return line;
}

/// Calls `line(index, label, lines, place)` as for_each_line does, with the line's place in the
/// output and its number in the sample.
void for_each_loss(const PartInput& input, const auto& line) {
  Region samples = input.part.out;
  if (samples.rank() > 1) samples[1] = {samples[1].begin, samples[1].begin + 1};
  for_each_index(samples, [&](const Index& i) {
    std::int64_t position = input.part.out.rank() > 1 ? input.part.out[1].begin : 0;
    for_each_line(input, i[0], [&](const Index& at, std::int64_t truth, std::int64_t lines) {
      Index place = i;
      if (input.part.out.rank() > 1) place[1] = at[1];
      line(at, truth, lines, place, position++);
    });
  });
}

Block loss_forward(const PartInput& input) {
  Block out(input.part.out);
  const bool of_tokens = !input.out.axes.empty();
  for_each_loss(input, [&](const Index& at, std::int64_t truth, std::int64_t lines,
                           const Index& place, std::int64_t position) {
    const LossLine line = input.statistics.values().empty()
                              ? loss_line(input, at, truth)
                              : joined_line(input.statistics, place[0], position);
    out.at(place) += (line.logarithm - line.score) / static_cast<double>(of_tokens ? 1 : lines);
  });
  return out;
}

Block loss_share(const PartInput& input, std::int64_t part) {
  Block out(loss_statistics(input.inputs[0], input.part, {part, part + 1}));
  for_each_loss(input, [&](const Index& at, std::int64_t truth, std::int64_t, const Index& place,
                           std::int64_t position) {
    const LossLine line = loss_line(input, at, truth);
    out.at({place[0], position, 4 * part}) = line.logarithm;
    out.at({place[0], position, 4 * part + 2}) = line.score;
  });
  return out;
}

PartGradients loss_backward(const PartInput& input) {
  const std::size_t axis = class_axis(input);
  PartGradients result = zero_gradients(input);
  for_each_loss(input, [&](const Index& at, std::int64_t truth, std::int64_t lines,
                           const Index& place, std::int64_t position) {
    const LossLine line = input.statistics.values().empty()
                              ? loss_line(input, at, truth)
                              : joined_line(input.statistics, place[0], position);
    const Interval own = own_classes(input);
    for (std::int64_t c = own.begin; c < own.end; ++c) {
      Index to = at;
      to[axis] = c;
      result.activations[0].at(to) =
          (std::exp(input.activations[0].at(to) - line.logarithm) - (c == truth ? 1 : 0)) /
          static_cast<double>(input.batch * lines);
    }
  });
  return result;
}

}  // namespace parsim::testing
