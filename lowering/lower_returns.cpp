// Lowering of the return of gradients: contributions of readers become the producer's gradient.
#include <algorithm>

#include "lowering/lowering.hpp"

namespace parsim::lowering {

void Lowering::emit_received(LayerId id, std::size_t cell, std::int32_t m) {
  MicroBatchState& now = at(id, m);
  for (const Received& received : now.received[cell]) {
    const Slice to = slice(output(id), Role::gradient, m, received.region);
    now.gradients[cell].push_back(
        dag_.add(Local{LocalKind::add, layers_[id.index()].cells()[cell].device, received.from, to},
                 received.after));
  }
  now.received[cell].clear();
}

void Lowering::emit_return(EdgeId name, std::int32_t m, const std::vector<OpId>& by_cell) {
  const LayerState& reader = layers_[name.reader.index()];
  const Edge& edge = reader.edges[name.input];
  const LayerState& producer = layers_[edge.producer.index()];
  MicroBatchState& target = at(edge.producer, m);
  if (edge.back.direct) {
    target.gradients.resize(producer.cells().size());
    const auto feed = [&](std::size_t cell, OpId op) {
      std::vector<OpId>& list =
          target.gradients[static_cast<std::size_t>(producer.canonical[cell])];
      if (std::find(list.begin(), list.end(), op) == list.end()) list.push_back(op);
    };
    for (std::size_t c = 0; c < by_cell.size(); ++c) {
      if (edge.sources.aligned) {
        feed(c, by_cell[c]);
        continue;
      }
      for (const std::int32_t source : edge.sources.by_need[c]) {
        if (source >= 0 &&
            producer.cells()[static_cast<std::size_t>(source)].device == reader.cells()[c].device)
          feed(static_cast<std::size_t>(source), by_cell[c]);
      }
    }
    return;
  }
  if (!producer.joint_edges.empty()) {
    target.contributions[name] = by_cell;
    if (target.contributions.size() == producer.joint_edges.size())
      emit_joint_return(edge.producer, m);
    return;
  }
  std::map<DeviceId, std::vector<OpId>> contributed;
  for (std::size_t c = 0; c < by_cell.size(); ++c)
    contributed[reader.cells()[c].device].push_back(by_cell[c]);
  emit_movements(edge.producer, name, edge.back, m, contributed);
}

void Lowering::emit_joint_return(LayerId id, std::int32_t m) {
  const JointReturn& joint = layers_[id.index()].joint;
  const std::vector<EdgeId>& edges = layers_[id.index()].joint_edges;
  const auto store = [&](EdgeId edge) {
    return dag_.intern(
        Tensor{Tensor::Kind::edge, edge.reader.value, static_cast<std::int32_t>(edge.input)});
  };
  MicroBatchState& now = at(id, m);
  std::map<DeviceId, std::vector<OpId>> contributed;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const EdgeId edge = edges[e];
    std::map<DeviceId, std::vector<OpId>> kernels;
    const std::vector<Cell>& cells = layers_[edge.reader.index()].cells();
    for (std::size_t c = 0; c < cells.size(); ++c)
      kernels[cells[c].device].push_back(now.contributions[edge][c]);
    if (e == 0) {
      contributed = std::move(kernels);
      continue;
    }
    for (const auto& [device, region] : joint.given[e]) {
      const Slice from = slice(store(edge), Role::partial_sum, m, region);
      const Slice to = slice(store(edges[0]), Role::partial_sum, m, region);
      contributed[device].push_back(
          dag_.add(Local{LocalKind::add, device, from, to}, kernels[device]));
    }
  }
  now.contributions.clear();
  emit_movements(id, edges[0], joint.back, m, contributed);
}

