#include "core/dag_traffic.hpp"

#include "core/errors.hpp"

namespace parsim {

namespace {

std::int64_t members(const ExecDag& dag, OpId id) {
  return static_cast<std::int64_t>(dag.group(GroupId{dag.record(id).device}).size());
}

}  // namespace

double bus_factor(CollectiveKind kind, std::size_t devices) {
  const auto n = static_cast<double>(devices);
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return (n - 1) / n;
    case CollectiveKind::broadcast:
      return 1;
  }
  throw BrokenInvariant("a collective kind outside its enum");
}

Bytes bytes_received(const ExecDag& dag, OpId id) {
  const Bytes payload = dag.payload(id);
  if (dag.kind(id) == OpKind::transfer) return payload;
  if (dag.kind(id) != OpKind::collective) return {};
  const std::int64_t others = members(dag, id) - 1;
  switch (static_cast<CollectiveKind>(dag.record(id).sub)) {
    case CollectiveKind::all_reduce:
      return 2 * others * payload;
    case CollectiveKind::all_to_all:
      return payload;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::broadcast:
      break;
  }
  return others * payload;
}

Bytes bytes_moved(const ExecDag& dag) {
  Bytes sum;
  for (std::size_t i = 0; i < dag.size(); ++i)
    sum += dag.count(OpId{i}) * bytes_received(dag, OpId{i});
  return sum;
}

namespace {

std::int64_t messages(const ExecDag& dag, OpId id) {
  if (dag.kind(id) == OpKind::transfer) return 1;
  if (dag.kind(id) != OpKind::collective) return 0;
  const std::int64_t n = members(dag, id);
  switch (static_cast<CollectiveKind>(dag.record(id).sub)) {
    case CollectiveKind::all_reduce:
      return 2 * n * (n - 1);
    case CollectiveKind::broadcast:
      return n - 1;
    case CollectiveKind::all_to_all: {
      std::int64_t sum = 0;
      const Shares& shares = dag.shares(id);
      for (std::size_t a = 0; a < shares.needs.size(); ++a) {
        for (std::size_t b = 0; b < shares.regions.size(); ++b) {
          if (a != b &&
              !intersect(dag.region(shares.needs[a]), dag.region(shares.regions[b])).empty())
            ++sum;
        }
      }
      return sum;
    }
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      break;
  }
  return n * (n - 1);
}

}  // namespace

std::int64_t messages(const ExecDag& dag) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) sum += dag.count(OpId{i}) * messages(dag, OpId{i});
  return sum;
}

void queues(const ExecDag& dag, OpId id, std::vector<Queue>& out) {
  out.clear();
  const OpRecord& r = dag.record(id);
  const std::int32_t sending = 2 * static_cast<std::int32_t>(r.stream);
  switch (dag.kind(id)) {
    case OpKind::transfer:
      out.push_back({DeviceId{r.device}, sending});
      out.push_back({DeviceId{r.to}, sending + 1});
      return;
    case OpKind::collective:
      for (const DeviceId device : dag.group(GroupId{r.device})) {
        out.push_back({device, sending});
        out.push_back({device, sending + 1});
      }
      return;
    default:
      out.push_back({DeviceId{r.device}, sending});
  }
}

}  // namespace parsim
