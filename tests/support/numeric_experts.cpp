// Mixtures of experts from their definition: which slot a token has follows from the probabilities
// of the tokens before it.
#include <algorithm>
#include <vector>

#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {

namespace {

/// A token that an expert has room for.
struct Routed {
  std::int64_t sample = 0, token = 0, expert = 0, slot = 0;
};

/// A group of tokens and the slots that it has of each expert.
struct Group {
  std::int64_t tokens = 0, slots = 0;
};

/// These tokens with the slots that they get, by sample, then token, then expert. They begin with a
/// group.
std::vector<Routed> routed(const Block& probabilities, Interval samples, Interval tokens,
                           std::int64_t experts, std::int64_t top_k, const Group& group) {
  std::vector<Routed> all;
  for (std::int64_t s = samples.begin; s < samples.end; ++s) {
    std::vector<std::int64_t> taken(static_cast<std::size_t>(experts));
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      if (t % group.tokens == 0) std::fill(taken.begin(), taken.end(), 0);
      for (std::int64_t e = 0; e < experts; ++e) {
        std::int64_t better = 0;
        for (std::int64_t other = 0; other < experts; ++other) {
          const double ours = probabilities.at({s, t, e}), theirs = probabilities.at({s, t, other});
          better += theirs > ours || (theirs == ours && other < e) ? 1 : 0;
        }
        if (better >= top_k) continue;
        const std::int64_t slot = taken[static_cast<std::size_t>(e)]++;
        if (slot < group.slots) all.push_back({s, t, e, t / group.tokens * group.slots + slot});
      }
    }
  }
  return all;
}

bool within(Interval range, std::int64_t at) { return range.begin <= at && at < range.end; }

/// Calls visit(index of the output, index of the token) for what a part copies.
template <class Visit>
void for_each_copy(const PartInput& input, const ExpertDispatch& dispatch, Visit&& visit) {
  const Region& out = input.part.out;
  if (out.empty()) return;
  const Shape& shape = input.inputs[1];
  const Group group{shape.axes[0].extent / dispatch.groups, dispatch.slots / dispatch.groups};
  for (const Routed& r : routed(input.activations[1], out[0], input.activations[1].box()[1],
                                shape.axes[1].extent, dispatch.top_k, group)) {
    if (!within(out[1], r.expert) || !within(out[2], r.slot)) continue;
    for (std::int64_t c = out[3].begin; c < out[3].end; ++c) {
      visit(Index{r.sample, r.expert, r.slot, c}, Index{r.sample, r.token, c});
    }
  }
}

/// Input channels that a part of an expert layer sums over.
Interval summed_over(const PartInput& input) {
  return input.part.contraction.empty() ? Interval{0, input.inputs[0].axes[2].extent}
                                        : input.part.contraction;
}
bool has_expert_bias(const PartInput& input, const ExpertDense& dense) {
  return dense.bias && (input.part.contraction.empty() || input.part.contraction.begin == 0);
}

/// Calls visit(routed token, sum of the probabilities that it is divided by) for a part's tokens;
/// the divisor counts dropped experts, too.
template <class Visit>
void for_each_sum(const PartInput& input, const ExpertCombine& combine, Visit&& visit) {
  const Region& out = input.part.out;
  if (out.empty()) return;
  const std::int64_t experts = input.inputs[0].axes[0].extent;
  const std::int64_t tokens = input.inputs[1].axes[0].extent / combine.groups;
  const std::int64_t slots = input.inputs[0].axes[1].extent / combine.groups;
  const Block& probabilities = input.activations[1];
  const Interval read = probabilities.box()[1];
  const std::vector<Routed> chosen =
      routed(probabilities, out[0], read, experts, combine.top_k, {tokens, experts * tokens});
  for (const Routed& r : chosen) {
    const std::int64_t slot = r.slot % (experts * tokens);
    if (!within(out[1], r.token) || slot >= slots) continue;
    std::vector<std::int64_t> divisor;
    for (const Routed& other : chosen) {
      const bool same = other.sample == r.sample && other.token == r.token;
      if (combine.normalized && same) divisor.push_back(other.expert);
    }
    visit({r.sample, r.token, r.expert, r.token / tokens * slots + slot}, divisor);
  }
}

}  // namespace

