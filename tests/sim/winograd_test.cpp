#include "sim/winograd.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>

#include "core/layers.hpp"
#include "sim/least_kernels.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

struct Convolution {
  std::int64_t samples = 1, channels = 1, pixels = 1, filters = 1;
};

/// A padded 3 x 3 convolution of square images.
LayerId add_convolution(Network& network, const Convolution& c) {
  const LayerId image = add_input(network, "in", image_shape(c.channels, c.pixels, c.pixels));
  const Window window{3, 1, 1, 1};
  return add_layer(network, "conv", Conv{c.filters, {window, window}, 1, false}, {image});
}

/// The only kernel of a pass.
Kernel kernel_of(const Convolution& c, Pass pass) {
  Network network;
  const LayerId conv = add_convolution(network, c);
  const Kernels kernels =
      kernels_of(network, conv, {whole(network[conv].out, c.samples), {}}, pass);
  REQUIRE(kernels.count == 1);
  return kernels.list[0];
}

/// Twelve multiprocessors that make one tile, of any size, of depth 1000 in 1 ms, no overhead.
TileRates twelve_multiprocessors() {
  Coefficients row;
  row.tiles = {1, 1, 1, 1, 1, 0};
  row.area_exponent = 1;
  row.winograd = {1, 4, 1, 1};
  return tile_rates(row, 12, FlopsPerSecond{12 * 65.536e9}, BytesPerSecond{1e18});
}

double winograd_ms(const Kernel& kernel, const TileRates& rates) {
  return winograd_time(kernel, rates).count() * 1e3;
}

}  // namespace

TEST_CASE("winograd: blocks of the fused kernel by hand") {
  // 16 x 16 pixels are two blocks of 8 x 16; with 33 filters four, with 4 samples sixteen, which
  // are two waves. A block takes 2 · 16 · 32 · 32 · (12 + 4) / 65.536e9 s = 8 us.
  TileRates rates = twelve_multiprocessors();
  const Kernel kernel = kernel_of({4, 12, 16, 33}, Pass::forward);
  CHECK(winograd_ms(kernel, rates) == testing::approx(16e-3));
  // The transform of 12 x 33 filters reads 9 and writes 16 numbers for each, in 1 ms.
  rates.winograd.transforms = 25.0 * 12 * 33 * 4 / 1e-3;
  rates.winograd.weight_transforms = rates.winograd.transforms;
  CHECK(winograd_ms(kernel, rates) == testing::approx(1.016));
  rates.overhead = 5e-6;
  CHECK(winograd_ms(kernel, rates) == testing::approx(1.021));
}

TEST_CASE("winograd: 36 products between transforms by hand") {
  // 16 samples of 16 x 16 pixels are 256 tiles of 4 x 4: 36 products of 256 x 128 x 256, which are
  // one tile each, in three waves of 256 us. The fused kernel has eleven of 130 us.
  TileRates rates = twelve_multiprocessors();
  const Kernel kernel = kernel_of({16, 256, 16, 128}, Pass::forward);
  CHECK(winograd_ms(kernel, rates) == testing::approx(0.768));
  // Tensors, their tiles in 36 numbers for 16, and filters in 36 for 9.
  const double moved = 16.0 * 256 * (256 + 128) + 36.0 * 256 * (256 + 128) + 45.0 * 256 * 128;
  const double products = winograd_ms(kernel, rates);
  rates.winograd.transforms = moved * 4 / 0.5e-3;
  CHECK(winograd_ms(kernel, rates) == testing::approx(products + 0.5));
  // Weights' gradients have a rate of their own, and no fused kernel.
  const Kernel weights = kernel_of({16, 256, 16, 128}, Pass::backward_weights);
  rates.winograd.weight_transforms = moved * 4 / 2e-3;
  rates.winograd.fused = 1e20;
  CHECK(winograd_ms(weights, rates) == testing::approx(products + 2));
}

TEST_CASE(
    "winograd: more samples, pixels or channels never take less time, nor less than the bound") {
  CHECK(rc::check([] {
    const auto upto = [](std::int64_t most) { return *rc::gen::inRange<std::int64_t>(1, most); };
    const Convolution small{upto(64), upto(600), upto(60), upto(600)};
    Convolution large = small;
    for (std::int64_t* one : {&large.samples, &large.pixels, &large.channels, &large.filters}) {
      *one += upto(30) - 1;
    }
    Coefficients row;
    row.tiles = {0.9, 0.9, 0.8, 0.7, 0.6, 1e-5};
    row.area_exponent = 0.2;
    row.winograd = {0.9, 10, 0.5, 0.6};
    const TileRates rates = tile_rates(row, upto(150), FlopsPerSecond{1e13}, BytesPerSecond{7e11});
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      const Kernel kernel = kernel_of(small, pass);
      RC_ASSERT(kernel.image.has_value());
      const double time = gemm_time(kernel, rates, 4).count();
      const LeastTime least = least_gemm_time({kernel, kernel.flops}, rates, 4);
      RC_ASSERT(time * (1 + 1e-12) >= (least.fixed + least.whole).count());
      // Split sums make a deeper product faster now and then (tiles_test).
      const bool of_weights = pass == Pass::backward_weights;
      if (!of_weights) {
        RC_ASSERT(winograd_time(kernel_of(large, pass), rates) >=
                  winograd_time(kernel, rates) * (1 - 1e-12));
      }
    }
  }));
}

