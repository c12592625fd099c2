#include "hw/remote_slices.hpp"

namespace parsim::hw {

namespace {

void of_transfer(const ExecDag& dag, const Transfer& op, std::vector<RemoteSlice>& out) {
  if (op.from == op.to) return;
  const std::vector<TensorSlice> from = tensor_slices(dag, op.from, op.slice);
  const std::vector<TensorSlice> to = tensor_slices(dag, op.to, op.target);
  for (std::size_t i = 0; i < to.size(); ++i) {
    out.push_back({{from.at(i).key, to[i].region}, op.to});
  }
}

void of_collective(const ExecDag& dag, const Collective& op, const Shares& shares,
                   std::vector<RemoteSlice>& out) {
  const std::vector<DeviceId>& group = dag.group(op.group);
  for (std::size_t from = 0; from < group.size(); ++from) {
    for (std::size_t to = 0; to < group.size(); ++to) {
      if (from == to) continue;
      const auto add = [&](std::optional<RegionId> narrowed) {
        for (const TensorSlice& slice : tensor_slices(dag, group[from], op.slice, narrowed)) {
          out.push_back({slice, group[to]});
        }
      };
      switch (op.kind) {
        case CollectiveKind::all_reduce:
          add({});
          break;
        case CollectiveKind::broadcast:
          if (from == 0) add({});
          break;
        case CollectiveKind::reduce_scatter:
          add(shares.regions[to]);
          break;
        case CollectiveKind::all_gather:
          add(shares.regions[from]);
          break;
        case CollectiveKind::all_to_all: {
          add(shares.regions[from]);
          Region& part = out.back().slice.region;
          part = intersect(part, dag.region(shares.needs[to]));
        }
      }
    }
  }
}

}  // namespace

std::vector<RemoteSlice> remote_slices(const ExecDag& dag, OpId id) {
  std::vector<RemoteSlice> out;
  const Op op = dag.op(id);
  if (const auto* transfer = std::get_if<Transfer>(&op)) of_transfer(dag, *transfer, out);
  if (const auto* collective = std::get_if<Collective>(&op)) {
    of_collective(dag, *collective, dag.shares(id), out);
  }
  std::erase_if(out,
                [](const RemoteSlice& remote_slice) { return remote_slice.slice.region.empty(); });
  return out;
}

}  // namespace parsim::hw
