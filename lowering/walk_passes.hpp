// The walk's forward and backward passes. Private to lowering/.
#pragma once

#include <algorithm>

#include "lowering/walk_again.hpp"
#include "lowering/walk_chunks.hpp"
#include "lowering/walk_ring.hpp"

namespace parsim::lowering {

/// How many of a movement's devices send, the first ones.
[[nodiscard]] inline std::size_t senders_of(const Movement& movement) {
  const bool one = !is_collective(movement.pattern) || movement.pattern == Pattern::broadcast;
  return one ? 1 : movement.devices.size();
}

template <class Sink>
void Walk<Sink>::run() {
  if (!sink_.worth_walking(parts_)) return;
  parts_.find_rest();
  lay_out();
  begin_sums();
  sink_.begin(parts_);
  for (std::size_t r = 0; r < parts_.rounds.size(); ++r) {
    const std::vector<Slot>& round = parts_.rounds[r];
    for (const std::int32_t m : parts_.begun[r]) clear_row(m);
    for (const Slot& slot : round) {
      emit(slot);
      if (sink_.gives_up()) return;
    }
    exchange(round);
  }
  finish();
}

template <class Sink>
void Walk<Sink>::lay_out() {
  const std::size_t count = parts_.layers.size();
  offsets_.resize(count);
  gradients_.resize(count * parts_.rows);
  waiting_.resize(gradients_.size());
  joined_.resize(gradients_.size());
  last_backward_.resize(count);
  regathers_ = repeats_sums_ = waits_ = false;
  std::size_t size = 0;
  for (std::size_t l = 0; l < count; ++l) {
    const std::size_t cells = parts_.layers[l]->cells.size();
    const FanOut* fan = parts_.fans[l];
    const std::size_t arrivals = fan == nullptr ? 0 : fan->arrivals.size();
    last_backward_[l].assign(cells, Sink::never);
    const std::size_t legs = fan == nullptr ? 0 : fan->legs;
    const std::size_t again = size + cells + arrivals + legs;
    const std::size_t last = again + (parts_.layers[l]->plan.regather ? arrivals + legs : 0);
    offsets_[l] = {size, size + cells,   size + cells + arrivals, again, again + arrivals,
                   last, last + arrivals};
    size = last + (last - again);
    regathers_ = regathers_ || parts_.layers[l]->plan.regather;
    waits_ = waits_ || parts_.layers[l]->plan.apart;
    repeats_sums_ = repeats_sums_ || (parts_.dropped[l] && parts_.layers[l]->partial_sums);
  }
  row_size_ = size;
  table_.resize(row_size_ * parts_.rows);
  last_kernel_.clear();
  last_movement_.clear();
  sending_.clear();
  held_back_.clear();
  to_gather_.clear();
  departed_.clear();
  chunk_gradients_.clear();
  chunked_.clear();
  chunk_starts_.clear();
}

template <class Sink>
void Walk<Sink>::clear_row(std::int32_t m) {
  std::fill_n(table_.begin() + static_cast<std::ptrdiff_t>(row(m) * row_size_), row_size_,
              Sink::not_yet);
  const std::size_t first = row(m) * offsets_.size();
  for (std::size_t l = first; l < first + offsets_.size(); ++l) {
    gradients_[l].clear();
    waiting_[l].clear();
    joined_[l].clear();
    if (!departed_.empty()) departed_.erase(l);
  }
}

template <class Sink>
void Walk<Sink>::emit(const Slot& slot) {
  const bool forwards = slot.direction == Direction::forward;
  const auto stage = static_cast<std::size_t>(slot.stage);
  end_slot();
  if (slot.direction == Direction::weights) {
    for (const LayerVisit& visit : parts_.backward_visits[stage]) {
      if (!visit.forward && has_weight_kernel(visit.layer))
        weight_gradients(visit.layer, slot.micro_batch);
    }
    return;
  }
  const bool weights_later = parts_.plan->schedule.split_backward;
  const std::vector<LayerVisit>& visits =
      forwards ? parts_.forward_visits[stage] : parts_.backward_visits[stage];
  if (!forwards) begin_backward(slot);
  std::vector<WeightGather> weights = gathers_each(slot, visits);
  const std::vector<WeightGather>& split = gathers(slot, visits);
  weights.insert(weights.end(), split.begin(), split.end());
  std::stable_sort(weights.begin(), weights.end(),
                   [](const WeightGather& a, const WeightGather& b) { return a.visit < b.visit; });
  const std::vector<GradientBufferReuse>& gradients = buffer_reuses(slot, visits);
  auto weight = weights.begin();
  auto gradient = gradients.begin();
  for (std::size_t t = 0; t < visits.size() && !sink_.gives_up(); ++t) {
    for (; weight != weights.end() && weight->visit == t; ++weight) gather(*weight);
    for (; gradient != gradients.end() && gradient->visit == t; ++gradient) {
      const std::vector<Op>& scattered = sum_states_[gradient->previous].scattered;
      if (!scattered.empty()) sum_states_[gradient->unit].buffer_free = scattered;
    }
    if (!visits[t].forward) {
      backward(visits[t].layer, slot.micro_batch, weights_later);
      continue;
    }
    const bool alone = t + 1 == visits.size() || !visits[t + 1].forward ||
                       (weight != weights.end() && weight->visit == t + 1);
    const bool more = !alone && gathers_together(visits[t].layer, visits[t + 1].layer);
    forward(visits[t].layer, slot.micro_batch, !forwards, more);
  }
}

template <class Sink>
bool Walk<Sink>::aligned_operands(LayerId id, std::int32_t m) {
  after_.assign(parts_.layers[id.index()]->cells.size(), Sink::nothing());
  const Layer& layer = parts_.network[id];
  bool others = false;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const FanOut::Edge* edge = parts_.edges_of(id)[i];
    if (edge == nullptr) continue;
    if (!edge->sources.aligned) {
      others = true;
      continue;
    }
    const When* ready = &table_[offsets(layer.inputs[i], m).ready];
    for (std::size_t c = 0; c < after_.size(); ++c) Sink::add(after_[c], ready[c]);
  }
  return others;
}

