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

TEST_CASE("scaling: the reference is of the fewest GPUs with a plan that fits, and gaps say why") {
  Request request = lenet("star:4,device=v100-sxm2,rate=1GB/s");
  request.batch = 64;
  const std::vector<const strategies::Strategy*> data{&strategies::strategy("data", "test")};
  const auto scaling = [&](const std::string& memory) {
    request.overrides = {"devices.*.memory=" + memory};
    return scale(Experiment(request), data, {1, 2, 4}, true);
  };
  const Scaling all = scaling("16GiB");
  CHECK(all.reference_gpus == 1);
  CHECK(all.reference_fits);
  const Scaling none = scaling("1KiB");
  CHECK(none.reference_gpus == 1);
  CHECK_FALSE(none.reference_fits);
  CHECK(none.points[0].speedup.value() == 1);

  request.overrides = {};
  request.data_parallel = 4;
  const Scaling four =
      scale(Experiment(request), {&strategies::strategy("tensor", "test")}, {1, 2, 4}, true);
  CHECK_FALSE(four.points[0].speedup);
  CHECK_FALSE(four.points[0].reason.empty());
  CHECK(four.reference_gpus == 4);
  CHECK(four.points[2].speedup.value() == 4);
  CHECK(four.points[2].reason.empty());
}

}  // namespace
}  // namespace parsim::experiment
