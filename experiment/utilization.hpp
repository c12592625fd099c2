// How much of the devices' peak a step uses, and where the rest of its time goes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/spelling.hpp"
#include "core/timeline.hpp"

namespace parsim::experiment {

/// FLOPs of matrix products, convolutions and attention. Attention counts all keys of a sample,
/// whether a mask hides them or not, and an expert the tokens that go to it, not empty slots.
struct StepFlops {
  /// What the batch needs, however it is computed: a forward pass, and twice as much backward.
  ///
  /// Of a transformer per token 6 N + 12 L H Q T (Chowdhery et al. 2022, "PaLM", appendix B), N
  /// being the weights of its products; 72 B L s h² · (1 + s / 6h + v / 12 L h) of a GPT for B
  /// samples of s tokens (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
  /// Transformer Models", appendix A).
  Flops model{};
  Flops recomputed{};     ///< of forward passes that the plan repeats in the backward pass
  FlopsPerSecond peak{};  ///< of all devices that compute layers, in the precision of the step

  /// Model FLOPs utilization: of the peak what the model FLOPs take. 0 for a step without time.
  [[nodiscard]] double mfu(Seconds step) const;
  /// Hardware FLOPs utilization: the same with the recomputed ones.
  [[nodiscard]] double hfu(Seconds step) const;
};

/// Why a step of the network can have an MFU above 1, with or without calibration.
[[nodiscard]] std::string mfu_above_peak(const Network& network, bool calibrated = false);

/// No step of the network has a higher MFU: at their peak, kernels leave out half of the attention
/// scores (a causal mask), and in 32 bits convolutions take a quarter of the products (Winograd's
/// F(4x4, 3x3): Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks").
[[nodiscard]] double highest_mfu(const Network& network, Precision precision);

/// Of a forward pass over one sample, as in StepFlops.
[[nodiscard]] Flops model_forward_flops(const Network& network);
[[nodiscard]] StepFlops step_flops(const ExecDag& dag, const Cluster& cluster);

/// Parts of a step.
///   peak           the model FLOPs at the devices' peak
///   products       what matrix products and convolutions take beyond their share of that
///   attention      what attention takes beyond its own: fused, or its products and its softmax
///   element_wise   all other kernels of layers, and additions
///   optimizer      updates of weights
///   delays         waiting for the host: its launches, its samples, delays of a measured exchange
///   exposed_sends  transfers and collectives while no kernel of the device runs
///   imbalance      a device has less to compute than the busiest one, and waits
///   bubbles        all other waiting: of stages for each other, at the beginning and the end
enum class StepPart : std::uint8_t {
  peak,
  products,
  attention,
  element_wise,
  optimizer,
  delays,
  exposed_sends,
  imbalance,
  bubbles
};
constexpr std::array<std::string_view, 9> spellings(StepPart) {
  return {"peak",   "products",      "attention", "element_wise", "optimizer",
          "delays", "exposed_sends", "imbalance", "bubbles"};
}
inline constexpr std::size_t step_part_count = spellings(StepPart{}).size();

/// By StepPart: means over the devices that compute layers, which add up to the step. Kernels that
/// are faster than their share of the peak, such as Winograd's, make a part negative.
using Waterfall = std::array<Seconds, step_part_count>;

[[nodiscard]] Waterfall waterfall(const ExecDag& dag, const Timeline& timeline,
                                  const Cluster& cluster);

/// A kernel or a message of a device.
struct Busy {
  Span span{};
  StepPart part = StepPart::exposed_sends;
};
/// Times of a device by part. Where several run at once, the first part of the enum counts, so that
/// the sum is the time in which anything runs.
[[nodiscard]] Waterfall exclusive_times(const std::vector<Busy>& all);
/// The same of a device of a step: kernels with their share of the peak, and no waiting.
[[nodiscard]] Waterfall device_times(const ExecDag& dag, const Timeline& timeline, DeviceId device,
                                     std::size_t devices);

}  // namespace parsim::experiment