template <class Sink>
void Walk<Sink>::arrived_operands(LayerId id, std::size_t cell, std::int32_t m, After& after,
                                  Interval tokens) {
  const Layer& layer = parts_.network[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    const FanOut::Edge* edge = parts_.edges_of(id)[i];
    if (edge == nullptr || edge->sources.aligned) continue;
    const Sources& sources = edge->sources;
    const std::size_t ready = offsets(producer, m).ready;
    for (const std::int32_t one : sources.by_need[cell]) {
      if (one >= 0) {
        Sink::add(after, table_[ready + static_cast<std::size_t>(one)]);
      } else {
        await_arrival(producer, static_cast<std::uint32_t>(~one), m, id, cell, tokens, after);
      }
    }
  }
}

template <class Sink>
auto Walk<Sink>::arrival(LayerId producer, std::size_t index, std::int32_t m, LayerId reader)
    -> When {
  const Offsets dates = offsets(producer, m);
  When& arrived = table_[dates.arrivals + index];
  if (arrived != Sink::not_yet) return arrived;
  const FanOut::Arrival& arrival = parts_.fans[producer.index()]->arrivals[index];
  const Movement& movement = arrival.movement;
  const auto ready = [&](std::int32_t cell) {
    return table_[dates.ready + static_cast<std::size_t>(cell)];
  };
  const Stream stream = stream_between(producer, reader, false);
  const GatherRing& ring = arrival.ring;
  if (!ring.empty() && stream == Stream::tensor) {
    std::vector<After> start(ring.members, Sink::nothing());
    for (std::size_t r = 0; r < ring.members; ++r) {
      for (const std::int32_t cell : ring.producers[r]) Sink::add(start[r], ready(cell));
    }
    return arrived = arrive_in_parts(producer, arrival, m, start,
                                     &table_[dates.legs + arrival.first_leg]);
  }
  After after = Sink::nothing();
  if (movement.pattern != Pattern::scatter_gather) {
    for (const std::int32_t cell : movement.producers) Sink::add(after, ready(cell));
    await_blocking(stream, movement.devices, senders_of(movement), after);
    const Op op = sink_.arrive(producer, arrival, m, stream, after);
    moved(stream, movement.devices, senders_of(movement), op);
    return arrived = Sink::done(op);
  }
  for (std::size_t i = 0; i < movement.legs.size(); ++i) {
    const Leg& leg = movement.legs[i];
    const DeviceId ends[] = {leg.from, leg.to};
    After sent = Sink::nothing();
    Sink::add(sent, ready(leg.cell));
    await_blocking(stream, ends, 1, sent);
    const Op op = sink_.arrive_leg(producer, arrival, i, m, stream, sent);
    moved(stream, ends, 1, op);
    table_[dates.legs + arrival.first_leg + i] = Sink::done(op);
    Sink::add(after, Sink::done(op));
    arrived = Sink::done(op);
  }
  if (movement.devices.size() > 1)
    arrived = Sink::done(sink_.arrive(producer, arrival, m, Stream::tensor, after));
  return arrived;
}

