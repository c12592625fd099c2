// How concurrent operations slow each other down: kernels and messages of one device, and parts of
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
#include "core/spelling.hpp"
#include "core/spread.hpp"

namespace parsim {

/// Interference class of an operation: convolutions and matrix products; all other kernels
/// (element-wise, norms, pooling, updates, copies); transfers and collectives.
enum class Activity : std::uint8_t { tensor, memory, communication };
constexpr std::array<std::string_view, 3> spellings(Activity) {
  return {"tensor", "memory", "communication"};
}
inline constexpr std::size_t activity_count = spellings_of<Activity>().size();
/// What a device does in an operation of its own; nothing for messages and delays. Products that
/// reuse no operand (a filter per channel) are as fast as memory, and count as that.
[[nodiscard]] std::optional<Activity> kernel_activity(const ExecDag& dag, OpId id);

/// How concurrent activities on one device slow each other down: time of one while another runs,
/// over its time alone. At least 1, which is the default. Kernels of a device run one after another
/// and messages share links, so only a kernel during communication and communication during a
/// kernel count.
struct Interference {
  std::array<std::array<double, activity_count>, activity_count> factors{
      {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};

  [[nodiscard]] double of(Activity activity, Activity during) const {
    return factors[static_cast<std::size_t>(activity)][static_cast<std::size_t>(during)];
  }
  void set(Activity activity, Activity during, double factor) {
    factors[static_cast<std::size_t>(activity)][static_cast<std::size_t>(during)] = factor;
  }
  /// False if all factors are 1.
  [[nodiscard]] bool any() const { return *this != Interference{}; }
  friend bool operator==(const Interference&, const Interference&) = default;
};
/// A pair that counts.
struct InterferencePair {
  Activity activity, during;
};
inline constexpr std::array<InterferencePair, 4> interference_pairs{
    {{Activity::tensor, Activity::communication},
     {Activity::memory, Activity::communication},
     {Activity::communication, Activity::tensor},
     {Activity::communication, Activity::memory}}};
/// "tensor/communication".
[[nodiscard]] std::string to_text(const InterferencePair& pair);

/// One operation repeated on an idle device, and while another one was repeated concurrently, both
/// measured the same way.
struct InterferenceSample {
  std::string device;    ///< a model of the machine's cluster
  std::size_t pair = 0;  ///< in interference_pairs
  Spread alone, during;
  friend bool operator==(const InterferenceSample&, const InterferenceSample&) = default;
};
/// By pair, the median over its samples of the concurrent time over the time alone. A sample whose
/// quartiles overlap shows no slowdown: it counts as 1.
[[nodiscard]] Interference interference_of(const std::vector<InterferenceSample>& samples);

/// A part of a GPU, and how long a memory bandwidth test took on it: alone, and while all other
/// parts ran the test, too.
struct MemoryPart {
  DeviceId device;
  Spread alone, together;
  friend bool operator==(const MemoryPart&, const MemoryPart&) = default;
};
/// Devices that are parts of one GPU share the rate of its memory.
struct CommonMemory {
  Bytes touched{};  ///< by each part in the bandwidth test
  std::vector<MemoryPart> parts;

  [[nodiscard]] BytesPerSecond rate_alone(const MemoryPart& part) const {
    return touched / part.alone.median;
  }
  [[nodiscard]] BytesPerSecond rate_together(const MemoryPart& part) const {
    return touched / part.together.median;
  }
  /// Of all parts together.
  [[nodiscard]] BytesPerSecond rate() const;
  /// False if no part was slower with the others than alone (by quartiles): memory is no
  /// bottleneck.
  [[nodiscard]] bool limits() const;
  friend bool operator==(const CommonMemory&, const CommonMemory&) = default;
};

}  // namespace parsim
