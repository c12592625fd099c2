// Tensors as the kernels see them: a pointer, where its box begins in the whole tensor, and
// strides. Everything here is constexpr, so that the same bodies run in a loop on the host (where
// they are tested) and in a CUDA grid (nvcc's --expt-relaxed-constexpr).
#pragma once

#include <cstddef>
#include <cstdint>

namespace parsim::hw {

/// Axes that kernels handle: the sample and five more. DAGs with tensors of more are refused.
inline constexpr int most_axes = 6;

/// What sums are kept in.
template <class T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <class T>
using Wide = typename WideOf<T>::Type;

/// Position of an element in the whole tensor; entries beyond the rank are 0.
struct Index {
  std::int32_t at[most_axes] = {};

  /// Of an axis that only the run knows. All axes are looked at, because a GPU keeps an array in
  /// registers only where the code names its elements.
  [[nodiscard]] constexpr std::int32_t along(int axis) const {
    std::int32_t value = 0;
    for (int a = 0; a < most_axes; ++a) value = a == axis ? at[a] : value;
    return value;
  }
  constexpr void set(int axis, std::int32_t value) {
    for (int a = 0; a < most_axes; ++a) at[a] = a == axis ? value : at[a];
  }
};

/// Half-open box in index space; axes beyond the rank are [0, 1).
struct Box {
  std::int32_t begin[most_axes] = {};
  std::int32_t end[most_axes] = {1, 1, 1, 1, 1, 1};

  [[nodiscard]] constexpr bool contains(const Index& index) const {
    bool inside = true;
    for (int a = 0; a < most_axes; ++a) {
      inside = inside && index.at[a] >= begin[a] && index.at[a] < end[a];
    }
    return inside;
  }
  [[nodiscard]] constexpr std::int32_t extent(int axis) const { return end[axis] - begin[axis]; }
};

/// A tensor, or the part of it that a device holds, in memory.
template <class T>
struct View {
  T* data = nullptr;
  std::int32_t begin[most_axes] = {};
  std::int64_t stride[most_axes] = {};

  [[nodiscard]] constexpr std::int64_t offset(const Index& index) const {
    std::int64_t sum = 0;
    for (int a = 0; a < most_axes; ++a) {
      sum += static_cast<std::int64_t>(index.at[a] - begin[a]) * stride[a];
    }
    return sum;
  }
  [[nodiscard]] constexpr T& operator()(const Index& index) const { return data[offset(index)]; }
  [[nodiscard]] constexpr Wide<T> wide(const Index& index) const {
    return static_cast<Wide<T>>((*this)(index));
  }
};

/// Neighbouring elements that one access moves, such as those of channels that lie side by side.
/// The address is a multiple of their size.
template <class T, int width>
struct alignas(width * sizeof(T)) Lanes {
  T at[width];

  [[nodiscard]] static constexpr const Lanes& of(const T* from) {
    return *reinterpret_cast<const Lanes*>(from);
  }
  constexpr void write(T* to) const { *reinterpret_cast<Lanes*>(to) = *this; }
};

/// Nested loops over axes in one of the orders that dense tensors have: row-major, or with axis 1
/// innermost. An axis without a loop stays where it is.
struct Loops {
  struct Loop {
    std::int32_t begin = 0, step = 1;
    std::uint32_t extent = 1;
  };
  bool channels_last = false;
  Loop loop[most_axes] = {};  ///< by axis

  constexpr void over(std::size_t axis, std::int32_t begin, std::uint32_t extent,
                      std::int32_t step = 1) {
    loop[axis] = {begin, step, extent};
  }
  [[nodiscard]] constexpr std::uint32_t size() const {
    std::uint32_t product = 1;
    for (const Loop& one : loop) product *= one.extent;
    return product;
  }
  /// Adds the i-th element's position to `start`.
  [[nodiscard]] constexpr Index index(std::uint32_t i, Index start = {}) const {
    if (channels_last) advance(1, i, start);
    for (int a = most_axes - 1; a >= 0; --a) {
      if (a != 1 || !channels_last) advance(a, i, start);
    }
    return start;
  }
  /// The number of a position, the inverse of index().
  [[nodiscard]] constexpr std::uint32_t number(const Index& at) const {
    std::uint32_t n = 0;
    for (int a = 0; a < most_axes; ++a) {
      if (a != 1 || !channels_last) count(a, at, n);
    }
    if (channels_last) count(1, at, n);
    return n;
  }

 private:
  constexpr void advance(int axis, std::uint32_t& i, Index& index) const {
    const Loop& here = loop[axis];
    index.at[axis] += here.begin;
    if (here.extent == 1) return;
    const std::uint32_t next = i / here.extent;
    index.at[axis] += static_cast<std::int32_t>(i - next * here.extent) * here.step;
    i = next;
  }
  constexpr void count(int axis, const Index& index, std::uint32_t& n) const {
    const Loop& here = loop[axis];
    if (here.extent == 1) return;
    n = n * here.extent + static_cast<std::uint32_t>((index.at[axis] - here.begin) / here.step);
  }
};

/// Where an operand has an output's element: aligned at the last axis, extent 1 always at 0.
struct Broadcast {
  int missing = 0;              ///< of the output's axes after the sample: those it lacks
  bool narrow[most_axes] = {};  ///< by its own axis: the extent is 1
  int rank = 2;                 ///< of the output, with the sample

  [[nodiscard]] constexpr Index operator()(const Index& out) const {
    Index index{};
    index.at[0] = out.at[0];
    for (int a = 1; a < most_axes; ++a) {
      if (a + missing < rank) index.at[a] = narrow[a] ? 0 : out.along(a + missing);
    }
    return index;
  }
};

/// Adds to an element; several kernels may do so at once if `atomic` (on the host the caller
/// locks).
template <class T>
constexpr void add_to(T& target, Wide<T> value, bool atomic) {
#ifdef __CUDA_ARCH__
  if (atomic) {
    // Two-byte numbers add atomically from 8.0 on; before, the backend refuses them.
    if constexpr (sizeof(T) >= 4 || __CUDA_ARCH__ >= 800) {
      atomicAdd(&target, static_cast<T>(value));
    }
    return;
  }
#else
  static_cast<void>(atomic);
#endif
  target = static_cast<T>(static_cast<Wide<T>>(target) + value);
}

/// Two sums that a reduction makes in one go.
template <class A>
struct Sums {
  A first = 0, second = 0;

  constexpr Sums& operator+=(const Sums& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

}  // namespace parsim::hw
