// 3 x 3 convolutions of stride 1 in FP32 by Winograd's algorithm, as cuDNN runs them.
#pragma once

#include "sim/tiles.hpp"

namespace parsim::sim {

/// Whether a kernel is a 3 x 3 convolution that was measured on the card by algorithm.
[[nodiscard]] bool has_winograd(const Kernel& kernel, const TileRates& rates);

/// Time of the faster of cuDNN's two kernels, with N images of P × Q pixels written (read, of the
/// weights' gradient) and C channels summed over for each of K that are written:
///
///     fused (not for weights' gradients): a thread block transforms, multiplies and transforms
///     back 32 channels of 32 tiles of 2 x 2 pixels, 16 products each
///         t = max( ⌈blocks / SMs⌉ · 2·16·32·32 · (C + prologue) / (fused · peak / SMs),
///                  tensors / memory ) + 25·C·K·4 B / transforms + overhead
///
///     apart: tiles of 4 x 4 pixels are transformed, multiplied by 36 matrix products, and
///     transformed back by separate kernels
///         t = gemm_time(36 products of ⌈P/4⌉·⌈Q/4⌉·N × C by C × K)
///             + (tensors + 36 · tiles · (C + K) · 4 B + 45·C·K·4 B) / transforms + overhead
///
/// `kernel` has_winograd(). Source: Lavin and Gray 2016, "Fast
/// algorithms for convolutional neural networks"; blocks: grids of cuDNN's kernels in
/// convolution_rows.csv. Coefficients: sim/fit_winograd.py. Checked: tests/sim/winograd_test.cpp.
[[nodiscard]] Seconds winograd_time(const Kernel& kernel, const TileRates& rates);

/// Seconds for so many FLOPs of a convolution like `kernel` by either, at least, without overhead:
/// whole waves and tiles left out.
[[nodiscard]] double least_winograd_time(const Kernel& kernel, double flops,
                                         const TileRates& rates);

}  // namespace parsim::sim
