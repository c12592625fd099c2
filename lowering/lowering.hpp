// The work of lower(): private to strategies/lower*.cpp. Analysis first (what does not depend on
// the micro-batch), then the schedule slot by slot, then what remains of the synchronisation.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/exec_dag.hpp"
#include "lowering/gradient_flow.hpp"
#include "lowering/recompute.hpp"
#include "lowering/reshard.hpp"
#include "lowering/split_states.hpp"
#include "lowering/sync.hpp"

namespace parsim {

/// How one operand of a layer reaches it and how the gradient returns; the same for every
/// micro-batch.
struct Edge {
  LayerId producer;
  bool gradient = false;  ///< the producer wants one
  Sources sources;        ///< by cell of the reader
  GradientReturn back;
};

/// An operand of a layer.
struct EdgeId {
  LayerId reader;
  std::size_t input = 0;
  friend auto operator<=>(const EdgeId&, const EdgeId&) = default;
};

/// Everything about a layer that does not depend on the micro-batch.
struct LayerState {
  std::vector<WorkId> works;
  std::vector<Edge> edges;
  TensorLayout layout;
  [[nodiscard]] const std::vector<Cell>& cells() const { return layout.cells(); }
  std::vector<std::int32_t> canonical;  ///< first cell with the same part on the same device
  std::vector<std::int32_t> additions;  ///< by canonical cell: what adds to its gradient
  Together together;                    ///< what of this layer's gradient returns together
  std::vector<EdgeId> edges_together;   ///< its edges; empty: every edge returns by itself
  bool partial_sums = false;            ///< the contraction is cut
  std::vector<OpId> last_backward;      ///< by cell: the last kernel that added to weight gradients
};

/// Contributions of other devices that have arrived in a store of their own. The receiver adds them
/// to its gradient when it needs it: in its own stream, so that no two additions run into each
/// other.
struct Received {
  Slice from;
  Region region;
  std::vector<OpId> after;
};

/// What has been issued of a layer for one micro-batch.
struct MicroBatchState {
  std::vector<OpId> ready;     ///< by cell: the operation after which its part is there
  std::vector<OpId> arrivals;  ///< by arrival; invalid until somebody asks
  std::map<std::size_t, std::vector<OpId>> legs;  ///< by arrival that is a scatter_gather
  std::vector<std::vector<Received>> received;    ///< by canonical cell, not yet added
  std::vector<std::vector<OpId>> gradients;  ///< by canonical cell: what completes its gradient
  /// By edge of Together: its reader's kernels by cell, until the last one is there.
  std::map<EdgeId, std::vector<OpId>> contributions;
};

class Lowering {
 public:
  Lowering(const Network& network, const Cluster& cluster, const Plan& plan);
  [[nodiscard]] ExecDag run();

 private:
  void analyse();
  void analyse_edges(LayerId id);
  void analyse_returns(LayerId id, const std::vector<Consumer>& readers);
  [[nodiscard]] std::vector<Need> needs_of(EdgeId edge) const;
  void emit(const Slot& slot);
  void emit_forward(LayerId id, std::int32_t m, Pass pass);
  void await_departures(LayerId id, std::int32_t cell, std::int32_t m, std::vector<OpId>& after);
  void await_repeated_sums(LayerId id, std::size_t cell, std::int32_t m, std::vector<OpId>& after);
  void emit_partial_sum_reduction(LayerId id, std::int32_t m);
  void emit_backward(LayerId id, std::int32_t m);
  void emit_received(LayerId id, std::size_t cell, std::int32_t m);
  void emit_return(EdgeId edge, std::int32_t m, const std::vector<OpId>& by_cell);
  void emit_together(LayerId producer, std::int32_t m);
  void emit_movements(LayerId producer, EdgeId edge, const GradientReturn& back, std::int32_t m,
                      const std::map<DeviceId, std::vector<OpId>>& contributed);
  /// The transfers of a scatter_gather, appended to `legs`, then, with several members, the
  /// all-gather. `after` tells what a leg waits for. Returns what must end until all of `gathered`
  /// is there.
  std::vector<OpId> emit_scatter_gather(const Movement& movement, const Slice& sent,
                                        const Slice& gathered, bool add, Stream stream,
                                        const std::function<std::vector<OpId>(const Leg&)>& after,
                                        std::vector<OpId>& legs);
  OpId arrival(LayerId id, std::size_t index, std::int32_t m, LayerId reader);
  [[nodiscard]] std::vector<OpId> operands(LayerId id, std::size_t cell, std::int32_t m);
  void analyse_shards(std::size_t group);
  [[nodiscard]] std::vector<WeightGather> gathers(std::int32_t stage,
                                                  const std::vector<Turn>& turns);
  [[nodiscard]] std::vector<GradientRoom> rooms(const std::vector<Turn>& turns) const;
  void emit_gather(const WeightGather& gather);
  /// Whether every micro-batch's gradients are scattered, and shares of them add up.
  [[nodiscard]] bool adds_shares(std::size_t group) const {
    return groups_[group].zero_stage >= 2 && plan_.schedule.micro_batches > 1 &&
           scatters_each_micro_batch_;
  }
  /// Before a micro-batch's way back: its gradients come after the scattering of the last one's.
  void begin_backward();
  /// Adds what a kernel must wait for because its gradients have no room yet, and drops what the
  /// last micro-batch left there.
  void await_room(LayerId id, DeviceId device, std::vector<OpId>& after);
  /// Adds what a kernel must wait for because its weights are gathered.
  void await_weights(LayerId id, DeviceId device, std::vector<OpId>& after);
  void used_weights(LayerId id, DeviceId device, OpId op);
  void emit_sync(std::size_t group);
  void finish();
  void emit_server_return(std::size_t group);

