// Kernels of combinations: element by element, with operands that are broadcast. See
// hw/kernels.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "hw/kernel_maker.hpp"

namespace parsim::hw {

[[nodiscard]] inline Merge merge_of(const Combine& combine) {
  constexpr std::array<std::string_view, 6> names{"add", "sub", "mul", "div", "max", "min"};
  const auto found = std::find(names.begin(), names.end(), combine.function);
  ensure(found != names.end(), "check_runnable knows the combination");
  return static_cast<Merge>(found - names.begin());
}

template <class Engine>
class CombineKernels : private KernelMaker<Engine> {
 public:
  using typename KernelMaker<Engine>::T;
  using KernelMaker<Engine>::KernelMaker;

  void operator()(const Combine& combine) {
    MergeElements<T> body;
    body.merge = merge_of(combine);
    body.count = static_cast<int>(p_.inputs.size());
    const View<T>& y = p_.forward() ? p_.out : p_.out_gradient;
    std::array<View<T>, most_operands + 2> views;
    views.fill(y);
    std::array<SharedAxes, most_operands> axes;
    for (std::size_t o = 0; o < p_.inputs.size(); ++o) {
      const Broadcast broadcast = broadcast_of(p_.shapes[o], p_.layer.out);
      axes[o] = shared_axes(broadcast);
      views[o + 2] = broadcast_view(p_.inputs[o], broadcast);
      body.x[o] = start_of(views[o + 2], region_);
    }
    if (p_.forward()) {
      if (merged_packed(body, views, axes)) return;
      body.to = start_of(y, region_);
      body.walk = walk_over(region_, views);
      return each(region_.volume(), body);
    }
    body.dy = start_of(y, region_);
    for (std::size_t k = 0; k < p_.inputs.size(); ++k) {
      if (!p_.wants_input(k)) continue;
      body.k = static_cast<int>(k);
      views[0] = broadcast_view(gradient(k), broadcast_of(p_.shapes[k], p_.layer.out));
      body.to = start_of(views[0], region_);
      if (!axes[k].many.empty()) {
        // In the order of y: the operand's own axes, then the others.
        std::array<View<T>, most_operands + 2> ordered = views;
        std::swap(ordered[0], ordered[1]);
        const auto swapped = [](Walk<most_operands + 2> walk) {
          std::swap(walk.stride[0], walk.stride[1]);
          return walk;
        };
        body.walk = swapped(walk_over(region_, ordered, axes[k].many));
        const auto terms = swapped(walk_over(region_, ordered, axes[k].one));
        const std::size_t last = memory_order(region_, y).back();
        const bool adjacent =
            std::find(axes[k].many.begin(), axes[k].many.end(), last) != axes[k].many.end();
        reduction(body.walk.size(), terms.size(), MergeSum<T>{body, terms, adjacent});
        continue;
      }
      if (merged_packed(body, views, axes)) continue;
      body.walk = walk_over(region_, views);
      each(region_.volume(), body);
    }
  }

 private:
  /// An operand as the output sees it: of axes that it lacks or has once, one element for all.
  [[nodiscard]] View<T> broadcast_view(const View<T>& own, const Broadcast& broadcast) const {
    View<T> view;
    view.data = own.data;
    for (int a = 0; a < broadcast.rank; ++a) {
      const int from = a == 0 ? 0 : a - broadcast.missing;
      if (a > 0 && (from < 1 || broadcast.narrow[from])) continue;
      view.begin[a] = own.begin[from];
      view.stride[a] = own.stride[from];
    }
    return view;
  }
  /// A combination's value or the gradient of operand body.k, where all that has the output's shape
  /// lies alike and without gaps, and at most one of two operands is broadcast. False if not.
  bool merged_packed(const MergeElements<T>& body,
                     const std::array<View<T>, most_operands + 2>& views,
                     const std::array<SharedAxes, most_operands>& axes) {
    const bool forward = p_.forward();
    const auto k = static_cast<std::size_t>(body.k);
    const View<T>& to = views[forward ? 1 : 0];
    const View<T>& y = views[1];
    const bool linear = body.merge == Merge::add || body.merge == Merge::sub;
    if (!forward && linear) {
      const double factor = body.merge == Merge::sub && k > 0 ? -1 : 1;
      return packed(region_, std::array{to, y}, k, Scaled{factor});
    }
    if (body.count != 2) return false;
    const auto is_broadcast = [&](std::size_t o) { return !axes[o].many.empty(); };
    if (!is_broadcast(0) && !is_broadcast(1)) {
      if (forward) {
        return packed(region_, std::array{to, views[2], views[3]}, {}, MergeValue{body.merge});
      }
      return packed(region_, std::array{to, views[2], views[3], y}, k,
                    MergeSlope{body.merge, body.k});
    }
    if (is_broadcast(0) == is_broadcast(1)) return false;
    const std::size_t which = is_broadcast(0) ? 0 : 1;
    const View<T>& whole = views[3 - which];
    const Walk<2> both = walk_over(region_, std::array{y, views[2 + which]});
    MergeBroadcast<T> f;
    f.merge = body.merge;
    f.broadcast = static_cast<int>(which);
    f.operand.from = start_of(views[2 + which], region_);
    f.operand.walk.rank = both.rank;
    for (int a = 0; a < both.rank; ++a) {
      f.operand.walk.extent[a] = both.extent[a];
      f.operand.walk.stride[0][a] = both.stride[1][a];
    }
    if (forward) return packed(region_, std::array{to, whole}, {}, f);
    return packed(region_, std::array{to, whole, y}, k, f);
  }

  using KernelMaker<Engine>::p_, KernelMaker<Engine>::region_, KernelMaker<Engine>::each,
      KernelMaker<Engine>::reduction, KernelMaker<Engine>::packed, KernelMaker<Engine>::gradient;
};

}  // namespace parsim::hw
