#include "sim/blocked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "core/dag_traffic.hpp"

namespace parsim::sim {

namespace {

constexpr std::array<std::string_view, 5> pass_names{"forward", "backward", "input gradients",
                                                     "weight gradients", "recomputation"};

std::string describe(const ExecDag& dag, const Cluster& cluster, OpId id) {
  const OpRecord& record = dag.record(id);
  const auto device = [&](std::int32_t index) -> const std::string& {
    return cluster[DeviceId{index}].name;
  };
  switch (dag.kind(id)) {
    case OpKind::compute:
      return fmt::format(
          "operation {} ({} of layer '{}' on '{}')", id.value, pass_names.at(record.sub),
          dag.network[dag.work(WorkId{record.what}).layer].name, device(record.device));
    case OpKind::transfer:
      return fmt::format("operation {} (transfer from '{}' to '{}')", id.value,
                         device(record.device), device(record.to));
    case OpKind::collective:
      return fmt::format("operation {} ({} of {} devices)", id.value,
                         to_text(static_cast<CollectiveKind>(record.sub)),
                         dag.group(GroupId{record.device}).size());
    case OpKind::update:
      return fmt::format("operation {} (update on '{}')", id.value, device(record.device));
    case OpKind::local:
      return fmt::format("operation {} (local copy on '{}')", id.value, device(record.device));
    case OpKind::delay:
      break;
  }
  return fmt::format("operation {} (delay on '{}')", id.value, device(record.device));
}

}  // namespace

std::string blocked_operations(const ExecDag& dag, const Cluster& cluster,
                               const Timeline& timeline) {
  constexpr std::size_t most_named = 5, most_reasons = 3;
  const auto blocked = [&](OpId id) { return timeline.spans[id.index()].end < Seconds{0}; };
  const bool none = std::none_of(timeline.spans.begin(), timeline.spans.end(),
                                 [](const Span& span) { return span.end < Seconds{0}; });
  if (none) return {};
  std::size_t count = 0;
  std::string named;
  std::map<Queue, OpId> last;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    std::vector<OpId> reasons;
    for (const OpId source : dag.predecessors(id)) {
      if (blocked(source)) reasons.push_back(source);
    }
    queues(dag, id, occupied);
    for (const Queue& queue : occupied) {
      const auto [entry, first] = last.try_emplace(queue, id);
      if (!first && blocked(entry->second)) reasons.push_back(entry->second);
      entry->second = id;
    }
    if (!blocked(id) || ++count > most_named) continue;
    std::sort(reasons.begin(), reasons.end());
    reasons.erase(std::unique(reasons.begin(), reasons.end()), reasons.end());
    std::string why;
    for (std::size_t k = 0; k < std::min(reasons.size(), most_reasons); ++k) {
      why += (k == 0 ? "" : ", ") + describe(dag, cluster, reasons[k]);
    }
    if (reasons.size() > most_reasons) {
      why += fmt::format(" and {} more", reasons.size() - most_reasons);
    }
    named += (count == 1 ? "" : "; ") + describe(dag, cluster, id) +
             (why.empty() ? " began but did not end" : " waits for " + why);
  }
  if (count == 0) return {};
  return fmt::format("{} of {} operations never ended: {}{}", count, dag.size(), named,
                     count > most_named ? fmt::format("; and {} more", count - most_named) : "");
}

}  // namespace parsim::sim
