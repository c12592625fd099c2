// Kernels of a trace by the module of Python that calls them, next to the plan's layers.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/ids.hpp"
#include "core/units.hpp"
#include "experiment/run.hpp"
#include "experiment/trace_steps.hpp"

namespace parsim::experiment {

/// What the kernels of a module take in a step, one after the other, forward and backward.
struct ModuleTimes {
  ModulePath path;
  Seconds measured{};
  /// Of the plan's layers that its operators are; nothing where none of them is one.
  std::optional<Seconds> predicted{};
};

/// Modules of the trace's median step, each without those that it calls; in order of the trace.
///
/// The first operator of a shape is the plan's first layer of this shape, and so on; with several
/// micro-batches all layers follow one another once for each. Shapes of which the step has not a
/// whole number of calls for each layer are not predicted. `calls` are those of `trace`, products
/// divided as the plan has them.
[[nodiscard]] std::vector<ModuleTimes> module_times(const Run& run, const TraceSteps& trace,
                                                    const std::vector<LayerCall>& calls,
                                                    DeviceId device);

/// Sums of the modules whose paths have the same first `depth` names below those that all share, in
/// order of the first. Their paths begin there; of what all share the last name stands for itself.
[[nodiscard]] std::vector<ModuleTimes> grouped(const std::vector<ModuleTimes>& modules,
                                               std::size_t depth);

}  // namespace parsim::experiment