template <class Sink>
void Walk<Sink>::forward(LayerId id, std::int32_t m, bool again, bool more) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  When* ready = &table_[offsets(id, m).ready];
  const bool others = aligned_operands(id, m);
  if (again) {
    await_departures(id, m);
    const After regathered = regathered_operands(id, m, true, !layer.chunks.empty());
    for (After& after : after_) Sink::merge(after, regathered);
  }
  if (!layer.chunks.empty()) {
    chunked_.push_back(id);
    chunk_starts_.push_back(first_chunks(id, again, m));
    if (!more) forward_in_chunks(m, again);
    return;
  }
  if (!layer.rings.empty()) {
    for (std::size_t c = 0; others && c < after_.size(); ++c) arrived_operands(id, c, m, after_[c]);
    return ring_forward(id, m, again ? Pass::recompute : Pass::forward);
  }
  for (std::size_t c = 0; c < layer.devices.size(); ++c) {
    const DeviceId device = layer.devices[c];
    After& after = after_[c];
    if (others) arrived_operands(id, c, m, after);
    Pass pass = again ? Pass::recompute : Pass::forward;
    if (again && layer.partial_sums) {
      Sink::add(after, ready[c]);  // the first sum has read what is overwritten here
      // The first part of the contraction on a device overwrites, further ones are added to it.
      if (layer.canonical[c] != static_cast<std::int32_t>(c)) pass = Pass::forward;
    }
    await_weights(id, device, after);
    await_sent(device, after);
    await_sums(device, after);
    const Op op = sink_.kernel(id, c, pass, m, after);
    ready[c] = Sink::done(op);
    ran(id, device, op);
  }
  sum_parts(id, m);
}

template <class Sink>
void Walk<Sink>::sum_parts(LayerId id, std::int32_t m) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  When* ready = &table_[offsets(id, m).ready];
  for (std::size_t s = 0; s < layer.sums.size(); ++s) {
    const LayerFragment::Sum& sum = layer.sums[s];
    const FanOut::PartsSum& how = parts_.fans[id.index()]->sums[s];
    if (!how.chunks.keepers.empty()) {
      keep_chunks(id, s, m);
      continue;
    }
    After after = Sink::nothing();
    for (const std::int32_t c : sum.cells) Sink::add(after, ready[c]);
    const When summed = Sink::done(sink_.sum_parts(id, sum, how, m, after));
    for (const std::int32_t c : sum.cells) ready[c] = summed;
  }
}

