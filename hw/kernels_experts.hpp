// Kernels of mixtures of experts: routing, copies of tokens to their experts' slots, grouped
// products, weighted sums. See hw/kernels.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hw/kernel_maker.hpp"
#include "hw/kernels_products.hpp"
#include "hw/math/experts.hpp"

namespace parsim::hw {

template <class Engine>
class ExpertKernels : private KernelMaker<Engine> {
 public:
  using typename KernelMaker<Engine>::T;
  using KernelMaker<Engine>::KernelMaker;

  void operator()(const ExpertDispatch& dispatch) {
    if (!p_.forward() && !p_.wants_input(0)) return;
    Routing<T> r = routing(dispatch.top_k, p_.shapes[0].axes[0].extent / dispatch.groups,
                           dispatch.slots / dispatch.groups);
    box(r, region_);
    if (p_.forward()) {
      const std::int64_t rows = map(r, r.first_token);
      route(r);
      return slots(r, rows, p_.inputs[0], p_.out, region_[3], false, false);
    }
    route(r);
    const Region& in = p_.slices.inputs[0].region;
    tokens(r, p_.out_gradient, gradient(0), in, false, adds(0, in));
  }

  void operator()(const ExpertCombine& combine) {
    if (!p_.forward() && !p_.wants_input(0) && !p_.wants_input(1)) return;
    const Region& made = p_.slices.inputs[0].region;
    Routing<T> r = routing(combine.top_k, p_.shapes[1].axes[0].extent / combine.groups,
                           p_.shapes[0].axes[1].extent / combine.groups);
    r.normalized = combine.normalized;
    box(r, made);
    if (p_.forward()) {
      route(r);
      return tokens(r, p_.inputs[0], p_.out, region_, true, false);
    }
    const std::int64_t rows = p_.wants_input(0) ? map(r, narrow(region_[1].begin)) : 0;
    route(r);
    if (p_.wants_input(0)) {
      slots(r, rows, p_.out_gradient, gradient(0), made[3], true, adds(0, made));
    }
    if (!p_.wants_input(1)) return;
    RouteDots<T> dots{r, p_.inputs[0], p_.out_gradient};
    dots.skipped = static_cast<std::uint32_t>(region_[1].begin - r.first_token);
    dots.tokens = static_cast<std::uint32_t>(region_[1].size());
    dots.first_channel = narrow(region_[2].begin);
    dots.terms_adjacent = dots.x.stride[3] == 1 && dots.dy.stride[2] == 1;
    const std::int64_t routed = region_[0].size() * region_[1].size();
    dots.dots = engine_.scratch(routed * combine.top_k);
    reduction(routed * combine.top_k, region_[2].size(), dots);
    each(routed, ProbabilityGradient<T>{dots, gradient(1)});
  }

  void operator()(const ExpertDense& dense) {
    DensePart<T> part;
    part.x = p_.inputs[0];
    part.w = p_.parameters[0];
    part.y = p_.forward() ? p_.out : p_.out_gradient;
    part.out = box_of(region_);
    part.last = 3;
    part.experts = true;
    const Interval sum = p_.part.contraction.empty() ? Interval{0, p_.shapes[0].axes[2].extent}
                                                     : p_.part.contraction;
    part.sum_begin = narrow(sum.begin);
    part.sum_end = narrow(sum.end);
    part.add_bias = dense.bias && sum.begin == 0;
    if (part.add_bias) part.bias = p_.parameters[1];
    if (p_.forward()) {
      if (!grouped(part, Product::forward, !p_.slices.adds, false)) {
        each(region_.volume(), DenseForward<T>{loops_over(region_, part.y), part, p_.slices.adds});
      } else if (part.add_bias) {
        add_bias(part);
      }
      return;
    }
    if (p_.wants_input(0)) {
      const TensorSlice& to = p_.slices.input_gradients[0];
      if (!grouped(part, Product::data, engine_.overwrites(to.key, to.region), false)) {
        each(to.region.volume(),
             DenseData<T>{loops_over(to.region, gradient(0)), part, gradient(0)});
      }
    }
    if (p_.wants_parameter(0)) {
      const TensorSlice& to = p_.slices.parameter_gradients[0];
      const bool atomic = engine_.has_rivals(to.key);
      if (!grouped(part, Product::weights, engine_.overwrites(to.key, to.region), atomic)) {
        const View<T> dw = engine_.view(to.key);
        each(to.region.volume(),
             DenseWeights<T>{loops_over(to.region, dw), loops_over(region_, part.y, {1, 3}), part,
                             dw, atomic});
      }
    }
    if (part.add_bias && p_.wants_parameter(1)) bias_gradient();
  }

