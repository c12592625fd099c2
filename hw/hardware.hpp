// A machine that runs DAGs, as calibration and measuring see it: the host's threads or CUDA
// devices.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/profile.hpp"

namespace parsim::hw {

/// No GPU, no driver, a partition that the GPU does not support, a failed call. Exit 3.
struct HardwareError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Another process of the launch is gone or timed out: nothing else can run. Exit 3.
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

struct Hardware {
  Machine machine;
  /// Durations of operations while nothing else runs. The caller has called check_fits().
  std::function<std::vector<Spread>(const ExecDag& dag, const std::vector<OpId>& ops, int samples)>
      alone;
  /// Durations of each operation of a group alone and while all of the group run together.
  std::function<std::vector<std::vector<Beside>>(
      const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples)>
      together;
  /// Groups of devices that are parts of one GPU and share its memory bandwidth.
  std::vector<std::vector<DeviceId>> common_memory;
  /// Weights on every device in the bandwidth test of those groups: far more than caches hold.
  Bytes walk{};
  /// Time from one empty kernel to the next when launched as in steps; empty function: no time.
  std::function<Spread(int samples)> launch;
  /// Upper limit of message sizes in calibration.
  Bytes largest_message{};
  /// Step times, and the spans of the median step.
  std::function<Measurement(const ExecDag& dag, int steps)> step;
  /// Compares all tensors of a step with the float64 host engine: the one with the largest relative
  /// error if that exceeds the tolerance, else "". Empty function: the backend computes no numbers.
  std::function<std::string(const ExecDag& dag, double tolerance)> check;
};

/// Makes links slower: a message takes latency + bytes / rate.
struct LinkThrottle {
  BytesPerSecond rate{};
  Seconds latency{};  ///< from device to device
};

/// The synthetic host: threads of this program whose operations sleep for modelled_duration(), in
/// virtual time: exact, repeatable and quick. One device per entry of `shares`, in 64ths of a whole
/// device; they share the host's memory bandwidth. Without shares: two whole devices with a memory
/// each.
[[nodiscard]] Hardware host_hardware(const std::vector<int>& shares,
                                     const std::optional<LinkThrottle>& link = {});

/// GPUs of this machine, or, with `partition`, logical devices of so many multiprocessors on its
/// first GPU. With `link` messages take modelled_duration(), or longer if copying does. Throws
/// HardwareError if this program was built without CUDA, or with the driver's reason.
[[nodiscard]] Hardware cuda_hardware(const std::vector<int>& partition,
                                     const std::optional<LinkThrottle>& link = {});

/// The machine's devices around a switch with half the link's latency each, and a note in its
/// versions: a profile of other links says nothing about these.
void throttle_links(Machine& machine, const LinkThrottle& link);

/// Duration of an operation that has the machine to itself, from the machine's description. Kernels
/// by roofline: overhead + max(FLOPs / peak, bytes / memory rate). Transfers: latency of both links
/// + bytes / the slower rate. Collectives: rings over the slowest link (Patarasuk & Yuan 2009).
[[nodiscard]] Seconds modelled_duration(const ExecDag& dag, OpId op, const Machine& machine);

class Rendezvous;
/// The same for a process that runs one device of several: the entry of `shares` with its rank, by
/// the wall clock, or the GPU with its local rank. `step` and `check` return their results at rank
/// 0; the other functions are for one process only. `rendezvous` must outlive them.
[[nodiscard]] Hardware host_hardware(const std::vector<int>& shares,
                                     const std::optional<LinkThrottle>& link,
                                     Rendezvous& rendezvous);
[[nodiscard]] Hardware cuda_hardware(const std::optional<LinkThrottle>& link,
                                     Rendezvous& rendezvous);

/// Throws HardwareError if the DAG has more devices than the machine, MemoryError if it needs more
/// memory than a device has, InputError for layers that cannot run and for bf16 on a GPU that has
/// no arithmetic for it.
void check_fits(const ExecDag& dag, const Machine& machine);

/// Measures each distinct kernel, update, copy and message of the DAGs alone; messages of growing
/// sizes between all pairs of devices (link_dag); interference of kernels and messages; memory
/// bandwidth under contention; launch time.
[[nodiscard]] Profile calibrate(const Hardware& hardware, const std::vector<ExecDag>& dags,
                                int samples);

/// Statistics of step times, and the spans of the median profiled step.
[[nodiscard]] Measurement measurement_of(const std::vector<Seconds>& steps,
                                         const std::vector<Timeline>& with_events);

/// Measurements, and the exit code: that of the first DAG that did not run, or 0.
struct Runs {
  Measurements measured;
  int exit_code = 0;
};
/// Runs steps of every DAG. One that is refused, does not fit or fails becomes a row with the
/// reason, and the others still run. Throws LaunchError.
[[nodiscard]] Runs measure(const Hardware& hardware, const std::vector<ExecDag>& dags, int steps);

}  // namespace parsim::hw
