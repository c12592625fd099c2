#include "sim/winograd.hpp"

#include <algorithm>
#include <limits>

#include "core/errors.hpp"

namespace parsim::sim {

namespace {

constexpr double bytes_of_fp32 = 4, taps = 9;
/// Multiplications of a tile: of 2 x 2 pixels, of 4 x 4.
constexpr std::int64_t small_products = 16, large_products = 36, large_tile = 4;
constexpr std::int64_t block_channels = 32, block_tiles = 32;

/// Rows and columns of the pixels of a thread block: 4 x 8 tiles, "tile148" in names of kernels.
constexpr std::int64_t block_rows = 8, block_columns = 16;

constexpr std::int64_t blocks_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Channels that are summed over, and written; of a weights' gradient those of both tensors.
struct Channels {
  std::int64_t read = 0, written = 0;
};
Channels channels_of(const Kernel& kernel) {
  const std::int64_t rows = kernel.kind == KernelClass::backward_weights ? kernel.m : kernel.k;
  return {rows / static_cast<std::int64_t>(taps), kernel.n};
}

double fused_time(const Kernel& kernel, const Channels& channels, const TileRates& rates) {
  const std::int64_t count = kernel.image->samples * blocks_of(kernel.image->rows, block_rows) *
                             blocks_of(kernel.image->columns, block_columns) *
                             blocks_of(channels.written, block_channels);
  const double step = 2 * small_products * block_tiles * block_channels;
  const double work = static_cast<double>(blocks_of(count, rates.multiprocessors)) * step *
                      (static_cast<double>(channels.read) + rates.winograd.prologue);
  const double weights = static_cast<double>(channels.read * channels.written);
  return std::max(work / rates.winograd.fused, kernel.elements * bytes_of_fp32 / rates.memory) +
         (taps + small_products) * weights * bytes_of_fp32 / rates.winograd.transforms;
}

double transforms_of(const Kernel& kernel, const TileRates& rates) {
  return kernel.kind == KernelClass::backward_weights ? rates.winograd.weight_transforms
                                                      : rates.winograd.transforms;
}

}  // namespace

bool has_winograd(const Kernel& kernel, const TileRates& rates) {
  return kernel.image && rates.winograd.fused > 0;
}

Seconds winograd_time(const Kernel& kernel, const TileRates& rates) {
  ensure(has_winograd(kernel, rates), "a convolution that was measured by algorithm");
  const bool of_weights = kernel.kind == KernelClass::backward_weights;
  const Channels channels = channels_of(kernel);
  const double fused =
      of_weights ? std::numeric_limits<double>::infinity() : fused_time(kernel, channels, rates);
  const std::int64_t tiles = kernel.image->samples * blocks_of(kernel.image->rows, large_tile) *
                             blocks_of(kernel.image->columns, large_tile);
  const auto c = static_cast<double>(channels.read), k = static_cast<double>(channels.written),
             t = static_cast<double>(tiles);
  Kernel products;
  products.kind = KernelClass::gemm;
  products.batches = large_products;
  products.k = of_weights ? tiles : channels.read;
  const std::int64_t rows = of_weights ? channels.read : tiles;
  products.m = std::max(rows, channels.written);
  products.n = std::min(rows, channels.written);
  products.elements = large_products * (t * c + c * k + t * k);
  // The tensors without the weights, which are read and written in both forms.
  const double tensors = kernel.elements - taps * c * k;
  const double moved = tensors + large_products * t * (c + k) + (taps + large_products) * c * k;
  const double apart =
      gemm_time(products, rates, static_cast<std::int64_t>(bytes_of_fp32)).count() +
      moved * bytes_of_fp32 / transforms_of(kernel, rates);
  return Seconds{std::min(apart, fused) + rates.overhead};
}

double least_winograd_time(const Kernel& kernel, double flops, const TileRates& rates) {
  // A tile of p x p pixels has 9 · p² direct products.
  constexpr double small = 4, large = large_tile * large_tile;
  const Channels channels = channels_of(kernel);
  const auto c = static_cast<double>(channels.read), k = static_cast<double>(channels.written);
  const auto devices = static_cast<double>(rates.multiprocessors);
  const double fused = flops * small_products / (small * taps) / (rates.winograd.fused * devices);
  const double peak = rates.rate[static_cast<std::size_t>(KernelClass::gemm)][0] * devices;
  const double tiles = flops / (2 * taps * c * k * large);
  const double apart =
      flops * large_products / (large * taps) / peak +
      large_products * tiles * (c + k) * bytes_of_fp32 / transforms_of(kernel, rates);
  return kernel.kind == KernelClass::backward_weights ? apart : std::min(fused, apart);
}

}  // namespace parsim::sim
