// Where a chain of layers is cut into the stages of a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parsim::strategies {

/// What a micro-batch costs a chain of stages, in seconds.
struct ChainCosts {
  std::vector<std::vector<double>>
      until;  ///< by stage, then n: of the first n layers; rises with n
  /// By stage, then layer: handing over to a stage that begins there, one way. Not read for stage
  /// 0.
  std::vector<std::vector<double>> hand_over;
};

struct PipelineCut {
  std::vector<std::size_t> first;  ///< by stage: its first layer
  double step = 0;                 ///< by the closed form
};

/// Contiguous, non-empty stages for which
///
///     step = Σ load + 2 Σ hand-over + (micro-batches - 1) · max(loads, hand-overs)
///
/// is at most a twentieth above the least: the first micro-batch goes there and back, the others
/// follow as fast as the slowest stage or wire (PipeDream's bottleneck, Narayanan et al. 2019,
/// section 3.1). By dynamic programming over (stages, layers) for growing bounds on the slowest.
///
/// Checked against all cuts: tests/strategies/stages_test.cpp.
[[nodiscard]] PipelineCut pipeline_cut(const ChainCosts& costs, std::int32_t micro_batches);
/// The same, with stages that begin at the first layers of units only (blocks.hpp).
[[nodiscard]] PipelineCut pipeline_cut(const ChainCosts& costs, std::int32_t micro_batches,
                                       const std::vector<std::size_t>& units);

/// The costs of a chain of units, of which `units` are the first layers.
[[nodiscard]] ChainCosts costs_of_units(const ChainCosts& costs,
                                        const std::vector<std::size_t>& units);

}  // namespace parsim::strategies
