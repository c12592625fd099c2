// Fitted coefficients of the kernel cost models by device (coefficients.csv): its own, or those of
// the most similar device.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// Parts of the peak that kernels reach, by class (of the memory rate for KernelClass::memory), and
/// seconds that every kernel costs on top. Parts above 1 are possible where less is multiplied than
/// is counted.
struct Efficiency {
  double gemm = 0, forward = 0, backward_data = 0, backward_weights = 0, memory = 0;
  double overhead = 0;
  /// Median relative error of a kernel's time on held-out measurements.
  double test_error = 0;

  [[nodiscard]] double of(KernelClass kind) const;
};

/// By how much kernels of some shapes take longer than others (kernel_factors.csv); 1 where
/// unknown.
struct KernelFactors {
  /// By class of kernel (not memory).
  std::array<std::array<double, kernel_shapes>, 4> of_shape{};
  /// Of products whose rows are aligned to 2, 4 and 8 bytes; others to 16.
  std::array<double, 3> unaligned{};

  KernelFactors();
  /// row_bytes   the largest power of two that divides the bytes of all rows
  [[nodiscard]] double of(const Kernel& kernel, std::int64_t row_bytes) const;
};

/// Of Winograd's 3 x 3 convolutions in FP32 (sim/winograd.hpp, winograd.csv).
struct WinogradShares {
  double fused = 0;                              ///< part of the peak; 0: not measured
  double prologue = 0;                           ///< channels
  double transforms = 1, weight_transforms = 1;  ///< parts of the memory rate
  /// Rate of direct convolutions over what their efficiencies say, where those are another card's.
  double direct = 1;
};

/// Numbers of one card and precision.
struct Coefficients {
  std::string family;                    ///< device models whose name begins so
  Precision operands = Precision::fp32;  ///< or tf32, or fp16 for both 16-bit formats
  double architecture = 0;               ///< compute capability
  double memory_rate = 0;  ///< of the measured card, bytes/s; distinguishes related cards

  Efficiency constant;  ///< for all shapes

  Efficiency tiles;          ///< of whole tiles of the largest size
  double area_exponent = 0;  ///< smaller tiles are slower: (area / 32768)^area_exponent
  double step = 0;           ///< seconds for 32 steps along the inner dimension, at least
  /// Both of convolutions: of the card that their efficiencies are from.
  double convolution_area_exponent = 0, convolution_step = 0;
  double batched_exponent = 0;          ///< added to area_exponent for batched matrix products
  double winograd3 = 1, winograd5 = 1;  ///< gains of 3x3 and 5x5 convolutions of stride 1
  WinogradShares winograd;              ///< where measured, instead of `winograd3`

  /// Time of compute-bound kernels under load all the time, as in training, over that of the single
  /// ones that the rest is fitted to.
  double sustained = 1;
  bool own_convolutions = true;  ///< else those of another card
  KernelFactors factors{};
};
/// All rows of the table.
[[nodiscard]] const std::vector<Coefficients>& coefficients();

struct Borrowed {
  const Coefficients* row = nullptr;  ///< never null
  Origin origin = Origin::guessed;    ///< modelled: its own
};
/// The row of the card itself, else of the most similar one: the nearest generation (major compute
/// capability; of an older and a newer one the newer, unless only the older has a like power limit,
/// and AMD's by memory), then the nearest memory bandwidth, which separates large cards from small
/// ones; for TF32 on tensor cores also rows of 16 bits, if nearer. Then the earlier. Not for CPUs.
[[nodiscard]] Borrowed coefficients_of(const DeviceModel& model, Precision precision);

[[nodiscard]] inline bool is_convolution(const Kernel& kernel) {
  return kernel.kind != KernelClass::gemm && kernel.kind != KernelClass::memory;
}

/// The expected error of kernel times on a cluster's devices, for reports: "test_error" of each
/// model's efficiencies, or the device from which they are scaled.
[[nodiscard]] std::string kernel_accuracy(const Cluster& cluster, Precision precision,
                                          Efficiency Coefficients::*efficiencies);

/// 7.0 for a V100. Cards without one (AMD's) are taken to be of the years after Volta.
[[nodiscard]] double assumed_capability(const DeviceModel& model);

/// A card described from another one with more than so many times its rates is another card,
/// without measured kernels. Variants of one card differ by less: the A100's of 80 GB has 1.31
/// times the memory rate of that of 40 GB.
inline constexpr double same_card = 1.35;

/// FLOP/s that a device's efficiencies are parts of: those of fp32 if it has no others.
[[nodiscard]] double peak_of(const DeviceModel& model, Precision precision);

/// A CPU's: a good matrix library, convolutions somewhat worse. A guess.
inline constexpr Efficiency cpu_efficiency{0.6, 0.5, 0.4, 0.4, 0.6, 2e-6};

}  // namespace parsim::sim
