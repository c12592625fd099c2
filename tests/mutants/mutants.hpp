// What tests/mutants/run.py writes into a copy of the sources: at each drawn place one operator
// that PARSIM_MUTANT=N exchanges. A place costs a comparison of two integers while it is off.
//
// PARSIM_REACHED names a file that all processes of a test share: byte N is set where place N is
// met.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace mutants {

inline constexpr std::size_t most = 4096;

inline unsigned char* shared_bytes() {
  static unsigned char* const bytes = [] {
    const char* name = std::getenv("PARSIM_REACHED");
    const int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return static_cast<unsigned char*>(nullptr);
    void* memory = mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
  }();
  return bytes;
}

inline bool on(int place) {
  static const int chosen = [] {
    const char* text = std::getenv("PARSIM_MUTANT");
    return text ? std::atoi(text) : -1;
  }();
  if (unsigned char* bytes = shared_bytes()) bytes[place] = 1;
  return place == chosen;
}

// `a < b` becomes `a < Swap<N, Kind>{} < b`: precedence and order of evaluation stay as they were.
enum class Kind {
  lt_le,
  le_lt,
  gt_ge,
  ge_gt,
  eq_ne,
  ne_eq,
  add_sub,
  sub_add,
  mul_div,
  div_mul,
  mod_mul
};
template <int place, Kind kind>
struct Swap {};
template <class Left, int place, Kind kind>
struct Half {
  const Left& left;
};

#define PARSIM_SWAP(op, other, kind)                                                              \
  template <class Left, int place>                                                                \
  Half<Left, place, Kind::kind> operator op(const Left& left, Swap<place, Kind::kind>) {          \
    return {left};                                                                                \
  }                                                                                               \
  template <class Left, int place, class Right>                                                   \
  auto operator op(Half<Left, place, Kind::kind> half, const Right& right) {                      \
    static_assert(std::is_same_v<decltype(half.left op right), decltype(half.left other right)>); \
    return on(place) ? half.left other right : half.left op right;                                \
  }
PARSIM_SWAP(<, <=, lt_le)
PARSIM_SWAP(<=, <, le_lt)
PARSIM_SWAP(>, >=, gt_ge)
PARSIM_SWAP(>=, >, ge_gt)
PARSIM_SWAP(==, !=, eq_ne)
PARSIM_SWAP(!=, ==, ne_eq)
PARSIM_SWAP(+, -, add_sub)
PARSIM_SWAP(-, +, sub_add)
PARSIM_SWAP(*, /, mul_div)
PARSIM_SWAP(/, *, div_mul)
PARSIM_SWAP(%, *, mod_mul)
#undef PARSIM_SWAP

/// A literal, or one more.
template <int place, class Number>
Number constant(Number number) {
  return on(place) ? static_cast<Number>(number + 1) : number;
}

/// A condition, or its opposite.
template <int place, class Condition>
bool condition(const Condition& holds) {
  return static_cast<bool>(holds) != on(place);
}

/// A statement stands behind `if (kept<N>())`.
template <int place>
bool kept() {
  return !on(place);
}

}  // namespace mutants
