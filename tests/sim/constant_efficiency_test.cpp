#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>

#include "core/layers.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

/// One device of each named type.
Cluster cluster_of(const std::vector<std::string>& types) {
  Cluster cluster = star(std::vector<double>(types.size(), 10e9), Seconds{1e-6});
  cluster.models.clear();
  for (std::size_t i = 0; i < types.size(); ++i) {
    cluster.models.push_back(topologies::device_model(types[i], "test"));
    cluster.devices[i].model = static_cast<std::int32_t>(i);
  }
  return cluster;
}

LayerId add(Network& network, const std::string& name, LayerKind kind,
            std::vector<LayerId> inputs) {
  return add_layer(network, name, std::move(kind), std::move(inputs));
}

Network small_network() {
  Network network;
  network.name = "small";
  const LayerId image = add_input(network, "image", image_shape(64, 56, 56));
  const LayerId conv =
      add(network, "conv", Conv{64, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 1, false}, {image});
  const LayerId relu = add(network, "relu", Activation{"relu", 0}, {conv});
  const LayerId flat = add(network, "flat", Flatten{}, {relu});
  const LayerId dense = add(network, "dense", Dense{1000, true}, {flat});
  add(network, "loss", Loss{}, {dense});
  return network;
}

constexpr LayerId image{0}, conv{1}, relu{2}, flat{3}, dense{4};

Part all_of(const Network& network, LayerId layer, std::int64_t samples) {
  return {whole(network[layer].out, samples), {}};
}

TEST_CASE("constant efficiency: a convolution by hand on a P100") {
  // 64 samples, 64 to 64 channels, 56 x 56, 3 x 3: 2 * 64 * 9 * 64*64*56*56 = 14.797 GFLOP.
  // P100 SXM2 fp32: 10.6 TFLOP/s, 0.84 forward, 0.71 and 0.64 backward, 40 us on top of a kernel:
  //   forward 14.797e9 / (10.6e12 * 0.84) + 40 us = 1.7019 ms
  //   backward 14.797e9 / 10.6e12 * (1/0.71 + 1/0.64) + 80 us = 4.2274 ms
  const Cluster cluster = cluster_of({"p100-sxm2"});
  const Network network = small_network();
  const auto cost = make_constant_efficiency(cluster);
  const auto time = [&](Pass pass) {
    const Cost found =
        cost->compute(network, conv, all_of(network, conv, 64), pass, DeviceId{0}, Precision::fp32);
    CHECK(found.origin == Origin::modelled);
    return found.time.count();
  };
  const double flops = 2.0 * 64 * 9 * 64 * 64 * 56 * 56;
  CHECK(time(Pass::forward) == testing::approx(flops / (10.6e12 * 0.84) + 40e-6).epsilon(1e-9));
  CHECK(time(Pass::forward) == testing::approx(1.7019e-3).epsilon(1e-4));
  CHECK(time(Pass::backward) == testing::approx(4.2274e-3).epsilon(1e-4));
  CHECK(time(Pass::backward) ==
        testing::approx(time(Pass::backward_data) + time(Pass::backward_weights)));
  CHECK(time(Pass::recompute) == time(Pass::forward));
}

TEST_CASE("constant efficiency: what multiplies nothing takes as long as its bytes") {
  // 8 samples of 64 x 56 x 56 floats in and out: 12.85 MB over 732 GB/s * 0.45, plus 40 us.
  // Backward: gradient in, activation, gradient out: 1.5 times the bytes.
  const Cluster cluster = cluster_of({"p100-sxm2"});
  const Network network = small_network();
  const auto cost = make_constant_efficiency(cluster);
  const auto time = [&](LayerId layer, Pass pass) {
    return cost
        ->compute(network, layer, all_of(network, layer, 8), pass, DeviceId{0}, Precision::fp32)
        .time.count();
  };
  const double bytes = 2.0 * 4 * 8 * 64 * 56 * 56;
  CHECK(time(relu, Pass::forward) == testing::approx(bytes / (732e9 * 0.45) + 40e-6).epsilon(1e-9));
  CHECK(time(relu, Pass::backward) ==
        testing::approx(1.5 * bytes / (732e9 * 0.45) + 40e-6).epsilon(1e-9));
  CHECK(time(flat, Pass::forward) == 0);
  CHECK(time(flat, Pass::backward) == 0);
  CHECK(time(image, Pass::forward) == 0);
  CHECK(cost->memory(DeviceId{0}, Bytes{732'000'000}).time.count() ==
        testing::approx(1e-3 / 0.45 + 40e-6).epsilon(1e-9));
}

TEST_CASE("constant efficiency: a dense layer of few samples is limited by its weights") {
  // 200,704 x 1000 weights of 4 bytes for one sample: 803 MB against 0.4 GFLOP.
  const Cluster cluster = cluster_of({"v100-sxm2"});
  const Network network = small_network();
  const auto cost = make_constant_efficiency(cluster);
  const auto time = [&](std::int64_t samples) {
    return cost
        ->compute(network, dense, all_of(network, dense, samples), Pass::forward, DeviceId{0},
                  Precision::fp32)
        .time.count();
  };
  const double bytes = 4.0 * (200704.0 * 1000 + 1000 + 200704 + 1000);
  CHECK(time(1) == testing::approx(bytes / (900e9 * 0.85) + 25.61e-6).epsilon(1e-9));
  CHECK(std::abs(time(2) / time(1) - 1) < 0.01);
}

