// The execution DAG: what is computed, moved and reduced, on which device and stream, after what.
// It carries the layers it refers to, so that an engine needs nothing else to run it: SimGrid gives
// it durations, CUDA gives it numbers. A table of small records, because clusters of thousands of
// devices make millions of operations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/ids.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim {

/// What a tensor of the DAG is.
///
///     output     the output of `layer` (values and gradients of it)
///     edge       the gradient that `layer` contributes to its operand `input` (partial sums)
///     parameter  one learned tensor
///     bucket     several (parameter, region) pairs that travel together, ExecDag::buckets[index]
struct Tensor {
  enum class Kind : std::uint8_t { output, edge, parameter, bucket } kind = Kind::output;
  std::int32_t index = -1;  ///< layer, layer, parameter or bucket
  std::int32_t input = -1;  ///< operand number of an edge
  friend auto operator<=>(const Tensor&, const Tensor&) = default;
};

enum class Role : std::uint8_t {
  activation,  ///< values of an output
  gradient,    ///< of an output: complete, or sums on their way; of an edge: received contributions
  partial_sum,      ///< of an output: forward sums over a part of the contraction; of an edge:
                    ///< contributions
  weight,           ///< values of a parameter or bucket
  weight_gradient,  ///< gradient of a parameter or bucket
  optimizer_state,
};

/// Part of a tensor on some device. Every device has its own store, addressed by these four.
struct Slice {
  TensorId tensor;
  Role role = Role::activation;
  /// 0 for weights, their gradients and states; 1 for what of gradients is summed over devices
  /// already, where every micro-batch's are.
  std::int32_t micro_batch = 0;
  /// Of a bucket: a range of its elements, one part after the other, each in row-major order;
  /// invalid: all.
  RegionId region;
  friend bool operator==(const Slice&, const Slice&) = default;
};

enum class Pass : std::uint8_t {
  forward,
  backward,          ///< all of backward in one kernel: input gradients and weight gradients
  backward_data,     ///< input gradients only
  backward_weights,  ///< weight gradients only
  recompute,         ///< forward again, because the output was dropped
};

/// What a Compute works on: a part of a layer. Operand regions follow from the layer
/// (core/layers.hpp).
struct Work {
  LayerId layer;
  RegionId out;
  std::int32_t contraction_begin = 0, contraction_end = 0;
  /// Role of the input gradients: `gradient` = added straight into the producer's gradient on this
  /// device, `partial_sum` = added into the edge's own store, because they must travel. One bit per
  /// operand.
  std::uint32_t edges_to_partial_sum = 0;
  friend bool operator==(const Work&, const Work&) = default;
};

/// A kernel. What it reads and writes, all on `device`, all for `micro_batch`:
///
///   forward, recompute   reads activation of each operand over input_region, weights over
///                        parameter_region; writes activation of the output over `out` — or, if the
///                        contraction is cut, to its partial_sum: forward ADDS, recompute
///                        OVERWRITES
///   backward_data        reads gradient of the output over `out` (Loss: none, it starts the chain
///                        with 1/batch), the activations again, weights; ADDS over input_region to
///                        each operand's gradient, or to its edge's partial_sum (see Work)
///   backward_weights     reads gradient of the output and activations; ADDS to weight_gradient
///   backward             both, in one kernel
///
/// Every gradient, partial sum and weight gradient store is zero when the step begins. Operands
/// that lead to no parameter (the Input) get no gradient. An Input layer has no operations: its
/// activation is on every device. Update with `sgd`: weight −= rate · weight_gradient.
struct Compute {
  WorkId work;
  Pass pass = Pass::forward;
  DeviceId device;
  std::int32_t micro_batch = 0;
};

/// The optimizer's step on a device: weight −= rate · weight_gradient, over a parameter's region, a
/// bucket or a range of one.
struct Update {
  DeviceId device;
  Slice slice;  ///< role weight
};

