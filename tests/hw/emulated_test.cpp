// The emulated GPUs are worth something only if they find what a GPU would: missing waits, streams
// of other devices, graphs that are not closed, ranks on one GPU.
#include <doctest/doctest.h>

#include "tests/hw/emulated/program.hpp"

namespace parsim::testing {

TEST_CASE("emulated GPU: what nothing orders happens in any order, what a wait orders does not") {
  int first = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CHECK(emulated::order_of_two(seed, true) == 12);
    first += emulated::order_of_two(seed, false) == 12 ? 1 : 0;
  }
  CHECK(first > 0);
  CHECK(first < 20);
}

TEST_CASE("emulated GPU: calls that a GPU refuses are refused") {
  CHECK(emulated::refusals() == "");
}

TEST_CASE("emulated GPU: ranks of NCCL wait for each other, and hold multiprocessors meanwhile") {
  CHECK(emulated::late_ranks() == "");
}

TEST_CASE("emulated GPU: threads of a block wait for each other") {
  CHECK(emulated::reversed({1, 2, 3, 4}) == std::vector<int>{4, 3, 2, 1});
}

}  // namespace parsim::testing
