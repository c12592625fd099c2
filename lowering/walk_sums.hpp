// The walk's weight gradients that are split off, sums of gradients and updates, sharded states,
// and blocking sends. Private to lowering/.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "lowering/walk.hpp"
#include "lowering/walk_gathers.hpp"

namespace parsim::lowering {

template <class Sink>
void Walk<Sink>::begin_sums() {
  const Schedule& schedule = parts_.plan->schedule;
  const std::vector<const SumFragment*>& sums = parts_.sums;
  scatters_ = scatters_each_micro_batch(schedule);
  sums_each_ = sums_each_micro_batch(schedule);
  to_await_.clear();
  sums_of_slot_.clear();
  sums_of_layer_.resize(parts_.layers.size());
  split_weights_.resize(parts_.layers.size());
  for (std::vector<std::size_t>& list : sums_of_layer_) list.clear();
  for (std::vector<std::size_t>& list : split_weights_) list.clear();
  sum_states_.assign(sums.size(), {});
  sharded_.clear();
  weight_units_.clear();
  gradient_units_.clear();
  gathered_.clear();
  known_gathers_.clear();
  known_reuses_.clear();
  bool sharded = false;
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const SyncGroup& group = sums[s]->group;
    SumState& state = sum_states_[s];
    state.zero_stage = zero_stage_of(group, schedule);
    sharded = sharded || state.zero_stage >= 2;
    state.again = gathers_before_forward(group, schedule);
    for (const LayerId id : group.layers) {
      if (state.zero_stage == 3 || state.again) split_weights_[id.index()].push_back(s);
      if (!parts_.structure.flow.reaches_loss[id.index()]) continue;
      sums_of_layer_[id.index()].push_back(s);
      state.backward_of_all += adds_shares(s) || sums_whole(s) ? 1 : schedule.micro_batches;
    }
    state.backward_left = state.backward_of_all;
    if (state.zero_stage < 3 && !state.again) continue;
    state.waited.assign(group.devices.size(), false);
    state.last_use.assign(group.devices.size(), Sink::never);
  }
  if (!sharded) return;
  for (std::size_t s = 0; s < sums.size(); ++s) {
    sharded_.push_back(sums[s]->group);
    sharded_.back().zero_stage = sum_states_[s].zero_stage;
  }
  weight_units_ = groups_by_devices(sharded_, 3);
  elements_ = elements_of(sharded_);
  gradient_units_ = groups_by_devices(sharded_, 2);
}

template <class Sink>
const std::vector<GradientBufferReuse>& Walk<Sink>::buffer_reuses(
    const Slot& slot, const std::vector<LayerVisit>& visits) {
  const auto [entry, fresh] = known_reuses_.try_emplace({slot.stage, slot.direction});
  std::vector<GradientBufferReuse>& all = entry->second;
  const bool forwards = slot.direction == Direction::forward;
  if (!fresh || forwards || !scatters_) return all;  // else gradients stay until the last one
  for (const std::vector<std::size_t>& units : gradient_units_) {
    for (const GradientBufferReuse& reuse :
         gradient_buffer_reuses(filled_by_visit(visits, units_by_layer(sharded_, units)))) {
      all.push_back(reuse);
    }
  }
  std::stable_sort(
      all.begin(), all.end(),
      [](const GradientBufferReuse& a, const GradientBufferReuse& b) { return a.visit < b.visit; });
  return all;
}

/// Before a micro-batch's backward pass: its gradients wait until those of the micro-batch before
/// it are reduce-scattered.
template <class Sink>
void Walk<Sink>::begin_backward(const Slot& slot) {
  for (const std::vector<std::size_t>& units : gradient_units_) {
    std::vector<Op> last(parts_.sums[units[0]]->group.devices.size(), Sink::never);
    for (const std::size_t s : units) {
      const std::vector<Op>& summed = sum_states_[s].summed;
      for (std::size_t d = 0; d < summed.size(); ++d) last[d] = Sink::later(last[d], summed[d]);
    }
    for (const std::size_t s : units) {
      if (!adds_shares(s)) continue;
      sum_states_[s].buffer_free = last;
      sum_states_[s].buffer_waited.clear();
    }
  }
  gather_returned(slot);
}