enum class LocalKind : std::uint8_t { copy, add, drop };
/// A copy or addition inside one device: `to` = or += `from` over to.region. What is
/// dropped reads as zero for the next addition, but no kernel writes zeros: the memory is freed,
/// and the next gradient is allocated anew, so a drop takes no time.
struct Local {
  LocalKind kind = LocalKind::copy;
  DeviceId device;
  Slice from, to;
};

/// Moves a slice to another device, where it lands in `target`: added if `add`, else overwriting.
/// The regions are equal. From a device to itself: a worker's message to a server on its own
/// device; a copy in time and bytes, but the two share one store, so nothing changes.
struct Transfer {
  DeviceId from, to;
  Slice slice;   ///< read here
  Slice target;  ///< written there
  bool add = false;
};

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all
};
[[nodiscard]] std::string_view to_text(CollectiveKind kind);

/// One operation of all members of a group.
///
///   all_reduce      every member's `slice` is summed; the sum OVERWRITES `target` on every member
///   all_gather      member i holds `slice` over regions[i]; afterwards everybody holds `target`
///   over all reduce_scatter  every member's `slice` over all regions is summed; member i gets the
///   sum over
///                   regions[i] ADDED into `target`
///   broadcast       member 0's `slice` overwrites `target` on the others
///   all_to_all      member i holds `slice` over regions[i] and wants `target` over needs[i]: for
///   every j,
///                   j = i included, needs[i] ∩ regions[j] of j's slice goes to i and overwrites
///                   (role activation) or is ADDED (role gradient)
///
/// Payload: all_reduce, broadcast: bytes of the region or bucket. all_gather, reduce_scatter: bytes
/// of all regions together. all_to_all: bytes that travel between different members.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupId group;
  Slice slice, target;
};

/// Regions by member of an all_gather, reduce_scatter or all_to_all (index into ExecDag::shares).
/// Of a bucket ranges of elements, as in Slice.
struct Shares {
  std::vector<RegionId> regions;
  std::vector<RegionId> needs;  ///< all_to_all only
  friend bool operator==(const Shares&, const Shares&) = default;
};

/// A device that does nothing for a while.
struct Delay {
  DeviceId device;
  Seconds time{};
};

using Op = std::variant<Compute, Update, Local, Transfer, Collective, Delay>;
enum class OpKind : std::uint8_t { compute, update, local, transfer, collective, delay };

/// In-order queues of a device. A pipeline has one for each direction: an activation that is ready
/// must not wait for a gradient that is not. Each stream of communication has a sending and a
/// receiving side that do not wait for each other; a collective occupies both sides on all members.
enum class Stream : std::uint8_t { compute, gradient, tensor, pipeline, pipeline_back };
inline constexpr std::size_t stream_count = 5;
[[nodiscard]] std::string_view to_text(Stream stream);

/// One row of the table; read it through ExecDag::op. 32 bytes.
struct OpRecord {
  std::int64_t payload = 0;  ///< bytes that travel (transfer, collective: see there) or are touched
                             ///< (local, update); Delay: picoseconds
  std::uint32_t first_predecessor = 0;
  std::int32_t device =
      -1;                ///< compute, update, local, delay, transfer (from); group of a collective
  std::int32_t to = -1;  ///< transfer; shares of a collective
  std::int32_t what = -1;  ///< work (compute) or slice
  std::int32_t target =
      -1;  ///< slice written (local, transfer, collective); micro-batch of a compute
  std::uint8_t kind = 0, stream = 0;
  std::uint8_t sub = 0;  ///< pass, local kind, collective kind, add
  friend bool operator==(const OpRecord&, const OpRecord&) = default;
};
static_assert(sizeof(OpRecord) <= 48);

class ExecDag {
 public:
  ExecDag() = default;
  /// Gradients add up in `reduce_precision_`, if absent in the one that stores the weights.
  ExecDag(Network network_, std::int64_t batch_, Precision precision_, Optimizer optimizer_,
          std::optional<Precision> reduce_precision_ = {})
      : network(std::move(network_)),
        batch(batch_),
        precision(precision_),
        reduce_precision(reduce_precision_.value_or(storage_of(precision_))),
        optimizer(optimizer_) {}

