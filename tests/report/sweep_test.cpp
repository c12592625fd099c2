// Reports of sweeps that are not computed yet.
#include "report/sweep.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/approx.hpp"

namespace parsim::report {
namespace {

TEST_CASE("sweep: the points of a shard are divided among the jobs, by hand") {
  const experiment::Sweep sweep = experiment::read_sweep(
      "[options]\ncluster = \"star:2,device=t4\"\nnetwork = \"lenet5\"\n[axes]\n"
      "batch = [8, 16, 24, 32, 40, 48, 56, 64]\n",
      "sweep.toml", "1");
  const auto estimated = [&](const experiment::Shard& shard, std::size_t jobs) {
    SampledPoints sample;
    sample.each = Seconds{6};
    sample.tried = 1;
    return nlohmann::json::parse(report_points(sweep, shard, sample, jobs).json);
  };
  CHECK(estimated({}, 1)["estimated_time_s"] == testing::approx(48));
  CHECK(estimated({}, 4)["estimated_time_s"] == testing::approx(12));
  CHECK(estimated({1, 4, ""}, 3)["estimated_time_s"] == testing::approx(4));  // 2 of the 8 points
}

}  // namespace
}  // namespace parsim::report
