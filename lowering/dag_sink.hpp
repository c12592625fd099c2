// The sink of the walk that makes the DAG: an operation is an entry of the table. Private to
// lowering/.
#pragma once

#include <utility>
#include <vector>

#include "core/exec_dag.hpp"
#include "lowering/rank_fold.hpp"
#include "lowering/walk.hpp"

namespace parsim::lowering {

class DagSink {
 public:
  using Op = OpId;
  using When = OpId;
  using After = std::vector<OpId>;
  static constexpr Op never{};
  static constexpr When not_yet{};
  static constexpr bool lets_go = true;
  static Op later(Op a, Op b) { return std::max(a, b); }
  static When done(Op op) { return op; }
  static After nothing() { return {}; }
  static bool none(const After& after) { return after.empty(); }
  static void add(After& after, When when) {
    if (when.valid()) after.push_back(when);
  }
  static void merge(After& after, const After& more) {
    after.insert(after.end(), more.begin(), more.end());
  }

  /// ranks   not null: equal ones are folded, where the plan has some
  explicit DagSink(ExecDag& dag, const RankSearch* ranks = nullptr)
      : dag_(dag), ranks_(ranks), operations_(dag) {}
  static bool worth_walking(const PlanFragments&) { return true; }
  /// Ranks that were to be folded are not equal.
  [[nodiscard]] bool gives_up() const { return operations_.failed(); }
  /// After the last operation: that may turn out now.
  void end() { operations_.end(); }
  /// How many these are.
  [[nodiscard]] const RankFold& folding() const { return operations_; }
  /// Interns what the operations refer to. Throws InputError for a layer with more resharded
  /// operands than an operation can name.
  void begin(const PlanFragments& parts);

