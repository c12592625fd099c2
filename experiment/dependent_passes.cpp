#include "experiment/dependent_passes.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace parsim::experiment {

namespace {

/// What is known of an element besides its layer, as bits.
using State = unsigned;
constexpr State uniform = 0;
constexpr State some_channels = 1;  ///< it is among some of the channels only
constexpr State some_places = 2;    ///< likewise, of the other axes
constexpr State any_channel = 4;    ///< what depends on it depends on all channels of its place
constexpr std::size_t states = 8;

/// An input that the chain may go on with, or does with the probability `share`.
struct Next {
  std::size_t layer = 0;
  State state = uniform;
  double share = 1;
};
/// All of `together`, or one of `either`.
struct Ways {
  std::vector<Next> together, either;
};

/// Whether an element of an axis can be followed to one of `in` elements of the input's axis that
/// its window reads so that each is equally likely: to the one that is as far from the begin.
bool reads_its_place(const Window& window, std::int64_t in, std::int64_t out) {
  const std::int64_t reach = window.dilation * (window.kernel - 1);
  for (std::int64_t at = 0; at < out; ++at) {
    const std::int64_t first = at * window.stride - window.pad_begin;
    if (at * in / out < first || ((at + 1) * in - 1) / out > first + reach) return false;
  }
  return true;
}

bool reads_its_place(const std::vector<Window>& windows, const Shape& in, const Shape& out) {
  const std::size_t before = in.axes.size() - windows.size();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (!reads_its_place(windows[i], in.axes[before + i].extent, out.axes[before + i].extent)) {
      return false;
    }
  }
  return true;
}

bool has_gradients_of_all(const Combine& combine) {
  constexpr std::array<std::string_view, 6> functions{"add", "sub", "mul", "div", "max", "min"};
  return std::find(functions.begin(), functions.end(), combine.function) != functions.end();
}

class Following {
 public:
  explicit Following(const Network& network) : network_(network) {}

  [[nodiscard]] Ways ways(std::size_t layer, State state) const {
    const Layer& at = network_.layers[layer];
    Ways ways;
    if (const auto* concat = at.kind.as<Concat>()) {
      if ((state & joined_along(at, *concat)) != 0) return ways;
      const auto all = static_cast<double>(at.out.axes[concat->axis].extent);
      for (const LayerId input : at.inputs) {
        const auto own = static_cast<double>(network_[input].out.axes[concat->axis].extent);
        ways.together.push_back({input.index(), state, own / all});
      }
      return ways;
    }
    if (at.kind.as<HeadConcat>() != nullptr) {
      if ((state & some_channels) != 0) return ways;
      const auto all = static_cast<double>(at.out.axes[1].extent);
      const auto own = static_cast<double>(network_[at.inputs[0]].out.axes[1].extent);
      ways.together = {{at.inputs[0].index(), state, own / all},
                       {at.inputs[1].index(), state, 1 - own / all}};
      return ways;
    }
    for (std::size_t i = 0; i < at.inputs.size(); ++i) {
      if (const auto next = state_before(at, i, state)) {
        ways.either.push_back({at.inputs[i].index(), *next, 1});
      }
    }
    return ways;
  }

  /// A concatenation of channels, of which a layer that reads all of them may choose one.
  [[nodiscard]] bool joins_channels(std::size_t layer) const {
    const auto* concat = network_.layers[layer].kind.as<Concat>();
    return concat != nullptr && joined_along(network_.layers[layer], *concat) == some_channels;
  }

  /// Whether a part's share of the layer's work is that of its elements.
  [[nodiscard]] bool counts(std::size_t layer) const {
    const LayerKind& kind = network_.layers[layer].kind;
    const auto* attention = kind.as<Attention>();
    return kind.as<ExpertDense>() == nullptr && (attention == nullptr || !attention->causal);
  }

 private:
  static State joined_along(const Layer& layer, const Concat& concat) {
    return layer.out.axes[concat.axis].dim == Dim::channel ? some_channels : some_places;
  }

