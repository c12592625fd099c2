// The walk's gathers of sharded weights. Private to lowering/.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lowering/walk.hpp"

namespace parsim::lowering {

/// Whether no other list that shares a device with this one is used after it: the experts of the
/// last block are not.
template <class Sink>
bool Walk<Sink>::ends_pass(std::size_t list, const std::vector<std::size_t>& ends) const {
  const auto devices_of = [&](std::size_t t) -> const std::vector<DeviceId>& {
    return sharded_[weight_units_[t].front()].devices;
  };
  for (std::size_t t = 0; t < ends.size(); ++t) {
    if (ends[t] <= ends[list]) continue;
    const std::vector<DeviceId>&own = devices_of(list), &others = devices_of(t);
    if (std::find_first_of(own.begin(), own.end(), others.begin(), others.end()) != own.end()) {
      return false;
    }
  }
  return true;
}

template <class Sink>
const std::vector<WeightGather>& Walk<Sink>::gathers(const Slot& slot,
                                                     const std::vector<LayerVisit>& visits) {
  std::vector<Gathers>& known = known_gathers_[{slot.stage, slot.direction}];
  InMemory& memory = gathered_[slot.stage];
  memory.resize(weight_units_.size());
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const Gathers& one) { return one.before == memory; });
  if (found != known.end()) {
    memory = found->after;
    return found->all;
  }
  Gathers& fresh = known.emplace_back();
  fresh.before = memory;
  const bool late = slot.direction == Direction::backward && parts_.plan->schedule.late_gathers;
  std::vector<std::size_t> ends;  // by list: the visit after the last that uses it
  for (std::size_t t = 0; t < weight_units_.size(); ++t) {
    const UnitsByVisit needs = units_by_visit(visits, units_by_layer(sharded_, weight_units_[t]));
    for (WeightGather& gather : weight_gathers(needs, elements_, memory[t], late)) {
      fresh.all.push_back(std::move(gather));
    }
    const auto used = std::find_if(needs.rbegin(), needs.rend(),
                                   [](const std::vector<std::size_t>& at) { return !at.empty(); });
    ends.push_back(static_cast<std::size_t>(needs.rend() - used));
  }
  // Weight gradients in slots of their own follow later, by the same units.
  if (!parts_.plan->schedule.split_backward) {
    for (std::size_t t = 0; t < weight_units_.size(); ++t) {
      freed_after(slot.direction == Direction::forward && ends_pass(t, ends), memory[t]);
    }
  }
  std::stable_sort(fresh.all.begin(), fresh.all.end(),
                   [](const WeightGather& a, const WeightGather& b) { return a.visit < b.visit; });
  fresh.after = memory;
  return fresh.all;
}

/// FSDP frees gathered weights after each micro-batch's backward pass, also where it keeps them
/// after forward (PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
/// post_backward): those of stage 2 are gathered for each micro-batch, a unit while the unit before
/// it computes. Stages of a pipeline keep them until the last backward pass
/// (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync), as FSDP 1 does in no_sync
/// (torch/distributed/fsdp/_runtime_utils.py, _should_free_in_backward).
template <class Sink>
std::vector<WeightGather> Walk<Sink>::gathers_each(const Slot& slot,
                                                   const std::vector<LayerVisit>& visits) const {
  std::vector<WeightGather> all;
  if (slot.direction != Direction::forward) return all;
  const bool staged = has_stages(parts_.plan->schedule);
  std::vector<bool> gathered(sum_states_.size(), false);
  std::size_t last = 0;  // where the unit before is used first
  for (std::size_t t = 0; t < visits.size(); ++t) {
    bool first = false;
    for (const std::size_t s : split_weights_[visits[t].layer.index()]) {
      const SumState& state = sum_states_[s];
      const bool once = staged || state.zero_stage == 1;
      if (!state.again || gathered[s] || (once && !state.gathered.empty())) continue;
      gathered[s] = first = true;
      all.push_back({last, s, {}});
    }
    if (first) last = t;
  }
  return all;
}

template <class Sink>
void Walk<Sink>::gather(const WeightGather& wanted) {
  SumState& state = sum_states_[wanted.unit];
  // After these kernels the evicted units' memory is free, and no kernel reads what is overwritten.
  // These units have the same devices.
  std::vector<Op> last = state.last_use;
  for (const std::size_t unit : wanted.evicted) {
    const std::vector<Op>& other = sum_states_[unit].last_use;
    for (std::size_t d = 0; d < last.size(); ++d) last[d] = Sink::later(last[d], other[d]);
  }
  state.gathered.clear();
  const SyncGroup& group = parts_.sums[wanted.unit]->group;
  for (const std::vector<DeviceId>& members : group.zero_groups) {
    After after = Sink::nothing();
    for (const DeviceId device : members) {
      const Op used = last[group.index_of(device)];
      if (used != Sink::never) Sink::add(after, Sink::done(used));
    }
    state.gathered.push_back(sink_.gather_weights(wanted.unit, state.gathered.size(), after));
  }
  state.waited.assign(state.waited.size(), false);
}

template <class Sink>
void Walk<Sink>::await_weights(LayerId id, DeviceId device, After& after) {
  for (const std::size_t s : split_weights_[id.index()]) {
    const SyncGroup& group = parts_.sums[s]->group;
    const std::size_t d = group.find(device);
    // What comes later in the device's stream waits, too.
    SumState& state = sum_states_[s];
    if (d == group.devices.size() || state.waited[d]) continue;
    state.waited[d] = true;
    Sink::add(after, Sink::done(state.gathered[group.seats[d].zero_group]));
  }
}

}  // namespace parsim::lowering
