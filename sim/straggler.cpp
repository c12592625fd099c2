#include "sim/straggler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.hpp"

namespace parsim {

namespace {

template <class Id>
const SlowPeriods& periods_of(const std::vector<SlowPeriods>& list, Id id) {
  static const SlowPeriods never;
  return list.empty() ? never : list.at(id.index());
}

}  // namespace

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

const SlowPeriods& Slowdowns::of(DeviceId device) const { return periods_of(devices, device); }
const SlowPeriods& Slowdowns::of(LinkId link) const { return periods_of(links, link); }

std::vector<RateChange> rate_changes(const Cluster& cluster, const Slowdowns& slowdowns) {
  std::vector<RateChange> changes;
  for (std::size_t i = 0; i < slowdowns.links.size(); ++i) {
    const LinkId link{i};
    const BytesPerSecond rate = cluster[link].rate;
    const std::vector<SlowPeriod>& periods = slowdowns.links[i].periods();
    for (std::size_t k = 0; k < periods.size(); ++k) {
      changes.push_back({periods[k].from, link, BytesPerSecond{rate.value / periods[k].factor}});
      const bool goes_on = k + 1 < periods.size() && periods[k + 1].from == periods[k].to;
      if (!goes_on && std::isfinite(periods[k].to.count())) {
        changes.push_back({periods[k].to, link, rate});
      }
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const RateChange& a, const RateChange& b) { return a.date < b.date; });
  return changes;
}

}  // namespace parsim