  Op kernel(LayerId id, std::size_t cell, Pass pass, std::int32_t m, After& after);
  // Of ring attention: kernels of a member with a block, blocks of keys or values (operand 0 or 1)
  // to the next member, their gradients after the member's part is added; at home they are added to
  // its own.
  Op ring_kernel(LayerId id, const Ring& ring, std::size_t member, std::size_t block, Pass pass,
                 std::int32_t m, After& after);
  Op ring_send(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
               std::size_t operand, std::int32_t m, After& after);
  Op ring_return(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
                 std::size_t operand, std::int32_t m, After& after);
  Op ring_add(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
              std::size_t operand, std::int32_t m, After& after);
  Op ring_home(LayerId id, const Ring& ring, std::size_t member, std::size_t operand,
               std::int32_t m, After& after);
  // Of products in chunks: kernels; parts of an all-gather to the next member; partial sums to
  // whose chunk it is, which adds its own; gradients of the sums, of which it has a part.
  Op chunk_kernel(LayerId id, std::size_t cell, std::size_t chunk, Pass pass, std::int32_t m,
                  After& after);
  Op arrive_part(LayerId id, const FanOut::Arrival& arrival, std::size_t member, std::size_t part,
                 std::int32_t m, After& after);
  Op scatter_chunk(LayerId id, const ScatteredChunks& how, std::size_t cell, std::size_t chunk,
                   bool add, std::int32_t m, After& after);
  Op keep_chunk(LayerId id, const ScatteredChunks& how, std::size_t chunk, std::int32_t m,
                After& after);
  Op return_part(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t member,
                 std::size_t part, std::int32_t m, After& after);
  Op keep_part(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t member,
               std::int32_t m, After& after);
  Op sum_parts(LayerId id, const LayerFragment::Sum& sum, const FanOut::PartsSum& how,
               std::int32_t m, After& after);
  Op arrive(LayerId id, const FanOut::Arrival& arrival, std::int32_t m, Stream stream,
            After& after);
  Op arrive_leg(LayerId id, const FanOut::Arrival& arrival, std::size_t leg, std::int32_t m,
                Stream stream, After& after);
  Op add_received(LayerId id, Consumer edge, const FanOut::Store& store, std::int32_t m,
                  DeviceId device, const After& after);
  Op add_jointly(Consumer from, Consumer to, const FanOut::Joint::Addition& addition,
                 std::int32_t m, After& after);
  Op move_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m, Stream stream,
               After& after);
  Op sum_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m, After after);
  Op leg_home(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t leg, std::int32_t m,
              Stream stream, After& after);
  Op gather_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m,
                 After& after);
  void drop_gradients(std::size_t s, DeviceId device, After& after);
  Op gather_weights(std::size_t s, std::size_t zero_group, After& after);
  /// so_far   of this micro-batch and those before it, and there are more
  /// part     of SyncGroup::apart, if those are summed first
  Op sum(std::size_t s, std::size_t part, bool so_far, After& after);
  Op scatter_sum(std::size_t s, std::size_t zero_group, bool adds_shares, After& after);
  Op sum_replicas(std::size_t s, std::size_t rank, bool adds_shares, bool so_far, After& after);
  Op send_sum(std::size_t s, std::size_t mirror, After& after);
  Op push(std::size_t s, std::size_t holder, After after);
  Op server_update(std::size_t s, After& after);
  void pull(std::size_t s, std::size_t holder, After& after);
  Op copy_share(std::size_t s, std::size_t holder, After& after);
  Op update(std::size_t s, std::size_t holder, After& after);

 private:
  /// Each operation once, in order of issue.
  static const std::vector<OpId>& once(After& after);
  [[nodiscard]] const SyncGroup& group(std::size_t s) const { return parts_->sums[s]->group; }
  [[nodiscard]] bool sharded(std::size_t s) const { return group(s).zero_stage > 0; }
  [[nodiscard]] Slice slice(TensorId tensor, Role role, std::int32_t m, const Region& region) {
    return {tensor, role, m, dag_.intern(region)};
  }
  [[nodiscard]] TensorId output(LayerId id) {
    return dag_.intern(Tensor{Tensor::Kind::output, id.value, -1});
  }
  [[nodiscard]] TensorId store(Consumer edge) {
    return dag_.intern(
        Tensor{Tensor::Kind::edge, edge.layer.value, static_cast<std::int32_t>(edge.input)});
  }
  [[nodiscard]] Slice of_bucket(std::size_t s, Role role) const {
    return {buckets_[s], role, 0, {}};
  }
  /// Of a device's share of the states; everything if they are not sharded.
  [[nodiscard]] Slice share(std::size_t s, std::size_t holder, Role role) const {
    if (!sharded(s)) return of_bucket(s, role);
    return {buckets_[s], role, 0, shares_[s].regions[group(s).seats[holder].rank]};
  }
  [[nodiscard]] Shares shares_of(const Movement& movement);
  [[nodiscard]] Region chunk_region(LayerId id, std::size_t cell, std::size_t chunk) const {
    const LayerFragment& layer = *parts_->layers[id.index()];
    return part_of_chunk(layer.cells[cell], layer.chunks[cell].tokens[chunk]).out;
  }
  /// Of a cell with a chunk of its product, or with a block of keys and values of its ring; not
  /// valid before the first kernel. The same in all micro-batches and passes, so that what is known
  /// of a work, such as its times, need not be found again.
  [[nodiscard]] WorkId& work_of(LayerId id, std::size_t cell, std::size_t part) {
    std::vector<std::vector<WorkId>>& cells = works_in_parts_[id.index()];
    if (cells.empty()) cells.resize(parts_->layers[id.index()]->cells.size());
    if (cells[cell].size() <= part) cells[cell].resize(part + 1);
    return cells[cell][part];
  }
  /// What a return moves, and where to.
  struct Ways {
    Slice from, to;
  };
  [[nodiscard]] Ways ways(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m);

  ExecDag& dag_;
  const RankSearch* ranks_;
  RankFold operations_;
  const PlanFragments* parts_ = nullptr;
  std::vector<std::vector<WorkId>> works_;                        ///< by layer, cell
  std::vector<std::vector<std::vector<WorkId>>> works_in_parts_;  ///< by layer, cell, part
  std::vector<TensorId> buckets_;                                 ///< by sum
  std::vector<Shares> shares_;  ///< of the bucket, if states are sharded
};

}  // namespace parsim::lowering
