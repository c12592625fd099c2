// The walk through a step: in which order the fragments of a plan run, and what each of their
// operations waits for. What an operation is, the sink decides: an entry of a DAG (dag_sink.hpp) or
// the time at which it ends (timer.hpp). Private to lowering/.
//
// A sink has
//
//     Op      an operation that has been issued: later(a, b) is the one issued later; `never`
//     When    when something is done: done(op); `not_yet`
//     After   what something waits for: nothing(), none(after), add(after, when), merge(after, after)
//     worth_walking(parts)   of the layers' fragments alone: false ends the walk before it begins
//     begin(parts)   before the first operation of a plan
//     gives_up()     ends the walk
//     one function for each kind of operation, which issues it and returns its Op
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "lowering/plan_fragments.hpp"
#include "lowering/zero_schedule.hpp"

namespace parsim::lowering {

template <class Sink>
class Walk {
 public:
  using Op = typename Sink::Op;
  using When = typename Sink::When;
  using After = typename Sink::After;

  /// parts   must outlive it; what one walk has found the next one need not find again
  Walk(PlanFragments& parts, Sink& sink) : parts_(parts), sink_(sink) {}

  /// Issues the operations of a step of the plan whose layers were found. Throws InputError for a
  /// plan that cannot be lowered.
  void run();

 private:
  /// Contributions in a receive buffer that wait to be added. The receiver adds them when it needs
  /// its gradient, in its own compute stream, so that two additions never race.
  struct Waiting {
    const FanOut::Store* store = nullptr;
    Consumer edge;
    After arrived = Sink::nothing();
  };
  /// Gradients that another stage has sent to the members of a group, which will gather them.
  struct Gathering {
    LayerId producer;
    Consumer edge;
    const FanOut::Return* way = nullptr;
    After sent = Sink::nothing();
    std::size_t first = 0;  ///< store of the edge in waiting_
  };
  /// Where the dates of a layer begin in a row of the table, or in the table.
  struct Offsets {
    std::size_t ready = 0, arrivals = 0, legs = 0, again = 0, legs_again = 0;
    std::size_t last = 0, legs_last = 0;  ///< for backward, where recomputation has its own
  };
  /// A fragment's sum as the walk goes on.
  struct SumState {
    std::int32_t zero_stage = 0;       ///< weights that several stages use stay whole
    bool again = false;                ///< of stage 1 or 2, gathered before forward passes
    std::int32_t backward_of_all = 0;  ///< layers' backward passes until its gradients are summed
    std::int32_t backward_left = 0;
    std::int32_t sums = 0;           ///< so far
    std::vector<Op> summed;          ///< by holder; or pushes to the server
    std::vector<Op> scattered;       ///< by device, if states are sharded: within its ZeRO group
    std::vector<When> mirrors_done;  ///< by mirror: its last kernel that adds to the gradients
    std::vector<Op> gathered;        ///< by ZeRO group: the last all-gather of its weights
    // Of weights that are split, by device: whether its kernels wait for `gathered`; the last one
    // that read the weights.
    std::vector<bool> waited;
    std::vector<Op> last_use;
    /// By device: the reduce-scatter that its gradients' buffer waits for.
    std::vector<Op> buffer_free;
    std::set<DeviceId> buffer_waited;  ///< devices whose kernels wait for `buffer_free`
    bool returned = false;
  };

  /// A contribution that another stage gets at the end of the round.
  struct HeldBack {
    LayerId reader;
    std::size_t input = 0;
    std::int32_t micro_batch = 0;
    std::vector<When> by_cell;
  };

