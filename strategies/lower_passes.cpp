// Lowering of forward and backward: kernels, and the movements that bring operands and return
// gradients.
#include <algorithm>

#include "strategies/lowering.hpp"

namespace parsim {

OpId Lowering::arrival(LayerId id, std::size_t index, std::int32_t m, LayerId reader) {
  OpId& op = at(id, m).arrivals[index];
  if (op.valid()) return op;
  const Movement& movement = layers_[id.index()].layout.arrivals()[index];
  std::vector<OpId> after;
  for (const std::int32_t cell : movement.producers)
    after.push_back(at(id, m).ready[static_cast<std::size_t>(cell)]);
  const Stream stream = stream_between(id, reader);
  const TensorId tensor = output(id);
  Region all;
  for (const Region& region : movement.regions) all = hull(all, region);
  const Slice moved = slice(tensor, Role::activation, m, all);
  if (!is_collective(movement.pattern)) {
    op = dag_.add(Transfer{movement.devices[0], movement.devices[1], moved, moved, false}, stream,
                  after);
    return op;
  }
  Shares shares;
  if (movement.pattern != Pattern::broadcast) {
    for (const Region& region : movement.regions) shares.regions.push_back(dag_.intern(region));
    for (const Region& region : movement.needs) shares.needs.push_back(dag_.intern(region));
  }
  const CollectiveKind kind = movement.pattern == Pattern::all_gather   ? CollectiveKind::all_gather
                              : movement.pattern == Pattern::all_to_all ? CollectiveKind::all_to_all
                                                                        : CollectiveKind::broadcast;
  op = dag_.add(Collective{kind, dag_.intern(movement.devices), moved, moved}, shares, stream,
                after);
  return op;
}

std::vector<OpId> Lowering::operands(LayerId id, std::size_t cell, std::int32_t m) {
  std::vector<OpId> after;
  for (const Edge& edge : layers_[id.index()].edges) {
    if (edge.sources.empty()) continue;
    for (const std::int32_t source : edge.sources[cell]) {
      after.push_back(source >= 0
                          ? at(edge.producer, m).ready[static_cast<std::size_t>(source)]
                          : arrival(edge.producer, static_cast<std::size_t>(~source), m, id));
    }
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  return after;
}

void Lowering::emit_forward(LayerId id, std::int32_t m, Pass pass) {
  LayerState& state = layers_[id.index()];
  MicroBatchState& now = at(id, m);
  now.ready.resize(state.cells.size());
  for (std::size_t c = 0; c < state.cells.size(); ++c) {
    now.ready[c] =
        dag_.add(Compute{state.works[c], pass, state.cells[c].device, m}, operands(id, c, m));
  }
  if (state.partial_sums) emit_partial_sum_reduction(id, m);
}

void Lowering::emit_partial_sum_reduction(LayerId id, std::int32_t m) {
  LayerState& state = layers_[id.index()];
  MicroBatchState& now = at(id, m);
  const TensorId tensor = output(id);
  std::map<std::pair<std::int64_t, Region>, std::vector<std::size_t>> sums;  // by replica and part
  for (std::size_t c = 0; c < state.cells.size(); ++c) {
    sums[{state.cells[c].replica, state.cells[c].part.out}].push_back(c);
  }
  for (const auto& [key, members] : sums) {
    std::vector<DeviceId> devices;
    std::vector<OpId> after;
    for (const std::size_t c : members) {
      devices.push_back(state.cells[c].device);
      after.push_back(now.ready[c]);
    }
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    const Slice from = slice(tensor, Role::partial_sum, m, key.second);
    const Slice to = slice(tensor, Role::activation, m, key.second);
    const OpId summed =
        devices.size() == 1
            ? dag_.add(Local{LocalKind::copy, devices[0], from, to}, after)
            : dag_.add(Collective{CollectiveKind::all_reduce, dag_.intern(devices), from, to}, {},
                       Stream::tensor, after);
    for (const std::size_t c : members) now.ready[c] = summed;
  }
}

void Lowering::emit_backward(LayerId id, std::int32_t m) {
  LayerState& state = layers_[id.index()];
  MicroBatchState& now = at(id, m);
  const Layer& layer = network_[id];
  const bool data = std::any_of(state.edges.begin(), state.edges.end(),
                                [](const Edge& edge) { return edge.gradient; });
  // Convolutions, dense layers and tables have a kernel for each gradient; the others do it all in
  // one.
  const bool two_kernels = layer.kind.as<Conv>() != nullptr || layer.kind.as<Dense>() != nullptr ||
                           layer.kind.as<Embedding>() != nullptr ||
                           layer.kind.as<Learned>() != nullptr;
  std::vector<OpId> by_cell(state.cells.size());
  for (std::size_t c = 0; c < state.cells.size(); ++c) {
    std::vector<OpId> after = now.gradients[static_cast<std::size_t>(state.canonical[c])];
    if (after.empty()) after.push_back(now.ready[c]);  // the loss starts the chain
    const auto add = [&](Pass pass) {
      return dag_.add(Compute{state.works[c], pass, state.cells[c].device, m}, after);
    };
    if (!two_kernels) {
      by_cell[c] = state.last_backward[c] = add(Pass::backward);
      continue;
    }
    if (data) by_cell[c] = add(Pass::backward_data);
    if (!layer.parameters.empty()) state.last_backward[c] = add(Pass::backward_weights);
  }
  for (std::size_t i = 0; i < state.edges.size(); ++i) {
    if (state.edges[i].gradient) emit_return(id, i, m, by_cell);
  }
  for (const std::size_t g : groups_of_layer_[id.index()]) {
    if (--group_states_[g].backward_left == 0) emit_sync(g);
  }
}

void Lowering::emit_return(LayerId id, std::size_t input, std::int32_t m,
                           const std::vector<OpId>& by_cell) {
  const LayerState& reader = layers_[id.index()];
  const Edge& edge = reader.edges[input];
  const LayerState& producer = layers_[edge.producer.index()];
  MicroBatchState& target = at(edge.producer, m);
  const auto feed = [&](std::int32_t cell, OpId op) {
    std::vector<OpId>& list = target.gradients[static_cast<std::size_t>(
        producer.canonical[static_cast<std::size_t>(cell)])];
    if (std::find(list.begin(), list.end(), op) == list.end()) list.push_back(op);
  };
  if (edge.back.direct) {
    for (std::size_t c = 0; c < by_cell.size(); ++c) {
      for (const std::int32_t source : edge.sources[c]) {
        if (source >= 0 &&
            producer.cells[static_cast<std::size_t>(source)].device == reader.cells[c].device)
          feed(source, by_cell[c]);
      }
    }
    return;
  }
  const auto kernels_on = [&](DeviceId device) {
    std::vector<OpId> ops;
    for (std::size_t c = 0; c < by_cell.size(); ++c) {
      if (reader.cells[c].device == device) ops.push_back(by_cell[c]);
    }
    return ops;
  };
  const Stream stream = stream_between(edge.producer, id);
  const TensorId home = output(edge.producer);
  const TensorId store =
      dag_.intern(Tensor{Tensor::Kind::edge, id.value, static_cast<std::int32_t>(input)});
  for (const Movement& movement : edge.back.movements) {
    Region all;
    for (const Region& region : movement.regions) all = hull(all, region);
    const Slice from = slice(store, Role::partial_sum, m, all);
    const Slice to = slice(home, Role::gradient, m, all);
    if (!is_collective(movement.pattern)) {
      const std::vector<OpId> after = kernels_on(movement.devices[0]);
      const OpId op =
          movement.pattern == Pattern::local_add
              ? dag_.add(Local{LocalKind::add, movement.devices[0], from, to}, after)
              : dag_.add(Transfer{movement.devices[0], movement.devices[1], from, to, true}, stream,
                         after);
      feed(movement.producers[0], op);
      continue;
    }
    std::vector<OpId> after;
    for (const DeviceId device : movement.devices) {
      const std::vector<OpId> ops = kernels_on(device);
      after.insert(after.end(), ops.begin(), ops.end());
    }
    const GroupId group = dag_.intern(movement.devices);
    if (movement.pattern == Pattern::all_reduce) {
      // Summed in the edge's own store first: other readers add to the gradient as well.
      const OpId summed =
          dag_.add(Collective{CollectiveKind::all_reduce, group, from, from}, {}, stream, after);
      for (const std::int32_t cell : movement.producers) {
        const DeviceId device = producer.cells[static_cast<std::size_t>(cell)].device;
        feed(cell, dag_.add(Local{LocalKind::add, device, from, to}, std::vector<OpId>{summed}));
      }
      continue;
    }
    Shares shares;
    for (const Region& region : movement.regions) shares.regions.push_back(dag_.intern(region));
    for (const Region& region : movement.needs) shares.needs.push_back(dag_.intern(region));
    const CollectiveKind kind = movement.pattern == Pattern::reduce_scatter
                                    ? CollectiveKind::reduce_scatter
                                    : CollectiveKind::all_to_all;
    const OpId op = dag_.add(Collective{kind, group, from, to}, shares, stream, after);
    for (const std::int32_t cell : movement.producers) feed(cell, op);
  }
}

}  // namespace parsim
