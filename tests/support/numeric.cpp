#include "tests/support/numeric.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/errors.hpp"
#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {
namespace {

/// Uniform in (−1, 1), the same on every machine (splitmix64's finaliser).
double noise(std::uint64_t stream, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t state = stream;
  for (const std::uint64_t word : {a, b, c}) {
    state += word + 0x9E3779B97F4A7C15ULL;
    state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    state = (state ^ (state >> 27U)) * 0x94D049BB133111EBULL;
    state ^= state >> 31U;
  }
  return (static_cast<double>(state >> 11U) + 0.5) * 0x1p-52 - 1.0;
}

}  // namespace

Block::Block(const Region& box) : box_(box), values_(static_cast<std::size_t>(box.volume())) {
  std::size_t stride = 1;
  for (std::size_t a = box.rank(); a > 0; --a) {
    strides_[a - 1] = stride;
    stride *= static_cast<std::size_t>(box[a - 1].size());
  }
}

std::size_t Block::offset(const Index& index) const {
  std::size_t position = 0;
  for (std::size_t a = 0; a < box_.rank(); ++a) {
    ensure(index[a] >= box_[a].begin && index[a] < box_[a].end, "an element outside its block");
    position += static_cast<std::size_t>(index[a] - box_[a].begin) * strides_[a];
  }
  ensure(position < values_.size(), "an element of an empty block");
  return position;
}

// Row by row: these three move most of the numbers of a check.
namespace {

/// Calls visit(index of the first element, length) for every row of the box.
template <class Visit>
void for_each_row(const Region& box, Visit&& visit) {
  if (box.empty()) return;
  Region firsts = box;
  const std::size_t last = box.rank() > 0 ? box.rank() - 1 : 0;
  const std::int64_t length = box.rank() > 0 ? box[last].size() : 1;
  if (box.rank() > 0) firsts[last].end = firsts[last].begin + 1;
  for_each_index(firsts,
                 [&](const Index& first) { visit(first, static_cast<std::size_t>(length)); });
}

}  // namespace

Block Block::piece(const Region& box) const {
  ensure(box_.contains(box), "a piece lies inside its block");
  Block result(box);
  double* next = result.values_.data();
  for_each_row(box, [&](const Index& first, std::size_t length) {
    next = std::copy_n(values_.data() + offset(first), length, next);
  });
  return result;
}

void Block::paste(const Block& source) {
  ensure(box_.contains(source.box_), "a piece lies inside its block");
  const double* next = source.values_.data();
  for_each_row(source.box_, [&](const Index& first, std::size_t length) {
    std::copy_n(next, length, values_.data() + offset(first));
    next += length;
  });
}

void Block::add(const Block& source) {
  ensure(box_.contains(source.box_), "a piece lies inside its block");
  const double* next = source.values_.data();
  for_each_row(source.box_, [&](const Index& first, std::size_t length) {
    double* to = values_.data() + offset(first);
    for (std::size_t i = 0; i < length; ++i) *to++ += *next++;
  });
}

PartGradients zero_gradients(const PartInput& input) {
  PartGradients zero;
  for (const Block& block : input.activations) zero.activations.emplace_back(block.box());
  for (const Block& block : input.parameters) zero.parameters.emplace_back(block.box());
  return zero;
}

Block forward(const PartInput& input) {
  if (is_gather(input.kind)) return gather_forward(input);
  return std::visit(
      [&](const auto& kind) -> Block {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, Conv>) return conv_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Dense>) return dense_forward(input, kind);
        if constexpr (std::is_same_v<Kind, MatMul>) return matmul_forward(input);
        if constexpr (std::is_same_v<Kind, Attention>) return attention_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Norm>) return norm_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Activation>) return activation_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Combine>) return combine_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Softmax>) return softmax_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Embedding>) return embedding_forward(input, kind);
        if constexpr (std::is_same_v<Kind, Loss>) return loss_forward(input);
        if constexpr (std::is_same_v<Kind, ExpertDispatch>) return dispatch_forward(input, kind);
        if constexpr (std::is_same_v<Kind, ExpertDense>) return experts_forward(input, kind);
        if constexpr (std::is_same_v<Kind, ExpertCombine>) return expert_sum_forward(input, kind);
        ensure(false, "a layer kind without mathematics");
        return {};
      },
      input.kind.value);
}

