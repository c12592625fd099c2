// Attention from its definition: for every token and head a softmax over the keys.
#include <algorithm>
#include <cmath>

#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {

namespace {

/// One head of one token of a sample.
struct Row {
  std::int64_t sample = 0, token = 0, head = 0;
};

class Attending {
 public:
  Attending(const PartInput& input, const Attention& attention)
      : query_(input.activations[0]),
        key_(input.activations[1]),
        value_(input.activations[2]),
        causal_(attention.causal),
        width_(input.inputs[0].axes[1].extent / attention.heads),
        value_width_(input.inputs[2].axes[1].extent / attention.key_heads),
        shared_(attention.heads / attention.key_heads),
        keys_(input.inputs[1].axes[0].extent) {}

  /// The weights of the keys that a row attends to.
  [[nodiscard]] std::vector<double> weights(const Row& row) const {
    std::vector<double> w(static_cast<std::size_t>(causal_ ? row.token + 1 : keys_));
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < w.size(); ++k) {
      for (std::int64_t c = 0; c < width_; ++c) {
        w[k] += query_.at(query(row, c)) * key_.at(key(row, k, c));
      }
      w[k] /= std::sqrt(static_cast<double>(width_));
      largest = std::max(largest, w[k]);
    }
    double sum = 0;
    for (double& x : w) sum += x = std::exp(x - largest);
    for (double& x : w) x /= sum;
    return w;
  }
  [[nodiscard]] Row row_of(const Index& out) const {
    return {out[0], out[1], out[2] / value_width_};
  }
  [[nodiscard]] Index query(const Row& row, std::int64_t c) const {
    return {row.sample, row.token, row.head * width_ + c};
  }
  [[nodiscard]] Index key(const Row& row, std::size_t k, std::int64_t c) const {
    return {row.sample, static_cast<std::int64_t>(k), row.head / shared_ * width_ + c};
  }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t value_width() const { return value_width_; }
  [[nodiscard]] Index value_index(const Row& row, std::size_t k, std::int64_t c) const {
    return {row.sample, static_cast<std::int64_t>(k), row.head / shared_ * value_width_ + c};
  }
  [[nodiscard]] double value(const Row& row, std::size_t k, std::int64_t c) const {
    return value_.at(value_index(row, k, c));
  }

 private:
  const Block &query_, &key_, &value_;
  bool causal_;
  std::int64_t width_, value_width_, shared_, keys_;
};

}  // namespace

Block attention_forward(const PartInput& input, const Attention& attention) {
  Block out(input.part.out);
  const Attending attending(input, attention);
  for_each_index(out.box(), [&](const Index& i) {
    const Row row = attending.row_of(i);
    const std::vector<double> w = attending.weights(row);
    for (std::size_t k = 0; k < w.size(); ++k) {
      out.at(i) += w[k] * attending.value(row, k, i[2] % attending.value_width());
    }
  });
  return out;
}

PartGradients attention_backward(const PartInput& input, const Attention& attention,
                                 const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const Attending attending(input, attention);
  const double scale = 1 / std::sqrt(static_cast<double>(attending.width()));
  // Channel by channel: each adds to the gradient of the row's weights.
  for_each_index(input.part.out, [&](const Index& i) {
    const Row row = attending.row_of(i);
    const std::int64_t channel = i[2] % attending.value_width();
    const double g = out_gradient.at(i);
    const std::vector<double> w = attending.weights(row);
    double mean = 0;
    for (std::size_t k = 0; k < w.size(); ++k) mean += w[k] * attending.value(row, k, channel);
    for (std::size_t k = 0; k < w.size(); ++k) {
      result.activations[2].at(attending.value_index(row, k, channel)) += g * w[k];
      const double score = g * w[k] * (attending.value(row, k, channel) - mean) * scale;
      for (std::int64_t c = 0; c < attending.width(); ++c) {
        const Index query = attending.query(row, c), key = attending.key(row, k, c);
        result.activations[0].at(query) += score * input.activations[1].at(key);
        result.activations[1].at(key) += score * input.activations[0].at(query);
      }
    }
  });
  return result;
}

}  // namespace parsim::testing
