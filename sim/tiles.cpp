#include "sim/tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/errors.hpp"
#include "sim/winograd.hpp"

namespace parsim::sim {

namespace {

constexpr std::int64_t largest_split = 64, least_inner = 64;
constexpr double steps_at_once = 32, partial_sum_bytes = 2;

constexpr std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Time of a convolution by FFT. Only the coefficients of GEMMs are fitted.
Seconds spectral_time(const Kernel& gemm, const TileRates& rates, std::int64_t element_bytes) {
  const Spectrum& s = *gemm.spectrum;
  Kernel real;
  real.kind = KernelClass::gemm;
  real.batches = Spectrum::frequencies;
  real.m = s.m;
  real.n = 2 * s.n;
  real.k = 2 * s.k;
  constexpr double reals_of_complex = 2;
  real.elements = reals_of_complex * static_cast<double>(real.batches) *
                  static_cast<double>(s.m * s.k + s.k * s.n + s.m * s.n);
  constexpr std::int64_t spectrum_bytes = 4;  // single precision for tensors of any precision
  const double transforms =
      (gemm.elements * static_cast<double>(element_bytes) + real.elements * spectrum_bytes) /
      rates.memory;
  return Seconds{transforms} + gemm_time(real, rates, spectrum_bytes);
}

}  // namespace

TileRates tile_rates(const Coefficients& row, std::int64_t multiprocessors, FlopsPerSecond peak,
                     BytesPerSecond memory) {
  ensure(multiprocessors > 0, "a GPU has multiprocessors");
  TileRates rates;
  rates.multiprocessors = multiprocessors;
  const double each = peak.value / static_cast<double>(multiprocessors);
  const double largest = static_cast<double>(tiles[0].rows * tiles[0].columns);
  for (std::size_t kind = 0; kind < rates.rate.size(); ++kind) {
    const bool product = static_cast<KernelClass>(kind) == KernelClass::gemm;
    const double exponent = product ? row.area_exponent : row.convolution_area_exponent;
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const double area = static_cast<double>(tiles[t].rows * tiles[t].columns);
      rates.rate[kind][t] = each / row.sustained * row.tiles.of(static_cast<KernelClass>(kind)) *
                            std::pow(area / largest, exponent);
      if (product) {
        rates.batched_rate[t] =
            rates.rate[kind][t] * std::pow(area / largest, row.batched_exponent);
      }
    }
  }
  rates.memory = memory.value * row.tiles.memory;
  rates.step = row.step;
  rates.convolution_step = row.convolution_step;
  rates.winograd3 = row.winograd3;
  rates.winograd5 = row.winograd5;
  rates.winograd = {row.winograd.fused * each / row.sustained, row.winograd.prologue,
                    row.winograd.transforms * memory.value,
                    row.winograd.weight_transforms * memory.value, row.winograd.direct};
  rates.overhead = row.tiles.overhead;
  rates.factors = row.factors;
  return rates;
}

double direct_rate(const Kernel& kernel, const TileRates& rates) {
  const bool one_tap =
      kernel.shape == KernelShape::pointwise || kernel.shape == KernelShape::strided_pointwise;
  return kernel.kind == KernelClass::gemm || one_tap ? 1.0 : rates.winograd.direct;
}

double tiled_rate(const Kernel& kernel, const TileRates& rates) {
  if (has_winograd(kernel, rates) || kernel.winograd == 0) return direct_rate(kernel, rates);
  return kernel.winograd == 3 ? rates.winograd3 : rates.winograd5;
}

Seconds gemm_time(const Kernel& gemm, const TileRates& rates, std::int64_t element_bytes) {
  ensure(gemm.kind != KernelClass::memory, "a memory-bound kernel is no GEMM");
  const auto& rate = gemm.kind == KernelClass::gemm && gemm.batches > 1
                         ? rates.batched_rate
                         : rates.rate[static_cast<std::size_t>(gemm.kind)];
  const double gain = tiled_rate(gemm, rates);
  const double step = gemm.kind == KernelClass::gemm ? rates.step : rates.convolution_step;
  const double by_memory = gemm.elements * static_cast<double>(element_bytes) / rates.memory;
  const double partial_sum = static_cast<double>(gemm.batches * gemm.m) *
                             static_cast<double>(gemm.n) * partial_sum_bytes / rates.memory;
  std::array<std::int64_t, tiles.size()> count;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    count[t] =
        gemm.batches * rounded_up(gemm.m, tiles[t].rows) * rounded_up(gemm.n, tiles[t].columns);
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t s = 1; s <= largest_split && (s == 1 || gemm.k >= least_inner * s); s *= 2) {
    const std::int64_t inner = rounded_up(gemm.k, s);
    const double along = static_cast<double>(inner) / steps_at_once * step;
    const double added = s == 1 ? 0 : static_cast<double>(s + 1) * partial_sum;
    if (std::max(along / gain, by_memory) + added >= best) continue;
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const std::int64_t waves = rounded_up(count[t] * s, rates.multiprocessors);
      const double work = static_cast<double>(waves) *
                          static_cast<double>(2 * tiles[t].rows * tiles[t].columns) *
                          static_cast<double>(inner);
      const double time = std::max(std::max(work / rate[t], along) / gain, by_memory) + added;
      best = std::min(best, time);
    }
  }
  const double factor = rates.factors.of(gemm, gemm.row_alignment * element_bytes);
  const Seconds direct{(rates.overhead + best) * factor};
  if (has_winograd(gemm, rates)) return std::min(direct, winograd_time(gemm, rates));
  if (!gemm.spectrum || !rates.spectral) return direct;
  return std::min(direct, spectral_time(gemm, rates, element_bytes));
}

}  // namespace parsim::sim
