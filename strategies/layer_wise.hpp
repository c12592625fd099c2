// Layer-wise parallelism (Jia, Lin, Qi, Aiken 2018, "Exploring Hidden Dimensions in Parallelizing
// Convolutional Neural Networks"): the paper's prices of plans. The strategy itself is
// plan_layer_wise in strategies.hpp.
#pragma once

#include <string>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The paper's sum, equation 1: no overlap, no concurrency between branches.
///
///     t_O = Σ over layers (t_C + t_S)  +  Σ over edges t_X
struct PaperPrice {
  Seconds compute;   ///< Σ t_C
  Seconds sync;      ///< Σ t_S
  Seconds transfer;  ///< Σ t_X
  [[nodiscard]] Seconds step() const { return compute + sync + transfer; }
};

/// Prices any plan of one micro-batch whose layers are cut along sample, channel, depth, height and
/// width (data, owt, model-even, layer-wise):
///
///     t_C   forward and backward of the slowest part, from the cost model
///     t_S   rings 2(n-1)/n · bytes / slowest link, the layer's rings side by side, or with
///           `input.sync` = server the paper's server, one copy after another
///     t_X   2 · max over devices of (bytes it lacks / b): those from its own node over that node's
///           links, the others over the links between nodes, no latency; with `input.search_costs`
///           = paper_total their sum in the place of the maximum
///
/// What the paper leaves open is a RECONSTRUCTION: rings instead of the server (its measured
/// throughputs need them), the maximum instead of the total (with the total, one weird trick would
/// lose to data parallelism at 16 GPUs, which it does not in figure 7), the factor 2 for the
/// gradients.
/// Throws InputError if the plan has several micro-batches or cuts contractions or replicas.
[[nodiscard]] PaperPrice paper_price(const StrategyInput& input, const Plan& plan);

/// Bytes of one step as figure 8 counts them.
struct PaperVolume {
  Bytes weights;      ///< 2 · copies · bytes of all parameters that have several copies
  Bytes activations;  ///< 2 · what devices lack of their operands, over all edges
  /// Outputs of layers that are cut by channel, each once: the law of the figure's bars for model
  /// parallelism (element-wise layers do not count).
  Bytes activations_once;
  [[nodiscard]] Bytes total() const { return weights + activations; }
};
[[nodiscard]] PaperVolume paper_volume(const StrategyInput& input, const Plan& plan);

/// "n=4 c=1 h=2 w=2" as in the paper's table 5: degrees of a layer's cuts, those of 1 left out;
/// "n=1" if there is none.
[[nodiscard]] std::string configuration_text(const LayerPlan& plan);

}  // namespace parsim::strategies
