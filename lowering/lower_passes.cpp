// Lowering of forward and backward: kernels, and the movements that bring operands.
#include <algorithm>

#include "lowering/lowering.hpp"

namespace parsim::lowering {

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

}  // namespace parsim::lowering
