// What faster hardware would bring to a plan: questions that only further simulations answer.
#pragma once

#include <string>
#include <vector>

#include "experiment/run.hpp"

namespace parsim::experiment {

/// A change of the cluster, and the step of the same operations with it.
struct Help {
  std::string change;  ///< "v100-sxm2 twice as fast"
  Seconds step{};
};
/// Twice as fast: the kernels of each type of GPU that computes, those of all, the links between
/// machines, those inside them, and all; the shortest step first. The plan stays, though another
/// may be better then. Nothing for runs of so many operations that asking takes long. A step may
/// get longer, see experiment/faster_links.hpp.
[[nodiscard]] std::vector<Help> what_would_help(const Experiment& experiment, const Run& run);

}  // namespace parsim::experiment
