// Where a chain of layers is cut into the stages of an interleaved pipeline, of which every device
// has several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strategies/pipeline_cut.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The pipeline: stage s is on device s mod `devices` (device_slots).
struct Interleaving {
  std::size_t devices = 1, chunks = 1;  ///< chunks: stages of each device
  std::int32_t micro_batches = 1;
  PipelineSends sends = PipelineSends::overlapped;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;  ///< not GPipe
};

/// Time of the device that ends last, if devices work through their device_slots: a forward pass
/// takes a third of its stage's load, a backward pass the rest, or, where that is split, each of
/// its halves a third; and what is handed over is on its way while devices compute, or, blocking,
/// while its sender waits. Of many micro-batches from those of some, as estimated_step does.
///
/// first   by stage: its first layer
[[nodiscard]] double interleaved_step(const ChainCosts& costs, const Interleaving& pipeline,
                                      const std::vector<std::size_t>& first);

/// Contiguous, non-empty stages for which interleaved_step is short. Not those whose slowest is the
/// fastest, as pipeline_cut finds them: what counts is which device has which of the larger stages,
/// and when. Starts from cuts that are as even as possible, the larger stages first, last, or much
/// larger towards the last ones, which work when the pipeline is full; and moves units from stage
/// to stage as long as that makes the step shorter.
///
/// units   first layers at which stages may begin (blocks.hpp)
///
/// Checked against all cuts: tests/strategies/interleaved_cut_test.cpp.
[[nodiscard]] PipelineCut interleaved_cut(const ChainCosts& costs, const Interleaving& pipeline,
                                          const std::vector<std::size_t>& units);

}  // namespace parsim::strategies
