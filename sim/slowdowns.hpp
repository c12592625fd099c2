// All that makes a step slower than its cost model and its links say, in one place.
//
//   what                                     acts
//   a device slow for the whole step         on prices (make_slowed): reports price with them, too
//   jitter of kernels                        on prices (jitter_factor), in prepare()
//   a device slow for a while                on the end of its kernels (SlowPeriods::end)
//   a link slow for a while or throughout    on the rates of its flows (rate_changes)
//   kernels and messages of one device       on running work (sim/contention.hpp)
//   parts of one GPU that share its memory   on running work (sim/contention.hpp)
//
// A price is a time at full speed, known before the run; core/running_work.hpp says when work ends
// whose speed changes during the run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/interference.hpp"
#include "core/running_work.hpp"

namespace parsim::sim {

/// Kernel times that vary from operation to operation, for the spread of a step's time.
struct Jitter {
  double relative = 0;  ///< standard deviation over mean
  std::uint64_t seed = 1;
};
/// The factor of the operation's kernel time: log-normal with mean 1 and the given relative
/// standard deviation, a function of the seed and the operation's id alone. 1 without jitter.
[[nodiscard]] double jitter_factor(const Jitter& jitter, OpId op);

struct Slowdowns {
  /// By DeviceId, and by LinkId for both directions of a link; an empty list: no slow periods. They
  /// do not affect messages with a measured time or latencies; Fidelity::analytic ignores those of
  /// links.
  std::vector<SlowPeriods> devices{}, links{};
  Interference interference{};
  std::vector<CommonMemory> common_memory{};
  Jitter jitter{};

  /// No periods for an invalid id: messages and delays have no device that slows them down.
  [[nodiscard]] const SlowPeriods& of(DeviceId device) const;
  [[nodiscard]] const SlowPeriods& of(LinkId link) const;
  /// Whether concurrent operations on a device change each other's times.
  [[nodiscard]] bool has_contention() const { return interference.any() || !common_memory.empty(); }
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

/// `base` with kernels that take `factor` times as long. Holds a reference to the base.
[[nodiscard]] std::unique_ptr<CostModel> make_scaled(const CostModel& base, double factor);

/// `base` with stragglers: kernels of a device, and its updates and copies, take `factors[device]`
/// times as long. Holds a reference to the base.
[[nodiscard]] std::unique_ptr<CostModel> make_slowed(const CostModel& base,
                                                     std::vector<double> factors);

}  // namespace parsim::sim