TEST_CASE("constant efficiency: who has no measurements borrows them and says guessed") {
  const Cluster cluster =
      cluster_of({"v100-sxm2", "a100-sxm4-40", "l4", "k80", "mi300x", "xeon-e5-2600"});
  const Network network = small_network();
  const auto cost = make_constant_efficiency(cluster);
  const auto found = [&](int device, Precision precision) {
    return cost->compute(network, conv, all_of(network, conv, 64), Pass::forward, DeviceId{device},
                         precision);
  };
  const double flops = 2.0 * 64 * 9 * 64 * 64 * 56 * 56;
  struct Expected {
    int device;
    Precision precision;
    double forward, overhead;
    Origin origin;
  };
  // A100 (40 GB) borrow TF32 from the V100 and 16 bits from the H100, MI300X from the H100, L4 (a
  // small card) from the T4, K80 from the M40. Only the overhead of FP32 is the A100's own, and T4
  // run at a lower clock.
  for (const Expected& e : {Expected{0, Precision::fp32, 0.93, 25.61e-6, Origin::modelled},
                            Expected{0, Precision::fp16, 0.59, 13.12e-6, Origin::modelled},
                            Expected{0, Precision::tf32, 0.93, 25.61e-6, Origin::guessed},
                            Expected{1, Precision::fp32, 0.93, 40e-6, Origin::guessed},
                            Expected{1, Precision::tf32, 0.59, 13.12e-6, Origin::guessed},
                            Expected{1, Precision::bf16, 0.4, 9.41e-6, Origin::guessed},
                            Expected{2, Precision::fp16, 0.51 / 1.3, 19.83e-6, Origin::guessed},
                            Expected{3, Precision::fp32, 0.53, 40e-6, Origin::guessed},
                            Expected{4, Precision::fp16, 0.4, 9.41e-6, Origin::guessed},
                            Expected{5, Precision::fp32, 0.5, 2e-6, Origin::guessed}}) {
    CAPTURE(e.device);
    const Cost cost_of = found(e.device, e.precision);
    const double peak = cluster.model(DeviceId{e.device}).peak_at(e.precision).value;
    CHECK(cost_of.origin == e.origin);
    CHECK(cost_of.time.count() ==
          testing::approx(flops / (peak * e.forward) + e.overhead).epsilon(1e-9));
  }
}

TEST_CASE("constant efficiency: every device has a cost, and more work never takes less time") {
  std::vector<std::string> types;
  for (const DeviceModel& model : topologies::device_models()) types.push_back(model.name);
  const Cluster cluster = cluster_of(types);
  const Network network = small_network();
  const auto cost = make_constant_efficiency(cluster);
  CHECK(rc::check([&] {
    const DeviceId device{*rc::gen::inRange(0, static_cast<int>(types.size()))};
    const LayerId layer{*rc::gen::inRange(0, static_cast<int>(network.layers.size()))};
    const auto pass = static_cast<Pass>(*rc::gen::inRange(0, 5));
    const auto precision = static_cast<Precision>(*rc::gen::inRange(0, 4));
    const std::int64_t less = *rc::gen::inRange(1, 50), more = less + *rc::gen::inRange(0, 50);
    const auto time = [&](std::int64_t samples) {
      return cost->compute(network, layer, all_of(network, layer, samples), pass, device, precision)
          .time;
    };
    RC_ASSERT(time(less) >= Seconds{0});
    RC_ASSERT(time(more) >= time(less));
  }));
}

TEST_CASE("constant efficiency: transfers and collectives without contention") {
  const Cluster cluster = star({10e9, 5e9, 10e9}, Seconds{1e-6});
  const auto cost = make_constant_efficiency(cluster);
  CHECK(cost->transfer(DeviceId{0}, DeviceId{1}, Bytes{5'000'000}).count() ==
        testing::approx(2e-6 + 1e-3).epsilon(1e-12));
  // In the device: read and written, 700 GB/s * 0.45, 40 us.
  CHECK(cost->transfer(DeviceId{0}, DeviceId{0}, Bytes{5'000'000}).count() ==
        testing::approx(10e6 / (700e9 * 0.45) + 40e-6).epsilon(1e-12));
  CHECK(cost->collective(CollectiveKind::all_reduce, devices(0, 1), Bytes{100}) == Seconds{0});
  // All-to-all of 6 pairs with 1 MB each: the slow device sends and receives 2 MB at 5 GB/s.
  CHECK(cost->collective(CollectiveKind::all_to_all, devices(0, 3), Bytes{6'000'000}).count() ==
        testing::approx(2e-6 + 0.4e-3).epsilon(1e-12));
}

}  // namespace
}  // namespace parsim::sim
