// What the parts of a layer cost at least, however it is cut: the kernels of a pass over all of it,
// with as much of their work as all parts together surely do. Cost models price them
// (CostModel::least_time).
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "sim/gemm_interpolation.hpp"
#include "sim/kernels.hpp"
#include "sim/tiles.hpp"

namespace parsim::sim {

/// A kernel of a pass. The share of a part in the pass is that of its FLOPs, or of its elements and
/// contraction where there are no FLOPs; the shares of all cells of a layer are 1 in all, more with
/// replicas. A part with the share x reads and writes x · (elements, fp32_elements, converted,
/// masks of `whole`) at least, and launches as many kernels as `whole`.
struct LeastKernel {
  /// Over all of the layer; what is read and written reduced to what surely remains. Its extents
  /// are the largest that a part can have.
  Kernel whole;
  /// A part with the share x multiplies matrices of x · multiplied = 2·m·n·k·batches or more.
  double multiplied = 0;
  /// Of the tiles of `whole.spectrum`, a part with the share x has x · spectral_share or more.
  double spectral_share = 1;
  double most_keys = 1;  ///< attends: that a query attends to
};

/// As kernels_of() of all `samples`, for every way of cutting them, without casts to FP8: parts of
/// odd widths multiply in bf16.
[[nodiscard]] std::vector<LeastKernel> least_kernels(const Network& network, LayerId layer,
                                                     std::int64_t samples, Pass pass, Fusion fusion,
                                                     bool fp8 = false);

/// Elements along an axis of `in` elements that a window reads for each of any `length` outputs
/// next to each other, of `out`, at least.
[[nodiscard]] double least_reads(const Window& window, std::int64_t in, std::int64_t out);

/// Of gemm_time (tiles.hpp): whole waves, and steps along the inner dimension, left out; a tile is
/// as large as the part at most, or its rest is idle.
[[nodiscard]] LeastTime least_gemm_time(const LeastKernel& gemm, const TileRates& rates,
                                        std::int64_t element_bytes);
/// Of GemmInterpolation::time, or gemm_time (gemm_model.hpp) of several products at once.
[[nodiscard]] LeastTime least_gemm_time(const LeastKernel& gemm, const GemmInterpolation& gemms);

}  // namespace parsim::sim
