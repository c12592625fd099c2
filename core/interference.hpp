// What operations that run at the same time cost each other: kernels beside messages, and parts of
// one GPU that share its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/spread.hpp"

namespace parsim {

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

}  // namespace parsim
