// Work under way at a speed that changes, and when it ends. The only place that says so: simulated
// operations (sim/contention.hpp) and threads of the synthetic host (hw/memory_contention.hpp) end
// by it. What makes a step slower, and which of it acts here, is listed in sim/slowdowns.hpp.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "core/units.hpp"

namespace parsim {

/// From date `from` until `to`, since the step's start, everything takes `factor` times as long.
struct SlowPeriod {
  Seconds from{0};
  Seconds to{std::numeric_limits<double>::infinity()};
  double factor = 1;
  friend bool operator==(const SlowPeriod&, const SlowPeriod&) = default;
};

/// The slow periods of one device or link, which do not overlap. Without any, end() is the plain
/// sum, bit for bit.
class SlowPeriods {
 public:
  SlowPeriods() = default;
  /// In any order. Those of factor 1 are left out.
  explicit SlowPeriods(std::vector<SlowPeriod> periods);

  [[nodiscard]] const std::vector<SlowPeriod>& periods() const { return periods_; }
  [[nodiscard]] bool empty() const { return periods_.empty(); }
  /// When work that takes `alone` at full speed ends if it begins at `start`. Checked:
  /// tests/core/running_work_test.cpp, by hand and against small steps.
  [[nodiscard]] Seconds end(Seconds start, Seconds alone) const;
  /// How much work, in time at full speed, is done between two dates.
  [[nodiscard]] Seconds work(Seconds from, Seconds to) const;

 private:
  std::vector<SlowPeriod> periods_;  ///< by date
};

/// An operation's claim to a memory's bandwidth.
struct MemoryClaim {
  double weight = 0, demand = 0;
};
/// The level at which a rate is used up if each claim gets min(demand, weight · level): weighted
/// max-min fairness. Infinite if the rate covers all demands. Multiprocessors have a bounded number
/// of requests in flight; when memory is busy all requests take equally longer, so a part's rate is
/// proportional to its weight (Little's law).
[[nodiscard]] double memory_level(std::span<const MemoryClaim> claims, double rate);

struct RunningWork;

/// A memory whose bandwidth the work of several devices shares.
struct SharedMemory {
  double rate = 0;  ///< bytes/s
  double level = std::numeric_limits<double>::infinity();
  std::vector<RunningWork*> users{};

  /// Finds the level after users have come or gone or want another rate; RunningWork::update() then
  /// gives each its speed.
  void share();
};

/// Work takes `factor` times as long as alone: what other operations of its devices make of it, or
/// its share of a memory, whichever is slower; and that times the slow periods of its device.
struct RunningWork {
  Seconds left{};  ///< at full speed, at date `since`
  Seconds since{};
  double factor = 1;
  double interference = 1;               ///< factor by operations on the same devices
  double weight = 0;                     ///< bytes/s of the memory that it gets with all others
  double demand = 0;                     ///< bytes/s that it wants at full speed
  SharedMemory* memory = nullptr;        ///< null: it needs none
  const SlowPeriods* periods = nullptr;  ///< null: none

  /// Takes the factor that interference and memory now give; work until `date` counts at the old
  /// one. Returns whether it changed.
  bool update(Seconds date);
  /// If nothing changes before.
  [[nodiscard]] Seconds end() const;
};

}  // namespace parsim
