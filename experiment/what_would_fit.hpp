// Advice where no plan fits in memory.
#pragma once

#include <string>

#include "experiment/experiment.hpp"

namespace parsim::experiment {

/// "data would fit with --zero 1 (1.21 s), or with --batch 96": the first options that save memory,
/// least costly first, with which data parallelism fits, and its simulated step; and the largest
/// batch (a multiple of the GPUs) with which it does so without, or with all of them if that is not
/// enough. "data would fit as asked" if only the strategies asked for do not. Empty if a plan file
/// has decided already.
///
/// memory   the part of their memory that GPUs have; below 1 nothing is simulated
[[nodiscard]] std::string what_would_fit(const Experiment& experiment, double memory = 1.0);

}  // namespace parsim::experiment