  void lay_out();
  /// Forgets what the row of a micro-batch that begins held of another.
  void clear_row(std::int32_t m);
  void begin_sums();
  void emit(const Slot& slot);
  /// more   the next layer works in chunks of the same tokens, so that this one waits for it
  void forward(LayerId id, std::int32_t m, bool again, bool more);
  /// When operands that need no movement are ready, by cell (into after_); true if other operands
  /// need one.
  bool aligned_operands(LayerId id, std::int32_t m);
  /// `tokens`: of a chunk; empty: of all.
  void arrived_operands(LayerId id, std::size_t cell, std::int32_t m, After& after,
                        Interval tokens = {});
  When arrival(LayerId producer, std::size_t index, std::int32_t m, LayerId reader);
  void await_departures(LayerId id, std::int32_t m);
  /// Gathers operands again that were dropped after forward: what kernels that read them wait for.
  /// repeated   for recomputation; else for backward
  /// by_chunk   without those that come in parts, see arrived_operands
  [[nodiscard]] After regathered_operands(LayerId id, std::int32_t m, bool repeated = false,
                                          bool by_chunk = false);
  void backward(LayerId id, std::int32_t m, bool weights_later);
  void weight_gradients(LayerId id, std::int32_t m);
  // Ring attention: walk_ring.hpp. `start` is by cell.
  template <class Step>
  void go_round(LayerId id, const Ring& ring, std::int32_t m, const std::vector<After>& start,
                const Step& take);
  void ring_forward(LayerId id, std::int32_t m, Pass pass);
  void ring_backward(LayerId id, std::int32_t m, std::vector<After> start);
  // Products in chunks: walk_chunks.hpp. `dates`: by receiver and part, when it arrives.
  template <class Send>
  When go_round_parts(const GatherRing& ring, const std::vector<After>& start, When* dates,
                      const Send& send);
  When arrive_in_parts(LayerId producer, const FanOut::Arrival& arrival, std::int32_t m,
                       const std::vector<After>& start, When* dates);
  [[nodiscard]] bool gathers_together(LayerId id, LayerId next) const;
  [[nodiscard]] std::vector<After> first_chunks(LayerId id, bool again, std::int32_t m);
  void forward_in_chunks(std::int32_t m, bool again);
  void await_arrival(LayerId producer, std::size_t index, std::int32_t m, LayerId reader,
                     std::size_t cell, Interval tokens, After& after);
  void sum_parts(LayerId id, std::int32_t m);
  void scatter_chunks(LayerId id, std::size_t s, std::size_t step, std::int32_t m, bool again);
  void keep_chunks(LayerId id, std::size_t s, std::int32_t m);
  void backward_in_chunks(LayerId id, std::size_t cell, std::int32_t m, const After& others,
                          const After& complete);
  void return_in_parts(LayerId producer, Consumer edge, const FanOut::Return& way, std::int32_t m,
                       const std::vector<After>& start);
  void end_backward(LayerId id, std::int32_t m);
  void await_repeated_sums(LayerId id, std::size_t cell, std::int32_t m, After& after) const;
  void exchange(const std::vector<Slot>& round);
  void return_contributions(LayerId id, std::size_t input, std::int32_t m);
  void return_jointly(LayerId producer, std::int32_t m);
  /// `done` is called with what the contributions of a fragment's number wait for.
  template <class Done>
  void move_home(LayerId producer, Consumer edge, std::int32_t m,
                 const std::vector<FanOut::Store>& stores,
                 const std::vector<FanOut::Return>& returns, const Done& done);

  // Synchronisation and updates, and sharded states: walk_sums.hpp.
  void gather(const WeightGather& wanted);
  [[nodiscard]] const std::vector<WeightGather>& gathers(const Slot& slot,
                                                         const std::vector<LayerVisit>& visits);
  [[nodiscard]] bool ends_pass(std::size_t list, const std::vector<std::size_t>& ends) const;
  [[nodiscard]] std::vector<WeightGather> gathers_each(const Slot& slot,
                                                       const std::vector<LayerVisit>& visits) const;
  [[nodiscard]] const std::vector<GradientBufferReuse>& buffer_reuses(
      const Slot& slot, const std::vector<LayerVisit>& visits);
  void begin_backward(const Slot& slot);
  void gather_returned(const Slot& slot);
  void returned(LayerId producer, std::int32_t m, const FanOut::Return& way, std::size_t first,
                const After& home);
  void await_gradient_buffer(LayerId id, DeviceId device, After& after);
  void await_weights(LayerId id, DeviceId device, After& after);
  void await_sums(DeviceId device, After& after);
  void end_slot();
  void sum(std::size_t s);
  void sum_shares(std::size_t s, const std::vector<Op>& last);
  void sum_apart(std::size_t s, bool so_far, const std::vector<Op>& last);
  void server_return(std::size_t s);
  void finish();
  [[nodiscard]] bool adds_shares(std::size_t s) const {
    return scatters_ && sum_states_[s].zero_stage >= 2 && parts_.plan->schedule.micro_batches > 1;
  }
  /// Whether what stays whole is summed after every micro-batch.
  [[nodiscard]] bool sums_whole(std::size_t s) const {
    const SyncGroup& group = parts_.sums[s]->group;
    return sums_each_ && sum_states_[s].zero_stage == 0 && group.summing > 1 && !group.served();
  }

  // With blocking sends, a movement between stages also waits for the last movement of its devices
  // and the last kernel of the receivers, and kernels wait for what their device sends.
  // (DeepSpeed's pipeline engine uses blocking send and receive calls:
  // deepspeed/runtime/pipe/p2p.py.) Where gradients are summed apart, kernels also wait for every
  // movement within their stage, and sums for both kernels of a product, as PyTorch's autograd
  // calls them in one node.
  void await_blocking(Stream stream, std::span<const DeviceId> devices, std::size_t senders,
                      After& after) const;
  void moved(Stream stream, std::span<const DeviceId> devices, std::size_t senders, Op op);
  void await_sent(DeviceId device, After& after);
  void ran(LayerId id, DeviceId device, Op op);
  [[nodiscard]] bool blocks(Stream stream) const {
    return parts_.plan->schedule.blocking_sends &&
           (stream == Stream::pipeline || stream == Stream::pipeline_back);
  }

