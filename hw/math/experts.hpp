// Mixtures of experts: which tokens go to which experts, copies of tokens to their slots, sums of
// what comes back. Definitions: core/expert_kinds.hpp.
#pragma once

#include "hw/math/view.hpp"

namespace parsim::hw {

/// What a part's router chooses. A route is one choice of a token: number
/// (sample · tokens + token) · top_k + rank, counted from the part's first sample and token. Slots,
/// experts and routes are kept as Wide<T>, which has them exactly: they are below 2^24.
template <class T>
struct Routing {
  static constexpr std::uint32_t chunk = 64;  ///< tokens whose choices are counted by one thread

  View<T> probabilities;  ///< samples × tokens × experts
  std::int32_t first_sample = 0;
  std::int32_t first_token = 0;  ///< where a group begins
  std::uint32_t samples = 0, tokens = 0, experts = 0, top_k = 0;
  std::uint32_t group_tokens = 1, group_slots = 1;
  bool normalized = false;
  Wide<T>* expert = nullptr;  ///< by route; -1 where probabilities are no numbers
  Wide<T>* slot = nullptr;    ///< by route; -1: the expert drops the token
  Wide<T>* weight = nullptr;  ///< by route: the probability, divided by its token's if normalized
  Wide<T>* counts = nullptr;  ///< by sample, group, chunk and expert: tokens that chose it
  // The slots of a box that routes from `first_mapped` on end in: expert by expert, sample by
  // sample, slot by slot.
  Wide<T>* route = nullptr;  ///< -1: of no token; null: not wanted
  std::int32_t first_expert = 0, first_slot = 0, first_mapped = 0;
  std::uint32_t box_experts = 0, box_slots = 0;

  [[nodiscard]] constexpr std::uint32_t groups() const {
    return (tokens + group_tokens - 1) / group_tokens;
  }
  [[nodiscard]] constexpr std::uint32_t chunks() const {
    return (group_tokens + chunk - 1) / chunk;
  }
  [[nodiscard]] constexpr std::uint32_t routes() const { return samples * tokens * top_k; }
  [[nodiscard]] constexpr std::uint32_t rows() const { return box_experts * samples * box_slots; }
  [[nodiscard]] constexpr bool in_box(std::int32_t e, std::int32_t s) const {
    return e >= first_expert && e < first_expert + static_cast<std::int32_t>(box_experts) &&
           s >= first_slot && s < first_slot + static_cast<std::int32_t>(box_slots);
  }
  /// Position of a route's token in the whole tensors; the channel is 0.
  [[nodiscard]] constexpr Index token_of(std::uint32_t route_number) const {
    const std::uint32_t number = route_number / top_k;
    return {{first_sample + static_cast<std::int32_t>(number / tokens),
             first_token + static_cast<std::int32_t>(number % tokens)}};
  }
  /// Position of the box's row in the whole tensors; the channel is 0.
  [[nodiscard]] constexpr Index slot_of(std::uint32_t row) const {
    const std::uint32_t rest = row / box_slots;
    return {{first_sample + static_cast<std::int32_t>(rest % samples),
             first_expert + static_cast<std::int32_t>(rest / samples),
             first_slot + static_cast<std::int32_t>(row % box_slots)}};
  }
};

/// A thread for each token: its experts, by falling probability, of equal ones the first first.
template <class T>
struct ChooseExperts {
  Routing<T> r;

  constexpr void operator()(std::uint32_t i) const {
    Index at = r.token_of(i * r.top_k);
    const T* line = &r.probabilities(at);
    const std::int64_t step = r.probabilities.stride[2];
    Wide<T> last = 0, total = 0;
    std::int32_t chosen = -1;
    for (std::uint32_t k = 0; k < r.top_k; ++k) {
      Wide<T> most = 0;
      std::int32_t best = -1;
      for (std::int32_t e = 0; e < static_cast<std::int32_t>(r.experts); ++e) {
        const auto p = static_cast<Wide<T>>(line[e * step]);
        const bool later = k == 0 || p < last || (p == last && e > chosen);
        if (!later || !(best < 0 ? p == p : p > most)) continue;
        most = p;
        best = e;
      }
      last = most;
      chosen = best;
      total += most;
      r.expert[i * r.top_k + k] = static_cast<Wide<T>>(best);
      r.weight[i * r.top_k + k] = most;
      if (best < 0) last = -1;  // nothing comes after it
    }
    if (!r.normalized) return;
    for (std::uint32_t k = 0; k < r.top_k; ++k) r.weight[i * r.top_k + k] /= total;
  }
};

/// A thread for each sample, group, chunk of its tokens, and expert.
template <class T>
struct CountChoices {
  Routing<T> r;

