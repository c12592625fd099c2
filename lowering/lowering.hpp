// The class behind lower(), private to lowering/lower*.cpp. It first analyses what does not depend
// on the micro-batch, then emits the schedule slot by slot, then the rest of the synchronisation.
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
#include "lowering/sync.hpp"
#include "lowering/zero_schedule.hpp"

namespace parsim::lowering {

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
  JointReturn joint;                    ///< what several readers of this layer return together
  std::vector<EdgeId> joint_edges;      ///< its edges; empty: every edge returns by itself
  bool partial_sums = false;            ///< the contraction is cut
  std::vector<OpId> last_backward;      ///< by cell: the last kernel that added to weight gradients
};

/// Contributions of other devices that have arrived in a receive buffer. The receiver adds them to
/// its gradient when it needs it, in its own compute stream, so that two additions never race.
struct Received {
  Slice from;
  Region region;
  std::vector<OpId> after;
};

/// What has been issued of a layer for one micro-batch.
struct MicroBatchState {
  std::vector<OpId> ready;     ///< by cell: the operation that completes its part
  std::vector<OpId> arrivals;  ///< by arrival; invalid until a reader needs it
  std::map<std::size_t, std::vector<OpId>> legs;  ///< by arrival that is a scatter_gather
  std::vector<std::vector<Received>> received;    ///< by canonical cell, not yet added
  std::vector<std::vector<OpId>> gradients;  ///< by canonical cell: what completes its gradient
  /// By edge of a joint return: its reader's kernels by cell, until all edges have theirs.
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
  void emit_joint_return(LayerId producer, std::int32_t m);
  void emit_movements(LayerId producer, EdgeId edge, const GradientReturn& back, std::int32_t m,
                      const std::map<DeviceId, std::vector<OpId>>& contributed);
  /// The transfers of a scatter_gather, appended to `legs`, then, with several members, the
  /// all-gather. `after` returns the operations that a leg waits for. Returns the operations after
  /// which all of `gathered` is present.
  std::vector<OpId> emit_scatter_gather(const Movement& movement, const Slice& sent,
                                        const Slice& gathered, bool add, Stream stream,
                                        const std::function<std::vector<OpId>(const Leg&)>& after,
                                        std::vector<OpId>& legs);
  OpId arrival(LayerId id, std::size_t index, std::int32_t m, LayerId reader);
  [[nodiscard]] std::vector<OpId> operands(LayerId id, std::size_t cell, std::int32_t m);
  void analyse_shards(std::size_t group);
  [[nodiscard]] std::vector<WeightGather> gathers(std::int32_t stage,
                                                  const std::vector<LayerVisit>& visits);
  [[nodiscard]] std::vector<GradientBufferReuse> buffer_reuses(
      const std::vector<LayerVisit>& visits) const;
  void emit_gather(const WeightGather& gather);
  /// Whether every micro-batch's gradients are scattered, and shares of them add up.
  [[nodiscard]] bool adds_shares(std::size_t group) const {
    return groups_[group].zero_stage >= 2 && plan_.schedule.micro_batches > 1 &&
           scatters_each_micro_batch_;
  }
  /// Before a micro-batch's backward pass: its gradients wait until those of the micro-batch before
  /// it are reduce-scattered.
  void begin_backward();
  /// Adds the reduce-scatter that a kernel must wait for to reuse a gradient buffer, and drops what
  /// the last micro-batch left in it.
  void await_gradient_buffer(LayerId id, DeviceId device, std::vector<OpId>& after);
  /// Adds the all-gather of weights that a kernel must wait for.
  void await_weights(LayerId id, DeviceId device, std::vector<OpId>& after);
  void used_weights(LayerId id, DeviceId device, OpId op);
  void emit_sync(std::size_t group);
  void finish();
  void emit_server_return(std::size_t group);

  /// With blocking sends, adds what a movement between stages waits for besides its operands: the
  /// last movement of its devices and the last kernel of the receivers. (DeepSpeed's pipeline
  /// engine uses blocking send and receive calls: deepspeed/runtime/pipe/p2p.py.)
  void await_blocking_sends(Stream stream, const Movement& movement,
                            std::vector<OpId>& after) const;
  void record_movement(Stream stream, const Movement& movement, OpId op);
  /// With blocking sends, adds the sends of its device that a kernel waits for.
  void await_sent(DeviceId device, std::vector<OpId>& after);

  [[nodiscard]] bool is_source(LayerId id) const { return flow_.source[id.index()]; }
  /// The stream of values (or gradients, if `back`) between two layers: between stages a stream of
  /// its own.
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
    Shares shares;                   ///< of the bucket, if states are sharded
    OpId gathered;                   ///< the last all-gather of its weights, if they are sharded
    std::set<DeviceId> waited;       ///< devices whose kernels wait for `gathered`
    OpId buffer_free;  ///< the reduce-scatter that frees the buffer for its gradients, if they wait
    std::set<DeviceId> buffer_waited;   ///< devices whose kernels wait for `buffer_free`
    std::map<DeviceId, OpId> last_use;  ///< the last kernel that read the weights
    bool returned = false;
  };
  std::vector<GroupState> group_states_;
  /// With blocking sends, by device: the last kernel, the last movement, and the pending sends.
  std::map<DeviceId, OpId> last_kernel_, last_movement_;
  std::map<DeviceId, std::vector<OpId>> sending_;
  std::vector<std::vector<std::size_t>> split_weights_;  ///< by layer: groups
  /// Groups with sharded weights, and with sharded gradients, by set of devices.
  std::vector<std::vector<std::size_t>> weight_sharding_groups_, gradient_sharding_groups_;
  /// By stage and index in weight_sharding_groups_: units in memory.
  std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::size_t>> gathered_;
};

}  // namespace parsim::lowering
