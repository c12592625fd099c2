// Stragglers: devices and links with periods of reduced speed, and when their work ends, in closed
// form.
#pragma once

#include <limits>
#include <vector>

#include "core/cluster.hpp"

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
  /// tests/sim/straggler_test.cpp, by hand and against small steps.
  [[nodiscard]] Seconds end(Seconds start, Seconds alone) const;
  /// How much work, in time at full speed, is done between two dates.
  [[nodiscard]] Seconds work(Seconds from, Seconds to) const;

 private:
  std::vector<SlowPeriod> periods_;  ///< by date
};

/// By DeviceId, and by LinkId for both directions of a link; an empty list: no slow periods.
struct Slowdowns {
  std::vector<SlowPeriods> devices, links;

  [[nodiscard]] const SlowPeriods& of(DeviceId device) const;
  [[nodiscard]] const SlowPeriods& of(LinkId link) const;
};

/// From `date` on, a link has `rate` in each direction.
struct RateChange {
  Seconds date{};
  LinkId link;
  BytesPerSecond rate{};
  friend bool operator==(const RateChange&, const RateChange&) = default;
};
/// By date, then link.
[[nodiscard]] std::vector<RateChange> rate_changes(const Cluster& cluster,
                                                   const Slowdowns& slowdowns);

}  // namespace parsim
