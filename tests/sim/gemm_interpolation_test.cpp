#include "sim/gemm_interpolation.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "tests/support/approx.hpp"

namespace parsim::sim {
namespace {

const GemmModel& model_named(const std::string& device) {
  const auto found = std::find_if(gemm_models().begin(), gemm_models().end(),
                                  [&](const GemmModel& one) { return one.device == device; });
  REQUIRE(found != gemm_models().end());
  return *found;
}

TEST_CASE("GEMM interpolation: cells of half an octave") {
  for (std::int64_t extent = 1; extent < 3000; ++extent) {
    const int cell = GemmInterpolation::cell_of(extent);
    CHECK(static_cast<double>(extent) >= std::exp2(cell / 2.0) * (1 - 1e-9));
    CHECK(static_cast<double>(extent) < std::exp2((cell + 1) / 2.0) * (1 - 1e-9));
    CHECK((extent == GemmInterpolation::last_of(cell)) ==
          (GemmInterpolation::cell_of(extent + 1) > cell));
  }
}

TEST_CASE("GEMM interpolation: a time is the longest of all smaller products, each corrected") {
  for (const char* device : {"a100-sxm4-80", "l40s"}) {
    const GemmModel& model = model_named(device);
    const GemmInterpolation gemms(model);
    for (const std::int64_t k : {64, 4096}) {
      for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{40, 25}, {17, 32}, {3, 1}}) {
        double longest = 0;
        for (std::int64_t rows = 1; rows <= m; ++rows) {
          for (std::int64_t columns = 1; columns <= n; ++columns) {
            const double c = gemms
                                 .correction(GemmInterpolation::cell_of(rows),
                                             GemmInterpolation::cell_of(columns), k)
                                 .logarithm;
            longest = std::max(
                longest, gemm_time(model, rows, columns, k, 1, model.burst).count() * std::exp(c));
          }
        }
        CHECK(gemms.time(m, n, k, model.burst).time.count() == testing::approx(longest));
      }
    }
  }
}

TEST_CASE("GEMM interpolation: more rows or columns never take less time") {
  CHECK(rc::check([] {
    static const GemmInterpolation a100(model_named("a100-sxm4-80")), b200(model_named("b200-sxm"));
    const GemmInterpolation& gemms = *rc::gen::inRange(0, 2) == 0 ? a100 : b200;
    const auto extent = [] { return *rc::gen::inRange<std::int64_t>(1, 9000); };
    const std::int64_t m = extent(), n = extent(), k = extent();
    const auto time = [&](std::int64_t rows, std::int64_t columns) {
      return gemms.time(rows, columns, k, gemms.model().sustained).time;
    };
    RC_ASSERT(time(m, n) > Seconds{0});
    RC_ASSERT(time(m + *rc::gen::inRange<std::int64_t>(0, 300), n) >= time(m, n));
    RC_ASSERT(time(m, n + *rc::gen::inRange<std::int64_t>(0, 300)) >= time(m, n));
  }));
}

TEST_CASE("GEMM interpolation: measured shapes are near, others are the model's own") {
  const GemmModel& model = model_named("a100-sxm4-80");
  const GemmInterpolation gemms(model);
  // 74 rows are of these weights.
  const GemmTime measured = gemms.time(4096, 4096, 4096, model.burst);
  CHECK(measured.near);
  CHECK(measured.time.count() < 1.3 * gemm_time(model, 4096, 4096, 4096, 1, model.burst).count());
  // Nothing was measured with sums so deep.
  const GemmTime far = gemms.time(300, 300, 4'000'000, model.burst);
  CHECK_FALSE(far.near);
  const double alone = gemm_time(model, 300, 300, 4'000'000, 1, model.burst).count();
  CHECK(far.time.count() == testing::approx(alone));
}

}  // namespace
}  // namespace parsim::sim