template <class Sink>
void Walk<Sink>::backward(LayerId id, std::int32_t m, bool weights_later) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  const GradientFlow& flow = parts_.structure.flow;
  const std::size_t l = id.index(), visit = at(id, m), count = layer.cells.size();
  const When* ready = &table_[offsets(id, m).ready];
  const bool deferred = weights_later && has_weight_kernel(id);
  const After regathered = deferred ? Sink::nothing() : regathered_operands(id, m);
  by_cell_.assign(count, Sink::not_yet);
  std::vector<After> start;  // of a ring
  for (std::size_t c = 0; c < count; ++c) {
    const std::int32_t home = layer.canonical[c];
    const DeviceId device = layer.devices[c];
    for (const Waiting& waiting : waiting_[visit]) {
      if (static_cast<std::size_t>(waiting.store->cell) != c) continue;
      const Op op =
          sink_.add_received(id, waiting.edge, *waiting.store, m, device, waiting.arrived);
      Sink::add(gradient(id, m, waiting.store->cell), Sink::done(op));
    }
    if (deferred && !flow.passes_on[l]) continue;
    After complete = gradients_[visit].empty() ? Sink::nothing()
                                               : gradients_[visit][static_cast<std::size_t>(home)];
    if (Sink::none(complete)) Sink::add(complete, ready[c]);  // the loss starts the chain
    After after = Sink::nothing();
    await_repeated_sums(id, c, m, after);
    await_weights(id, device, after);
    await_gradient_buffer(id, device, after);
    await_sent(device, after);
    await_sums(device, after);
    const bool in_chunks = flow.passes_on[l] && !layer.chunks.empty() && layer.partial_sums;
    if (in_chunks) backward_in_chunks(id, c, m, after, complete);
    Sink::merge(after, complete);
    if (!layer.rings.empty()) {
      Sink::merge(after, regathered);
      start.push_back(std::move(after));
      continue;
    }
    const auto run = [&](Pass pass) {
      const Op op = sink_.kernel(id, c, pass, m, after);
      ran(id, device, op);
      return op;
    };
    if (!flow.two_kernels[l]) {
      Sink::merge(after, regathered);
      last_backward_[l][c] = run(Pass::backward);
      by_cell_[c] = Sink::done(last_backward_[l][c]);
      continue;
    }
    if (flow.passes_on[l] && !in_chunks) by_cell_[c] = Sink::done(run(Pass::backward_data));
    if (!parts_.network[id].parameters.empty() && !deferred) {
      Sink::merge(after, regathered);
      last_backward_[l][c] = run(Pass::backward_weights);
      if (waits_ && flow.passes_on[l]) by_cell_[c] = Sink::done(last_backward_[l][c]);
    }
  }
  if (!layer.rings.empty()) ring_backward(id, m, std::move(start));
  for (std::size_t i = 0; i < parts_.network[id].inputs.size(); ++i) {
    const LayerId producer = parts_.network[id].inputs[i];
    if (!layer.rings.empty() && i > 0) by_cell_ = ring_returned_[i - 1];
    if (source(producer)) continue;
    if (blocks(stream_between(producer, id, true))) {
      held_back_.push_back({id, i, m, by_cell_});
    } else {
      return_contributions(id, i, m);
    }
  }
  if (!deferred) end_backward(id, m);
}

template <class Sink>
void Walk<Sink>::return_contributions(LayerId id, std::size_t i, std::int32_t m) {
  const FanOut::Edge& edge = parts_.edge(id, i);
  if (!edge.gradient) return;
  const LayerId producer = parts_.network[id].inputs[i];
  for (const auto& [from, cell] : edge.feeds) {
    Sink::add(gradient(producer, m, cell), by_cell_[static_cast<std::size_t>(from)]);
  }
  if (edge.direct) return;
  const std::vector<std::int32_t>& joint = parts_.fans[producer.index()]->joint.edges;
  const std::int32_t position = parts_.structure.reader_index[id.index()][i];
  const auto found = std::find(joint.begin(), joint.end(), position);
  if (found == joint.end()) {
    return move_home(producer, {id, i}, m, edge.stores, edge.returns, [&](After& after, auto cell) {
      Sink::add(after, by_cell_[static_cast<std::size_t>(cell)]);
    });
  }
  auto& contributions = joined_[at(producer, m)];
  contributions.resize(joint.size());
  contributions[static_cast<std::size_t>(found - joint.begin())] = by_cell_;
  const bool all = std::none_of(contributions.begin(), contributions.end(),
                                [](const std::vector<When>& cells) { return cells.empty(); });
  if (all) return_jointly(producer, m);
}

