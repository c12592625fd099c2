// Kernels and messages that hold each other up, or share a GPU's memory: whose pace changes when
// something starts or ends beside it. Knows dates and devices only, whatever moves the flows.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/profile.hpp"
#include "sim/slow.hpp"

namespace parsim {

/// The operations that run, and when they end.
///
/// A kernel advances at 1/f of its speed while a message is on its way from, to or among others
/// with its device (f: of its kind beside communication), slow periods of the device besides.
/// A message has a clock that must run for as long as the message takes on an idle network, at 1/g
/// while kernels run on any of its devices (g: the largest of communication beside their kinds); it
/// ends when its flows and its clock have.
///
/// On parts of one GPU, kernels and messages among them each want the bytes they touch over their
/// time at that speed, at most the rate of their parts' walks alone. Where that is more than the
/// memory has, they get shares by weight (memory_level), if that is slower; weights are the rates
/// of their parts' walks together. Checked: tests/sim/pace_test.cpp, against everything anew at
/// every event.
class Pace {
 public:
  static constexpr Seconds never{std::numeric_limits<double>::infinity()};

  /// The references must outlive it.
  Pace(const ExecDag& dag, const Interference& interference,
       const std::vector<CommonMemory>& common_memory, const Slowdowns& slow, std::size_t devices);

  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  /// A kernel or a delay begins; alone it takes so long and touches so many bytes.
  void start_kernel(OpId op, Seconds date, Seconds alone, double bytes);
  /// A message begins. It does not end before flows_ended has been told.
  void start_message(OpId op, Seconds date, Seconds alone, double bytes);
  void flows_ended(OpId op, Seconds date);

  struct End {
    Seconds date{};
    OpId op;
  };
  /// The earliest end, if nothing else happens; `never` if there is none.
  [[nodiscard]] Seconds next();
  /// Ends the operation that ends first, if it does until `date`. Ties go to the lower id.
  [[nodiscard]] std::optional<End> pop(Seconds date);

 private:
  using Index = std::uint32_t;

  /// What parts of a GPU share.
  struct Memory {
    double rate = 0;  ///< bytes/s
    double level = Pace::never.count();
    std::vector<Index> claims;  ///< who wants some of it
  };

  struct Running {
    OpId op;
    bool message = false;
    std::optional<Activity> activity;  ///< of a kernel that can be held up
    DeviceId device;                   ///< of such a kernel, or of one that can be slow
    std::array<int, 2> beside{};       ///< of a message: kernels on its devices, by Activity
    Memory* memory = nullptr;          ///< that it shares with others
    double weight = 0, demand = 0;     ///< bytes/s of it: beside all others, and at full speed
    double left = 0;                   ///< seconds at full speed, at date `since`
    double since = 0;
    double factor = 1;
    double flows_end = 0;  ///< of a message; infinite while they run
    std::uint64_t version = 0;
  };
  struct Due {
    double date = 0;
    OpId op;
    Index running = 0;
    std::uint64_t version = 0;
    bool operator>(const Due& b) const { return date != b.date ? date > b.date : op > b.op; }
  };
  struct OnDevice {
    std::vector<Index> kernels, messages;
    Memory* memory = nullptr;     ///< that it shares
    double weight = 0, most = 0;  ///< bytes/s that it gets of it beside all others, and alone
  };

  Index begin(OpId op, Seconds date, Seconds alone);
  [[nodiscard]] double held_up(const Running& running) const;
  void claim(Index index, std::span<const DeviceId> parts, double bytes);
  void share(Memory* memory, double date);
  void share_of(std::span<const DeviceId> members, double date);
  void members(OpId op);
  [[nodiscard]] double factor_of(const Running& running) const;
  void change_pace(Index index, double date);
  void schedule(Index index);
  void leave(Index index, double date);
  void forget_void_ends();

  const ExecDag& dag_;
  const Interference& interference_;
  const Slowdowns& slow_;
  std::vector<Memory> memories_;  ///< never grows
  std::vector<OnDevice> devices_;
  std::vector<Running> running_;
  std::vector<Index> free_;
  std::vector<std::int32_t> place_;  ///< by operation: in running_, or -1
  std::vector<Due> due_;             ///< a heap, earliest first
  std::uint64_t version_ = 0;        ///< of the last end that was worked out
  std::vector<DeviceId> members_;    ///< of the message last asked for
  std::vector<MemoryClaim> claims_;  ///< when memory was last shared
};

}  // namespace parsim