void Lowering::emit_movements(LayerId id, EdgeId edge, const GradientReturn& back, std::int32_t m,
                              const std::map<DeviceId, std::vector<OpId>>& contributed) {
  const LayerState& producer = layers_[id.index()];
  MicroBatchState& target = at(id, m);
  target.gradients.resize(producer.cells().size());
  target.received.resize(producer.cells().size());
  const auto canonical = [&](std::int32_t cell) {
    return static_cast<std::size_t>(producer.canonical[static_cast<std::size_t>(cell)]);
  };
  const auto feed = [&](std::int32_t cell, OpId op) {
    std::vector<OpId>& list = target.gradients[canonical(cell)];
    if (std::find(list.begin(), list.end(), op) == list.end()) list.push_back(op);
  };
  const auto kernels_on = [&](DeviceId device) {
    const auto found = contributed.find(device);
    return found == contributed.end() ? std::vector<OpId>{} : found->second;
  };
  const Stream stream = stream_between(id, edge.reader, true);
  const TensorId home = output(id);
  const TensorId store = dag_.intern(
      Tensor{Tensor::Kind::edge, edge.reader.value, static_cast<std::int32_t>(edge.input)});
  /// A contribution to a cell waits in the edge's receive buffer until the cell's device adds it.
  const auto receive = [&](std::int32_t cell, Role role, const Region& region, OpId op) {
    for (Received& known : target.received[canonical(cell)]) {
      if (known.from.tensor != store || known.from.role != role) continue;
      known.region = hull(known.region, region);
      known.from.region = dag_.intern(known.region);
      known.after.push_back(op);
      return;
    }
    target.received[canonical(cell)].push_back({slice(store, role, m, region), region, {op}});
  };
  for (const Movement& movement : back.movements) {
    Region all;
    for (const Region& region : movement.regions) all = hull(all, region);
    // Alone, a movement completes the gradient itself.
    const bool alone =
        std::all_of(movement.producers.begin(), movement.producers.end(),
                    [&](std::int32_t cell) { return producer.additions[canonical(cell)] == 1; });
    const Slice from = slice(store, Role::partial_sum, m, all);
    const Slice home_gradient = slice(home, Role::gradient, m, all);
    const Slice to = alone ? home_gradient : slice(store, Role::gradient, m, all);
    if (movement.pattern == Pattern::scatter_gather) {
      Slice sent = from;
      std::vector<OpId> summed;
      if (!movement.summing.empty()) {
        for (const DeviceId device : movement.summing) {
          const std::vector<OpId> ops = kernels_on(device);
          summed.insert(summed.end(), ops.begin(), ops.end());
        }
        Shares shares;
        for (const Region& region : movement.sums) shares.regions.push_back(dag_.intern(region));
        sent = slice(store, Role::gradient, m, all);
        summed = {dag_.add(
            Collective{CollectiveKind::reduce_scatter, dag_.intern(movement.summing), from, sent},
            shares, Stream::tensor, summed)};
      }
      std::vector<OpId> legs;
      const std::vector<OpId> done = emit_scatter_gather(
          movement, sent, to, true, stream,
          [&](const Leg& leg) { return summed.empty() ? kernels_on(leg.from) : summed; }, legs);
      for (const std::int32_t cell : movement.producers) {
        for (const OpId op : done) alone ? feed(cell, op) : receive(cell, Role::gradient, all, op);
      }
      continue;
    }
    std::vector<OpId> after;
    const std::size_t senders = is_collective(movement.pattern) ? movement.devices.size() : 1;
    for (std::size_t d = 0; d < senders; ++d) {
      const std::vector<OpId> ops = kernels_on(movement.devices[d]);
      after.insert(after.end(), ops.begin(), ops.end());
    }
    if (movement.pattern == Pattern::local_add) {
      feed(movement.producers[0],
           dag_.add(Local{LocalKind::add, movement.devices[0], from, home_gradient}, after));
      continue;
    }
    await_blocking_sends(stream, movement, after);
    OpId op;
    Role role = Role::gradient;
    if (!is_collective(movement.pattern)) {
      op = dag_.add(Transfer{movement.devices[0], movement.devices[1], from, to, true}, stream,
                    after);
    } else if (movement.pattern == Pattern::all_reduce) {
      const Slice& sum = alone ? home_gradient : from;  // else in place: it overwrites
      op =
          dag_.add(Collective{CollectiveKind::all_reduce, dag_.intern(movement.devices), from, sum},
                   {}, stream, after);
      role = Role::partial_sum;
    } else {
      Shares shares;
      for (const Region& region : movement.regions) shares.regions.push_back(dag_.intern(region));
      for (const Region& region : movement.needs) shares.needs.push_back(dag_.intern(region));
      const CollectiveKind kind = movement.pattern == Pattern::reduce_scatter
                                      ? CollectiveKind::reduce_scatter
                                      : CollectiveKind::all_to_all;
      op = dag_.add(Collective{kind, dag_.intern(movement.devices), from, to}, shares, stream,
                    after);
    }
    record_movement(stream, movement, op);
    for (const std::int32_t cell : movement.producers) {
      if (alone) {
        feed(cell, op);
        continue;
      }
      const Region& part = producer.cells()[static_cast<std::size_t>(cell)].part.out;
      receive(cell, role, is_collective(movement.pattern) ? part : movement.regions[0], op);
    }
  }
}

}  // namespace parsim::lowering
