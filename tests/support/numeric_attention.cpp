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
        window_(attention.window),
        width_(input.inputs[0].axes[1].extent / attention.heads),
        value_width_(input.inputs[2].axes[1].extent / attention.key_heads),
        shared_(attention.heads / attention.key_heads),
        keys_(input.inputs[1].axes[0].extent),
        zigzag_(input.part.zigzag),
        known_(input.keys) {}

  /// The weights of all keys for a row: none of those that the mask hides.
  [[nodiscard]] std::vector<double> weights(const Row& row) const {
    std::vector<double> w(static_cast<std::size_t>(keys_));
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    double largest = hidden;
    const std::int64_t position = zigzag_position(row.token, keys_, zigzag_);
    for (std::size_t k = 0; k < w.size(); ++k) {
      const auto index = static_cast<std::int64_t>(k);
      const std::int64_t back = position - zigzag_position(index, keys_, zigzag_);
      if (!is_known(index) || (causal_ && (back < 0 || (window_ > 0 && back >= window_)))) {
        w[k] = hidden;
        continue;
      }
      for (std::int64_t c = 0; c < width_; ++c) {
        w[k] += query_.at(query(row, c)) * key_.at(key(row, k, c));
      }
      w[k] /= std::sqrt(static_cast<double>(width_));
      largest = std::max(largest, w[k]);
    }
    double sum = 0;
    if (largest == hidden) return std::vector<double>(w.size());  // no key of its share
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
  [[nodiscard]] bool is_known(std::int64_t key) const {
    return known_.empty() || std::any_of(known_.begin(), known_.end(), [&](Interval some) {
             return some.begin <= key && key < some.end;
           });
  }

  const Block &query_, &key_, &value_;
  bool causal_;
  std::int64_t window_;
  std::int64_t width_, value_width_, shared_, keys_;
  std::int32_t zigzag_;
  const std::vector<Interval>& known_;
};

}  // namespace

Block attention_forward(const PartInput& input, const Attention& attention) {
  Block out(input.part.out);
  const Attending attending(input, attention);
  for_each_index(out.box(), [&](const Index& i) {
    const Row row = attending.row_of(i);
    const std::vector<double> w = attending.weights(row);
    for (std::size_t k = 0; k < w.size(); ++k) {
      if (w[k] == 0) continue;  // may not be read
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
  const Interval share = input.part.contraction;
  // Channel by channel: each adds to the gradient of the row's weights.
  for_each_index(input.part.out, [&](const Index& i) {
    const Row row = attending.row_of(i);
    const std::int64_t channel = i[2] % attending.value_width();
    const double g = out_gradient.at(i);
    const std::vector<double> w = attending.weights(row);
    double mean = 0;
    for (std::size_t k = 0; k < w.size(); ++k) {
      if (w[k] != 0) mean += w[k] * attending.value(row, k, channel);
    }
    for (std::size_t k = 0; k < w.size(); ++k) {
      const auto index = static_cast<std::int64_t>(k);
      if (w[k] == 0 || (!share.empty() && (index < share.begin || index >= share.end))) continue;
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
