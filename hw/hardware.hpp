// What calibration and measuring need besides an executor (host_executor.hpp, cuda_executor.hpp): a
// description of the machine, what fits on it, and how steps become a measurement.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/executor.hpp"
#include "core/profile.hpp"

namespace parsim::hw {

/// No GPU, no driver, a partition that the GPU does not support, a failed call. Exit 3.
struct HardwareError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Messages between the processes of the launch failed: nothing else can run. Exit 3.
struct LaunchError : HardwareError {
  using HardwareError::HardwareError;
};
/// A DAG needs more memory than there is. Exit 5; the other DAGs of a call still run.
struct MemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An operation, and the device on which its time counts.
struct Neighbour {
  OpId op;
  DeviceId device;
};
/// Duration of an operation, repeated alone and while its neighbours were repeated, too.
struct Beside {
  Spread alone, during;
};

/// What an executor tells of its machine before anything has run.
struct Hardware {
  Machine machine;
  /// Groups of devices that are parts of one GPU and share its memory bandwidth.
  std::vector<std::vector<DeviceId>> common_memory;
  /// Weights on every device in the bandwidth test of those groups: far more than caches hold.
  Bytes walk{};
  /// Upper limit of message sizes in calibration.
  Bytes largest_message{};
};

/// Makes links slower: a message takes latency + bytes / rate.
struct LinkThrottle {
  BytesPerSecond rate{};
  Seconds latency{};  ///< from device to device
};

/// The machine's devices around a switch with half the link's latency each, and a note in its
/// versions: a profile of other links says nothing about these.
void throttle_links(Machine& machine, const LinkThrottle& link);

/// Duration of an operation that has the machine to itself, from the machine's description. Kernels
/// by roofline: overhead + max(FLOPs / peak, bytes / memory rate). Transfers: latency of both links
/// + bytes / the slower rate. Collectives: rings over the slowest link (Patarasuk & Yuan 2009).
[[nodiscard]] Seconds modelled_duration(const ExecDag& dag, OpId op, const Machine& machine);

class Processes;

/// Throws HardwareError if the DAG has more devices than the machine, MemoryError if it needs more
/// memory than a device has (tensors share it, but on the CPU backend), InputError for layers that
/// cannot run and for bf16 on a GPU that has no arithmetic for it.
void check_fits(const ExecDag& dag, const Machine& machine);

/// Statistics of step times, and the spans of the median step with events. Nothing without such
/// steps: another process has them.
[[nodiscard]] Measurement measurement_of(const std::vector<Seconds>& steps,
                                         const std::vector<Timeline>& with_events);

/// Measurements, and the exit code: that of the first DAG that did not run, or 0.
struct Runs {
  Measurements measured;
  int exit_code = 0;
};
/// Adds what `step` measures of the DAG, or a row with the reason why it is refused, does not fit
/// or fails. Throws LaunchError.
void add_run(Runs& runs, const ExecDag& dag, const std::function<Measurement()>& step);

/// Runs steps of every DAG on a machine, which has
///
///     const Hardware& hardware()
///     Measurement step(dag, steps)   step times, and the spans of the median step
template <class Executed>
[[nodiscard]] Runs measure(Executed& machine, const std::vector<ExecDag>& dags, int steps) {
  Runs runs{{machine.hardware().machine, {}}, 0};
  for (const ExecDag& dag : dags) add_run(runs, dag, [&] { return machine.step(dag, steps); });
  return runs;
}

}  // namespace parsim::hw