  Network network;         ///< the layers the operations refer to
  std::int64_t batch = 0;  ///< global: what the loss is averaged over
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;  ///< of weight gradients
  Optimizer optimizer = Optimizer::momentum;
  std::string strategy, cluster;

  // Interned tables: the id of an equal entry if there is one (for works: among the last ones).
  RegionId intern(const Region& region);
  TensorId intern(const Tensor& tensor);
  WorkId intern(const Work& work);
  GroupId intern(const std::vector<DeviceId>& group);
  std::int32_t intern(const Slice& slice);
  /// Appends a bucket and returns its tensor.
  TensorId add_bucket(std::vector<std::pair<ParameterId, RegionId>> contents);

  /// Makes room for about this many operations and predecessors, so that the tables need not grow
  /// by doubling.
  void reserve(std::size_t operations, std::size_t predecessors);

  /// Appends an operation. `after` lists operations that must end before it starts; they exist
  /// already, so the table is in topological order, and the id order is the issue order on every
  /// stream. Payload bytes follow from the slices. Throws BrokenInvariant for an unknown id.
  OpId add(const Compute& op, std::span<const OpId> after);
  OpId add(const Update& op, std::span<const OpId> after);
  OpId add(const Local& op, std::span<const OpId> after);
  OpId add(const Transfer& op, Stream stream, std::span<const OpId> after);
  OpId add(const Collective& op, const Shares& shares, Stream stream, std::span<const OpId> after);
  OpId add(const Delay& op, std::span<const OpId> after);

  [[nodiscard]] std::size_t size() const { return records_.size(); }
  [[nodiscard]] Op op(OpId id) const;
  [[nodiscard]] OpKind kind(OpId id) const {
    return static_cast<OpKind>(records_[id.index()].kind);
  }
  [[nodiscard]] Stream stream(OpId id) const {
    return static_cast<Stream>(records_[id.index()].stream);
  }
  [[nodiscard]] const OpRecord& record(OpId id) const { return records_[id.index()]; }
  [[nodiscard]] std::span<const OpId> predecessors(OpId id) const;
  /// Bytes as explained at Collective and OpRecord::payload.
  [[nodiscard]] Bytes payload(OpId id) const { return {records_[id.index()].payload}; }
  /// Of what a transfer or collective reads.
  [[nodiscard]] Role role(OpId id) const {
    return slices_[static_cast<std::size_t>(records_[id.index()].what)].role;
  }
  /// Regions by member; empty lists for kinds without.
  [[nodiscard]] const Shares& shares(OpId id) const;

