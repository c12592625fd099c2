// Lowering of forward and backward: kernels, and the movements that bring operands and return
// gradients.
#include <algorithm>

#include "lowering/lowering.hpp"

namespace parsim {

namespace {

/// How many of a movement's devices send, the first ones.
std::size_t sending(const Movement& movement) {
  const bool one = !is_collective(movement.pattern) || movement.pattern == Pattern::broadcast;
  return one ? 1 : movement.devices.size();
}

}  // namespace

void Lowering::await_blocking_sends(Stream stream, const Movement& movement,
                                    std::vector<OpId>& after) const {
  if (!blocks(stream)) return;
  const std::size_t senders = sending(movement);
  for (std::size_t d = 0; d < movement.devices.size(); ++d) {
    const auto add = [&](const std::map<DeviceId, OpId>& last) {
      const auto found = last.find(movement.devices[d]);
      if (found != last.end()) after.push_back(found->second);
    };
    add(last_movement_);
    if (d >= senders) add(last_kernel_);
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
}

void Lowering::record_movement(Stream stream, const Movement& movement, OpId op) {
  if (!blocks(stream)) return;
  for (const DeviceId device : movement.devices) last_movement_[device] = op;
  for (std::size_t d = 0; d < sending(movement); ++d) sending_[movement.devices[d]].push_back(op);
}

void Lowering::await_sent(DeviceId device, std::vector<OpId>& after) {
  if (!plan_.schedule.blocking_sends) return;
  std::vector<OpId>& sent = sending_[device];
  for (const OpId op : sent) {
    if (std::find(after.begin(), after.end(), op) == after.end()) after.push_back(op);
  }
  sent.clear();
}

std::vector<OpId> Lowering::emit_scatter_gather(
    const Movement& movement, const Slice& sent, const Slice& gathered, bool add, Stream stream,
    const std::function<std::vector<OpId>(const Leg&)>& after, std::vector<OpId>& legs) {
  for (const Leg& leg : movement.legs) {
    Slice from = sent, to = gathered;
    from.region = to.region = dag_.intern(leg.region);
    const Movement alone{
        Pattern::point_to_point, {leg.from, leg.to}, {leg.region}, {}, {}, {}, {}, {}};
    std::vector<OpId> behind = after(leg);
    await_blocking_sends(stream, alone, behind);
    legs.push_back(dag_.add(Transfer{leg.from, leg.to, from, to, add}, stream, behind));
    record_movement(stream, alone, legs.back());
  }
  if (movement.devices.size() == 1) return legs;
  Shares shares;
  for (const Region& region : movement.regions) shares.regions.push_back(dag_.intern(region));
  return {dag_.add(
      Collective{CollectiveKind::all_gather, dag_.intern(movement.devices), gathered, gathered},
      shares, Stream::tensor, legs)};
}

OpId Lowering::arrival(LayerId id, std::size_t index, std::int32_t m, LayerId reader) {
  OpId& op = at(id, m).arrivals[index];
  if (op.valid()) return op;
  const Movement& movement = layers_[id.index()].layout.arrivals()[index];
  std::vector<OpId> after;
  for (const std::int32_t cell : movement.producers)
    after.push_back(at(id, m).ready[static_cast<std::size_t>(cell)]);
  const Stream stream = stream_between(id, reader, false);
  const TensorId tensor = output(id);
  Region all;
  for (const Region& region : movement.regions) all = hull(all, region);
  const Slice moved = slice(tensor, Role::activation, m, all);
  if (movement.pattern == Pattern::scatter_gather) {
    const auto holder = [&](const Leg& leg) {
      return std::vector<OpId>{at(id, m).ready[static_cast<std::size_t>(leg.cell)]};
    };
    op = emit_scatter_gather(movement, moved, moved, false, stream, holder,
                             at(id, m).legs[index])[0];
    return op;
  }
  await_blocking_sends(stream, movement, after);
  if (!is_collective(movement.pattern)) {
    op = dag_.add(Transfer{movement.devices[0], movement.devices[1], moved, moved, false}, stream,
                  after);
    record_movement(stream, movement, op);
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
  record_movement(stream, movement, op);
  return op;
}

std::vector<OpId> Lowering::operands(LayerId id, std::size_t cell, std::int32_t m) {
  std::vector<OpId> after;
  for (const Edge& edge : layers_[id.index()].edges) {
    if (is_source(edge.producer)) continue;
    if (edge.sources.aligned) {
      after.push_back(at(edge.producer, m).ready[cell]);
      continue;
    }
    for (const std::int32_t source : edge.sources.by_need[cell]) {
      after.push_back(source >= 0
                          ? at(edge.producer, m).ready[static_cast<std::size_t>(source)]
                          : arrival(edge.producer, static_cast<std::uint32_t>(~source), m, id));
    }
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  return after;
}

void Lowering::emit_forward(LayerId id, std::int32_t m, Pass pass) {
  LayerState& state = layers_[id.index()];
  MicroBatchState& now = at(id, m);
  now.ready.resize(state.cells().size());
  for (std::size_t c = 0; c < state.cells().size(); ++c) {
    const DeviceId device = state.cells()[c].device;
    std::vector<OpId> after = operands(id, c, m);
    Pass own = pass;
    if (pass == Pass::recompute) {
      await_departures(id, static_cast<std::int32_t>(c), m, after);
      if (state.partial_sums) {
        after.push_back(now.ready[c]);  // the first sum has read what is overwritten here
        // The first part of the contraction on a device overwrites, further ones are added to it.
        if (state.canonical[c] != static_cast<std::int32_t>(c)) own = Pass::forward;
      }
    }
    await_weights(id, device, after);
    await_sent(device, after);
    now.ready[c] = dag_.add(Compute{state.works[c], own, device, m}, after);
    if (plan_.schedule.blocking_sends) last_kernel_[device] = now.ready[c];
    used_weights(id, device, now.ready[c]);
  }
  if (state.partial_sums) emit_partial_sum_reduction(id, m);
}

/// A recomputed output overwrites the first one, which may still be in transit to other devices.
void Lowering::await_departures(LayerId id, std::int32_t cell, std::int32_t m,
                                std::vector<OpId>& after) {
  const std::vector<Movement>& movements = layers_[id.index()].layout.arrivals();
  const std::vector<OpId>& arrivals = at(id, m).arrivals;
  for (std::size_t a = 0; a < arrivals.size(); ++a) {
    // Of a scatter_gather only the transfers read what is to be overwritten.
    const std::vector<Leg>& legs = movements[a].legs;
    for (std::size_t leg = 0; arrivals[a].valid() && leg < legs.size(); ++leg) {
      if (legs[leg].cell == cell) after.push_back(at(id, m).legs[a][leg]);
    }
    const std::vector<std::int32_t>& from = movements[a].producers;
    if (legs.empty() && arrivals[a].valid() &&
        std::find(from.begin(), from.end(), cell) != from.end()) {
      after.push_back(arrivals[a]);
    }
  }
}

/// A kernel that is repeated comes before what reads it in the device's stream; the sum behind it
/// is in another stream.
void Lowering::await_repeated_sums(LayerId id, std::size_t cell, std::int32_t m,
                                   std::vector<OpId>& after) {
  for (const Edge& edge : layers_[id.index()].edges) {
    const std::size_t p = edge.producer.index();
    if (!dropped_[p] || !layers_[p].partial_sums) continue;
    const std::vector<OpId>& ready = at(edge.producer, m).ready;
    if (edge.sources.aligned) {
      after.push_back(ready[cell]);
      continue;
    }
    for (const std::int32_t source : edge.sources.by_need[cell]) {
      if (source >= 0) after.push_back(ready[static_cast<std::size_t>(source)]);
    }
  }
}

void Lowering::emit_partial_sum_reduction(LayerId id, std::int32_t m) {
  LayerState& state = layers_[id.index()];
  MicroBatchState& now = at(id, m);
  const TensorId tensor = output(id);
  std::map<std::pair<std::int64_t, Region>, std::vector<std::size_t>> sums;  // by replica and part
  for (std::size_t c = 0; c < state.cells().size(); ++c) {
    sums[{state.cells()[c].replica, state.cells()[c].part.out}].push_back(c);
  }
  for (const auto& [key, members] : sums) {
    // Next to larger groups, a group of one device has the whole contraction: nothing to sum.
    if (state.cells()[members[0]].part.contraction.empty()) continue;
    std::vector<DeviceId> devices;
    std::vector<OpId> after;
    for (const std::size_t c : members) {
      devices.push_back(state.cells()[c].device);
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
  const bool data = flow_.passes_on[id.index()];
  const bool two_kernels = flow_.two_kernels[id.index()];
  std::vector<OpId> by_cell(state.cells().size());
  now.gradients.resize(state.cells().size());
  now.received.resize(state.cells().size());
  for (std::size_t c = 0; c < state.cells().size(); ++c) {
    if (state.canonical[c] == static_cast<std::int32_t>(c)) emit_received(id, c, m);
    std::vector<OpId> after = now.gradients[static_cast<std::size_t>(state.canonical[c])];
    if (after.empty()) after.push_back(now.ready[c]);  // the loss starts the chain
    const DeviceId device = state.cells()[c].device;
    await_repeated_sums(id, c, m, after);
    await_weights(id, device, after);
    await_gradient_buffer(id, device, after);
    await_sent(device, after);
    const auto add = [&](Pass pass) {
      const OpId op = dag_.add(Compute{state.works[c], pass, device, m}, after);
      if (plan_.schedule.blocking_sends) last_kernel_[device] = op;
      used_weights(id, device, op);
      return op;
    };
    if (!two_kernels) {
      by_cell[c] = state.last_backward[c] = add(Pass::backward);
      continue;
    }
    if (data) by_cell[c] = add(Pass::backward_data);
    if (!layer.parameters.empty()) state.last_backward[c] = add(Pass::backward_weights);
  }
  for (std::size_t i = 0; i < state.edges.size(); ++i) {
    if (state.edges[i].gradient) emit_return({id, i}, m, by_cell);
  }
  now.gradients = {};  // not needed again; thousands of devices make these lists long
  now.received = {};
  for (const std::size_t g : groups_of_layer_[id.index()]) {
    if (--group_states_[g].backward_left == 0) emit_sync(g);
  }
}

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

}  // namespace parsim