 private:
  /// Of the probabilities that the part reads; they begin with a group.
  [[nodiscard]] Routing<T> routing(std::int64_t top_k, std::int64_t group_tokens,
                                   std::int64_t group_slots) {
    const Region& read = p_.slices.inputs[1].region;
    Routing<T> r;
    r.probabilities = p_.inputs[1];
    r.first_sample = narrow(read[0].begin);
    r.first_token = narrow(read[1].begin);
    r.samples = static_cast<std::uint32_t>(read[0].size());
    r.tokens = static_cast<std::uint32_t>(read[1].size());
    r.experts = static_cast<std::uint32_t>(read[2].size());
    r.top_k = static_cast<std::uint32_t>(top_k);
    r.group_tokens = static_cast<std::uint32_t>(group_tokens);
    r.group_slots = static_cast<std::uint32_t>(group_slots);
    return r;
  }
  /// The slots that the part reads or writes.
  void box(Routing<T>& r, const Region& region) {
    r.first_expert = narrow(region[1].begin);
    r.box_experts = static_cast<std::uint32_t>(region[1].size());
    r.first_slot = narrow(region[2].begin);
    r.box_slots = static_cast<std::uint32_t>(region[2].size());
  }
  /// Asks for the route of every slot; of tokens before the first one a slot counts as free.
  /// Returns the number of slots.
  std::int64_t map(Routing<T>& r, std::int32_t first_token) {
    const std::int64_t rows = std::int64_t{r.box_experts} * r.samples * r.box_slots;
    r.first_mapped = first_token;
    r.route = engine_.scratch(rows);
    each(rows, NoRoute<Wide<T>>{r.route});
    return rows;
  }
  void route(Routing<T>& r) {
    const std::int64_t tokens = std::int64_t{r.samples} * r.tokens, routes = tokens * r.top_k;
    ensure(routes < (std::int64_t{1} << 24), "routes are exact as single-precision numbers");
    const std::int64_t counts = std::int64_t{r.samples} * r.groups() * r.chunks() * r.experts;
    r.expert = engine_.scratch(routes);
    r.slot = engine_.scratch(routes);
    r.weight = engine_.scratch(routes);
    r.counts = engine_.scratch(counts);
    each(tokens, ChooseExperts<T>{r});
    each(counts, CountChoices<T>{r});
    each(routes, AssignSlots<T>{r});
  }

  static constexpr unsigned vector = 16 / sizeof(T);
  /// Whether channels can be read and written by sixteen bytes.
  [[nodiscard]] static bool by_vectors(const View<T>& view, std::size_t rank,
                                       const Interval& channels) {
    constexpr auto width = std::int64_t{vector};
    bool all = view.stride[rank - 1] == 1 && channels.size() % width == 0 &&
               (channels.begin - view.begin[rank - 1]) % width == 0 &&
               reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
    for (std::size_t a = 0; a + 1 < rank; ++a) all = all && view.stride[a] % width == 0;
    return all;
  }
  /// A thread for every `width` channels of so many rows; body(constant of the width, lanes a row).
  void each_lane(std::int64_t rows, const Interval& channels, bool vectors, auto body) {
    const std::int64_t lanes = vectors ? channels.size() / vector : channels.size();
    ensure(rows * lanes < (std::int64_t{1} << 32), "a kernel has fewer than 2^32 elements");
    const auto count = static_cast<std::uint32_t>(lanes);
    if (vectors) {
      each(rows * lanes, body(std::integral_constant<unsigned, vector>{}, count));
    } else {
      each(rows * lanes, body(std::integral_constant<unsigned, 1>{}, count));
    }
  }
  void slots(const Routing<T>& r, std::int64_t rows, const View<T>& from, const View<T>& to,
             const Interval& channels, bool weighted, bool add) {
    const bool vectors = by_vectors(from, 3, channels) && by_vectors(to, 4, channels);
    each_lane(rows, channels, vectors, [&](auto width, std::uint32_t lanes) {
      return FillSlots<T, width()>{r, from, to, narrow(channels.begin), lanes, weighted, add};
    });
  }
  void tokens(const Routing<T>& r, const View<T>& from, const View<T>& to, const Region& region,
              bool weighted, bool add) {
    const Interval& channels = region[2];
    const bool vectors = by_vectors(from, 4, channels) && by_vectors(to, 3, channels);
    const auto skipped = static_cast<std::uint32_t>(region[1].begin - r.first_token);
    const auto count = static_cast<std::uint32_t>(region[1].size());
    each_lane(region[0].size() * region[1].size(), channels, vectors,
              [&](auto width, std::uint32_t lanes) {
                return SumSlots<T, width()>{
                    r, from, to, skipped, count, narrow(channels.begin), lanes, weighted, add};
              });
  }

