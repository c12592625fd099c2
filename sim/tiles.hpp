// The time of a GEMM that runs tile by tile, in waves of one tile per multiprocessor.
#pragma once

#include <array>

#include "sim/coefficients.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// Tile sizes of matrix libraries, rows × columns of the result.
struct Tile {
  std::int64_t rows = 0, columns = 0;
};
inline constexpr std::array<Tile, 6> tiles{Tile{256, 128}, {128, 128}, {128, 64},
                                           {64, 64},       {64, 32},   {32, 32}};

/// Coefficients turned into rates of one device.
struct TileRates {
  std::int64_t multiprocessors = 1;
  /// FLOP/s of one multiprocessor by class of kernel (not memory) and tile.
  std::array<std::array<double, tiles.size()>, 4> rate{};
  std::array<double, tiles.size()> batched_rate{};  ///< of products with several batches
  double memory = 1;                                ///< bytes/s
  double step = 0;                                  ///< seconds along the inner dimension
  double convolution_step = 0;
  double winograd3 = 1, winograd5 = 1;
  /// FLOP/s of one multiprocessor, and bytes/s; the prologue as it is.
  WinogradShares winograd;
  double overhead = 0;  ///< seconds
  KernelFactors factors;
  bool spectral = true;  ///< convolutions may take spectra: not faster where tensor cores multiply
};
/// peak   FLOP/s of the device;  memory   its bytes/s
[[nodiscard]] TileRates tile_rates(const Coefficients& row, std::int64_t multiprocessors,
                                   FlopsPerSecond peak, BytesPerSecond memory);

/// Rate of a direct convolution over that of its class: `winograd.direct` unless it has one tap and
/// so is a product. 1 for products.
[[nodiscard]] double direct_rate(const Kernel& kernel, const TileRates& rates);
/// The same for the algorithm that gemm_time takes by tiles: with the gain of Winograd's where that
/// has no model (has_winograd).
[[nodiscard]] double tiled_rate(const Kernel& kernel, const TileRates& rates);

/// Time of a GEMM (`kind` must not be memory):
///
///     t = overhead + min over tile tm × tn, split s of
///           max( max( ⌈tiles·s / SMs⌉ · 2·tm·tn·⌈k/s⌉ / rate(tile),  k/s / 32 · step ) / winograd,
///                bytes / memory )
///           + (s > 1) · (s+1) · m·n · 2 B / memory
///
/// with winograd = tiled_rate(), and tiles = batches · ⌈m/tm⌉ · ⌈n/tn⌉, and s = 1, 2, 4 … 64 while
/// k/s ≥ 64 (split-K): a GEMM of few tiles is split along its inner dimension so that all
/// multiprocessors have work, and its partial sums are added. rate(tile) = peak / SMs · efficiency
/// of the class · (tm·tn / 32768)^exponent. Batched products have a larger exponent
/// where such were in the fit. Convolutions have the exponent and step that their efficiencies were
/// fitted with, if need be another card's.
///
/// Or, where the kernel has a spectrum and that is faster, by FFT: memory-bound transforms (tensors
/// and spectra read or written once), and one real GEMM for the complex ones, m × 2k by 2k × 2n at
/// every frequency, without Winograd.
///
/// Or, of a 3 x 3 convolution with Winograd's coefficients, the faster of that and winograd_time
/// (sim/winograd.hpp).
///
/// All of it times the factor of the kernel's shape, or of its rows' alignment (KernelFactors).
///
/// Efficiencies are those under sustained load (Coefficients::sustained).
///
/// A reconstruction of library behaviour; form and coefficients were fitted to DeepBench
/// (coefficients.csv), hence the 2 B at any precision. Checked: tests/sim/tiles_test.cpp.
[[nodiscard]] Seconds gemm_time(const Kernel& gemm, const TileRates& rates,
                                std::int64_t element_bytes);

}  // namespace parsim::sim