PartGradients backward(const PartInput& input, const Block& gradient) {
  if (is_gather(input.kind)) return gather_backward(input, gradient);
  return std::visit(
      [&](const auto& kind) -> PartGradients {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, Conv>) return conv_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Dense>) return dense_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, MatMul>) return matmul_backward(input, gradient);
        if constexpr (std::is_same_v<Kind, Attention>)
          return attention_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Norm>) return norm_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Activation>)
          return activation_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Combine>) return combine_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Softmax>) return softmax_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Embedding>)
          return embedding_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, Loss>) return loss_backward(input);
        if constexpr (std::is_same_v<Kind, ExpertDispatch>)
          return dispatch_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, ExpertDense>)
          return experts_backward(input, kind, gradient);
        if constexpr (std::is_same_v<Kind, ExpertCombine>)
          return expert_sum_backward(input, kind, gradient);
        ensure(false, "a layer kind without mathematics");
        return {};
      },
      input.kind.value);
}

std::int64_t label(std::int64_t sample, std::int64_t classes) {
  // 7 and 3 have no factor in common with the small class counts, so that labels are not in step
  // with the cuts of the batch.
  return (7 * sample + sample * sample / 3 + 3) % classes;
}

bool dropout_keeps(double rate, std::int64_t layer, std::int64_t sample, std::int64_t element,
                   std::int64_t elements) {
  const auto finalized = [](std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  };
  const auto number = static_cast<std::uint64_t>(sample * elements + element);
  const std::uint64_t state =
      finalized(static_cast<std::uint64_t>(layer) + 1) + number * 0x9E3779B97F4A7C15ULL;
  return static_cast<double>(finalized(state) >> 40U) * 0x1p-24 >= static_cast<float>(rate);
}

double data_value(std::int64_t layer, std::int64_t sample, std::int64_t element) {
  return noise(1, static_cast<std::uint64_t>(layer), static_cast<std::uint64_t>(sample),
               static_cast<std::uint64_t>(element));
}

double initial_weight(std::int64_t parameter, std::int64_t element) {
  return 0.7 *
         noise(2, static_cast<std::uint64_t>(parameter), 0, static_cast<std::uint64_t>(element));
}

Block data_block(std::int64_t layer, const Shape& shape, const Region& box,
                 std::int64_t first_sample) {
  Block block(box);
  std::size_t next = 0;
  for_each_index(box, [&](const Index& index) {
    std::int64_t element = 0;
    for (std::size_t a = 0; a < shape.axes.size(); ++a) {
      element = element * shape.axes[a].extent + index[a + 1];
    }
    block.values()[next++] = data_value(layer, first_sample + index[0], element);
  });
  return block;
}

Block initial_parameter(std::int64_t parameter, const std::vector<std::int64_t>& extents) {
  Block block(box_of(extents));
  for (std::size_t i = 0; i < block.values().size(); ++i) {
    block.values()[i] = initial_weight(parameter, static_cast<std::int64_t>(i));
  }
  return block;
}

Region box_of(const std::vector<std::int64_t>& extents) {
  Region box;
  for (const std::int64_t extent : extents) box.push_back({0, extent});
  return box;
}

double relative_error(const Block& a, const Block& b) {
  ensure(a.box() == b.box(), "blocks of different boxes are not comparable");
  double difference = 0;
  double scale = 1e-3;
  for (std::size_t i = 0; i < a.values().size(); ++i) {
    const double gap = std::abs(a.values()[i] - b.values()[i]);
    // A NaN must not slip through the comparison.
    difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
    scale = std::max(scale, std::abs(b.values()[i]));
  }
  return difference / scale;
}

}  // namespace parsim::testing
