// Times of fused attention in 16 bits, from what others published of FlashAttention-2 and its kin
// (attention_models.csv, written by fit_attention.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "sim/attention_kernel.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// A kernel on one card.
struct AttentionModel {
  std::string device, kernel;  ///< what was measured
  double architecture = 0;     ///< compute capability
  double level = 1;     ///< part of the peak that long sequences reach forward, 128 channels a head
  double backward = 1;  ///< rate backward over that forward
  double narrow = 1;    ///< rate of heads of 64 channels over that of 128
  double masked = 1;    ///< rate of long sequences with a causal mask over that without
  /// Keys that cost as much as what each block of queries does once: forward, backward, and what a
  /// causal mask hides of blocks that are computed in full.
  double forward_keys = 0, backward_keys = 0, masked_keys = 0;
  double mean_error = 0, p90_error = 0;  ///< of the rows that it is fitted to, relative
};

[[nodiscard]] const std::vector<AttentionModel>& attention_models();

struct AttentionRates {
  std::optional<AttentionModel> model{};
  Origin origin = Origin::guessed;
};
/// The card's own row, or that of the nearest compute capability (guessed). Cards without one
/// (AMD's) take the H100's: their peaks, too, are above what the kernel reaches.
///
/// A kernel other than the automatic one has a curve from A100; on other cards it is slower or
/// faster than there as much as the automatic one is. Source: FlashAttention 1 on H100, of which
/// the rows are predicted so within 3.9 % (attention_models.csv).
[[nodiscard]] AttentionRates attention_rates(const DeviceModel& device,
                                             AttentionKernel kernel = AttentionKernel::automatic);

/// Time of the two matmuls forward, or the five backward, of attention in one kernel:
///
///     t = flops / (peak · level · narrow(d)) · (keys + once) / keys · max(1, SMs / blocks)
///
///     once = forward_keys or backward_keys, + masked_keys with a causal mask, twice with a window
///     narrow(d) = d · (128 + x) / (128 · (d + x)), x such that narrow(64) is the model's; 1 from 128
///     of kernels that are faster with 64 channels: d / p · (p ≤ 64 ? narrow : 1), where p is the
///     power of two to which they pad d (flash_attn_triton.py: BLOCK_HEADDIM)
///     blocks = batch · heads · ⌈queries / 128⌉, one multiprocessor each (Dao 2023, section 3.2)
///
/// and backward / model.backward, with a causal mask / model.masked. Without launch and memory.
///
/// kernel   one that attends
/// peak     FLOP/s of the precision
///
/// A reconstruction. Errors of the fitted rows are in the table: 2 % for FlashAttention-2 on three
/// cards, and 2 to 5 % for one of them when the curve is fitted to the other two; 2 to 4 % for
/// other kernels, each with a curve of its own. Not measured: heads of other widths. Checked:
/// tests/sim/attention_model_test.cpp.
[[nodiscard]] Seconds attention_time(const AttentionModel& model, const Kernel& kernel, double peak,
                                     int multiprocessors);

/// Of all parts of a kernel together, at least: as if no multiprocessor were idle, and a query
/// attended to all `most_keys` keys wherever that is better.
[[nodiscard]] Seconds least_attention_time(const AttentionModel& model, const Kernel& kernel,
                                           double most_keys, double peak);

}  // namespace parsim::sim
