// Devices and links that are slow for a while: when their work is done, in closed form.
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

/// The slow periods of one device or link, which do not overlap. Without any, dates are the same
/// bits as plain sums.
class Slow {
 public:
  Slow() = default;
  /// In any order. Those of factor 1 are left out.
  explicit Slow(std::vector<SlowPeriod> periods);

  [[nodiscard]] const std::vector<SlowPeriod>& periods() const { return periods_; }
  [[nodiscard]] bool empty() const { return periods_.empty(); }
  /// When work that takes `alone` at full speed ends if it begins at `start`. Checked:
  /// tests/sim/slow_test.cpp, by hand and against small steps.
  [[nodiscard]] Seconds end(Seconds start, Seconds alone) const;
  /// How much work, in time at full speed, gets done in between.
  [[nodiscard]] Seconds work(Seconds from, Seconds to) const;

 private:
  std::vector<SlowPeriod> periods_;  ///< by date
};

/// By DeviceId and by LinkId, both directions of a cable alike; no list at all: nothing is slow.
struct Slowdowns {
  std::vector<Slow> devices, links;

  [[nodiscard]] const Slow& of(DeviceId device) const;
  [[nodiscard]] const Slow& of(LinkId link) const;
};

/// From `date` on a link carries `rate` in each direction.
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