  /// A product for each expert, whose rows are the slots of all samples; false if no library takes
  /// it.
  bool grouped(const DensePart<T>& part, Product product, bool overwrites, bool atomic) {
    if constexpr (requires(Engine& e, const DenseRequest<T>& r) { e.multiply_each(r); }) {
      DenseRequest<T> r{product,
                        p_.slices.inputs[0].region,
                        p_.slices.parameters[0].region,
                        region_,
                        part.x,
                        part.w,
                        part.y,
                        overwrites,
                        atomic};
      r.experts = true;
      const StoreKey* to = nullptr;
      if (product == Product::data) {
        to = &p_.slices.input_gradients[0].key;
        r.x_view = engine_.view(*to);
      } else if (product == Product::weights) {
        to = &p_.slices.parameter_gradients[0].key;
        r.w_view = engine_.view(*to);
      }
      for (Region* region : {&r.x, &r.y}) std::swap((*region)[0], (*region)[1]);
      for (View<T>* view : {&r.x_view, &r.y_view}) {
        std::swap(view->begin[0], view->begin[1]);
        std::swap(view->stride[0], view->stride[1]);
      }
      auto action = engine_.multiply_each(r);
      if (!action) return false;
      out_.push_back(std::move(*action));
      if (overwrites && to != nullptr) engine_.note_overwritten(*to);
      return true;
    }
    return false;
  }

  /// To what a library has written.
  void add_bias(const DensePart<T>& part) {
    View<T> bias;  // the same numbers for all samples and slots
    bias.data = part.bias.data;
    for (const int a : {0, 1}) {
      const int axis = a == 0 ? 1 : part.last;
      bias.begin[axis] = part.bias.begin[a];
      bias.stride[axis] = part.bias.stride[a];
    }
    const std::array<View<T>, 2> views{p_.out, bias};
    each(region_.volume(), Copy<T>{walk_over(region_, views), start_of(views[0], region_),
                                   start_of(views[1], region_), Move::add});
  }
  void bias_gradient() {
    const StoreKey& to = p_.slices.parameter_gradients[1].key;
    const bool atomic = engine_.has_rivals(to);
    View<T> db = engine_.view(to);
    db.data += (region_[1].begin - db.begin[0]) * db.stride[0];
    for (std::int64_t e = region_[1].begin; e < region_[1].end; ++e) {
      Region own = region_;
      own[1] = {e, e + 1};
      View<T> line;
      line.data = db.data + (e - region_[1].begin) * db.stride[0];
      line.begin[0] = db.begin[1];
      line.stride[0] = db.stride[1];
      const Walk<1> positions = walk_over(own, std::array{p_.out_gradient}, {3});
      reduction(own[3].size(), positions.size(),
                BiasGradient<T>{positions, start_of(p_.out_gradient, own),
                                p_.out_gradient.stride[3], line, narrow(own[3].begin), atomic});
    }
  }

  using KernelMaker<Engine>::engine_, KernelMaker<Engine>::p_, KernelMaker<Engine>::out_,
      KernelMaker<Engine>::region_, KernelMaker<Engine>::each, KernelMaker<Engine>::reduction,
      KernelMaker<Engine>::adds, KernelMaker<Engine>::gradient;
};

}  // namespace parsim::hw
