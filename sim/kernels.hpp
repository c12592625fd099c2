// The kernels that a pass over a part of a layer launches, one after another: each a GEMM or a
// memory-bound kernel. Cost models price them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/exec_dag.hpp"
#include "core/network.hpp"
#include "sim/fusion.hpp"

namespace parsim::sim {

enum class KernelClass : std::uint8_t { gemm, forward, backward_data, backward_weights, memory };

/// What libraries run by kernels of their own: layers that have little to reuse or to align, whose
/// kernels take longer than the tile model says (sim/kernel_factors.csv). Of a convolution:
///
///     pointwise, strided_pointwise   1 x 1 filters
///     even_groups                    channels in groups of a power of two, as many filters in each
///     grouped                        other groups of more than one channel
///     few_channels                   fewer than 8 channels come in, as in images
///     many_taps                      filters of more than 32 taps, which cuDNN's indexed kernels
///                                    do not take
///     strided                        others of a stride above 1
///     ragged                         others whose channels or filters are no multiple of 64
///
/// Of a product: that of the input's gradient (nn) and that of the weights' (nt).
enum class KernelShape : std::uint8_t {
  plain,
  pointwise,
  strided_pointwise,
  strided,
  grouped,
  even_groups,
  few_channels,
  many_taps,
  ragged,
  nn,
  nt
};
inline constexpr std::size_t kernel_shapes = 11;

/// A memory-bound operator of PyTorch whose kernels were timed (sim/operator_rates.hpp); `other`
/// for all that is priced by its bytes alone.
enum class Operator : std::uint8_t {
  other,
  activation,
  add,
  mul,
  copy,
  dropout,
  bias,
  sum_rows,
  batch_norm,
  layer_norm,
  rms_norm,
  group_norm,
  softmax,
  cross_entropy,
  embedding,
  max_pool,
  avg_pool,
  global_avg_pool,
  cat,
  transpose,
  sgd,
  depthwise_forward,
  depthwise_data,
  depthwise_weights,
  depthwise_other_forward,
  depthwise_other_data,
  depthwise_other_weights
};
inline constexpr std::size_t operators = 27;

/// A convolution by Fourier transforms of 32 × 32 tiles, which overlap by the kernel: at each of
/// the 32 · 17 frequencies that a real tile has, a complex product of m × k by k × n.
///
///     forward, backward_data   m = N · tiles of an image    n, k = channels written, read
///     backward_weights         m = C    n = K               k = N · tiles of an image
///
/// Source: Mathieu, Henaff and LeCun 2014, "Fast training of convolutional networks through FFTs";
/// tiles of 32: cuDNN's CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING.
struct Spectrum {
  static constexpr std::int64_t tile = 32, frequencies = tile * (tile / 2 + 1);
  std::int64_t m = 0, n = 0, k = 0;
};

/// The images of a 3 x 3 convolution of stride 1: what it writes, or, of a weights' gradient, the
/// gradient that it reads.
struct Image {
  std::int64_t samples = 0, rows = 0, columns = 0;
};

/// A kernel. A matrix product of m × k by k × n, `batches` times; a convolution as the product it
/// is equal to ("implicit GEMM"), with N samples, P × Q outputs each, C channels of H × W, K
/// filters of R × S:
///
///     forward             m = N·P·Q    n = K    k = C·R·S
///     backward_data       m = N·H·W    n = C    k = K·R·S / strides
///     backward_weights    m = C·R·S    n = K    k = N·P·Q
///
/// A memory-bound kernel has none of these.
struct Kernel {
  KernelClass kind = KernelClass::memory;
  double elements = 0;  ///< read and written, in the precision of the step
  double flops = 0;     ///< 2 x multiply-accumulates
  std::int64_t m = 0, n = 0, k = 0, batches = 1;
  bool normalises = false;  ///< memory-bound, with a reduction before the second pass
  bool attends = false;     ///< two matmuls with a softmax between them
  bool masked = false;      ///< attends, with a causal mask
  bool windowed = false;    ///< masked, and so are keys before a window
  bool backwards = false;   ///< attends or is an operator, in a backward pass
  double keys = 0;          ///< that a query attends to, on average
  bool exchanged = false;   ///< m is the columns of the result and n its rows
  /// Of a matmul: the largest power of two, 8 at most, that divides the lengths of all rows in
  /// memory. Rows of 16-bit elements that are no multiple of 8 cannot be read by 16 bytes.
  std::int64_t row_alignment = 8;
  KernelShape shape = KernelShape::plain;
  std::int64_t winograd = 0;     ///< 3 or 5: a square convolution that has a Winograd form; else 0
  std::optional<Image> image{};  ///< of a 3 x 3 convolution of stride 1, without groups
  std::optional<Spectrum> spectrum{};  ///< of a convolution that libraries can do by FFT
  double fp32_elements = 0;            ///< read and written in FP32 in steps of any precision
  double converted = 0;  ///< elements read in one of both precisions and written in the other
  double masks = 0;      ///< bytes read and written beyond that
  Operator op = Operator::other;
  /// Of an operator, what its instructions are counted by: elements read and written; of pooling
  /// and convolution the taps of all outputs.
  double steps = 0;
  double launches = 1;  ///< kernels of which this is the sum; 0 within another layer's
  bool in_fp8 = false;  ///< a matmul of operands in FP8
  double casts = 0;     ///< elements cast to FP8, which is all that the kernel does

  /// Read and written, in a step whose elements have so many bytes.
  [[nodiscard]] double bytes(std::int64_t element_bytes) const;
};

/// At most four: a matmul of two activations has two input gradients; a layer with a bias has an
/// input gradient, a weight gradient and a sum, and casts its output's gradient to FP8 before.
struct Kernels {
  std::array<Kernel, 4> list;
  std::size_t count = 0;
  // A loop over a temporary keeps what has begin() alive, but not what a span of it refers to.
  [[nodiscard]] const Kernel* begin() const { return list.data(); }
  [[nodiscard]] const Kernel* end() const { return list.data() + count; }
};

/// None for layers that move nothing. For Pass::backward of a layer with weights: input gradients,
/// then weight gradients.
///
/// fp8   layers that can (core/fp8.hpp) multiply in FP8, if the part's widths are multiples of 16,
///       and cast inputs forward, gradients of outputs backward; a split backward casts with the
///       input gradients
[[nodiscard]] Kernels kernels_of(const Network& network, LayerId layer, const Part& part, Pass pass,
                                 Fusion fusion = Fusion::none, bool fp8 = false);

}  // namespace parsim::sim
