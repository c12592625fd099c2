#include "tests/support/list_scheduler.hpp"

#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"

namespace parsim {

std::vector<Span> list_schedule(const ExecDag& dag, const std::vector<Seconds>& durations) {
  const std::size_t n = dag.size();
  std::map<Queue, std::deque<std::size_t>> lines;
  std::vector<std::vector<Queue>> places(n);
  for (std::size_t i = 0; i < n; ++i) {
    queues(dag, OpId{i}, places[i]);
    for (const Queue& queue : places[i]) lines[queue].push_back(i);
  }
  std::vector<bool> started(n, false), ended(n, false);
  std::vector<Span> spans(n);
  using Event = std::pair<double, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> running;
  std::size_t finished = 0;
  double now = 0;
  const auto may_start = [&](std::size_t i) {
    if (started[i]) return false;
    for (const Queue& queue : places[i]) {
      if (lines[queue].front() != i) return false;
    }
    for (const OpId before : dag.predecessors(OpId{i})) {
      if (!ended[before.index()]) return false;
    }
    return true;
  };
  while (finished < n) {
    for (std::size_t i = 0; i < n; ++i) {
      if (!may_start(i)) continue;
      started[i] = true;
      spans[i].start = Seconds{now};
      running.emplace(now + durations[i].count(), i);
    }
    ensure(!running.empty(), "the list scheduler is not stuck");
    now = running.top().first;
    // All that end now, before anything else starts.
    while (!running.empty() && running.top().first == now) {
      const std::size_t i = running.top().second;
      running.pop();
      ended[i] = true;
      ++finished;
      spans[i].end = Seconds{now};
      for (const Queue& queue : places[i]) lines[queue].pop_front();
    }
  }
  return spans;
}

std::vector<Seconds> durations_alone(const ExecDag& dag, const CostModel& cost) {
  std::vector<Seconds> durations;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    switch (dag.kind(OpId{i})) {
      case OpKind::transfer:
        durations.push_back(
            cost.transfer(DeviceId{record.device}, DeviceId{record.to}, dag.payload(OpId{i})));
        break;
      case OpKind::collective:
        durations.push_back(cost.collective(static_cast<CollectiveKind>(record.sub),
                                            dag.group(GroupId{record.device}),
                                            dag.payload(OpId{i})));
        break;
      default:
        durations.push_back(device_time(dag, OpId{i}, cost).time);
    }
  }
  return durations;
}

}  // namespace parsim
