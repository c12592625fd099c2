// The walk's products in chunks of tokens (chunks.hpp). Private to lowering/.
//
// Forward, parts of an all-gather go round a ring, and a chunk is multiplied when its tokens have
// come; or a chunk's partial sums leave for the device that keeps them while the next chunk is
// multiplied, and that device adds its own last. Backward, gradients of the sums come round a ring,
// and a chunk's input gradients are computed when they have; weight gradients wait for all. The
// other two collectives need no chunks: operands are gathered again while input gradients are
// computed, and these are reduce-scattered while weight gradients are. TransformerEngine's
// userbuffers overlap the same, by ring exchange and in bulk
// (transformer_engine/pytorch/module/base.py, initialize_ub).
#pragma once

#include <algorithm>

#include "lowering/walk.hpp"

namespace parsim::lowering {

/// `start`: by member, what its own part waits for. Returns when the last message ends.
template <class Sink>
template <class Send>
auto Walk<Sink>::go_round_parts(const GatherRing& ring, const std::vector<After>& start,
                                When* dates, const Send& send) -> When {
  When last = Sink::not_yet;
  for (std::size_t step = 0; step + 1 < ring.members; ++step) {
    for (std::size_t r = 0; r < ring.members; ++r) {
      const std::size_t part = ring.part(r, step);
      After after = Sink::nothing();
      if (step == 0) {
        Sink::merge(after, start[r]);
      } else {
        Sink::add(after, dates[ring.at(r, part)]);
      }
      last = dates[ring.at(ring.next(r), part)] = Sink::done(send(r, part, after));
    }
  }
  return last;
}

template <class Sink>
auto Walk<Sink>::arrive_in_parts(LayerId producer, const FanOut::Arrival& arrival, std::int32_t m,
                                 const std::vector<After>& start, When* dates) -> When {
  return go_round_parts(arrival.ring, start, dates, [&](auto member, auto part, After& after) {
    return sink_.arrive_part(producer, arrival, member, part, m, after);
  });
}

/// Waits for an arrival on the device of a reader's cell; if it comes in parts, for those of some
/// tokens, empty: all.
template <class Sink>
void Walk<Sink>::await_arrival(LayerId producer, std::size_t index, std::int32_t m, LayerId reader,
                               std::size_t cell, Interval tokens, After& after) {
  const When whole = arrival(producer, index, m, reader);
  const FanOut::Arrival& arrival = parts_.fans[producer.index()]->arrivals[index];
  const GatherRing& ring = arrival.ring;
  const Offsets dates = offsets(producer, m);
  const When* in_parts = ring.empty() ? nullptr : &table_[dates.legs + arrival.first_leg];
  if (in_parts == nullptr || in_parts[ring.at(0, ring.last(0))] == Sink::not_yet) {
    return Sink::add(after, whole);
  }
  if (parts_.layers[producer.index()]->plan.regather) {
    const When* again = &table_[dates.legs_again + arrival.first_leg];
    if (again[ring.at(0, ring.last(0))] != Sink::not_yet) in_parts = again;
  }
  const std::vector<DeviceId>& devices = arrival.movement.devices;
  const DeviceId device = parts_.layers[reader.index()]->devices[cell];
  const auto member =
      static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
  for (std::size_t part = 0; part < ring.members; ++part) {
    const bool read =
        tokens.empty() || !intersect(arrival.movement.regions[part][1], tokens).empty();
    if (read && part != member) Sink::add(after, in_parts[ring.at(member, part)]);
  }
}

/// Whether both products read the same tokens in the same chunks, each of which both multiply when
/// it has come: a fused product of queries, keys and values, or of gate and up, does.
template <class Sink>
bool Walk<Sink>::gathers_together(LayerId id, LayerId next) const {
  const LayerFragment &one = *parts_.layers[id.index()], &other = *parts_.layers[next.index()];
  return !one.chunks.empty() && !other.chunks.empty() && !one.partial_sums && !other.partial_sums &&
         one.devices == other.devices &&
         parts_.network[id].inputs[0] == parts_.network[next].inputs[0] &&
         std::equal(one.chunks.begin(), one.chunks.end(), other.chunks.begin(), other.chunks.end(),
                    [](const Chunks& a, const Chunks& b) {
                      return a.own == b.own && a.tokens == b.tokens;
                    });
}

/// By cell, what its first chunk waits for besides what comes in parts, once after_ has what that
/// is.
template <class Sink>
auto Walk<Sink>::first_chunks(LayerId id, bool again, std::int32_t m) -> std::vector<After> {
  const LayerFragment& layer = *parts_.layers[id.index()];
  const When* ready = &table_[offsets(id, m).ready];
  std::vector<After> start = after_;
  for (const LayerFragment::Sum& sum : layer.sums) {
    for (const std::int32_t c : sum.cells) {
      // The first sums have read what is overwritten here.
      for (const std::int32_t other : sum.cells) {
        if (again) Sink::add(start[static_cast<std::size_t>(c)], ready[other]);
      }
    }
  }
  for (std::size_t c = 0; c < start.size(); ++c) {
    await_weights(id, layer.devices[c], start[c]);
    await_sent(layer.devices[c], start[c]);
    await_sums(layer.devices[c], start[c]);
  }
  return start;
}

/// All of chunked_.
template <class Sink>
void Walk<Sink>::forward_in_chunks(std::int32_t m, bool again) {
  const LayerFragment& first = *parts_.layers[chunked_[0].index()];
  const std::size_t count = first.cells.size();
  kept_.assign(count, Sink::nothing());
  chunk_done_.assign(count, {});
  for (std::size_t c = 0; c < count; ++c) {
    chunk_done_[c].assign(first.chunks[c].tokens.size(), Sink::not_yet);
  }
  bool more = true;
  for (std::size_t step = 0; more; ++step) {
    more = false;
    for (std::size_t l = 0; l < chunked_.size(); ++l) {
      const LayerId id = chunked_[l];
      const LayerFragment& layer = *parts_.layers[id.index()];
      When* ready = &table_[offsets(id, m).ready];
      for (std::size_t c = 0; c < count; ++c) {
        const Chunks& chunks = layer.chunks[c];
        if (step >= chunks.tokens.size()) continue;
        more = true;
        const std::size_t chunk = chunks.visited(step, layer.partial_sums);
        After after = Sink::nothing();
        if (step == 0) Sink::merge(after, chunk_starts_[l][c]);
        arrived_operands(id, c, m, after, chunks.tokens[chunk]);
        const Pass pass = again ? Pass::recompute : Pass::forward;
        const Op op = sink_.chunk_kernel(id, c, chunk, pass, m, after);
        ready[c] = chunk_done_[c][chunk] = Sink::done(op);
        ran(id, layer.devices[c], op);
      }
    }
    for (std::size_t s = 0; s < first.sums.size(); ++s) {
      scatter_chunks(chunked_[0], s, step, m, again);
    }
  }
  sum_parts(chunked_[0], m);
  chunked_.clear();
  chunk_starts_.clear();
}

/// Sends what was computed in a step to whose sum it is part of.
template <class Sink>
void Walk<Sink>::scatter_chunks(LayerId id, std::size_t s, std::size_t step, std::int32_t m,
                                bool again) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  const ScatteredChunks& how = parts_.fans[id.index()]->sums[s].chunks;
  if (step + 1 >= how.keepers.size()) return;  // the last chunk is the own one
  for (const std::int32_t c : layer.sums[s].cells) {
    const auto cell = static_cast<std::size_t>(c);
    const std::size_t chunk = layer.chunks[cell].visited(step, true);
    const auto keeper = static_cast<std::size_t>(how.keepers[chunk]);
    After after = Sink::nothing();
    Sink::add(after, chunk_done_[cell][chunk]);
    if (again) Sink::merge(after, chunk_starts_[0][keeper]);
    const Op op = sink_.scatter_chunk(id, how, cell, chunk, step > 0, m, after);
    Sink::add(kept_[keeper], Sink::done(op));
  }
}