/// Adds the reduce-scatter that a kernel must wait for to reuse a gradient buffer, and drops what
/// the last micro-batch left in it.
template <class Sink>
void Walk<Sink>::await_gradient_buffer(LayerId id, DeviceId device, After& after) {
  if (sharded_.empty()) return;
  for (const std::size_t s : sums_of_layer_[id.index()]) {
    SumState& state = sum_states_[s];
    const SyncGroup& group = parts_.sums[s]->group;
    if (state.buffer_free.empty() ||
        !std::binary_search(group.devices.begin(), group.devices.end(), device))
      continue;
    const std::size_t d = group.index_of(device);
    if (state.buffer_free[d] == Sink::never || !state.buffer_waited.insert(device).second) continue;
    Sink::add(after, Sink::done(state.buffer_free[d]));
    if (state.summed.empty() || !adds_shares(s)) continue;
    After summed = Sink::nothing();
    Sink::add(summed, Sink::done(state.summed[d]));
    Sink::add(summed, Sink::done(state.buffer_free[d]));
    sink_.drop_gradients(s, device, summed);
  }
}

/// The weight gradients that backward has left out.
template <class Sink>
void Walk<Sink>::weight_gradients(LayerId id, std::int32_t m) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  const std::size_t l = id.index(), visit = at(id, m);
  const After regathered = regathered_operands(id, m);
  for (std::size_t c = 0; c < layer.cells.size(); ++c) {
    After after = gradients_[visit].empty()
                      ? Sink::nothing()
                      : gradients_[visit][static_cast<std::size_t>(layer.canonical[c])];
    await_repeated_sums(id, c, m, after);
    await_sent(layer.devices[c], after);
    Sink::merge(after, regathered);
    last_backward_[l][c] = sink_.kernel(id, c, Pass::backward_weights, m, after);
    ran(id, layer.devices[c], last_backward_[l][c]);
  }
  end_backward(id, m);
}

template <class Sink>
void Walk<Sink>::end_backward(LayerId id, std::int32_t m) {
  // Not needed again, and long with thousands of devices.
  if (Sink::lets_go) gradients_[at(id, m)] = {};
  if (!chunk_gradients_.empty()) chunk_gradients_.erase(at(id, m));
  for (const std::size_t s : sums_of_layer_[id.index()]) {
    if (--sum_states_[s].backward_left == 0) sum(s);
  }
}

/// What the slot before has issued, the next one waits for.
template <class Sink>
void Walk<Sink>::end_slot() {
  for (const auto& [device, sums] : sums_of_slot_) {
    to_await_[device].insert(to_await_[device].end(), sums.begin(), sums.end());
  }
  sums_of_slot_.clear();
}

/// loss.backward() returns when all sums of its device are done, which until then overlap with its
/// kernels (PyTorch,
/// torch/csrc/distributed/c10d/reducer.cpp, finalize_backward;
/// torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _root_post_backward_final_callback).
template <class Sink>
void Walk<Sink>::await_sums(DeviceId device, After& after) {
  if (to_await_.empty()) return;
  const auto found = to_await_.find(device);
  if (found == to_await_.end()) return;
  for (const Op op : found->second) Sink::add(after, Sink::done(op));
  to_await_.erase(found);
}

