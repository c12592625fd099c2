// The time of one kernel of a published table: a matrix product, a convolution, attention, or what
// lies between them.
#pragma once

#include <string_view>

#include "validation/validation.hpp"

namespace parsim::validation {

/// True for the columns of a table of kernels: op_class with a time, m, n and k of products, or
/// head_dim of attention.
template <class Table>
[[nodiscard]] bool has_kernels(const Table& table) {
  const bool timed = table.has("time_us") || table.has("median_us") || table.has("sustained_us");
  return (timed && table.has("op_class")) || (table.has("m") && table.has("n") && table.has("k")) ||
         table.has("head_dim");
}

/// Seconds of the row's kernel on a `gpu`, by the cost model of steps: under sustained load, from
/// scratch. Columns `dtype` (else `precision`; FP32) and, by what is not empty:
///
///     op_class conv          batch, c_in, c_out, r, in_size, stride, pad, groups, dilation: square,
///                            without bias; or in_h, in_w, and r_h, r_w, stride_h and so on where
///                            the sides differ
///     op_class bmm           batch products of m x k and k x n
///     op_class elementwise   rows, cols; `op` of two tensors (add, sub, mul, div, pow) or of one,
///                            or dropout
///     op_class softmax, ln   rows, cols
///     head_dim               batch, seq, heads, kv_heads, causal (1 or 0)
///     m, n, k                y[m, n] = x[m, k] W[n, k]ᵀ, without bias; of dtype fp8_e4m3 without
///                            the cast of x
///
/// Column mode: fwd (the default), bwd, bwd_data, bwd_weights or fwd_bwd.
///
/// Throws InputError for another row.
[[nodiscard]] double kernel_seconds(const Claim& claim);

}  // namespace parsim::validation
