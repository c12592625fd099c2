// Lowering of gradient synchronisation and updates.
#include <algorithm>

#include "lowering/lowering.hpp"

namespace parsim::lowering {

namespace {

/// The devices that have the group's parameters, those that sum first.
std::vector<DeviceId> holders_of(const SyncGroup& group) {
  std::vector<DeviceId> all = group.devices;
  all.insert(all.end(), group.mirrors.begin(), group.mirrors.end());
  return all;
}

/// Where shares of several micro-batches' gradients add up.
Slice sum_so_far(Slice gradient) {
  gradient.micro_batch = 1;
  return gradient;
}

}  // namespace

void Lowering::analyse_shards(std::size_t g) {
  const SyncGroup& group = groups_[g];
  if (group.zero_stage == 0) return;
  std::int64_t begin = 0;
  for (const std::int64_t size : group.shards) {
    group_states_[g].shares.regions.push_back(dag_.intern(Region{{begin, begin + size}}));
    begin += size;
  }
  if (group.zero_stage < 3) return;
  for (const LayerId id : group.layers) split_weights_[id.index()].push_back(g);
}

std::vector<WeightGather> Lowering::gathers(std::int32_t stage,
                                            const std::vector<LayerVisit>& visits) {
  std::vector<WeightGather> all;
  for (std::size_t t = 0; t < weight_sharding_groups_.size(); ++t) {
    const UnitsByVisit needs = units_by_visit(visits, groups_, weight_sharding_groups_[t]);
    for (WeightGather& gather : weight_gathers(needs, gathered_[{stage, t}])) {
      all.push_back(std::move(gather));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const WeightGather& a, const WeightGather& b) { return a.visit < b.visit; });
  return all;
}

std::vector<GradientBufferReuse> Lowering::buffer_reuses(
    const std::vector<LayerVisit>& visits) const {
  std::vector<GradientBufferReuse> all;
  if (!scatters_each_micro_batch_) return all;  // gradients stay until the last one
  for (const std::vector<std::size_t>& units : gradient_sharding_groups_) {
    for (const GradientBufferReuse& reuse :
         gradient_buffer_reuses(filled_by_visit(visits, groups_, units))) {
      all.push_back(reuse);
    }
  }
  std::stable_sort(
      all.begin(), all.end(),
      [](const GradientBufferReuse& a, const GradientBufferReuse& b) { return a.visit < b.visit; });
  return all;
}

void Lowering::begin_backward() {
  for (const std::vector<std::size_t>& units : gradient_sharding_groups_) {
    OpId last;
    for (const std::size_t g : units) {
      if (!group_states_[g].summed.empty()) last = std::max(last, group_states_[g].summed[0]);
    }
    for (const std::size_t g : units) {
      if (!adds_shares(g)) continue;
      group_states_[g].buffer_free = last;
      group_states_[g].buffer_waited.clear();
    }
  }
}

void Lowering::await_gradient_buffer(LayerId id, DeviceId device, std::vector<OpId>& after) {
  for (const std::size_t g : groups_of_layer_[id.index()]) {
    GroupState& state = group_states_[g];
    const std::vector<DeviceId>& members = groups_[g].devices;
    if (!state.buffer_free.valid() || !std::binary_search(members.begin(), members.end(), device))
      continue;
    if (!state.buffer_waited.insert(device).second) continue;
    after.push_back(state.buffer_free);
    if (state.summed.empty() || !adds_shares(g)) continue;
    const Slice gradient{state.bucket, Role::weight_gradient, 0, {}};
    std::vector<OpId> scattered{state.summed[0]};
    if (state.buffer_free != scattered[0]) scattered.push_back(state.buffer_free);
    dag_.add(Local{LocalKind::drop, device, gradient, gradient}, scattered);
  }
}

void Lowering::emit_gather(const WeightGather& gather) {
  GroupState& state = group_states_[gather.unit];
  // After these kernels the evicted units' memory is free, and no kernel reads what is overwritten.
  std::map<DeviceId, OpId> last = state.last_use;
  for (const std::size_t group : gather.evicted) {
    for (const auto& [device, op] : group_states_[group].last_use) {
      last[device] = std::max(last[device], op);
    }
  }
  std::vector<OpId> after;
  for (const DeviceId device : groups_[gather.unit].devices) {
    if (const auto found = last.find(device); found != last.end()) after.push_back(found->second);
  }
  const Slice weight{state.bucket, Role::weight, 0, {}};
  state.gathered = dag_.add(Collective{CollectiveKind::all_gather,
                                       dag_.intern(groups_[gather.unit].devices), weight, weight},
                            state.shares, Stream::gradient, after);
  state.waited.clear();
}

void Lowering::await_weights(LayerId id, DeviceId device, std::vector<OpId>& after) {
  for (const std::size_t g : split_weights_[id.index()]) {
    const std::vector<DeviceId>& members = groups_[g].devices;
    if (!std::binary_search(members.begin(), members.end(), device)) continue;
    // What comes later in the device's stream waits, too.
    if (group_states_[g].waited.insert(device).second) after.push_back(group_states_[g].gathered);
  }
}

void Lowering::used_weights(LayerId id, DeviceId device, OpId op) {
  for (const std::size_t g : split_weights_[id.index()]) {
    const std::vector<DeviceId>& members = groups_[g].devices;
    if (std::binary_search(members.begin(), members.end(), device)) {
      group_states_[g].last_use[device] = op;
    }
  }
}

void Lowering::emit_sync(std::size_t g) {
  const SyncGroup& group = groups_[g];
  GroupState& state = group_states_[g];
  state.backward_left = state.backward_of_all;
  // The last kernel on each device that adds to these gradients; the stream's order covers those
  // before it.
  std::map<DeviceId, OpId> last;
  for (const LayerId id : group.layers) {
    const LayerState& layer = layers_[id.index()];
    for (std::size_t c = 0; c < layer.cells().size(); ++c) {
      OpId& op = last[layer.cells()[c].device];
      op = std::max(op, layer.last_backward[c]);
    }
  }
  std::vector<OpId> after;
  for (const DeviceId device : group.devices) after.push_back(last[device]);
  for (const DeviceId device : group.mirrors) state.mirrors_done.push_back(last[device]);
  const Slice gradient{state.bucket, Role::weight_gradient, 0, {}};
  if (group.served()) {
    for (std::size_t d = 0; d < group.devices.size(); ++d) {
      state.summed.push_back(
          dag_.add(Transfer{group.devices[d], group.sync.server, gradient, gradient, true},
                   Stream::gradient, std::span(after).subspan(d, 1)));
    }
    // A server that does nothing else answers at once; one on a busy device waits for its last
    // kernel.
    const auto computes = [&](const LayerState& layer) {
      return std::any_of(layer.cells().begin(), layer.cells().end(),
                         [&](const Cell& cell) { return cell.device == group.sync.server; });
    };
    if (std::none_of(layers_.begin(), layers_.end(), computes)) emit_server_return(g);
  } else if (group.devices.size() == 1) {
    state.summed = after;
  } else {
    const CollectiveKind kind =
        group.zero_stage > 0 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    const Slice target = adds_shares(g) ? sum_so_far(gradient) : gradient;
    const OpId op = dag_.add(Collective{kind, dag_.intern(group.devices), gradient, target},
                             state.shares, Stream::gradient, after);
    state.summed.assign(group.devices.size(), op);
  }
  if (group.served()) return;
  for (std::size_t d = 0; d < group.mirrors.size(); ++d) {
    const DeviceId mirror = group.mirrors[d];
    const auto near = std::find_if(
        group.devices.begin(), group.devices.end(),
        [&](DeviceId device) { return cluster_[device].node == cluster_[mirror].node; });
    const auto from = near == group.devices.end()
                          ? std::size_t{0}
                          : static_cast<std::size_t>(near - group.devices.begin());
    state.summed.push_back(
        dag_.add(Transfer{group.devices[from], mirror, gradient, gradient, false}, Stream::gradient,
                 std::vector<OpId>{state.summed[from], state.mirrors_done[d]}));
  }
}

void Lowering::emit_server_return(std::size_t g) {
  const SyncGroup& group = groups_[g];
  GroupState& state = group_states_[g];
  const Slice weight{state.bucket, Role::weight, 0, {}};
  const OpId update = dag_.add(Update{group.sync.server, weight}, state.summed);
  for (const DeviceId device : group.devices) {
    dag_.add(Transfer{group.sync.server, device, weight, weight, false}, Stream::gradient,
             std::vector<OpId>{update});
  }
  // The server has received nothing from a mirror to tell that the old weights are no longer used.
  for (std::size_t d = 0; d < group.mirrors.size(); ++d) {
    dag_.add(Transfer{group.sync.server, group.mirrors[d], weight, weight, false}, Stream::gradient,
             std::vector<OpId>{update, state.mirrors_done[d]});
  }
  state.returned = true;
}

void Lowering::finish() {
  // The optimizer steps when all gradients of its device are summed, as after loss.backward().
  std::map<DeviceId, OpId> last_sum;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    // What one device has alone is summed by kernels, which its stream puts before the update.
    const std::vector<DeviceId> holders = holders_of(groups_[g]);
    const bool sums = !groups_[g].served() && holders.size() > 1;
    if (!sums || group_states_[g].summed.empty()) continue;
    for (std::size_t d = 0; d < holders.size(); ++d) {
      OpId& last = last_sum[holders[d]];
      last = std::max(last, group_states_[g].summed[d]);
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const SyncGroup& group = groups_[g];
    GroupState& state = group_states_[g];
    if (state.summed.empty() || state.returned) continue;
    if (group.served()) {
      emit_server_return(g);
      continue;
    }
    Slice weight{state.bucket, Role::weight, 0, {}};
    std::vector<OpId> updates;
    const std::vector<DeviceId> holders = holders_of(group);
    for (std::size_t d = 0; d < holders.size(); ++d) {
      if (group.zero_stage > 0) weight.region = state.shares.regions[d];
      if (group.zero_stage > 0 && group.shards[d] == 0) continue;
      std::vector<OpId> after{state.summed[d]};
      if (adds_shares(g)) {
        const Slice share{state.bucket, Role::weight_gradient, 0, weight.region};
        after = {dag_.add(Local{LocalKind::copy, holders[d], sum_so_far(share), share}, after)};
      }
      // Only a device's first update waits for the last sum: the others come after it in its
      // stream.
      OpId& last = last_sum[holders[d]];
      if (last.valid() && last != after[0]) after.push_back(last);
      last = {};
      updates.push_back(dag_.add(Update{holders[d], weight}, after));
    }
    // Weights that stay whole; what is split is gathered when it is needed.
    if (group.zero_stage == 0 || group.zero_stage == 3) continue;
    weight.region = {};
    dag_.add(Collective{CollectiveKind::all_gather, dag_.intern(group.devices), weight, weight},
             state.shares, Stream::gradient, updates);
  }
}

}  // namespace parsim::lowering
