// Times of GEMMs in 16 and 8 bits on cards of which others published measurements: tiles, waves,
// split-K, memory, cache and power, with coefficients of the card itself (gemm_models.csv).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// Throttling under power: times get longer by the factor 1 + share / (1 + flops / FLOPs of the
/// kernel).
struct PowerLimit {
  double share = 0, flops = 1;
};

/// Coefficients of one card. Seconds, bytes, FLOPs; rates of the whole card.
struct GemmModel {
  std::string device;  ///< the device model that was measured
  std::string format;  ///< of the operands: bf16; fp8, scaled by tensor; fp8_block
  double operand_bytes = 2;
  bool borrowed = false;  ///< of a card whose chip is not the same
  std::int64_t multiprocessors = 1;
  double peak = 1, memory_rate = 1;  ///< of the data sheet; what the efficiencies are parts of
  double efficiency = 1;             ///< of the largest tile
  /// Of tiles of 128 x 128, 128 x 64, 64 x 64 and 64 x 32, relative to the largest.
  std::array<double, 4> relative{};
  double prologue = 0;  ///< steps along k that filling a tile's pipeline costs
  double memory = 1;    ///< part of the memory rate
  double overhead = 0;
  double smooth = 0;                            ///< 0: whole waves; 1: as if tiles could be cut
  double exponent = 1;                          ///< large: arithmetic and memory overlap
  double split_memory = 1, split_overhead = 0;  ///< of split-K: part of the memory rate; seconds
  double cache = 1, cache_gain = 1;  ///< bytes; how many times faster the cache is than the memory
  PowerLimit burst, sustained;
  /// Of the cast of x to FP8 that measured times contain: part of the memory rate, and seconds.
  double cast = 1, cast_overhead = 0;
  std::string sustained_from;  ///< the card whose rows `sustained` is fitted to; "burst": none
  int rows = 0, held_out_rows = 0;
  double held_out_mean = 0, held_out_p90 = 0;  ///< relative errors of held-out rows
  double spread = 0;  ///< of several measurements of one shape: largest over least, less 1
};

/// All cards of the table.
[[nodiscard]] const std::vector<GemmModel>& gemm_models();

/// The device's row with its number of multiprocessors, peak and memory rate; nothing for 32-bit
/// operands. FP16 and BF16 are alike: only BF16 was measured, and both have the same peak.
///
/// A device without a row of its own has that of its chip (RTX 6000 Ada the L40S's, GH200 the
/// H100's), or borrows that of the nearest generation: Ampere's from the A100, Ada's and the
/// smaller Blackwells' (12.x) from the L40S, Hopper's from the H100, Blackwell's from the B200. In
/// 16 bits nothing for cards before Ampere and for AMD's. A slower multiprocessor takes fewer steps
/// to fill a tile's pipeline, and a card with fewer FLOP/s per watt throttles less: a GeForce,
/// whose tensor cores run at half their rate, not at all.
[[nodiscard]] std::optional<GemmModel> gemm_model_of(const DeviceModel& model, Precision precision);

/// Time of `batches` products y[m,n] = x[m,k] W[n,k]^T:
///
///     t = overhead + (1 + power) · min over tile tm × tn, split s of
///           ( flops^e + bytes^e )^(1/e)  +  (s > 1) · (split_overhead + (s+1)·m·n·4 B / split_memory)
///
///     flops = fill(⌈m/tm⌉·⌈n/tn⌉·batches·s / SMs) · 2·tm·tn·(⌈k/s⌉ + prologue) / rate of an SM
///     fill(w) = (1 − smooth)·⌈w⌉ + smooth·max(w, 1)
///     bytes = (o·(m·k + n·k) + 2 B·m·n)·batches / memory · (1 + u) / (gain + u)
///     u = ((o·(m·k + 6·n·k) + 2 B·m·n)·batches / cache)^8
///
/// with operands of o = 2 B, in FP8 1 B, and s = 1, 2, 4 … 64 while k/s ≥ 64. The measurements went
/// round six copies of W, hence the 6. Never shorter for more rows, columns or batches. Gradients
/// (NN and NT layouts) were not measured; they are priced as products of the same extents in the
/// forward layout (TN), and a batch as that many times the tiles.
///
/// power   GemmModel::burst: a kernel now and then; sustained: one after another, as in training
///
/// A reconstruction; fitted by fit_gemms.py. Checked: tests/sim/gemm_model_test.cpp.
[[nodiscard]] Seconds gemm_time(const GemmModel& model, std::int64_t m, std::int64_t n,
                                std::int64_t k, std::int64_t batches, const PowerLimit& power);

/// Of the cast of x before a measured product; 0 for bf16. Steps price their casts apart.
[[nodiscard]] Seconds measured_cast(const GemmModel& model, std::int64_t m, std::int64_t k);

/// What a FLOP takes at least in products of parts, none larger than m × k by k × n: every wave but
/// the first is as full as it may be, tiles are no larger than the parts or partly idle, and all
/// that is read is in the cache. Rises as extents fall.
///
/// throttled   by how much power makes a kernel longer, at least
[[nodiscard]] Seconds least_flop_time(const GemmModel& model, std::int64_t m, std::int64_t n,
                                      std::int64_t k, std::int64_t batches, double throttled);
/// How much longer power makes a kernel of so many FLOPs: 1 or more, rising with them.
[[nodiscard]] double throttling(const PowerLimit& power, double flops);

}  // namespace parsim::sim
