// Comparison of numbers of any size.
#pragma once

#include <doctest/doctest.h>

namespace parsim::testing {

/// Equal within 0.0012 % of the larger one. doctest::Approx alone adds that share of 1, so that any
/// two times below 10 microseconds are equal. For zero compare exactly, or with a bound in its
/// unit.
template <typename Number>
doctest::Approx approx(Number value) {
  return doctest::Approx(static_cast<double>(value)).scale(1e-30);
}

}  // namespace parsim::testing
