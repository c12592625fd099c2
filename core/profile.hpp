// What was measured on real hardware: a machine, how long its kernels and messages take alone, and
// how long whole steps took. Files that parsim-hw writes and the simulator reads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/interference.hpp"
#include "core/spread.hpp"
#include "core/timeline.hpp"

namespace parsim {

/// Name and version of a library or driver.
struct Version {
  std::string name, version;
  friend bool operator==(const Version&, const Version&) = default;
};

/// What measured: its devices are GPUs, partitions of one, cores, or threads that sleep.
struct Machine {
  std::string backend;  ///< "cuda", "cpu", "host"
  std::string name;     ///< of the hardware
  std::vector<Version> versions;
  std::string clocks;  ///< a note: what is known of them
  /// As planned for: a star around one switch. Peaks and rates are of the whole device or a share
  /// of it; measured times, where there are any, replace them.
  Cluster cluster;
  friend bool operator==(const Machine&, const Machine&) = default;
};
/// Hangs the machine's devices on one switch, by links of these rates and latencies.
void connect_as_star(Machine& machine,
                     const std::vector<std::pair<BytesPerSecond, Seconds>>& links);
/// Why a profile of one machine says nothing about another, or "": backend, hardware, versions or
/// devices differ.
[[nodiscard]] std::string difference(const Machine& profile, const Machine& here);

/// A kernel on a device that does nothing else.
struct KernelSample {
  std::string device;  ///< a model of the machine's cluster
  LayerKind kind;
  std::vector<Shape> inputs;
  Part part;
  Pass pass = Pass::forward;
  Precision precision = Precision::fp32;
  Spread time;
  friend bool operator==(const KernelSample&, const KernelSample&) = default;
};

/// An update, copy or addition: bytes as at CostModel::memory.
struct MemorySample {
  std::string device;
  Bytes touched{};
  Spread time;
  friend bool operator==(const MemorySample&, const MemorySample&) = default;
};

/// A transfer or collective while nothing else runs. Payload as at Collective.
struct MessageSample {
  std::string kind;               ///< "transfer" or the name of a collective
  std::vector<DeviceId> devices;  ///< sender and receiver, or the group
  Bytes payload{};
  Spread time;
  friend bool operator==(const MessageSample&, const MessageSample&) = default;
};

/// Messages from one device to another take about latency + bytes / rate: the line with the least
/// relative errors at the measured sizes.
struct LinkFit {
  DeviceId from, to;
  Seconds latency{};
  BytesPerSecond rate{};
  double largest_error = 0;  ///< of the line, relative to what was measured
  friend bool operator==(const LinkFit&, const LinkFit&) = default;
};

struct Profile {
  Machine machine;
  /// From one empty operation to the next, issued as steps are; no samples: not measured.
  Spread launch;
  std::vector<KernelSample> kernels;
  std::vector<MemorySample> memory;
  std::vector<MessageSample> messages;
  Interference interference;                             ///< nothing unless measured
  std::vector<InterferenceSample> interference_samples;  ///< what it follows from
  std::vector<CommonMemory> common_memory;               ///< of GPUs that are several devices
  std::vector<LinkFit> links;                            ///< by sender, then receiver
  friend bool operator==(const Profile&, const Profile&) = default;
};

/// A step of one DAG. With `error` it did not run and only the names count.
struct Measurement {
  std::string network, strategy, error;
  bool fits = true;  ///< false: it did not run because memory lacks
  Spread step;       ///< without events: what counts
  Spread step_with_events;
  Timeline timeline;  ///< of the median step with events; by OpId
  /// By device: bytes of its memory that the step took, tensors and workspaces; empty: not known.
  std::vector<std::int64_t> device_bytes;
  std::string settings{};  ///< settings_of its DAG; "": not known
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

struct Measurements {
  Machine machine;
  std::vector<Measurement> runs;  ///< in the order of the request
  friend bool operator==(const Measurements&, const Measurements&) = default;
};

/// "batch 64, bf16 (sums in fp32), adam"
[[nodiscard]] std::string settings_of(const ExecDag& dag);

/// 9 of architecture "9.0"; none if it is no number, as of CPUs.
[[nodiscard]] std::optional<double> compute_capability(const DeviceModel& model);

/// What makes kernels alike: kind with its members, extents of all operands, pass and precision, as
/// numbers. Where in the tensors a part lies does not count.
[[nodiscard]] std::vector<std::int64_t> kernel_signature(const LayerKind& kind,
                                                         const std::vector<Shape>& inputs,
                                                         const Shape& out, const Part& part,
                                                         Pass pass, Precision precision);
/// Bytes that an update or local operation touches, as device_time() asks a cost model for.
[[nodiscard]] Bytes touched_bytes(const ExecDag& dag, OpId id);
/// Bytes that a message reads and writes where all its devices have one memory and every element is
/// read where it lies: by the receiver of a transfer; by each member of a collective for its own
/// share or itself.
[[nodiscard]] Bytes message_traffic(const ExecDag& dag, OpId id);
/// The devices whose kernels do that.
[[nodiscard]] std::vector<DeviceId> movers(const ExecDag& dag, OpId id);

[[nodiscard]] std::string to_json(const Machine& machine);
[[nodiscard]] std::string to_json(const Profile& profile);
[[nodiscard]] std::string to_json(const Measurements& measurements);
/// Throw InputError as in core/json.hpp.
[[nodiscard]] Machine machine_from_json(const std::string& text, const std::string& where);
[[nodiscard]] Profile profile_from_json(const std::string& text, const std::string& where);
[[nodiscard]] Measurements measurements_from_json(const std::string& text,
                                                  const std::string& where);

}  // namespace parsim
