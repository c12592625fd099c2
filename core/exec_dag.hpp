// The execution DAG: what is computed, moved and reduced, on which device and stream, after what.
// It carries the layers it refers to, so that an engine needs nothing else to run it: SimGrid gives
// it durations, CUDA gives it numbers. A table of small records, because clusters of thousands of
// devices make millions of operations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/alike_units.hpp"
#include "core/ids.hpp"
#include "core/machine_reads.hpp"
#include "core/network.hpp"
#include "core/op.hpp"
#include "core/plan.hpp"

namespace parsim {

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
static_assert(sizeof(OpRecord) == 32);

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
  /// Whose operations are there. A folded DAG never leaves the process: files and hardware get a
  /// whole one.
  Fold fold{};
  /// Of the machines whose devices read samples, even if folded, each kind once; not in files.
  std::vector<MachineReads> reads{};

  // Interned tables: the id of an equal entry if there is one (for works: among the last ones).
  RegionId intern(const Region& region);
  TensorId intern(const Tensor& tensor);
  WorkId intern(const Work& work);
  GroupId intern(const std::vector<DeviceId>& group);
  std::int32_t intern(const Slice& slice);
  /// Appends a bucket and returns its tensor.
  TensorId add_bucket(std::vector<std::pair<ParameterId, RegionId>> contents);

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
  /// Equal operations that this one stands for: 1, or in a folded DAG one in each unit and rank.
  [[nodiscard]] std::int64_t count(OpId id) const;
  /// Whether each unit of a class of a folded DAG has such an operation, of which only the kept
  /// unit's is there, and how many units that are, else 1.
  [[nodiscard]] bool in_each_unit(OpId id) const;
  [[nodiscard]] std::int64_t units(OpId id) const;
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
  /// What of a Work few works have.
  struct Contraction {
    Interval share;
    std::int32_t zigzag = 0, class_parts = 0, class_part = 0;
    friend bool operator==(const Contraction&, const Contraction&) = default;
  };
  /// Few: one for each share of a cut contraction, and of tokens in zigzag order.
  std::vector<Contraction> contractions_;
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

}  // namespace parsim
