// What makers of a layer's kernels have in common. See hw/kernels.hpp.
#pragma once

#include <array>
#include <optional>

#include "hw/kernels.hpp"

namespace parsim::hw {

template <class Engine>
class KernelMaker {
 public:
  using T = typename Engine::Scalar;
  using Actions = std::vector<typename Engine::Action>;

  KernelMaker(Engine& engine, const PartOf<Engine>& part, Actions& out)
      : engine_(engine), p_(part), out_(out), region_(part.part.out) {}

 protected:
  void each(std::int64_t count, auto body) { add_each(engine_, out_, count, body); }
  void reduction(std::int64_t rows, std::int64_t count, auto body) {
    add_reduction(engine_, out_, rows, count, body);
  }
  /// Whether a kernel that gives every element of a region of operand i's gradient must add.
  bool adds(std::size_t i, const Region& region) {
    const StoreKey& key = p_.slices.input_gradients[i].key;
    if (!engine_.overwrites(key, region)) return true;
    engine_.note_overwritten(key);
    return false;
  }
  /// The first view's elements from the others', if all lie alike and without gaps. `gradient`: it
  /// is of that operand.
  template <std::size_t N, class F>
  bool packed(const Region& region, const std::array<View<T>, N>& views,
              std::optional<std::size_t> gradient, F f) {
    if (!walk_over(region, views).is_packed()) return false;
    Packed<T, static_cast<int>(N) - 1, F> body;
    body.to = start_of(views[0], region);
    for (std::size_t n = 1; n < N; ++n) body.from[n - 1] = start_of(views[n], region);
    body.adds = gradient && adds(*gradient, region);
    body.f = f;
    each(region.volume(), body);
    return true;
  }
  [[nodiscard]] View<T> gradient(std::size_t i) {
    return engine_.view(p_.slices.input_gradients[i].key);
  }

  Engine& engine_;
  const PartOf<Engine>& p_;
  Actions& out_;
  const Region& region_;
};

}  // namespace parsim::hw