  [[nodiscard]] const Region& region(RegionId id) const { return regions_[id.index()]; }
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors_[id.index()]; }
  [[nodiscard]] Work work(WorkId id) const;
  [[nodiscard]] Part part(WorkId id) const;
  [[nodiscard]] const std::vector<DeviceId>& group(GroupId id) const { return groups_[id.index()]; }
  [[nodiscard]] const std::vector<std::pair<ParameterId, RegionId>>& bucket(
      std::int32_t index) const {
    return buckets_[static_cast<std::size_t>(index)];
  }
  /// The parts of a bucket; of a range of its elements if that is valid, see Slice.
  [[nodiscard]] std::vector<std::pair<ParameterId, Region>> bucket_parts(std::int32_t index,
                                                                         RegionId range) const;
  /// Bytes of an element of a tensor in this role.
  [[nodiscard]] std::int64_t element_bytes(Role role) const {
    return parsim::element_bytes(role == Role::weight_gradient ? reduce_precision : precision);
  }
  /// Elements of a slice: its region's volume, or the sum over a bucket.
  [[nodiscard]] std::int64_t elements(const Slice& slice) const;
  /// Memory the table takes, for the benchmark that prints bytes per operation.
  [[nodiscard]] std::size_t bytes_in_memory() const;

  friend bool operator==(const ExecDag& a, const ExecDag& b);

  /// Plain access for JSON (core/json.cpp).
  struct Tables;
  [[nodiscard]] Tables tables() const;
  static ExecDag from_tables(Tables tables);

 private:
  OpId append(OpRecord record, std::span<const OpId> after);

  std::vector<OpRecord> records_;
  std::vector<OpId> predecessors_;
  std::vector<Region> regions_;
  std::vector<Tensor> tensors_;
  /// A Work in 16 bytes: there is one for nearly every third operation.
  struct CompactWork {
    LayerId layer;
    RegionId out;
    std::int32_t contraction = -1;  ///< index into contractions_
    std::uint32_t edges_to_partial_sum = 0;
    friend bool operator==(const CompactWork&, const CompactWork&) = default;
  };
  [[nodiscard]] CompactWork compact(const Work& work);
  std::vector<CompactWork> works_;
  std::vector<Interval> contractions_;  ///< few: one for each share of a cut contraction
  std::vector<Slice> slices_;
  std::vector<std::vector<DeviceId>> groups_;
  std::vector<std::vector<std::pair<ParameterId, RegionId>>> buckets_;
  std::vector<Shares> shares_;
  // Lookup for interning; not part of the value.
  struct Hash {
    std::size_t operator()(const Region& v) const noexcept;
    std::size_t operator()(const Tensor& v) const noexcept;
    std::size_t operator()(const Slice& v) const noexcept;
    std::size_t operator()(const std::vector<DeviceId>& v) const noexcept;
  };
  std::unordered_map<Region, std::int32_t, Hash> region_index_;
  std::unordered_map<Tensor, std::int32_t, Hash> tensor_index_;
  std::unordered_map<Slice, std::int32_t, Hash> slice_index_;
  std::unordered_map<std::vector<DeviceId>, std::int32_t, Hash> group_index_;
};

/// The tables of a DAG as plain vectors.
struct ExecDag::Tables {
  Network network;
  std::int64_t batch = 0;
  Precision precision = Precision::fp32, reduce_precision = Precision::fp32;
  Optimizer optimizer = Optimizer::momentum;
  std::string strategy, cluster;
  std::vector<OpRecord> records;
  std::vector<OpId> predecessors;
  std::vector<Region> regions;
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  std::vector<Slice> slices;
  std::vector<std::vector<DeviceId>> groups;
  std::vector<std::vector<std::pair<ParameterId, RegionId>>> buckets;
  std::vector<Shares> shares;
};

/// Payload bytes that devices receive when the operation runs, independent of algorithm and
/// fidelity: transfer: payload; all_reduce 2(n−1)·S; all_gather, reduce_scatter (n−1)·S over all
/// regions' bytes S; broadcast (n−1)·S; all_to_all: what travels. Others 0.
[[nodiscard]] Bytes bytes_received(const ExecDag& dag, OpId id);
/// Sum of bytes_received over the DAG: the `bytes_moved` of reports.
[[nodiscard]] Bytes bytes_moved(const ExecDag& dag);
/// Point-to-point messages when collectives run as rings: transfer 1, all_reduce 2n(n−1),
/// all_gather and reduce_scatter n(n−1), broadcast n−1, all_to_all: the non-empty pairs.
[[nodiscard]] std::int64_t messages(const ExecDag& dag);

/// Where an operation waits for its turn: queue `2·(stream) + side` of a device, side 0 = compute
/// or sending, 1 = receiving.
struct Queue {
  DeviceId device;
  std::int32_t queue = 0;
  friend auto operator<=>(const Queue&, const Queue&) = default;
};
inline constexpr std::int32_t queues_per_device = 2 * static_cast<std::int32_t>(stream_count);
/// The queues an operation occupies from start to end: one for compute, update, local and delay;
/// sender's and receiver's for a transfer; both sides of every member for a collective.
void queues(const ExecDag& dag, OpId id, std::vector<Queue>& out);

}  // namespace parsim