template <class Sink>
void Walk<Sink>::return_jointly(LayerId producer, std::int32_t m) {
  const FanOut::Joint& joint = parts_.fans[producer.index()]->joint;
  auto& contributions = joined_[at(producer, m)];
  std::vector<After> ready(static_cast<std::size_t>(joint.devices), Sink::nothing());
  for (const auto& [cell, device] : joint.kernels) {
    Sink::add(ready[static_cast<std::size_t>(device)],
              contributions[0][static_cast<std::size_t>(cell)]);
  }
  const auto reader = [&](std::size_t edge) {
    return parts_.structure.readers[producer.index()][static_cast<std::size_t>(joint.edges[edge])];
  };
  for (const FanOut::Joint::Addition& addition : joint.additions) {
    const auto edge = static_cast<std::size_t>(addition.edge);
    After after = Sink::nothing();
    for (const std::int32_t cell : addition.after) {
      Sink::add(after, contributions[edge][static_cast<std::size_t>(cell)]);
    }
    Sink::add(ready[static_cast<std::size_t>(addition.device)],
              Sink::done(sink_.add_jointly(reader(edge), reader(0), addition, m, after)));
  }
  if (Sink::lets_go) contributions = {};
  move_home(producer, reader(0), m, joint.stores, joint.returns, [&](After& after, auto device) {
    Sink::merge(after, ready[static_cast<std::size_t>(device)]);
  });
}

template <class Sink>
template <class Done>
void Walk<Sink>::move_home(LayerId producer, Consumer edge, std::int32_t m,
                           const std::vector<FanOut::Store>& stores,
                           const std::vector<FanOut::Return>& returns, const Done& done) {
  std::vector<Waiting>& waiting = waiting_[at(producer, m)];
  const std::size_t first = waiting.size();
  for (const FanOut::Store& store : stores) waiting.push_back({&store, edge, Sink::nothing()});
  const Stream stream = stream_between(producer, edge.layer, true);
  for (const FanOut::Return& way : returns) {
    const Movement& movement = way.movement;
    const auto given = [&](const std::vector<std::int32_t>& by) {
      After after = Sink::nothing();
      for (const std::int32_t one : by) done(after, one);
      return after;
    };
    After home = Sink::nothing();
    if (!way.ring.empty() && stream == Stream::tensor) {
      std::vector<After> start;
      for (const std::vector<std::int32_t>& by : way.leg_after) start.push_back(given(by));
      return_in_parts(producer, edge, way, m, start);
      continue;
    }
    if (movement.pattern != Pattern::scatter_gather) {
      After after = given(way.after);
      const Stream own = movement.pattern == Pattern::local_add ? Stream::compute : stream;
      await_blocking(own, movement.devices, senders_of(movement), after);
      const Op op = sink_.move_home(producer, edge, way, m, own, after);
      moved(own, movement.devices, senders_of(movement), op);
      Sink::add(home, Sink::done(op));
    } else {
      const bool sums = !movement.summing.empty();
      After summed = Sink::nothing();
      if (sums)
        Sink::add(summed, Sink::done(sink_.sum_home(producer, edge, way, m, given(way.after))));
      for (std::size_t i = 0; i < movement.legs.size(); ++i) {
        const DeviceId ends[] = {movement.legs[i].from, movement.legs[i].to};
        After after = sums ? summed : given(way.leg_after[i]);
        await_blocking(stream, ends, 1, after);
        const Op op = sink_.leg_home(producer, edge, way, i, m, stream, after);
        moved(stream, ends, 1, op);
        Sink::add(home, Sink::done(op));
      }
      if (movement.devices.size() > 1 && stream == Stream::pipeline_back) {
        const std::int32_t stage = parts_.plan->schedule.stage_of_layer[producer.index()];
        to_gather_[{stage, m}].push_back({producer, edge, &way, home, first});
        continue;
      }
      if (movement.devices.size() > 1) {
        const Op op = sink_.gather_home(producer, edge, way, m, home);
        home = Sink::nothing();
        Sink::add(home, Sink::done(op));
      }
    }
    returned(producer, m, way, first, home);
  }
}

}  // namespace parsim::lowering
