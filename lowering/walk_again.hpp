// What the walk's passes wait for where outputs are computed or gathered again. Private to
// lowering/.
#pragma once

#include <set>

#include "lowering/recompute.hpp"
#include "lowering/walk.hpp"

namespace parsim::lowering {

/// A recomputed output overwrites the first one, which may still be in transit to other devices.
template <class Sink>
void Walk<Sink>::await_departures(LayerId id, std::int32_t m) {
  for (const Consumer& reader : parts_.structure.readers[id.index()]) {
    const auto sent = departed_.find(at(reader.layer, m));
    if (sent == departed_.end() || reader.input == 0) continue;
    const std::vector<When>& by_cell = sent->second[reader.input - 1];
    const Sources& sources = parts_.edge(reader.layer, reader.input).sources;
    for (std::size_t c = 0; c < by_cell.size(); ++c) {
      if (sources.aligned) {
        Sink::add(after_[c], by_cell[c]);
        continue;
      }
      for (const std::int32_t one : sources.by_need[c]) {
        if (one >= 0) Sink::add(after_[static_cast<std::size_t>(one)], by_cell[c]);
      }
    }
  }
  const FanOut* fan = parts_.fans[id.index()];
  if (fan == nullptr) return;
  const Offsets dates = offsets(id, m);
  for (std::size_t a = 0; a < fan->arrivals.size(); ++a) {
    const When& arrived = table_[dates.arrivals + a];
    if (arrived == Sink::not_yet) continue;
    const FanOut::Arrival& arrival = fan->arrivals[a];
    // Of a scatter_gather only the transfers read what is to be overwritten.
    const GatherRing& ring = arrival.ring;
    const When* in_parts = &table_[dates.legs + arrival.first_leg];
    if (!ring.empty() && in_parts[ring.at(ring.next(0), 0)] != Sink::not_yet) {
      for (std::size_t r = 0; r < ring.members; ++r) {
        for (const std::int32_t cell : ring.producers[r]) {
          Sink::add(after_[static_cast<std::size_t>(cell)], in_parts[ring.at(ring.next(r), r)]);
        }
      }
      continue;
    }
    const std::vector<Leg>& legs = arrival.movement.legs;
    for (std::size_t i = 0; i < legs.size(); ++i) {
      Sink::add(after_[static_cast<std::size_t>(legs[i].cell)],
                table_[dates.legs + arrival.first_leg + i]);
    }
    if (!legs.empty()) continue;
    for (const std::int32_t cell : arrival.movement.producers) {
      Sink::add(after_[static_cast<std::size_t>(cell)], arrived);
    }
  }
}

template <class Sink>
auto Walk<Sink>::regathered_operands(LayerId id, std::int32_t m, bool repeated, bool by_chunk)
    -> After {
  After all = Sink::nothing();
  if (!regathers_) return all;
  const Layer& layer = parts_.network[id];
  const bool anew = !repeated && gathers_for_each_pass(layer, parts_.plan->framework);
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    if (source(producer) || !parts_.layers[producer.index()]->plan.regather) continue;
    const Sources& sources = parts_.edge(id, i).sources;
    std::set<std::size_t> needed;
    for (const std::vector<std::int32_t>& by_cell : sources.by_need) {
      for (const std::int32_t one : by_cell) {
        if (one < 0) needed.insert(static_cast<std::size_t>(~one));
      }
    }
    for (const std::size_t index : needed) {
      const FanOut::Arrival& arrival = parts_.fans[producer.index()]->arrivals[index];
      if (!arrival.again) continue;
      const Offsets dates = offsets(producer, m);
      const GatherRing& ring = arrival.ring;
      const bool last = anew && arrival.movement.pattern == Pattern::all_gather;
      When& arrived = table_[(last ? dates.last : dates.again) + index];
      When* in_parts =
          ring.empty() ? nullptr
                       : &table_[(last ? dates.legs_last : dates.legs_again) + arrival.first_leg];
      if (arrived == Sink::not_yet) {
        After after = Sink::nothing();
        for (const std::int32_t cell : arrival.movement.producers) {
          Sink::add(after, table_[dates.ready + static_cast<std::size_t>(cell)]);
        }
        for (const After& gradient : gradients_[at(id, m)]) Sink::merge(after, gradient);
        // What is overwritten has been read.
        for (const Consumer& reader : parts_.structure.readers[producer.index()]) {
          const std::size_t first = offsets(reader.layer, m).ready;
          for (std::size_t c = 0; c < parts_.layers[reader.layer.index()]->cells.size(); ++c) {
            if (table_[first + c] != Sink::not_yet) Sink::add(after, table_[first + c]);
          }
        }
        const Stream stream = stream_between(producer, id, false);
        arrived = by_chunk && in_parts != nullptr && stream == Stream::tensor
                      ? arrive_in_parts(producer, arrival, m,
                                        std::vector<After>(ring.members, after), in_parts)
                      : Sink::done(sink_.arrive(producer, arrival, m, stream, after));
      }
      if (in_parts == nullptr || in_parts[ring.at(0, ring.last(0))] == Sink::not_yet) {
        Sink::add(all, arrived);
        continue;
      }
      for (std::size_t r = 0; !by_chunk && r < ring.members; ++r) {
        Sink::add(all, in_parts[ring.at(r, ring.last(r))]);
      }
    }
  }
  return all;
}

/// A kernel that is repeated comes before what reads it in the device's stream; the sum behind it
/// is in another stream.
template <class Sink>
void Walk<Sink>::await_repeated_sums(LayerId id, std::size_t cell, std::int32_t m,
                                     After& after) const {
  if (!repeats_sums_) return;
  const Layer& layer = parts_.network[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    if (!parts_.dropped[producer.index()] || !parts_.layers[producer.index()]->partial_sums)
      continue;
    const When* ready = &table_[offsets(producer, m).ready];
    const Sources& sources = parts_.edge(id, i).sources;
    if (sources.aligned) {
      Sink::add(after, ready[cell]);
      continue;
    }
    for (const std::int32_t one : sources.by_need[cell]) {
      if (one >= 0) Sink::add(after, ready[one]);
    }
  }
}

/// Groups gather what has been sent to them when their turn has come: a collective that is issued
/// before others, and waits, keeps these from starting.
template <class Sink>
void Walk<Sink>::gather_returned(const Slot& slot) {
  const auto all = to_gather_.find({slot.stage, slot.micro_batch});
  if (all == to_gather_.end()) return;
  for (Gathering& one : all->second) {
    After home = Sink::nothing();
    Sink::add(home, Sink::done(sink_.gather_home(one.producer, one.edge, *one.way, slot.micro_batch,
                                                 one.sent)));
    returned(one.producer, slot.micro_batch, *one.way, one.first, home);
  }
  to_gather_.erase(all);
}

template <class Sink>
void Walk<Sink>::returned(LayerId producer, std::int32_t m, const FanOut::Return& way,
                          std::size_t first, const After& home) {
  std::vector<Waiting>& waiting = waiting_[at(producer, m)];
  for (const std::int32_t cell : way.feeds) Sink::merge(gradient(producer, m, cell), home);
  for (const std::int32_t store : way.stores) {
    Sink::merge(waiting[first + static_cast<std::size_t>(store)].arrived, home);
  }
}

}  // namespace parsim::lowering
