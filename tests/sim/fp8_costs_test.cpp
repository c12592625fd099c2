// Prices of layers whose products run in FP8, by hand from products and casts.
#include <doctest/doctest.h>

#include <algorithm>

#include "lowering/lower.hpp"
#include "sim/gemm_interpolation.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

constexpr std::int64_t token_count = 2048, width = 4096;

/// Three layers of one input, as queries, keys and values, of which the last feeds a head.
struct Layers {
  Network network;
  LayerId first, second, head;
};
Layers layers() {
  Layers made;
  Network& net = made.network;
  const LayerId in = add_input(net, "in", vector_shape(width));
  made.first = add_layer(net, "first", Dense{width, false}, {in});
  made.second = add_layer(net, "second", Dense{width, false}, {in});
  const LayerId sum = add_layer(net, "sum", Combine{"add"}, {made.first, made.second});
  made.head = add_layer(net, "head", Dense{width, false}, {sum});
  (void)add_layer(net, "loss", Loss{}, {made.head});
  return made;
}

Cluster one(const std::string& device) {
  return topologies::load_cluster("star:1,device=" + device + ",rate=10GB/s,latency=1us", "test");
}

Cost price(const std::string& device, Precision precision, LayerId layer, Pass pass) {
  const Cluster cluster = one(device);
  const Layers made = layers();
  return make_tile_costs(cluster)->compute(made.network, layer,
                                           {whole(made.network[layer].out, token_count), {}}, pass,
                                           DeviceId{0}, precision);
}

double product(const std::string& device, Precision precision, std::int64_t m, std::int64_t n,
               std::int64_t k) {
  const GemmInterpolation gemms(
      *gemm_model_of(topologies::device_model(device, "test"), precision));
  return gemms.time(m, n, k, gemms.model().sustained).time.count();
}

TEST_CASE("fp8 costs: a linear layer is casts and products, by hand") {
  // An H100 reads and writes 0.75 * 3350 GB/s (tile_costs.cpp); a kernel's launch is 2.5 us.
  const double rate = 0.75 * 3350e9, elements = static_cast<double>(token_count * width);
  const struct {
    Precision recipe;
    double bytes, launches;
  } casts[] = {{Precision::fp8, 6, 2},
               {Precision::fp8_delayed, 4, 1},
               {Precision::fp8_blockwise, 2 + 2 * (1 + 4.0 / 128), 1}};
  const Layers made = layers();
  for (const auto& [recipe, bytes, launches] : casts) {
    CAPTURE(to_text(recipe));
    const double cast = bytes * elements / rate + launches * 2.5e-6;
    const auto time = [recipe = recipe](LayerId layer, Pass pass) {
      return price("h100-sxm5", recipe, layer, pass).time.count();
    };
    const double forward = product("h100-sxm5", recipe, token_count, width, width),
                 weights = product("h100-sxm5", recipe, width, width, token_count);
    CHECK(time(made.first, Pass::forward) == testing::approx(cast + forward));
    CHECK(time(made.first, Pass::recompute) == testing::approx(cast + forward));
    // The first of the layers has cast their input.
    CHECK(time(made.second, Pass::forward) == testing::approx(forward));
    // Each casts the gradient of its own output, for both of its gradients.
    CHECK(time(made.second, Pass::backward) == testing::approx(cast + forward + weights));
    CHECK(time(made.second, Pass::backward_data) == testing::approx(cast + forward));
    CHECK(time(made.second, Pass::backward_weights) == testing::approx(weights));
    // The head is as in bf16.
    CHECK(time(made.head, Pass::backward) ==
          price("h100-sxm5", Precision::bf16, made.head, Pass::backward).time.count());
    // Casts and all, faster than in bf16, but not twice as fast.
    const double bf16 = price("h100-sxm5", Precision::bf16, made.first, Pass::forward).time.count();
    CHECK(time(made.first, Pass::forward) < bf16);
    CHECK(time(made.first, Pass::forward) > 0.5 * bf16);
  }
}

TEST_CASE("fp8 costs: products are published, of the card's model, or borrowed") {
  const Layers made = layers();
  const auto origin = [&](const std::string& device, Precision recipe) {
    return price(device, recipe, made.first, Pass::forward).origin;
  };
  for (const Precision recipe : {Precision::fp8, Precision::fp8_blockwise}) {
    for (const char* measured : {"h100-sxm5", "h200-sxm", "b200-sxm", "gb200", "l40s"}) {
      CHECK(origin(measured, recipe) == Origin::published);
    }
    for (const char* other : {"h20", "l4", "rtx-4090", "b300", "mi300x"}) {
      CAPTURE(other);
      CHECK(origin(other, recipe) == Origin::guessed);
    }
    for (const char* chip : {"gh200", "h100-nvl", "rtx-6000-ada"}) {
      CHECK(origin(chip, recipe) == Origin::modelled);
    }
  }
  const auto lender = [](const char* device) {
    return gemm_model_of(topologies::device_model(device, "test"), Precision::fp8)->device;
  };
  CHECK(lender("h20") == "h100-sxm5");
  CHECK(lender("l4") == "l40s");
  CHECK(lender("gb300") == "gb200");
  CHECK(lender("rtx-pro-6000") == "l40s");
  CHECK(lender("mi300x") == "h100-sxm5");
  CHECK_FALSE(gemm_model_of(topologies::device_model("a100-sxm4-80", "test"), Precision::fp8));
}

TEST_CASE("fp8 costs: parts of widths that are no multiple of 16 multiply in bf16") {
  const Cluster cluster = one("h100-sxm5");
  const Layers made = layers();
  const auto cost = make_tile_costs(cluster);
  const auto time = [&](std::int64_t units, Precision precision) {
    const Part part{Region{{0, token_count}, {0, units}}, {}};
    return cost->compute(made.network, made.first, part, Pass::forward, DeviceId{0}, precision)
        .time;
  };
  CHECK(time(1000, Precision::fp8) == time(1000, Precision::bf16));
  CHECK(time(1008, Precision::fp8) != time(1008, Precision::bf16));
}

TEST_CASE("fp8 costs: an update casts weights in addition, by hand") {
  const Cluster cluster = one("h100-sxm5");
  const auto cost = make_tile_costs(cluster);
  OptimizerStep step{1000, Optimizer::adam, Precision::fp8, Precision::fp32};
  const double without = cost->update(DeviceId{0}, step).time.count();
  step.cast = 50'000'000;
  const double with = cost->update(DeviceId{0}, step).time.count();
  CHECK(with - without == testing::approx(6 * 50e6 / (0.75 * 3350e9)));
}

TEST_CASE("fp8: a plan's operations and messages are those of bf16") {
  using testing::World;
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128",
                    "star:4,device=h100-sxm5,rate=10GB/s");
  strategies::StrategyInput input = world.input(8);
  input.zero_stage = 1;
  input.tensor_parallel = 2;
  input.precision = Precision::bf16;
  Plan plan = strategies::plan_tensor(input);
  const ExecDag bf16 = lowering::lower(world.network, world.cluster, plan);
  plan.precision = Precision::fp8;
  ExecDag fp8 = lowering::lower(world.network, world.cluster, plan);
  CHECK(fp8.precision == Precision::fp8);
  CHECK(fp8.reduce_precision == bf16.reduce_precision);
  // What float64 makes of them (tests/lowering/meaning_test.cpp) is the same: casts have no
  // meaning.
  fp8.precision = Precision::bf16;
  CHECK(fp8 == bf16);
}

}  // namespace
}  // namespace parsim::sim