  [[nodiscard]] bool has_weight_kernel(LayerId id) const {
    return parts_.structure.flow.two_kernels[id.index()] && !parts_.network[id].parameters.empty();
  }
  [[nodiscard]] bool source(LayerId id) const { return parts_.structure.flow.source[id.index()]; }
  [[nodiscard]] std::size_t row(std::int32_t m) const {
    return parts_.row_of[static_cast<std::size_t>(m)];
  }
  [[nodiscard]] std::size_t at(LayerId id, std::int32_t m) const {
    return row(m) * parts_.layers.size() + id.index();
  }
  [[nodiscard]] Offsets offsets(LayerId id, std::int32_t m) const {
    const Offsets& in_row = offsets_[id.index()];
    const std::size_t first = row(m) * row_size_;
    return {first + in_row.ready,    first + in_row.arrivals,   first + in_row.legs,
            first + in_row.again,    first + in_row.legs_again, first + in_row.last,
            first + in_row.legs_last};
  }
  /// The stream of values (or gradients, if `back`) between two layers: between stages a stream of
  /// its own.
  [[nodiscard]] Stream stream_between(LayerId a, LayerId b, bool back) const {
    const auto& stage = parts_.plan->schedule.stage_of_layer;
    if (stage[a.index()] == stage[b.index()]) return Stream::tensor;
    return back ? Stream::pipeline_back : Stream::pipeline;
  }
  /// What completes the gradient of a cell of a layer's output.
  [[nodiscard]] After& gradient(LayerId id, std::int32_t m, std::int32_t cell) {
    std::vector<After>& cells = gradients_[at(id, m)];
    if (cells.empty()) cells.assign(parts_.layers[id.index()]->cells.size(), Sink::nothing());
    return cells[static_cast<std::size_t>(cell)];
  }

  PlanFragments& parts_;
  Sink& sink_;
  std::vector<When> table_;
  std::size_t row_size_ = 0;
  bool regathers_ = false;        ///< some operands are dropped after forward and gathered again
  bool waits_ = false;            ///< gradients are summed apart (LayerPlan)
  bool repeats_sums_ = false;     ///< some partial sums are recomputed
  std::vector<Offsets> offsets_;  ///< by layer, in a row
  // By at(): what completes a cell's gradient, empty before the first contribution; receive
  // buffers; by edge of a joint return and by cell, when its reader's kernels end.
  std::vector<std::vector<After>> gradients_;
  std::vector<std::vector<Waiting>> waiting_;
  std::vector<std::vector<std::vector<When>>> joined_;
  std::vector<std::vector<Op>> last_backward_;  ///< by layer, cell
  std::vector<After> after_;                    ///< by cell
  std::vector<When> by_cell_;
  std::array<std::vector<When>, 2> ring_returned_;  ///< of keys and values, by cell
  /// By attention layer and micro-batch: when its cells' own keys and values have been sent.
  std::map<std::size_t, std::array<std::vector<When>, 2>> departed_;
  // Products that work in chunks together; of one that is summed, which is alone, by cell and chunk
  // when that is done, and by cell when others' chunks have come.
  std::vector<LayerId> chunked_;
  std::vector<std::vector<After>> chunk_starts_;  ///< of each, by cell
  std::vector<std::vector<When>> chunk_done_;
  std::vector<After> kept_;
  std::vector<When> round_;  ///< of gradients that return
  /// By product and micro-batch, by cell and chunk: what completes its gradient.
  std::map<std::size_t, std::vector<std::vector<After>>> chunk_gradients_;
  bool scatters_ = false;   ///< every micro-batch's gradients are scattered
  bool sums_each_ = false;  ///< and all others are summed
  /// By device: the sums of a micro-batch, which the next one waits for, and those of this slot,
  /// which the next slot waits for.
  std::map<DeviceId, std::vector<Op>> to_await_, sums_of_slot_;
  std::vector<SumState> sum_states_;
  std::vector<std::vector<std::size_t>> sums_of_layer_, split_weights_;
  std::vector<SyncGroup> sharded_;  ///< by sum; empty if nothing is sharded
  std::vector<std::vector<std::size_t>> weight_units_, gradient_units_;
  std::vector<std::int64_t> elements_;  ///< by sharded group
  /// By list of weight_units_.
  using InMemory = std::vector<std::vector<std::size_t>>;
  std::map<std::int32_t, InMemory> gathered_;  ///< by stage, what is in memory
  /// A pass's all-gathers, which follow from what is in memory before it.
  struct Gathers {
    InMemory before, after;
    std::vector<WeightGather> all;
  };
  std::map<std::pair<std::int32_t, Direction>, std::vector<Gathers>> known_gathers_;
  std::map<std::pair<std::int32_t, Direction>, std::vector<GradientBufferReuse>> known_reuses_;

  /// By the stage that gathers and micro-batch.
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Gathering>> to_gather_;
  std::map<DeviceId, Op> last_kernel_, last_movement_;
  std::map<DeviceId, std::vector<Op>> sending_;
  std::vector<HeldBack> held_back_;
};

}  // namespace parsim::lowering