Block dispatch_forward(const PartInput& input, const ExpertDispatch& dispatch) {
  Block out(input.part.out);
  for_each_copy(input, dispatch, [&](const Index& to, const Index& from) {
    out.at(to) = input.activations[0].at(from);
  });
  return out;
}

PartGradients dispatch_backward(const PartInput& input, const ExpertDispatch& dispatch,
                                const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  for_each_copy(input, dispatch, [&](const Index& to, const Index& from) {
    result.activations[0].at(from) += out_gradient.at(to);
  });
  return result;
}

Block experts_forward(const PartInput& input, const ExpertDense& dense) {
  Block out(input.part.out);
  const Interval sum = summed_over(input);
  for_each_index(out.box(), [&](const Index& o) {
    double y = has_expert_bias(input, dense) ? input.parameters[1].at({o[1], o[3]}) : 0;
    Index in = o;
    for (in[3] = sum.begin; in[3] < sum.end; ++in[3]) {
      y += input.activations[0].at(in) * input.parameters[0].at({o[1], o[3], in[3]});
    }
    out.at(o) = y;
  });
  return out;
}

PartGradients experts_backward(const PartInput& input, const ExpertDense& dense,
                               const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const Interval sum = summed_over(input);
  for_each_index(input.part.out, [&](const Index& o) {
    const double g = out_gradient.at(o);
    if (has_expert_bias(input, dense)) result.parameters[1].at({o[1], o[3]}) += g;
    Index in = o;
    for (in[3] = sum.begin; in[3] < sum.end; ++in[3]) {
      const Index weight{o[1], o[3], in[3]};
      result.activations[0].at(in) += g * input.parameters[0].at(weight);
      result.parameters[0].at(weight) += g * input.activations[0].at(in);
    }
  });
  return result;
}

Block expert_sum_forward(const PartInput& input, const ExpertCombine& combine) {
  Block out(input.part.out);
  const Block& probabilities = input.activations[1];
  for_each_sum(input, combine, [&](const Routed& r, const std::vector<std::int64_t>& divisor) {
    double total = divisor.empty() ? 1 : 0;
    for (const std::int64_t e : divisor) total += probabilities.at({r.sample, r.token, e});
    const double weight = probabilities.at({r.sample, r.token, r.expert}) / total;
    for (std::int64_t c = out.box()[2].begin; c < out.box()[2].end; ++c) {
      out.at({r.sample, r.token, c}) +=
          weight * input.activations[0].at({r.sample, r.expert, r.slot, c});
    }
  });
  return out;
}

PartGradients expert_sum_backward(const PartInput& input, const ExpertCombine& combine,
                                  const Block& out_gradient) {
  PartGradients result = zero_gradients(input);
  const Block& probabilities = input.activations[1];
  for_each_sum(input, combine, [&](const Routed& r, const std::vector<std::int64_t>& divisor) {
    double total = divisor.empty() ? 1 : 0;
    for (const std::int64_t e : divisor) total += probabilities.at({r.sample, r.token, e});
    const double own = probabilities.at({r.sample, r.token, r.expert});
    double dot = 0;  // of the gradient and what the expert made
    for (std::int64_t c = input.part.out[2].begin; c < input.part.out[2].end; ++c) {
      const double g = out_gradient.at({r.sample, r.token, c});
      const Index made{r.sample, r.expert, r.slot, c};
      dot += g * input.activations[0].at(made);
      result.activations[0].at(made) += g * own / total;
    }
    result.activations[1].at({r.sample, r.token, r.expert}) += dot / total;
    for (const std::int64_t e : divisor) {
      result.activations[1].at({r.sample, r.token, e}) -= dot * own / (total * total);
    }
  });
  return result;
}

}  // namespace parsim::testing