  constexpr void operator()(std::uint32_t i) const {
    const auto expert = static_cast<Wide<T>>(i % r.experts);
    const std::uint32_t place = i / r.experts;
    const std::uint32_t of_sample = r.groups() * r.chunks();
    const std::uint32_t sample = place / of_sample;
    const std::uint32_t group = place % of_sample / r.chunks();
    const std::uint32_t within = place % r.chunks() * Routing<T>::chunk;
    const std::uint32_t begin = group * r.group_tokens + within;
    const std::uint32_t left = r.group_tokens - within;
    std::uint32_t end = begin + (left < Routing<T>::chunk ? left : Routing<T>::chunk);
    if (end > r.tokens) end = r.tokens;
    std::uint32_t count = 0;
    for (std::uint32_t n = (sample * r.tokens + begin) * r.top_k;
         n < (sample * r.tokens + end) * r.top_k; ++n) {
      count += r.expert[n] == expert ? 1 : 0;
    }
    r.counts[i] = static_cast<Wide<T>>(begin < end ? count : 0);
  }
};

/// A thread for each route: the first slot that the tokens before it in its group leave free.
template <class T>
struct AssignSlots {
  Routing<T> r;

  constexpr void operator()(std::uint32_t i) const {
    const Wide<T> expert = r.expert[i];
    const std::uint32_t number = i / r.top_k;
    const std::uint32_t sample = number / r.tokens, token = number % r.tokens;
    const std::uint32_t group = token / r.group_tokens;
    const std::uint32_t own = (token - group * r.group_tokens) / Routing<T>::chunk;
    Wide<T> before = 0;
    const std::uint32_t first = (sample * r.groups() + group) * r.chunks();
    for (std::uint32_t c = 0; c < own && expert >= 0; ++c) {
      before += r.counts[(first + c) * r.experts + static_cast<std::uint32_t>(expert)];
    }
    const std::uint32_t begin =
        sample * r.tokens + group * r.group_tokens + own * Routing<T>::chunk;
    for (std::uint32_t n = begin * r.top_k; n < number * r.top_k; ++n) {
      before += r.expert[n] == expert ? 1 : 0;
    }
    const bool fits = expert >= 0 && before < static_cast<Wide<T>>(r.group_slots);
    const std::uint32_t all_groups =
        static_cast<std::uint32_t>(r.first_token) / r.group_tokens + group;
    const auto slot = fits ? static_cast<std::int32_t>(all_groups * r.group_slots) +
                                 static_cast<std::int32_t>(before)
                           : -1;
    r.slot[i] = static_cast<Wide<T>>(slot);
    const auto e = static_cast<std::int32_t>(expert);
    if (r.route == nullptr || !r.in_box(e, slot)) return;
    if (r.first_token + static_cast<std::int32_t>(token) < r.first_mapped) return;
    const auto row = static_cast<std::uint32_t>(e - r.first_expert) * r.samples + sample;
    r.route[row * r.box_slots + static_cast<std::uint32_t>(slot - r.first_slot)] =
        static_cast<Wide<T>>(i);
  }
};

/// No route yet.
template <class A>
struct NoRoute {
  A* route = nullptr;
  constexpr void operator()(std::uint32_t i) const { route[i] = -1; }
};

/// A thread for each slot of the box and `width` channels: y there = a · x at its token, or y +=
/// it; 0 where there is no token. `weighted`: a is the route's weight, else 1.
template <class T, unsigned width>
struct FillSlots {
  Routing<T> r;
  View<T> x, y;
  std::int32_t first_channel = 0;
  std::uint32_t lanes = 1;
  bool weighted = false, adds = false;

  constexpr void operator()(std::uint32_t i) const {
    const auto channel = first_channel + static_cast<std::int32_t>(i % lanes * width);
    Index to = r.slot_of(i / lanes);
    to.at[3] = channel;
    T* const place = &y(to);
    const auto route = static_cast<std::int32_t>(r.route[i / lanes]);
    Lanes<T, width> made{};
    if (route >= 0) {
      Index from = r.token_of(static_cast<std::uint32_t>(route));
      from.at[2] = channel;
      made = Lanes<T, width>::of(&x(from));
    }
    if (weighted || adds || route < 0) {
      const Wide<T> factor = route < 0 ? Wide<T>{0} : weighted ? r.weight[route] : Wide<T>{1};
      for (unsigned w = 0; w < width; ++w) {
        Wide<T> value = route < 0 ? Wide<T>{0} : factor * static_cast<Wide<T>>(made.at[w]);
        if (adds) value += static_cast<Wide<T>>(place[w]);
        made.at[w] = static_cast<T>(value);
      }
    }
    made.write(place);
  }
};

/// A thread for each token and `width` channels: y there = sum over its routes, if their slots are
/// in the box, of a · x at the slot, or y += it. `weighted` as above.
template <class T, unsigned width>
struct SumSlots {
  Routing<T> r;
  View<T> x, y;
  std::uint32_t skipped = 0, tokens = 1;  ///< of each sample: which tokens of the routing's
  std::int32_t first_channel = 0;
  std::uint32_t lanes = 1;
  bool weighted = false, adds = false;

