// Contention on a device: kernels and messages that slow each other down, or share the bandwidth of
// a GPU's memory. Their speed changes when another operation starts or ends on the device. Knows
// dates and devices only, not the engine that moves the flows.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/profile.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// The running operations, and when they end.
///
/// A kernel runs at 1/f of its speed while a message involves its device (f: the factor of its kind
/// under communication), on top of the device's slow periods. A message has a clock that must run
/// for as long as the message takes on an idle network, at 1/g while kernels run on any of its
/// devices (g: the largest factor of communication under their kinds); the message ends when its
/// flows and its clock have ended.
///
/// On parts of one GPU, a kernel or a message between them demands memory bandwidth: the bytes it
/// touches over its time at that speed, at most what its parts reach in a memory-bound kernel
/// alone. Where the demands exceed the memory's bandwidth, each gets a share by weight
/// (memory_level), if that is slower; weights are the rates that the parts reach in memory-bound
/// kernels together. Checked: tests/sim/contention_test.cpp, against a model that recomputes all
/// speeds at every event.
class Contention {
 public:
  static constexpr Seconds never{std::numeric_limits<double>::infinity()};

  /// The references must outlive it.
  Contention(const ExecDag& dag, const Slowdowns& slowdowns, std::size_t devices);

  Contention(const Contention&) = delete;
  Contention& operator=(const Contention&) = delete;

  /// A kernel or a delay begins. `alone`: its time without contention; `bytes`: what it touches.
  void start_kernel(OpId op, Seconds date, Seconds alone, double bytes);
  /// A message begins. It does not end before flows_ended() is called for it.
  void start_message(OpId op, Seconds date, Seconds alone, double bytes);
  void flows_ended(OpId op, Seconds date);

  struct End {
    Seconds date{};
    OpId op;
  };
  /// The earliest end if no operation starts before it; `never` if nothing runs.
  [[nodiscard]] Seconds next();
  /// Ends the operation that ends first, if its end is not after `date`. Ties go to the lower id.
  [[nodiscard]] std::optional<End> pop(Seconds date);

 private:
  struct Running : RunningWork {
    OpId op;
    bool message = false;
    std::optional<Activity> activity;  ///< of a kernel that communication slows down
    DeviceId device;                   ///< of a kernel; invalid for a delay
    std::array<int, 2> kernels{};      ///< of a message: kernels on its devices, by Activity
    double flows_end = 0;              ///< of a message; infinite while they run
    std::uint64_t version = 0;
  };
  struct Due {
    double date = 0;
    OpId op;
    Running* running = nullptr;
    std::uint64_t version = 0;
    [[nodiscard]] bool valid() const { return running->version == version; }
    bool operator>(const Due& b) const { return date != b.date ? date > b.date : op > b.op; }
  };
  struct OnDevice {
    std::vector<Running*> kernels, messages;
    SharedMemory* memory = nullptr;
    double weight = 0, most = 0;  ///< bytes/s that it gets of it with all others, and alone
  };

  Running& begin(OpId op, Seconds date, Seconds alone);
  [[nodiscard]] double interference(const Running& running) const;
  void claim(Running& running, std::span<const DeviceId> parts, double bytes);
  void share(SharedMemory* memory, Seconds date);
  void share_of(std::span<const DeviceId> members, Seconds date);
  void count(Running& message, Activity kernel, int change, Seconds date);
  void change_speed(Running& running, Seconds date);
  void schedule(Running& running);
  void leave(Running& running, Seconds date);
  void forget_void_ends();

  const ExecDag& dag_;
  const Slowdowns& slowdowns_;
  std::vector<SharedMemory> memories_;  ///< never grows
  std::vector<OnDevice> devices_;
  std::deque<Running> running_;
  std::vector<Running*> free_;
  std::vector<Running*> running_of_;  ///< by operation; null unless it runs
  std::vector<Due> due_;              ///< a heap, earliest first
  std::uint64_t version_ = 0;         ///< of the last end that was scheduled
};

}  // namespace parsim::sim
