// The least time of attention's parts, against the time of the whole.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "sim/attention_model.hpp"
#include "tests/support/approx.hpp"

namespace parsim::sim {
namespace {

TEST_CASE(
    "attention bound: a whole head on a card with enough blocks takes exactly the least time") {
  for (const AttentionModel& model : attention_models()) {
    for (const std::int64_t width : {1, 16, 64, 96, 128, 256}) {
      CAPTURE(model.device + " with " + model.kernel);
      CAPTURE(width);
      Kernel kernel;
      kernel.kind = KernelClass::gemm;
      kernel.attends = true;
      kernel.m = 1024;
      kernel.n = width;
      kernel.batches = 64;
      kernel.keys = 1024;
      kernel.flops = 4.0 * 64 * 1024 * 1024 * static_cast<double>(width);
      const Seconds whole = attention_time(model, kernel, 1e14, 100);
      const Seconds least = least_attention_time(model, kernel, kernel.keys, 1e14);
      CHECK(least <= whole * (1 + 1e-12));
      // Narrower parts do better only where 64 channels are faster than 128.
      if (model.narrow <= 1) CHECK(least.count() == testing::approx(whole.count()));
      // More keys for every query make it no longer.
      CHECK(least_attention_time(model, kernel, 1e9, 1e14) <= least);
    }
  }
}

}  // namespace
}  // namespace parsim::sim
