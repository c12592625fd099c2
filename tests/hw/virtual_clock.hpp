// A backend whose lanes pass time on paper: what the streams of a GPU would do if every operation
// took exactly its duration.
#pragma once

#include <algorithm>
#include <vector>

#include "core/timeline.hpp"
#include "hw/dispatch.hpp"

namespace parsim::testing {

class VirtualClock {
 public:
  VirtualClock(const hw::Dispatch& order, const std::vector<Seconds>& durations)
      : order_(order), durations_(durations), lanes_(order.lanes.size()), spans(durations.size()) {}

  void wait(std::int32_t lane, std::uint32_t turn) {
    Seconds& now = at(lane);
    now = std::max(now, spans[order_.turns[turn].op.index()].end);
  }
  void run(OpId op, std::span<const hw::Turn> turns) {
    Span& span = spans[op.index()];
    for (const hw::Turn& turn : turns) span.start = std::max(span.start, at(turn.lane));
    span.end = span.start + durations_[op.index()];
    for (const hw::Turn& turn : turns) at(turn.lane) = span.end;
  }
  void record(std::uint32_t) {}

 private:
  Seconds& at(std::int32_t lane) { return lanes_[static_cast<std::size_t>(lane)]; }

  const hw::Dispatch& order_;
  const std::vector<Seconds>& durations_;
  std::vector<Seconds> lanes_;

 public:
  std::vector<Span> spans;
};

[[nodiscard]] inline std::vector<Span> virtual_schedule(const ExecDag& dag,
                                                        const std::vector<Seconds>& durations) {
  const hw::Dispatch order = hw::dispatch(dag);
  VirtualClock clock(order, durations);
  hw::issue(dag, order, clock);
  return clock.spans;
}

}  // namespace parsim::testing