/// Adds every device's own chunk to those that have come.
template <class Sink>
void Walk<Sink>::keep_chunks(LayerId id, std::size_t s, std::int32_t m) {
  When* ready = &table_[offsets(id, m).ready];
  const ScatteredChunks& how = parts_.fans[id.index()]->sums[s].chunks;
  for (std::size_t chunk = 0; chunk < how.keepers.size(); ++chunk) {
    const auto cell = static_cast<std::size_t>(how.keepers[chunk]);
    After after = kept_[cell];
    Sink::add(after, chunk_done_[cell][chunk]);
    ready[cell] = Sink::done(sink_.keep_chunk(id, how, chunk, m, after));
  }
}

/// Input gradients of a cell of partial sums. `after`: what its first chunk waits for, `complete`
/// what completes the gradient of all chunks.
template <class Sink>
void Walk<Sink>::backward_in_chunks(LayerId id, std::size_t cell, std::int32_t m,
                                    const After& others, const After& complete) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  const Chunks& chunks = layer.chunks[cell];
  const auto returned = chunk_gradients_.find(at(id, m));
  // Those of other cells may have come whole: they have a reader whose parts are not like these.
  const bool in_parts = returned != chunk_gradients_.end() && !returned->second[cell].empty();
  for (std::size_t step = 0; step < chunks.tokens.size(); ++step) {
    const std::size_t chunk = chunks.visited(step, false);
    After after = Sink::nothing();
    if (step == 0) Sink::merge(after, others);
    if (in_parts) {
      Sink::merge(after, returned->second[cell][chunk]);
    } else if (step == 0) {
      Sink::merge(after, complete);
    }
    const Op op = sink_.chunk_kernel(id, cell, chunk, Pass::backward_data, m, after);
    ran(id, layer.devices[cell], op);
    by_cell_[cell] = Sink::done(op);
  }
}

