// Times of fused attention in 16 bits, from what others published of FlashAttention-2 and its kin
// (attention_models.csv, written by fit_attention.py).
#pragma once

#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// One card, or for older cards one library.
struct AttentionModel {
  std::string device, kernel;  ///< what was measured
  double architecture = 0;     ///< compute capability
  double level = 1;     ///< part of the peak that long sequences reach forward, 128 channels a head
  double backward = 1;  ///< rate backward over that forward
  double narrow = 1;    ///< rate of heads of 64 channels over that of 128
  /// Keys that cost as much as what each block of queries does once: forward, backward, and what a
  /// causal mask hides of blocks that are computed in full.
  double forward_keys = 0, backward_keys = 0, masked_keys = 0;
  double mean_error = 0, p90_error = 0;  ///< of the rows that it is fitted to, relative
};

[[nodiscard]] const std::vector<AttentionModel>& attention_models();

struct AttentionRates {
  const AttentionModel* model = nullptr;
  Origin origin = Origin::guessed;
};
/// The card's own row, or that of the nearest compute capability (guessed). Cards without one
/// (AMD's) take the H100's: their peaks, too, are above what the kernel reaches.
[[nodiscard]] AttentionRates attention_rates(const DeviceModel& device);

/// Time of the two matmuls forward, or the five backward, of attention in one kernel:
///
///     t = flops / (peak · level · narrow(d)) · (keys + once) / keys · max(1, SMs / blocks)
///
///     once = forward_keys or backward_keys, + masked_keys with a causal mask
///     narrow(d) = d · (128 + x) / (128 · (d + x)), x such that narrow(64) is the model's; 1 from 128
///     blocks = batch · heads · ⌈queries / 128⌉, one multiprocessor each (Dao 2023, section 3.2)
///
/// and backward / model.backward. Without launch and memory.
///
/// kernel   one that attends
/// peak     FLOP/s of the precision
///
/// A reconstruction. Errors of the fitted rows are in the table: 2 % for FlashAttention-2 on three
/// cards, and 2 to 5 % for one of them when the curve is fitted to the other two. Not measured:
/// heads of other widths. Checked: tests/sim/attention_model_test.cpp.
[[nodiscard]] Seconds attention_time(const AttentionModel& model, const Kernel& kernel, double peak,
                                     int multiprocessors);

}  // namespace parsim::sim
