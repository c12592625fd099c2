// A step of a trace next to the same step as predicted: where the time goes, and the measured times
// of kernels as a profile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/profile.hpp"
#include "core/spelling.hpp"
#include "experiment/module_times.hpp"
#include "experiment/run.hpp"
#include "experiment/trace_steps.hpp"

namespace parsim::experiment {

/// Parts of a GPU's step, by what it does. Where kernels run at once, the first of the list counts,
/// and communication only while no kernel runs, so that the parts add up to the step.
///   rest   kernels that are none of these, copies from and to the host
///   idle   the GPU waits for the host, or for other GPUs
enum class GpuPart : std::uint8_t {
  products,
  attention,
  element_wise,
  optimizer,
  rest,
  communication,
  idle
};
constexpr std::array<std::string_view, 7> spellings(GpuPart) {
  return {"products", "attention", "element_wise", "optimizer", "rest", "communication", "idle"};
}
inline constexpr std::size_t gpu_part_count = spellings(GpuPart{}).size();
using GpuParts = std::array<Seconds, gpu_part_count>;

/// Calls of one shape and pass in a step: of all layers alike.
struct ShapeTimes {
  CallShape shape;
  bool forward = false;  ///< else backward
  std::string layer;     ///< the first of the plan; "" if the plan has none of this shape
  std::int64_t predicted_calls = 0, measured_calls = 0;
  Seconds predicted{}, measured{};  ///< of all calls
};

struct MeasuredStep {
  DeviceId device;  ///< of the plan, whose GPU was traced
  Seconds predicted{}, measured{};
  double predicted_mfu = 0, measured_mfu = 0;  ///< 0 where no peak is known
  GpuParts predicted_parts{}, measured_parts{};
  std::size_t steps = 0;             ///< complete ones, of which the median one is shown
  std::vector<ShapeTimes> shapes;    ///< by difference, largest first
  Seconds unknown_shapes{};          ///< of measured calls whose shape the plan does not have
  std::vector<ModuleTimes> modules;  ///< of the median step; empty without with_stack=True
  Profile profile;                   ///< of the shapes that the plan has
  std::vector<std::string> notes;

  /// Points of MFU that a part explains: the difference of MFU, shared out by difference of time.
  /// They add up to predicted less measured MFU. 0 for equal steps.
  [[nodiscard]] double points(GpuPart part) const;
};

/// Compares the trace of the GPU that is `device` in the run. `trace_name` is for messages.
///
/// The profile has, for every kernel of the plan on this device whose shape the trace has, the
/// median time over all calls of complete steps. A product that the trace makes in one and the plan
/// in several (queries, keys and values) is divided by their outputs. Where the plan has a kernel
/// for each gradient and the trace does not tell them apart, they are left out.
///
/// Throws InputError if the trace has no complete step, or if the products of the trace run in
/// another precision than the plan's.
[[nodiscard]] MeasuredStep compare_with_trace(const Experiment& experiment, const Run& run,
                                              const TraceSteps& trace, DeviceId device,
                                              const std::string& trace_name);

}  // namespace parsim::experiment