template <class Sink>
void Walk<Sink>::sum(std::size_t s) {
  const SumFragment& fragment = *parts_.sums[s];
  const SyncGroup& group = fragment.group;
  SumState& state = sum_states_[s];
  state.backward_left = state.backward_of_all;
  ++state.sums;
  const bool last_sum = !sums_whole(s) || state.sums == parts_.plan->schedule.micro_batches;
  // On each device that adds to these gradients, for the stream's order covers those before it.
  std::vector<Op> last;
  for (const std::vector<SumFragment::AwaitedKernel>& kernels : fragment.kernels) {
    last.push_back(Sink::never);
    for (const auto& [layer, cell] : kernels) {
      last.back() =
          Sink::later(last.back(), last_backward_[layer.index()][static_cast<std::size_t>(cell)]);
    }
  }
  const std::size_t devices = group.devices.size();
  for (std::size_t d = devices; d < last.size() && last_sum; ++d) {
    state.mirrors_done.push_back(Sink::done(last[d]));
  }
  const auto one = [](Op op) {
    After after = Sink::nothing();
    Sink::add(after, Sink::done(op));
    return after;
  };
  if (group.served()) {
    for (std::size_t d = 0; d < devices; ++d) {
      state.summed.push_back(sink_.push(s, d, one(last[d])));
    }
    // A server that does nothing else answers at once; one on a busy device waits for its last
    // kernel.
    const bool busy =
        std::any_of(parts_.layers.begin(), parts_.layers.end(), [&](const LayerFragment* layer) {
          return std::find(layer->devices.begin(), layer->devices.end(), group.sync.server) !=
                 layer->devices.end();
        });
    if (!busy) server_return(s);
    return;
  }
  if (group.summing == 1) {
    state.summed = {last[0]};
  } else if (group.sums_apart()) {
    sum_apart(s, !last_sum, last);
  } else if (state.zero_stage == 0) {
    After after = Sink::nothing();
    for (std::size_t d = 0; d < devices; ++d) Sink::add(after, Sink::done(last[d]));
    state.summed.assign(devices, sink_.sum(s, 0, !last_sum, after));
  } else {
    sum_shares(s, last);
  }
  if (sums_each_ && group.summing > 1 && state.sums < parts_.plan->schedule.micro_batches) {
    for (std::size_t d = 0; d < devices; ++d)
      sums_of_slot_[group.devices[d]].push_back(state.summed[d]);
  }
  if (!last_sum) return;
  for (std::size_t d = 0; d < group.mirrors.size(); ++d) {
    After after = one(state.summed[fragment.mirror_source[d]]);
    Sink::add(after, state.mirrors_done[d]);
    state.summed.push_back(sink_.send_sum(s, d, after));
  }
}

/// Within each ZeRO group after every micro-batch, or at the end; over the groups at the end, as
/// in MiCS (Zhang et al. 2022, "2-hop gradient synchronization"; DeepSpeed,
/// allreduce_mics_shard_grads). FSDP2 does so after set_requires_all_reduce, and without it sums
/// over the groups every time, too (PyTorch pull request 126166; ReduceEvery::micro_batch). Of
/// these sums so far only the last ones are used here, for addition is linear.
template <class Sink>
void Walk<Sink>::sum_shares(std::size_t s, const std::vector<Op>& last) {
  const SyncGroup& group = parts_.sums[s]->group;
  SumState& state = sum_states_[s];
  state.scattered.assign(group.devices.size(), Sink::never);
  for (std::size_t g = 0; g < group.zero_groups.size(); ++g) {
    After after = Sink::nothing();
    for (const DeviceId device : group.zero_groups[g])
      Sink::add(after, Sink::done(last[group.index_of(device)]));
    const Op op = sink_.scatter_sum(s, g, adds_shares(s), after);
    for (const DeviceId device : group.zero_groups[g]) state.scattered[group.index_of(device)] = op;
  }
  state.summed = state.scattered;
  const bool more = adds_shares(s) && state.sums < parts_.plan->schedule.micro_batches;
  if ((more && !sums_each_) || !group.summed_twice) return;
  for (std::size_t rank = 0; rank < group.shards.size(); ++rank) {
    if (group.shards[rank] == 0) continue;
    const std::vector<DeviceId> holders = parts_.sums[s]->holders_of(rank);
    if (holders.empty()) continue;
    After after = Sink::nothing();
    for (const DeviceId device : holders)
      Sink::add(after, Sink::done(state.scattered[group.index_of(device)]));
    const Op op = sink_.sum_replicas(s, rank, adds_shares(s), more, after);
    for (const DeviceId device : holders) state.summed[group.index_of(device)] = op;
  }
}

