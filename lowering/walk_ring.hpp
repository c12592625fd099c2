// The walk's passes of ring attention (Liu et al. 2023, "Ring Attention with Blockwise
// Transformers", section 3). Private to lowering/.
//
// In step s of a pass each member of a ring works with the keys and values of the member s places
// before it, while it sends them to the next one. Backward, gradients of keys and values follow
// them, and every member adds its part; members - 1 hops bring them home. Two buffers receive in
// turn, as in TransformerEngine's AttnFuncWithCPAndKVP2P
// (transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py).
#pragma once

#include <array>

#include "lowering/walk.hpp"

namespace parsim::lowering {

template <class Sink>
template <class Step>
void Walk<Sink>::go_round(LayerId id, const Ring& ring, std::int32_t m,
                          const std::vector<After>& start, const Step& take) {
  using Pair = std::array<When, 2>;  // of keys, of values
  const std::size_t members = ring.cells.size();
  const When* ready = &table_[offsets(id, m).ready];
  const auto cell = [&](std::size_t member) {
    return static_cast<std::size_t>(ring.cells[member]);
  };
  auto& departed = departed_[at(id, m)];
  for (std::vector<When>& by_cell : departed) {
    by_cell.resize(parts_.layers[id.index()]->cells.size(), Sink::not_yet);
  }
  std::vector<Pair> held(members, Pair{Sink::not_yet, Sink::not_yet});
  std::vector<When> before, done;  // the last kernels of the pass before, of the step before
  for (std::size_t r = 0; r < members; ++r) before.push_back(ready[cell(r)]);
  for (std::size_t step = 0; step < members; ++step) {
    std::vector<Pair> next(members, Pair{Sink::not_yet, Sink::not_yet});
    for (std::size_t r = 0; step + 1 < members && r < members; ++r) {
      const std::size_t to = (r + 1) % members;
      for (const std::size_t operand : {0U, 1U}) {
        After after = Sink::nothing();
        if (step == 0) Sink::merge(after, start[cell(r)]);
        Sink::add(after, held[r][operand]);
        Sink::add(after, step < 2 ? before[to] : done[to]);  // its buffer is free
        next[to][operand] =
            Sink::done(sink_.ring_send(id, ring, r, ring.block(r, step), operand, m, after));
        if (step == 0) departed[operand][cell(r)] = next[to][operand];
      }
    }
    std::vector<When> now;
    for (std::size_t r = 0; r < members; ++r) {
      After after = Sink::nothing();
      if (step == 0) Sink::merge(after, start[cell(r)]);
      for (const When arrived : held[r]) Sink::add(after, arrived);
      await_sent(parts_.layers[id.index()]->devices[cell(r)], after);
      now.push_back(take(r, step, after));
    }
    done = std::move(now);
    held = std::move(next);
  }
}

template <class Sink>
void Walk<Sink>::ring_forward(LayerId id, std::int32_t m, Pass pass) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  When* ready = &table_[offsets(id, m).ready];
  for (const Ring& ring : layer.rings) {
    std::vector<When> last(ring.cells.size(), Sink::not_yet);
    go_round(id, ring, m, after_, [&](std::size_t r, std::size_t step, After& after) {
      const Op op = sink_.ring_kernel(id, ring, r, ring.block(r, step), pass, m, after);
      ran(id, layer.devices[static_cast<std::size_t>(ring.cells[r])], op);
      return last[r] = Sink::done(op);
    });
    for (std::size_t r = 0; r < last.size(); ++r) {
      ready[static_cast<std::size_t>(ring.cells[r])] = last[r];
    }
  }
}

/// `start`: by cell, what its first kernel waits for. Afterwards by_cell_ says when a cell's last
/// kernel ends, ring_returned_ when the gradients of its own keys and values are complete.
template <class Sink>
void Walk<Sink>::ring_backward(LayerId id, std::int32_t m, std::vector<After> start) {
  const LayerFragment& layer = *parts_.layers[id.index()];
  // Keys and values go round once more: what they wait for.
  if (aligned_operands(id, m)) {
    for (std::size_t c = 0; c < layer.cells.size(); ++c) arrived_operands(id, c, m, after_[c]);
  }
  for (std::size_t c = 0; c < start.size(); ++c) Sink::merge(start[c], after_[c]);
  for (auto& returned : ring_returned_) returned.assign(layer.cells.size(), Sink::not_yet);
  for (const Ring& ring : layer.rings) {
    const std::size_t members = ring.cells.size();
    // By block: when its gradient has come to the next member.
    std::array<std::vector<When>, 2> received;
    for (auto& by_block : received) by_block.assign(members, Sink::not_yet);
    go_round(id, ring, m, start, [&](std::size_t r, std::size_t step, After& after) {
      const auto cell = static_cast<std::size_t>(ring.cells[r]);
      const std::size_t block = ring.block(r, step);
      const Op op = sink_.ring_kernel(id, ring, r, block, Pass::backward, m, after);
      ran(id, layer.devices[cell], op);
      last_backward_[id.index()][cell] = op;
      const When done = by_cell_[cell] = Sink::done(op);
      for (const std::size_t operand : {0U, 1U}) {
        if (!parts_.edge(id, operand + 1).gradient) continue;
        if (step == 0) {
          ring_returned_[operand][cell] = done;
          continue;
        }
        After added = Sink::nothing();
        Sink::add(added, done);
        if (step > 1) {
          Sink::add(added, received[operand][block]);
          const Op sum = sink_.ring_add(id, ring, r, block, operand, m, added);
          added = Sink::nothing();
          Sink::add(added, Sink::done(sum));
        }
        received[operand][block] =
            Sink::done(sink_.ring_return(id, ring, r, block, operand, m, added));
      }
      return done;
    });
    for (std::size_t r = 0; members > 1 && r < members; ++r) {
      const auto cell = static_cast<std::size_t>(ring.cells[r]);
      for (const std::size_t operand : {0U, 1U}) {
        if (!parts_.edge(id, operand + 1).gradient) continue;
        After after = Sink::nothing();
        Sink::add(after, received[operand][r]);
        Sink::add(after, by_cell_[cell]);
        ring_returned_[operand][cell] = Sink::done(sink_.ring_home(id, ring, r, operand, m, after));
      }
    }
  }
}

}  // namespace parsim::lowering