  /// Of the element of an input; nothing where the chain cannot go on.
  [[nodiscard]] std::optional<State> state_before(const Layer& layer, std::size_t input,
                                                  State state) const {
    const LayerKind& kind = layer.kind;
    const State all_channels = (state & ~some_channels) | any_channel;
    if (const Conv* conv = kind.as<Conv>()) {
      const State own = conv->groups == 1 ? all_channels : state;
      const bool followed =
          reads_its_place(conv->windows, network_[layer.inputs[0]].out, layer.out);
      return followed ? own : own | some_places;
    }
    if (const Pool* pool = kind.as<Pool>()) {
      const bool followed =
          reads_its_place(pool->windows, network_[layer.inputs[0]].out, layer.out);
      return followed ? state : state | some_places;
    }
    if (kind.as<Dense>() != nullptr || kind.as<Loss>() != nullptr) return all_channels;
    if (const auto* slicing = kind.as<Slicing>()) {
      const Shape& in = network_[layer.inputs[0]].out;
      return state | (in.axes[slicing->axis].dim == Dim::channel ? some_channels : some_places);
    }
    if (const auto* attention = kind.as<Attention>()) {
      return input == 0 || attention->causal ? state : state & ~some_places;
    }
    if (const auto* moved = kind.as<Rearrange>()) {
      return heads_moved(*moved) == HeadMove::none ? State{any_channel} : state;
    }
    if (kind.as<Flatten>() != nullptr) {
      return state == uniform ? uniform : some_channels | some_places;
    }
    // Nothing is learned from which expert a token goes to.
    const bool routes = kind.as<ExpertDispatch>() != nullptr || kind.as<ExpertCombine>() != nullptr;
    if (routes && input > 0) return std::nullopt;
    const auto* combine = kind.as<Combine>();
    if (combine != nullptr && !has_gradients_of_all(*combine)) return std::nullopt;
    return state;
  }

  const Network& network_;
};

/// The best chain for given worths of layers: how often it has each of them, and its sum.
class Longest {
 public:
  Longest(const Network& network, const std::vector<double>& worth)
      : network_(network),
        following_(network),
        worth_(worth),
        best_(network.layers.size()),
        ways_(network.layers.size()) {
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      // The last state is of those that choose: their own values must be known.
      for (State state = 0; state < states; ++state) fill(l, state);
    }
  }

  [[nodiscard]] double from(std::size_t loss) const { return best_[loss][uniform]; }

  [[nodiscard]] std::vector<double> times(std::size_t loss) const {
    const std::size_t count = network_.layers.size();
    std::vector<double> times(count, 0);
    std::vector<std::array<double, states>> weight(count);
    weight[loss][uniform] = 1;
    for (std::size_t l = count; l-- > 0;) {
      for (State state = states; state-- > 0;) {
        const double own = weight[l][state];
        if (own == 0) continue;
        if (counted(l, state)) times[l] += own;
        for (const Next& next : ways_[l][state]) {
          weight[next.layer][next.state] += own * next.share;
        }
      }
    }
    return times;
  }

 private:
  /// Whether the layer itself is part of the chain.
  [[nodiscard]] bool counted(std::size_t layer, State state) const {
    return state == uniform && following_.counts(layer);
  }

  void fill(std::size_t layer, State state) {
    double& value = best_[layer][state];
    std::vector<Next>& taken = ways_[layer][state];
    if ((state & any_channel) != 0) {
      const State uniformly = state & ~any_channel;
      value = best_[layer][uniformly];
      taken = {{layer, uniformly, 1}};
      if (!following_.joins_channels(layer)) return;
      for (const LayerId input : network_.layers[layer].inputs) {
        const double other = best_[input.index()][state];
        if (other <= value) continue;
        value = other;
        taken = {{input.index(), state, 1}};
      }
      return;
    }
    const Ways ways = following_.ways(layer, state);
    double rest = 0;
    for (const Next& next : ways.together) {
      rest += next.share * best_[next.layer][next.state];
      taken.push_back(next);
    }
    for (const Next& next : ways.either) {
      const double other = best_[next.layer][next.state];
      if (other <= rest) continue;
      rest = other;
      taken = {next};
    }
    value = rest + (counted(layer, state) ? worth_[layer] : 0);
  }

  const Network& network_;
  Following following_;
  const std::vector<double>& worth_;
  std::vector<std::array<double, states>> best_;
  std::vector<std::array<std::vector<Next>, states>> ways_;
};

}  // namespace

Chain longest_chain(const Network& network, const lowering::GradientFlow& flow,
                    const std::vector<double>& forward_worth,
                    const std::vector<double>& backward_worth) {
  const Longest forward(network, forward_worth), backward(network, backward_worth);
  std::optional<std::size_t> end;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].kind.as<Loss>() == nullptr || !flow.reaches_loss[l]) continue;
    const auto value = [&](std::size_t at) { return forward.from(at) + backward.from(at); };
    if (!end || value(l) > value(*end)) end = l;
  }
  const std::size_t count = network.layers.size();
  if (!end) return {std::vector<double>(count, 0), std::vector<double>(count, 0)};
  return {forward.times(*end), backward.times(*end)};
}

}  // namespace parsim::experiment