/// Within the replicas of each stage that has the parameters, then over the stages.
template <class Sink>
void Walk<Sink>::sum_apart(std::size_t s, bool so_far, const std::vector<Op>& last) {
  const SyncGroup& group = parts_.sums[s]->group;
  const std::size_t devices = group.devices.size();
  std::vector<Op> within(devices, Sink::never);
  for (std::size_t part = 0; part < group.apart.size(); ++part) {
    After after = Sink::nothing();
    std::vector<std::size_t> members;  // of the kept unit
    for (const DeviceId device : group.apart[part]) {
      if (const std::size_t d = group.find(device); d < devices) members.push_back(d);
    }
    for (const std::size_t d : members) Sink::add(after, Sink::done(last[d]));
    const Op op = sink_.sum(s, part, so_far, after);
    for (const std::size_t d : members) within[d] = op;
  }
  SumState& state = sum_states_[s];
  state.summed = within;
  for (std::size_t rank = 0; rank < group.apart[0].size(); ++rank) {
    const std::vector<DeviceId> holders = parts_.sums[s]->holders_of(rank);
    if (holders.empty()) continue;
    After after = Sink::nothing();
    for (const DeviceId device : holders)
      Sink::add(after, Sink::done(within[group.index_of(device)]));
    const Op op = sink_.sum_replicas(s, rank, so_far, false, after);
    for (const DeviceId device : holders) state.summed[group.index_of(device)] = op;
  }
}

template <class Sink>
void Walk<Sink>::server_return(std::size_t s) {
  SumState& state = sum_states_[s];
  After after = Sink::nothing();
  for (const Op push : state.summed) Sink::add(after, Sink::done(push));
  const When updated = Sink::done(sink_.server_update(s, after));
  const std::size_t devices = parts_.sums[s]->group.devices.size();
  for (std::size_t d = 0; d < parts_.sums[s]->holders.size(); ++d) {
    After pulled = Sink::nothing();
    Sink::add(pulled, updated);
    // The server has received nothing from a mirror to tell that the old weights are no longer
    // used.
    if (d >= devices) Sink::add(pulled, state.mirrors_done[d - devices]);
    sink_.pull(s, d, pulled);
  }
  state.returned = true;
}

template <class Sink>
void Walk<Sink>::finish() {
  // The optimizer steps when all gradients of its device are summed, as after loss.backward(): by
  // stream, for what is summed over several ZeRO groups has one of its own.
  std::map<DeviceId, std::array<Op, 2>> last_sum;
  for (std::size_t s = 0; s < parts_.sums.size(); ++s) {
    // What one device has alone is summed by kernels, which its stream puts before the update.
    const SumFragment& fragment = *parts_.sums[s];
    const std::vector<Op>& summed = sum_states_[s].summed;
    const SyncGroup& group = fragment.group;
    const bool alone = group.summing + group.mirrors.size() < 2;
    if (group.served() || alone || summed.empty()) continue;
    for (std::size_t d = 0; d < fragment.holders.size(); ++d) {
      const auto at =
          last_sum.try_emplace(fragment.holders[d], std::array{Sink::never, Sink::never});
      const bool twice =
          group.sums_apart() || (group.summed_twice && group.shards[group.seats[d].rank] > 0);
      Op& last = at.first->second[twice ? 1 : 0];
      last = Sink::later(last, summed[d]);
    }
  }
  for (std::size_t s = 0; s < parts_.sums.size(); ++s) {
    const SumFragment& fragment = *parts_.sums[s];
    const SyncGroup& group = fragment.group;
    const SumState& state = sum_states_[s];
    if (state.summed.empty() || state.returned) continue;
    if (group.served()) {
      server_return(s);
      continue;
    }
    std::vector<After> updates(std::max<std::size_t>(1, group.zero_groups.size()), Sink::nothing());
    for (std::size_t d = 0; d < fragment.holders.size(); ++d) {
      if (state.zero_stage > 0 && group.shards[group.seats[d].rank] == 0) continue;
      After after = Sink::nothing();
      Sink::add(after, Sink::done(state.summed[d]));
      if (adds_shares(s)) {
        const Op copied = sink_.copy_share(s, d, after);
        after = Sink::nothing();
        Sink::add(after, Sink::done(copied));
      }
      // Only a device's first update waits for the last sum: the others come after it in its
      // stream.
      const auto last = last_sum.find(fragment.holders[d]);
      if (last != last_sum.end()) {
        for (const Op op : last->second) Sink::add(after, Sink::done(op));
        last_sum.erase(last);
      }
      const std::size_t zero_group = state.zero_stage > 0 ? group.seats[d].zero_group : 0;
      Sink::add(updates[zero_group], Sink::done(sink_.update(s, d, after)));
    }
    // Weights that stay whole; what is split is gathered when it is needed.
    if ((state.zero_stage != 1 && state.zero_stage != 2) || state.again) continue;
    for (std::size_t g = 0; g < updates.size(); ++g) sink_.gather_weights(s, g, updates[g]);
  }
}

