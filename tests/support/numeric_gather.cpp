#include <cmath>

#include "core/errors.hpp"
#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {
namespace {

/// One summand of an output element. Sources are the operands, then the parameters.
struct Term {
  std::size_t source = 0;
  Index index{};
  double coefficient = 1;
};

const Block& source_of(const PartInput& input, std::size_t source) {
  return source < input.activations.size() ? input.activations[source]
                                           : input.parameters[source - input.activations.size()];
}

/// Row-major number of an element within its sample, and back.
std::int64_t flat(const Index& index, const Shape& shape) {
  std::int64_t element = 0;
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    element = element * shape.axes[a].extent + index[a + 1];
  }
  return element;
}
Index unflat(std::int64_t sample, std::int64_t element, const Shape& shape) {
  Index index{};
  index[0] = sample;
  for (std::size_t a = shape.axes.size(); a > 0; --a) {
    index[a] = element % shape.axes[a - 1].extent;
    element /= shape.axes[a - 1].extent;
  }
  return index;
}

void pool_terms(const PartInput& input, const Pool& pool, const Index& out,
                std::vector<Term>& terms) {
  const Shape& shape = input.inputs[0];
  const std::size_t spatial = pool.windows.size();
  const std::size_t first = shape.axes.size() - spatial;  // spatial axes come last
  Region taps;
  std::int64_t counted = 1;
  for (std::size_t s = 0; s < spatial; ++s) {
    const Window& w = pool.windows[s];
    taps.push_back({0, w.kernel});
    // With `count_padding` the divisor counts the window clipped to the padded input: what ceil
    // mode lets stick out beyond it does not count (PyTorch's rule).
    std::int64_t inside = 0;
    const std::int64_t extent = shape.axes[first + s].extent;
    for (std::int64_t k = 0; k < w.kernel; ++k) {
      const std::int64_t at = out[first + s + 1] * w.stride - w.pad_begin + k * w.dilation;
      const bool in = pool.count_padding ? at < extent + w.pad_end : at >= 0 && at < extent;
      inside += in ? 1 : 0;
    }
    counted *= inside;
  }
  for_each_index(taps, [&](const Index& tap) {
    Term term{0, out, pool.kind == PoolKind::max ? 1.0 : 1.0 / static_cast<double>(counted)};
    for (std::size_t s = 0; s < spatial; ++s) {
      const Window& w = pool.windows[s];
      std::int64_t& at = term.index[first + s + 1];
      at = at * w.stride - w.pad_begin + tap[s] * w.dilation;
      if (at < 0 || at >= shape.axes[first + s].extent) return;
    }
    terms.push_back(term);
  });
}

void reduce_terms(const PartInput& input, const Reduce& reduce, const Index& out,
                  std::vector<Term>& terms) {
  const Shape& shape = input.inputs[0];
  std::vector<bool> reduced(shape.axes.size(), false);
  for (const std::size_t axis : reduce.axes) reduced[axis] = true;
  Region range{{out[0], out[0] + 1}};
  std::size_t next = 1;
  std::int64_t count = 1;
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    const std::int64_t extent = shape.axes[a].extent;
    range.push_back(reduced[a] ? Interval{0, extent} : Interval{out[next], out[next] + 1});
    count *= reduced[a] ? extent : 1;
    if (!reduced[a] || reduce.keep) ++next;
  }
  const double coefficient = reduce.function == "mean" ? 1.0 / static_cast<double>(count) : 1.0;
  ensure(reduce.function == "mean" || reduce.function == "sum" || reduce.function == "max",
         "a reduction without mathematics");
  for_each_index(range, [&](const Index& index) { terms.push_back({0, index, coefficient}); });
}

/// Where a move of heads finds an element: heads are numbered row-major.
Index head_index(HeadMove move, const Index& out, const PartInput& input) {
  const bool join = move == HeadMove::join;
  const Shape& heads = join ? input.inputs[0] : input.out;
  const std::size_t last = heads.axes.size();  // in an index, sample first
  const std::size_t width_axis = move == HeadMove::split_transposed ? last - 1 : last;
  const std::size_t token_axis = move == HeadMove::split_transposed ? last : last - 1;
  const std::int64_t width = heads.axes[width_axis - 1].extent;
  Index in{};
  in[0] = out[0];
  if (!join) {
    std::int64_t head = 0;
    for (std::size_t a = 1; a + 1 < last; ++a) head = head * heads.axes[a - 1].extent + out[a];
    in[1] = out[token_axis];
    in[2] = head * width + out[width_axis];
    return in;
  }
  in[token_axis] = out[1];
  in[width_axis] = out[2] % width;
  std::int64_t head = out[2] / width;
  for (std::size_t a = last - 2; a >= 1; --a) {
    in[a] = head % heads.axes[a - 1].extent;
    head /= heads.axes[a - 1].extent;
  }
  return in;
}

