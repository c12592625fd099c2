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
#include "core/timeline.hpp"

namespace parsim {

/// A measured time never travels without its spread. With fewer than five samples low and high are
/// the median.
struct Spread {
  Seconds median{}, low{}, high{};  ///< low, high: quartiles
  std::int64_t samples = 0;
  friend bool operator==(const Spread&, const Spread&) = default;
};
/// `times` must not be empty.
[[nodiscard]] Spread spread_of(std::vector<Seconds> times);

/// Name and version of a library or driver.
struct Version {
  std::string name, version;
  friend bool operator==(const Version&, const Version&) = default;
};

/// What measured: its devices are GPUs, partitions of one, or threads of the host.
struct Machine {
  std::string backend;  ///< "cuda", "host"
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
  std::string kind;               ///< "transfer" or a collective's word
  std::vector<DeviceId> devices;  ///< sender and receiver, or the group
  Bytes payload{};
  Spread time;
  friend bool operator==(const MessageSample&, const MessageSample&) = default;
};

/// What a device does, as far as what happens beside it matters: convolutions and matrix products;
/// whatever else kernels do (element-wise, norms, pooling, updates, copies); a transfer or
/// collective that it takes part in.
enum class Activity : std::uint8_t { tensor, memory, communication };
inline constexpr std::size_t activity_count = 3;
[[nodiscard]] std::string_view to_text(Activity activity);
/// What a device does in an operation of its own; nothing for messages and delays. Products that
/// reuse no operand (a filter per channel) are as fast as memory, and count as that.
[[nodiscard]] std::optional<Activity> kernel_activity(const ExecDag& dag, OpId id);

/// How activities on one device hold each other up: time of one while another runs beside it, over
/// its time alone. At least 1; 1 unless told. Kernels of a device run one after another and
/// messages share links, so only a kernel beside communication and communication beside a kernel
/// count.
struct Interference {
  std::array<std::array<double, activity_count>, activity_count> factors{
      {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};

  [[nodiscard]] double of(Activity activity, Activity beside) const {
    return factors[static_cast<std::size_t>(activity)][static_cast<std::size_t>(beside)];
  }
  void set(Activity activity, Activity beside, double factor) {
    factors[static_cast<std::size_t>(activity)][static_cast<std::size_t>(beside)] = factor;
  }
  /// False if nothing holds anything up.
  [[nodiscard]] bool any() const { return *this != Interference{}; }
  friend bool operator==(const Interference&, const Interference&) = default;
};
/// A pair that counts.
struct InterferencePair {
  Activity activity, beside;
};
inline constexpr std::array<InterferencePair, 4> interference_pairs{
    {{Activity::tensor, Activity::communication},
     {Activity::memory, Activity::communication},
     {Activity::communication, Activity::tensor},
     {Activity::communication, Activity::memory}}};
/// "tensor/communication".
[[nodiscard]] std::string to_text(const InterferencePair& pair);

/// One operation repeated on an idle device, and while another one was repeated beside it: both
/// measured the same way.
struct InterferenceSample {
  std::string device;    ///< a model of the machine's cluster
  std::size_t pair = 0;  ///< in interference_pairs
  Spread alone, beside;
  friend bool operator==(const InterferenceSample&, const InterferenceSample&) = default;
};
/// By pair, the median over its samples of the time beside over the time alone. A sample whose
/// quartiles overlap shows no slowdown: it counts as 1.
[[nodiscard]] Interference interference_of(const std::vector<InterferenceSample>& samples);

/// A part of a GPU, and how long its walk through memory took: by itself, and while every other
/// part walked too.
struct MemoryPart {
  DeviceId device;
  Spread alone, together;
  friend bool operator==(const MemoryPart&, const MemoryPart&) = default;
};
/// Devices that are parts of one GPU share the rate of its memory.
struct CommonMemory {
  Bytes touched{};  ///< in the walk, by each part
  std::vector<MemoryPart> parts;

  [[nodiscard]] BytesPerSecond rate_alone(const MemoryPart& part) const {
    return touched / part.alone.median;
  }
  [[nodiscard]] BytesPerSecond rate_together(const MemoryPart& part) const {
    return touched / part.together.median;
  }
  /// Of all parts together.
  [[nodiscard]] BytesPerSecond rate() const;
  /// False if no part's quartiles together lie above those alone: there is enough for all.
  [[nodiscard]] bool limits() const;
  friend bool operator==(const CommonMemory&, const CommonMemory&) = default;
};

/// What wants so much of a GPU's memory's rate.
struct MemoryClaim {
  double weight = 0, demand = 0;
};
/// The level at which a rate is used up if each claim gets min(demand, weight · level): max-min
/// fair by weight. Infinite if the rate is enough for all. Multiprocessors have a bounded number of
/// requests under way; when memory is busy each takes longer, whoever waits for it, so what a part
/// gets goes with its weight (Little's law).
[[nodiscard]] double memory_level(std::span<const MemoryClaim> claims, double rate);

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
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

struct Measurements {
  Machine machine;
  std::vector<Measurement> runs;  ///< in the order asked for
  friend bool operator==(const Measurements&, const Measurements&) = default;
};

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