/// With blocking sends, what the stages of a round send each other: when all of them have computed,
/// as pairs of stages meet. Megatron-LM's 1F1B exchanges an activation and a gradient after every
/// pass (send_forward_recv_backward, send_backward_recv_forward).
template <class Sink>
void Walk<Sink>::exchange(const std::vector<Slot>& round) {
  if (!parts_.plan->schedule.blocking_sends) return;
  const std::vector<std::int32_t>& stage = parts_.plan->schedule.stage_of_layer;
  for (const Slot& slot : round) {
    if (slot.direction != Direction::forward) continue;
    for (const LayerId id : parts_.members[static_cast<std::size_t>(slot.stage)]) {
      const FanOut* fan = parts_.fans[id.index()];
      for (std::size_t a = 0; fan != nullptr && a < fan->arrivals.size(); ++a) {
        const auto edge = static_cast<std::size_t>(fan->arrivals[a].edge);
        const LayerId reader = parts_.structure.readers[id.index()][edge].layer;
        if (stage[reader.index()] != slot.stage) arrival(id, a, slot.micro_batch, reader);
      }
    }
  }
  for (HeldBack& held : std::exchange(held_back_, {})) {
    by_cell_ = std::move(held.by_cell);
    return_contributions(held.reader, held.input, held.micro_batch);
  }
}

template <class Sink>
void Walk<Sink>::await_blocking(Stream stream, std::span<const DeviceId> devices,
                                std::size_t senders, After& after) const {
  if (!blocks(stream)) return;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto add = [&](const std::map<DeviceId, Op>& last) {
      const auto found = last.find(devices[d]);
      if (found != last.end()) Sink::add(after, Sink::done(found->second));
    };
    add(last_movement_);
    if (d >= senders) add(last_kernel_);
  }
}

template <class Sink>
void Walk<Sink>::moved(Stream stream, std::span<const DeviceId> devices, std::size_t senders,
                       Op op) {
  if (waits_ && stream == Stream::tensor) {
    for (const DeviceId device : devices) sending_[device].push_back(op);
  }
  if (!blocks(stream)) return;
  for (const DeviceId device : devices) last_movement_.insert_or_assign(device, op);
  for (std::size_t d = 0; d < senders; ++d) sending_[devices[d]].push_back(op);
}

template <class Sink>
void Walk<Sink>::await_sent(DeviceId device, After& after) {
  if (!parts_.plan->schedule.blocking_sends && !waits_) return;
  std::vector<Op>& sent = sending_[device];
  for (const Op op : sent) Sink::add(after, Sink::done(op));
  sent.clear();
}

template <class Sink>
void Walk<Sink>::ran(LayerId id, DeviceId device, Op op) {
  if (parts_.plan->schedule.blocking_sends) last_kernel_.insert_or_assign(device, op);
  for (const std::size_t s : split_weights_[id.index()]) {
    std::vector<Op>& last_use = sum_states_[s].last_use;
    const std::size_t d = parts_.sums[s]->group.find(device);
    if (d < last_use.size()) last_use[d] = op;
  }
}

}  // namespace parsim::lowering