TEST_CASE("winograd: only 3 x 3 convolutions of stride 1, and only in FP32") {
  const Cluster cluster = topologies::load_cluster("star:1,device=v100-sxm2", "test");
  const DeviceModel& v100 = cluster.models[0];
  CHECK(coefficients_of(v100, Precision::fp32).row->winograd.fused > 0);
  CHECK(coefficients_of(v100, Precision::fp16).row->winograd.fused == 0);
  Network network;
  const LayerId image = add_input(network, "in", image_shape(64, 28, 28));
  const Window plain{3, 1, 1, 1}, strided{3, 2, 1, 1}, wide{5, 1, 2, 2};
  for (const Window& window : {plain, strided, wide}) {
    for (const std::int64_t groups : {1, 4}) {
      const LayerId conv =
          add_layer(network, "conv", Conv{64, {window, window}, groups, false}, {image});
      const Part part{whole(network[conv].out, 8), {}};
      const bool has = window.kernel == 3 && window.stride == 1 && groups == 1;
      CHECK(kernels_of(network, conv, part, Pass::forward).list[0].image.has_value() == has);
    }
  }
}

/// Seconds on one card, in FP32.
double seconds_on(const std::string& device, const Convolution& c, Pass pass) {
  const Cluster cluster = topologies::load_cluster("star:1,device=" + device, "test");
  Network network;
  const LayerId conv = add_convolution(network, c);
  const Part part{whole(network[conv].out, c.samples), {}};
  return make_tile_costs(cluster)
      ->compute(network, conv, part, pass, DeviceId{0}, Precision::fp32)
      .time.count();
}

double error_on(const std::string& device, const Convolution& c, Pass pass, double measured_us) {
  return std::abs(seconds_on(device, c, pass) * 1e6 / measured_us - 1);
}

TEST_CASE("winograd: measured convolutions of a V100") {
  // Held-out rows of sim/convolution_rows.csv. With the gain of 2.16 that all of them had before,
  // the first took 105 us, because images of 7 pixels fill neither kind of tile.
  const auto error = [](const Convolution& c, Pass pass, double measured_us) {
    return error_on("v100-sxm2", c, pass, measured_us);
  };
  CHECK(error({8, 512, 7, 512}, Pass::forward, 236) < 0.15);
  CHECK(error({8, 64, 112, 128}, Pass::forward, 624) < 0.15);
  CHECK(error({8, 256, 28, 512}, Pass::backward_data, 741) < 0.2);
  CHECK(error({8, 256, 28, 512}, Pass::backward_weights, 420) < 0.15);
}

TEST_CASE("winograd: direct convolutions of an A100, measured and with another card's shares") {
  // A held-out row of sim/convolution_rows.csv; 23 % off with the V100's share as it is.
  CHECK(error_on("a100-pcie", {28, 8, 142, 303}, Pass::forward, 2178) < 0.1);
  // One tile of 27 x 64 in 64 parts of 25,088 samples: 128 blocks of 32 x 32 are two waves on both
  // cards, whose multiprocessors have 181 and 196 GFLOP/s. With how the A100's matrix products
  // slow down in small tiles, it took 4.8 times as long as the V100.
  const Convolution first{32, 3, 224, 64};
  const double v100 = seconds_on("v100-sxm2", first, Pass::backward_weights);
  CHECK(seconds_on("a100-sxm4-40", first, Pass::backward_weights) ==
        testing::approx(196.25 / 180.56 / 0.74 * v100).epsilon(0.02));
  // Convolutions of one tap are products, of which the A100 has as large a share.
  const Cluster cluster = topologies::load_cluster("star:1,device=a100-sxm4-40", "test");
  const Coefficients& row = *coefficients_of(cluster.models[0], Precision::fp32).row;
  const TileRates rates = tile_rates(row, 108, FlopsPerSecond{1}, BytesPerSecond{1});
  Kernel kernel;
  kernel.kind = KernelClass::forward;
  CHECK(direct_rate(kernel, rates) == row.winograd.direct);
  kernel.shape = KernelShape::pointwise;
  CHECK(direct_rate(kernel, rates) == 1);
}

}  // namespace parsim::sim
