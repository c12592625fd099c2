// Lowering of gradient synchronisation and updates.
#include <algorithm>

#include "strategies/lowering.hpp"

namespace parsim {

void Lowering::emit_sync(std::size_t g) {
  const SyncGroup& group = groups_[g];
  GroupState& state = group_states_[g];
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
    const OpId op = dag_.add(
        Collective{CollectiveKind::all_reduce, dag_.intern(group.devices), gradient, gradient}, {},
        Stream::gradient, after);
    state.summed.assign(group.devices.size(), op);
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
  // A mirror has sent nothing that says it no longer needs its old weights.
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
    const bool sums = !groups_[g].served() && groups_[g].devices.size() > 1;
    if (!sums || group_states_[g].summed.empty()) continue;
    for (std::size_t d = 0; d < groups_[g].devices.size(); ++d) {
      OpId& last = last_sum[groups_[g].devices[d]];
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
    const Slice weight{state.bucket, Role::weight, 0, {}};
    for (std::size_t d = 0; d < group.devices.size(); ++d) {
      std::vector<OpId> after{state.summed[d]};
      // Only a device's first update waits for the last sum: the others come after it in its
      // stream.
      OpId& last = last_sum[group.devices[d]];
      if (last.valid() && last != after[0]) after.push_back(last);
      last = {};
      dag_.add(Update{group.devices[d], weight}, after);
    }
  }
}

}  // namespace parsim
