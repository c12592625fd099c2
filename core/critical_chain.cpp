#include "core/critical_chain.hpp"

#include <algorithm>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"

namespace parsim {

std::vector<OpId> awaited(const ExecDag& dag, const Timeline& timeline, std::size_t devices) {
  ensure(timeline.spans.size() == dag.size(), "a timeline has a span for every operation");
  std::vector<OpId> before(dag.size());
  std::vector<std::int32_t> last(devices * static_cast<std::size_t>(queues_per_device), -1);
  std::vector<Queue> queues_of_op;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const auto consider = [&](std::int32_t other) {
      if (other < 0) return;
      std::int32_t& best = before[i].value;
      const auto end = [&](std::int32_t op) {
        return timeline.spans[static_cast<std::size_t>(op)].end;
      };
      if (best < 0 || end(other) > end(best) || (end(other) == end(best) && other < best)) {
        best = other;
      }
    };
    for (const OpId predecessor : dag.predecessors(OpId{i})) consider(predecessor.value);
    queues(dag, OpId{i}, queues_of_op);
    for (const Queue& queue : queues_of_op) {
      consider(last[queue.device.index() * static_cast<std::size_t>(queues_per_device) +
                    static_cast<std::size_t>(queue.queue)]);
    }
    for (const Queue& queue : queues_of_op) {
      last[queue.device.index() * static_cast<std::size_t>(queues_per_device) +
           static_cast<std::size_t>(queue.queue)] = static_cast<std::int32_t>(i);
    }
  }
  return before;
}

std::vector<OpId> critical_chain(const ExecDag& dag, const Timeline& timeline,
                                 std::size_t devices) {
  if (dag.size() == 0) return {};
  const std::vector<OpId> before = awaited(dag, timeline, devices);
  std::size_t end = 0;
  for (std::size_t i = 1; i < dag.size(); ++i) {
    if (timeline.spans[i].end > timeline.spans[end].end) end = i;
  }
  std::vector<OpId> chain;
  for (OpId at{end}; at.valid(); at = before[at.index()]) chain.push_back(at);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace parsim