void collect(const PartInput& input, const Index& out, std::vector<Term>& terms) {
  terms.clear();
  if (const auto* pool = input.kind.as<Pool>()) return pool_terms(input, *pool, out, terms);
  if (const auto* reduce = input.kind.as<Reduce>()) return reduce_terms(input, *reduce, out, terms);
  Term term{0, out, 1.0};
  if (const auto* concat = input.kind.as<Concat>()) {
    std::int64_t& at = term.index[concat->axis + 1];
    while (at >= input.inputs[term.source].axes[concat->axis].extent) {
      at -= input.inputs[term.source++].axes[concat->axis].extent;
    }
  } else if (const auto* heads = input.kind.as<HeadConcat>()) {
    const std::int64_t own = input.inputs[0].axes[1].extent / heads->heads;
    const std::int64_t both = own + input.inputs[1].axes[1].extent;
    const std::int64_t head = out[2] / both, channel = out[2] % both;
    term.source = channel < own ? 0 : 1;
    term.index[2] = channel < own ? head * own + channel : channel - own;
  } else if (const auto* dropout = input.kind.as<Dropout>()) {
    const bool stays = dropout_keeps(dropout->rate, input.layer, input.first_sample + out[0],
                                     flat(out, input.out), input.out.elements());
    term.coefficient = stays ? 1 / (1 - static_cast<double>(static_cast<float>(dropout->rate))) : 0;
  } else if (const auto* slicing = input.kind.as<Slicing>()) {
    std::int64_t& at = term.index[slicing->axis + 1];
    at = slicing->begin + at * slicing->step;
  } else if (const auto* rearrange = input.kind.as<Rearrange>();
             rearrange != nullptr && heads_moved(*rearrange) != HeadMove::none) {
    term.index = head_index(heads_moved(*rearrange), out, input);
  } else if (input.kind.as<Flatten>() != nullptr || rearrange != nullptr) {
    term.index = unflat(out[0], flat(out, input.out), input.inputs[0]);
  } else if (input.kind.as<Learned>() != nullptr) {
    for (std::size_t a = 0; a < input.out.axes.size(); ++a) term.index[a] = out[a + 1];
  }
  terms.push_back(term);
}

bool takes_maximum(const LayerKind& kind) {
  const auto* pool = kind.as<Pool>();
  const auto* reduce = kind.as<Reduce>();
  return (pool != nullptr && pool->kind == PoolKind::max) ||
         (reduce != nullptr && reduce->function == "max");
}

/// Keeps the largest term only; the first among equals.
void keep_largest(const PartInput& input, std::vector<Term>& terms) {
  ensure(!terms.empty(), "a window that lies in the padding");
  std::size_t best = 0;
  for (std::size_t t = 1; t < terms.size(); ++t) {
    const Block& block = source_of(input, 0);
    if (block.at(terms[t].index) > block.at(terms[best].index)) best = t;
  }
  terms = {terms[best]};
}

}  // namespace

bool is_gather(const LayerKind& kind) {
  return kind.as<Pool>() || kind.as<Reduce>() || kind.as<Concat>() || kind.as<Slicing>() ||
         kind.as<Flatten>() || kind.as<Rearrange>() || kind.as<Dropout>() || kind.as<Learned>() ||
         kind.as<HeadConcat>();
}

Block gather_forward(const PartInput& input) {
  Block out(input.part.out);
  std::vector<Term> terms;
  std::size_t next = 0;
  for_each_index(out.box(), [&](const Index& index) {
    collect(input, index, terms);
    if (takes_maximum(input.kind)) keep_largest(input, terms);
    double& sum = out.values()[next++];
    for (const Term& t : terms) sum += t.coefficient * source_of(input, t.source).at(t.index);
  });
  return out;
}

PartGradients gather_backward(const PartInput& input, const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  std::vector<Term> terms;
  for_each_index(input.part.out, [&](const Index& index) {
    collect(input, index, terms);
    if (takes_maximum(input.kind)) keep_largest(input, terms);
    const double gradient = out_gradient.at(index);
    for (const Term& t : terms) {
      Block& block = t.source < result.activations.size()
                         ? result.activations[t.source]
                         : result.parameters[t.source - result.activations.size()];
      block.at(t.index) += t.coefficient * gradient;
    }
  });
  return result;
}

}  // namespace parsim::testing
