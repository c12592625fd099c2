#include "core/running_work.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.hpp"

namespace parsim {

SlowPeriods::SlowPeriods(std::vector<SlowPeriod> periods) : periods_(std::move(periods)) {
  std::erase_if(periods_, [](const SlowPeriod& period) { return period.factor == 1; });
  std::sort(periods_.begin(), periods_.end(),
            [](const SlowPeriod& a, const SlowPeriod& b) { return a.from < b.from; });
  for (std::size_t i = 0; i < periods_.size(); ++i) {
    const SlowPeriod& period = periods_[i];
    ensure(period.factor > 1 && std::isfinite(period.factor) && period.from < period.to &&
               (i == 0 || periods_[i - 1].to <= period.from),
           "slow periods have a factor and a length, and do not overlap");
  }
}

Seconds SlowPeriods::end(Seconds start, Seconds alone) const {
  Seconds at = start, left = alone;
  for (const SlowPeriod& period : periods_) {
    if (period.to <= at) continue;
    if (at < period.from) {  // at full speed until then
      if (at + left <= period.from) break;
      left -= period.from - at;
      at = period.from;
    }
    const Seconds end = at + left * period.factor;
    if (end <= period.to) return end;
    left -= (period.to - at) / period.factor;
    at = period.to;
  }
  return at + std::max(left, Seconds{0});
}

Seconds SlowPeriods::work(Seconds from, Seconds to) const {
  Seconds done{0}, at = from;
  for (const SlowPeriod& period : periods_) {
    const Seconds begin = std::max(at, period.from), end = std::min(to, period.to);
    if (begin >= end) continue;
    done += (begin - at) + (end - begin) / period.factor;
    at = end;
  }
  return done + std::max(to - at, Seconds{0});
}

double memory_level(std::span<const MemoryClaim> claims, double rate) {
  // Claims are met in the order of the level that each needs, as long as that leaves enough.
  std::vector<MemoryClaim> order(claims.begin(), claims.end());
  std::sort(order.begin(), order.end(), [](const MemoryClaim& a, const MemoryClaim& b) {
    return a.demand * b.weight < b.demand * a.weight;
  });
  double weight = 0;
  for (const MemoryClaim& claim : order) weight += claim.weight;
  for (const MemoryClaim& claim : order) {
    if (claim.demand * weight > rate * claim.weight) return rate / weight;
    rate -= claim.demand;
    weight -= claim.weight;
  }
  return std::numeric_limits<double>::infinity();
}

void SharedMemory::share() {
  std::vector<MemoryClaim> claims;
  for (const RunningWork* user : users) {
    claims.push_back({user->weight, user->demand / user->interference});
  }
  level = memory_level(claims, rate);
}

bool RunningWork::update(Seconds date) {
  const double now =
      memory == nullptr ? interference : std::max(interference, demand / (weight * memory->level));
  if (now == factor) return false;
  if (date > since) {
    const Seconds done = periods == nullptr ? date - since : periods->work(since, date);
    left = std::max(Seconds{0}, left - done / factor);
    since = date;
  }
  factor = now;
  return true;
}

Seconds RunningWork::end() const {
  const Seconds rest = left * factor;
  return periods == nullptr ? since + rest : periods->end(since, rest);
}

}  // namespace parsim
