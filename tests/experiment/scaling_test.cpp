// The batch that nobody asked for, and speed-ups.
#include "experiment/scaling.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

Request lenet(const char* cluster) {
  Request request;
  request.network = "lenet5";
  request.cluster = cluster;
  return request;
}

TEST_CASE("experiment: the default batch is 32 a GPU, CPUs do not count") {
  const Experiment experiment(
      lenet("star:4,device=v100-sxm2,rate=10GB/s,cpu=xeon-e5-2698v4,cpu-rate=10GB/s"));
  REQUIRE(experiment.cluster.devices.size() == 5);
  CHECK(experiment.batch == 4 * 32);
}

TEST_CASE("scaling: a speed-up is over the fastest strategy on the fewest GPUs, in any order") {
  const Experiment experiment(lenet("star:4,device=v100-sxm2,rate=1GB/s"));
  std::vector<const strategies::Strategy*> order{&strategies::strategy("data", "test"),
                                                 &strategies::strategy("model-even", "test")};
  for (int i = 0; i < 2; ++i) {
    const Scaling scaling = scale(experiment, order, {2, 4}, true);
    REQUIRE(scaling.points.size() == 4);
    const double first = scaling.points[0].samples_per_second.value();
    const double second = scaling.points[1].samples_per_second.value();
    REQUIRE(first != second);
    const double fastest = std::max(first, second);
    CHECK(scaling.reference == fastest / 2);
    for (const ScalingPoint& point : scaling.points) {
      CHECK(point.speedup.value() ==
            testing::approx(2 * point.samples_per_second.value() / fastest).epsilon(1e-12));
    }
    std::reverse(order.begin(), order.end());
  }
}

}  // namespace
}  // namespace parsim::experiment