  /// With blocking sends, adds what a movement between stages waits for besides its operands: its
  /// devices' last movement, and the last kernel of those that receive. (DeepSpeed's pipeline
  /// engine sends and receives by blocking calls, one after another:
  /// deepspeed/runtime/pipe/p2p.py.)
  void await_turn(Stream stream, const Movement& movement, std::vector<OpId>& after) const;
  void took_turn(Stream stream, const Movement& movement, OpId op);
  /// Adds what a kernel must wait for because its device sends.
  void await_sent(DeviceId device, std::vector<OpId>& after);

  [[nodiscard]] bool is_source(LayerId id) const { return flow_.source[id.index()]; }
  /// Between stages, values (or gradients, if `back`) have a stream of their own.
  [[nodiscard]] Stream stream_between(LayerId a, LayerId b, bool back) const {
    const auto& stage = plan_.schedule.stage_of_layer;
    if (stage[a.index()] == stage[b.index()]) return Stream::tensor;
    return back ? Stream::pipeline_back : Stream::pipeline;
  }
  [[nodiscard]] bool blocks(Stream stream) const {
    return plan_.schedule.blocking_sends &&
           (stream == Stream::pipeline || stream == Stream::pipeline_back);
  }
  [[nodiscard]] MicroBatchState& at(LayerId id, std::int32_t m) {
    return micro_[id.index()][static_cast<std::size_t>(m)];
  }
  [[nodiscard]] Slice slice(TensorId tensor, Role role, std::int32_t m, const Region& region) {
    return {tensor, role, m, dag_.intern(region)};
  }
  [[nodiscard]] TensorId output(LayerId id) {
    return dag_.intern(Tensor{Tensor::Kind::output, id.value, -1});
  }

  const Network& network_;
  const Cluster& cluster_;
  const Plan& plan_;
  std::int64_t samples_;
  GradientFlow flow_;
  std::vector<bool> dropped_;
  bool scatters_each_micro_batch_;
  ExecDag dag_;
  std::vector<LayerState> layers_;
  std::vector<std::vector<MicroBatchState>> micro_;  ///< by layer, micro-batch
  std::vector<std::vector<LayerId>> stage_layers_;
  std::vector<SyncGroup> groups_;
  std::vector<std::vector<std::size_t>> groups_of_layer_;
  struct GroupState {
    std::int64_t backward_of_all = 0;  ///< layers' backward passes until its gradients are summed
    std::int64_t backward_left = 0;
    TensorId bucket;
    /// By device of the group, then of its mirrors; or pushes to the server.
    std::vector<OpId> summed;
    std::vector<OpId> mirrors_done;  ///< by mirror: its last kernel that adds to the gradients
    Shares shares;                   ///< of the bucket, if states are split
    OpId gathered;                   ///< its weights for the last time, if they are split
    std::set<DeviceId> waited;       ///< whose kernels come after that
    OpId room;                   ///< the scattering that makes room for its gradients, if they wait
    std::set<DeviceId> entered;  ///< whose kernels come after that
    std::map<DeviceId, OpId> last_use;  ///< the last kernel that read the weights
    bool returned = false;
  };
  std::vector<GroupState> group_states_;
  /// With blocking sends, by device: the last kernel and movement so far, and what it still sends.
  std::map<DeviceId, OpId> last_kernel_, last_movement_;
  std::map<DeviceId, std::vector<OpId>> sending_;
  std::vector<std::vector<std::size_t>> split_weights_;  ///< by layer: groups
  /// Groups with split weights, and with split gradients, that take room from each other.
  std::vector<std::vector<std::size_t>> gathered_together_, filled_together_;
  /// By stage and place in gathered_together_: groups in memory.
  std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::size_t>> gathered_;
};

}  // namespace parsim
