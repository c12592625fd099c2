// Memory whose rate several devices share.
#include <algorithm>
#include <limits>

#include "core/profile.hpp"

namespace parsim {

BytesPerSecond CommonMemory::rate() const {
  BytesPerSecond all{};
  for (const MemoryPart& part : parts) all.value += rate_together(part).value;
  return all;
}

bool CommonMemory::limits() const {
  return std::any_of(parts.begin(), parts.end(), [](const MemoryPart& part) {
    return part.together.low > part.alone.high && part.alone.median > Seconds{};
  });
}

Bytes message_traffic(const ExecDag& dag, OpId id) {
  const Bytes payload = dag.payload(id);
  const Op op = dag.op(id);
  if (const auto* transfer = std::get_if<Transfer>(&op)) return (transfer->add ? 3 : 2) * payload;
  const auto& collective = std::get<Collective>(op);
  const auto n = static_cast<std::int64_t>(dag.group(collective.group).size());
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
      return 2 * n * payload;  // all members' buffers are read and written
    case CollectiveKind::reduce_scatter:
      return (n + 2) * payload;  // all members' buffers are read, and added to one each
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      return 2 * (n - 1) * payload;
    case CollectiveKind::all_to_all:
      break;
  }
  return 2 * payload;
}

std::vector<DeviceId> movers(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  if (dag.kind(id) == OpKind::transfer) return {DeviceId{record.to}};
  return dag.group(GroupId{record.device});
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

}  // namespace parsim