  constexpr void operator()(std::uint32_t i) const {
    const auto channel = first_channel + static_cast<std::int32_t>(i % lanes * width);
    const std::uint32_t number = i / lanes;
    const std::uint32_t first = (number / tokens * r.tokens + skipped + number % tokens) * r.top_k;
    Index to = r.token_of(first);
    const std::int32_t sample = to.at[0];
    to.at[2] = channel;
    T* const place = &y(to);
    Wide<T> sums[width] = {};
    for (std::uint32_t k = 0; k < r.top_k; ++k) {
      const auto slot = static_cast<std::int32_t>(r.slot[first + k]);
      const auto expert = static_cast<std::int32_t>(r.expert[first + k]);
      if (!r.in_box(expert, slot)) continue;
      const Wide<T> factor = weighted ? r.weight[first + k] : Wide<T>{1};
      const auto& made = Lanes<T, width>::of(&x(Index{{sample, expert, slot, channel}}));
      for (unsigned w = 0; w < width; ++w) sums[w] += factor * static_cast<Wide<T>>(made.at[w]);
    }
    Lanes<T, width> result{};
    for (unsigned w = 0; w < width; ++w) {
      if (adds) sums[w] += static_cast<Wide<T>>(place[w]);
      result.at[w] = static_cast<T>(sums[w]);
    }
    result.write(place);
  }
};

/// A reduction whose rows are a part's routes: products of the output's gradient and of what the
/// expert made, which is how much the loss grows with the route's weight.
template <class T>
struct RouteDots {
  Routing<T> r;
  View<T> x, dy;
  std::uint32_t skipped = 0, tokens = 1;
  std::int32_t first_channel = 0;
  bool terms_adjacent = true;
  Wide<T>* dots = nullptr;

  /// The two lines; null if the token was dropped.
  struct Begun {
    const T* x = nullptr;
    const T* dy = nullptr;
  };
  [[nodiscard]] constexpr std::uint32_t route_of(std::uint32_t row) const {
    const std::uint32_t number = row / r.top_k;
    return (number / tokens * r.tokens + skipped + number % tokens) * r.top_k + row % r.top_k;
  }
  [[nodiscard]] constexpr Begun begin(std::uint32_t row) const {
    const std::uint32_t route = route_of(row);
    const auto slot = static_cast<std::int32_t>(r.slot[route]);
    if (slot < 0) return {};
    Index at = r.token_of(route);
    at.at[2] = first_channel;
    return {&x(Index{{at.at[0], static_cast<std::int32_t>(r.expert[route]), slot, first_channel}}),
            &dy(at)};
  }
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Begun& begun, std::uint32_t i) const {
    if (begun.x == nullptr) return {};
    return {static_cast<Wide<T>>(begun.x[i * x.stride[3]]) *
                static_cast<Wide<T>>(begun.dy[i * dy.stride[2]]),
            0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const { dots[row] = sums.first; }
};

/// A thread for each of a part's tokens: gradients of its probabilities from the dots of its
/// routes. Normalized weights are p / total, so each of them counts in all.
template <class T>
struct ProbabilityGradient {
  RouteDots<T> of;
  View<T> dp;

  constexpr void operator()(std::uint32_t i) const {
    const Routing<T>& r = of.r;
    const std::uint32_t first = of.route_of(i * r.top_k);
    Index at = r.token_of(first);
    const auto expert = [&](std::uint32_t k) {
      return static_cast<std::int32_t>(r.expert[first + k]);
    };
    Wide<T> total = r.normalized ? 0 : 1, share = 0;
    for (std::uint32_t k = 0; k < r.top_k && r.normalized; ++k) {
      if (expert(k) < 0) continue;
      at.at[2] = expert(k);
      total += r.probabilities.wide(at);
      share += of.dots[i * r.top_k + k] * r.probabilities.wide(at);
    }
    for (std::uint32_t k = 0; k < r.top_k; ++k) {
      if (expert(k) < 0) continue;
      at.at[2] = expert(k);
      add_to(dp(at), of.dots[i * r.top_k + k] / total - share / (total * total), false);
    }
  }
};

}  // namespace parsim::hw