/// Gradients of a product in chunks that is summed. `start`: by member, its reader's kernels.
template <class Sink>
void Walk<Sink>::return_in_parts(LayerId producer, Consumer edge, const FanOut::Return& way,
                                 std::int32_t m, const std::vector<After>& start) {
  const GatherRing& ring = way.ring;
  const LayerFragment& home = *parts_.layers[producer.index()];
  round_.assign(ring.dates(), Sink::not_yet);
  go_round_parts(ring, start, round_.data(), [&](auto member, auto part, After& after) {
    return sink_.return_part(producer, edge, way, member, part, m, after);
  });
  std::vector<std::vector<After>>& by_cell = chunk_gradients_[at(producer, m)];
  by_cell.resize(home.cells.size());
  for (std::size_t r = 0; r < ring.members; ++r) {
    After after = start[r];
    const When copied = Sink::done(sink_.keep_part(producer, edge, way, r, m, after));
    for (const std::int32_t c : ring.producers[r]) {
      const std::vector<Interval>& tokens = home.chunks[static_cast<std::size_t>(c)].tokens;
      std::vector<After>& by_chunk = by_cell[static_cast<std::size_t>(c)];
      by_chunk.resize(tokens.size(), Sink::nothing());
      for (std::size_t chunk = 0; chunk < tokens.size(); ++chunk) {
        for (std::size_t part = 0; part < ring.members; ++part) {
          if (intersect(way.movement.regions[part][1], tokens[chunk]).empty()) continue;
          Sink::add(by_chunk[chunk], part == r ? copied : round_[ring.at(r, part)]);
        }
      }
      Sink::add(gradient(producer, m, c), copied);
      Sink::add(gradient(producer, m, c), round_[ring.at(r, ring.last(r))]);
    }
  }
}

}  // namespace parsim::lowering
