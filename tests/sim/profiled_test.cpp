#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "core/profile.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

const Conv measured_conv{8, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 1, true};

Part batch_of(std::int64_t samples) { return {Region{{0, samples}, {0, 8}, {0, 6}, {0, 6}}, {}}; }

/// One measured convolution of four samples on "d"; a model's time for others.
Profile one_kernel(const Cluster& cluster) {
  Profile profile;
  profile.machine.cluster = cluster;
  profile.kernels = {{cluster.models[0].name,
                      measured_conv,
                      {image_shape(4, 6, 6)},
                      batch_of(4),
                      Pass::forward,
                      Precision::fp32,
                      {7ms, 7ms, 7ms, 9}}};
  return profile;
}

}  // namespace

TEST_CASE(
    "profiled: a measured kernel has its time, a near one is scaled by the model, else the model") {
  const Cluster cluster = star_of(2, "10 GB/s", "1us");
  const auto base = make_constant_efficiency(cluster);
  const auto cost =
      make_profiled(cluster, make_constant_efficiency(cluster), one_kernel(cluster), "test");
  const Network net = network_of("x: image 4x6x6; c: conv 8 k3 p1; relu; loss: flatten");
  const auto ask = [&](const CostModel& model, std::int64_t samples, Pass pass) {
    return model.compute(net, LayerId{1}, batch_of(samples), pass, DeviceId{1}, Precision::fp32);
  };
  CHECK(ask(*cost, 4, Pass::forward).time == 7ms);
  CHECK(ask(*cost, 4, Pass::forward).origin == Origin::measured);
  const double ratio = ask(*base, 16, Pass::forward).time / ask(*base, 4, Pass::forward).time;
  CHECK(ask(*cost, 16, Pass::forward).time.count() == testing::approx(7e-3 * ratio));
  CHECK(ask(*cost, 16, Pass::forward).origin == Origin::scaled);
  CHECK(ask(*cost, 4, Pass::backward).time == ask(*base, 4, Pass::backward).time);
}

TEST_CASE("profiled: the nearest measured kernel is so by ratio, not by difference") {
  // Asked is four times the smaller and half of the larger, which is further away in samples.
  const Cluster cluster = star_of(1, "10 GB/s", "1us");
  const auto base = make_constant_efficiency(cluster);
  Profile profile = one_kernel(cluster);
  profile.kernels.push_back(profile.kernels[0]);
  profile.kernels[0].part = batch_of(100'000);
  profile.kernels[1].part = batch_of(800'000);
  profile.kernels[1].time = {500ms, 500ms, 500ms, 9};
  const auto cost = make_profiled(cluster, make_constant_efficiency(cluster), profile, "test");
  const Network net = network_of("x: image 4x6x6; c: conv 8 k3 p1; relu; loss: flatten");
  const auto ask = [&](const CostModel& model, std::int64_t samples) {
    return model
        .compute(net, LayerId{1}, batch_of(samples), Pass::forward, DeviceId{0}, Precision::fp32)
        .time;
  };
  REQUIRE(ask(*base, 400'000) / ask(*base, 100'000) > 3.5);
  const double ratio = ask(*base, 400'000) / ask(*base, 800'000);
  CHECK(ask(*cost, 400'000).count() == testing::approx(0.5 * ratio).epsilon(1e-12));
}

TEST_CASE("profiled: the spread of what was measured stands before what the model is worth") {
  const Cluster cluster = star_of(1, "10 GB/s", "1us");
  Profile profile = one_kernel(cluster);
  profile.kernels[0].time = {10ms, 9ms, 12ms, 9};
  const auto cost = make_profiled(cluster, make_constant_efficiency(cluster), profile, "test");
  const std::string known = cost->accuracy(Precision::fp32);
  CHECK(
      known.starts_with("quartiles of measured kernels within 20 % of the time used (median of 1 "
                        "kernels); others: "));
  CHECK(known.ends_with(make_constant_efficiency(cluster)->accuracy(Precision::fp32)));
  CHECK(cost->accuracy(Precision::fp16) ==
        make_constant_efficiency(cluster)->accuracy(Precision::fp16));
}

TEST_CASE("profiled: copies and messages are interpolated between measured sizes") {
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  Profile profile = one_kernel(cluster);
  profile.memory = {{cluster.models[0].name, Bytes{100}, {1ms, 1ms, 1ms, 9}},
                    {cluster.models[0].name, Bytes{10000}, {4ms, 4ms, 4ms, 9}}};
  profile.messages = {{"transfer", {DeviceId{0}, DeviceId{1}}, Bytes{1000}, {3ms, 3ms, 3ms, 9}}};
  const auto cost = make_profiled(cluster, make_constant_efficiency(cluster), profile, "test");
  CHECK(cost->memory(DeviceId{0}, Bytes{10}).time == 1ms);
  CHECK(cost->memory(DeviceId{0}, Bytes{1000}).time.count() == testing::approx(2e-3));  // log-log
  CHECK(cost->memory(DeviceId{0}, Bytes{20000}).time == 8ms);
  CHECK(cost->transfer(DeviceId{0}, DeviceId{1}, Bytes{2000}) == 6ms);
  CHECK(cost->transfer(DeviceId{2}, DeviceId{1}, Bytes{1000}) == 3ms);  // of another pair
}

TEST_CASE("profiled: a simulation gives a measured message its time whatever else runs") {
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  Profile profile = one_kernel(cluster);
  profile.messages = {{"transfer", {DeviceId{0}, DeviceId{1}}, Bytes{1000000}, {3ms, 3ms, 3ms, 9}}};
  const auto cost = make_profiled(cluster, make_constant_efficiency(cluster), profile, "test");
  const NotedDag noted = dag_of("a: transfer d0->d1 1MB; b: transfer d2->d1 1MB on tensor");
  const Timeline timeline = make_simgrid_executor(cluster, *cost, {})->run(noted.dag);
  for (const Span& span : timeline.spans) CHECK((span.end - span.start) == Seconds{3ms});
  CHECK(timeline.hop_bytes.empty());  // links tell nothing of measured messages
  Profile elsewhere = profile;
  elsewhere.machine.cluster.name = "another";
  const auto flows = make_profiled(cluster, make_constant_efficiency(cluster), elsewhere, "test");
  CHECK(makespan(make_simgrid_executor(cluster, *flows, {})->run(noted.dag)) < 1ms);
}

TEST_CASE("profiled: a profile of other devices is refused with what it has") {
  const Cluster cluster = star_of(2, "10 GB/s", "1us");
  Profile profile = one_kernel(cluster);
  profile.kernels[0].device = "h200";
  CHECK_THROWS_WITH_AS(static_cast<void>(make_profiled(cluster, make_constant_efficiency(cluster),
                                                       profile, "--profile")),
                       doctest::Contains("accepted: a cluster with h200"), InputError);
}

}  // namespace parsim::sim
