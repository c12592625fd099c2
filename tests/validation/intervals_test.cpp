#include "validation/intervals.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "experiment/step_interval.hpp"
#include "tests/support/approx.hpp"
#include "validation/measurements.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {
namespace {

ValidationRow row_of(const std::string& set, const std::string& unit, double expected,
                     double predicted) {
  ValidationRow row;
  row.claim.set = set;
  row.claim.unit = unit;
  row.claim.expected = expected;
  row.claim.what["machine"] = "box";
  row.predicted = predicted;
  row.parts.emplace();
  row.parts->at(static_cast<std::size_t>(experiment::CostClass::products)) = 1;
  return row;
}

}  // namespace

TEST_CASE("intervals: of times and rates, inside and outside by hand") {
  const experiment::Spreads& all = experiment::spreads(false);
  ValidationRow row = row_of("a", "ms", 10, 10);
  const auto [low, high] = experiment::step_interval(*row.parts, all);
  CHECK(interval_of(row)->first == testing::approx(10 * low));
  CHECK(interval_of(row)->second == testing::approx(10 * high));
  row.claim.unit = "images/s";
  CHECK(interval_of(row)->first == testing::approx(10 / high));
  CHECK(interval_of(row)->second == testing::approx(10 / low));
  // Five times slower than predicted: time and rate have the same error.
  const std::vector<ValidationRow> rows = {row_of("a", "ms", 10, 10), row_of("a", "ms", 50, 10),
                                           row_of("b", "images/s", 2, 10)};
  CHECK(log_error(rows[1]) == testing::approx(std::log(5.0)));
  CHECK(log_error(rows[2]) == testing::approx(std::log(5.0)));
  const std::vector<IntervalScores> scores = interval_scores(rows);
  REQUIRE(scores.size() == 3);
  CHECK(scores[0].coverage == 0.5);
  CHECK(scores[1].coverage == 0);
  CHECK(scores[2].set == "all");
  CHECK(scores[2].rows == 3);
  CHECK(scores[2].coverage == testing::approx(1.0 / 3));
  const double width = std::log(high) - std::log(low);
  CHECK(scores[0].score == testing::approx(width + 20 * (std::log(5.0) - std::log(high)) / 2));
  CHECK(scores[0].median_half_width == testing::approx((high - low) / 2));
  CHECK(scores[1].constant_score ==
        testing::approx(2 * all.constant + 20 * (std::log(5.0) - all.constant)));
}

TEST_CASE("intervals: every system of the built-in rows can be left out by the name it has there") {
  int left_out = 0;
  for (const Claim& claim : published_measurements()) {
    if (split_of(claim) != Split::validate) continue;
    const experiment::Spreads& without = experiment::spreads(false, system_of(claim));
    left_out += &without != &experiment::spreads(false) ? 1 : 0;
  }
  CHECK(left_out > 1000);
}

}  // namespace parsim::validation
