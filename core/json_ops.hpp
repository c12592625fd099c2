// The operations of a DAG as JSON. Private to core/json_*.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/json_reader.hpp"
#include "core/json_writer.hpp"

namespace parsim::json {

inline constexpr Limits device_number{0, (1 << 24) - 1};

/// How many entries the tables of a DAG have, which bounds the numbers that refer to them.
struct TableSizes {
  const Network* network = nullptr;  ///< unknown where a schema is written
  std::size_t regions = unknown, tensors = unknown, buckets = unknown, works = unknown,
              slices = unknown, groups = unknown, shares = unknown;
  static constexpr std::size_t unknown = std::size_t{1} << 31;
};

/// An operation as in the file; see OpRecord.
struct OpEntry {
  const TableSizes* sizes = nullptr;
  std::size_t earlier = TableSizes::unknown;  ///< operations before it
  OpKind kind = OpKind::compute;
  Pass pass{};
  LocalKind local{};
  CollectiveKind collective{};
  Stream stream{};
  DeviceId device, to;
  std::int32_t what = -1, target = -1, micro_batch = 0;
  std::int32_t group = -1, shares = -1;
  bool add = false;
  std::int64_t bytes = 0;
  std::int64_t picoseconds = 0;
  std::vector<OpId> after;
};
void put_special(Writer& out, const OpEntry& entry);
void get_special(const Node& node, OpEntry& entry);
void put_special_schema(Writer& out, const OpEntry& entry);
[[nodiscard]] OpEntry entry_of(const ExecDag& dag, OpId id);

/// The box that every slice of its tensor and role lies in; the sample axis spans the batch. Not
/// for buckets.
[[nodiscard]] Region whole_slice(const ExecDag& dag, const Slice& slice);
[[nodiscard]] Region whole_parameter(const Parameter& parameter);
/// Volume without overflow.
[[nodiscard]] double elements(const Region& region);
/// Largest number of elements of a tensor's whole: keeps sums over it far from overflow. The
/// largest real ones have about 2^38.
inline constexpr double most_elements = 0x1p44;
/// Refuses `node`, which names `region`, unless it has the rank of `whole` and lies inside.
void check_inside(const Node& node, const Region& region, const Region& whole);

/// Appends operations to a DAG whose tables are complete.
class OpReader {
 public:
  /// The file's tables by position; all three must outlive the reader.
  OpReader(const std::vector<Slice>& slices, const std::vector<Shares>& shares,
           const TableSizes& sizes);
  void read(const Node& node, ExecDag& dag);

 private:
  /// Refuses `target` unless it has the region of `slice`, and the contents if one is a bucket.
  static void check_alike(const Node& target, const Slice& slice, const Slice& to,
                          const ExecDag& dag);
  [[nodiscard]] OpId add(const Node& node, ExecDag& dag) const;
  [[nodiscard]] OpId add_collective(const Node& node, ExecDag& dag) const;
  [[nodiscard]] const Slice& slice(std::int32_t position) const {
    return (*slices_)[static_cast<std::size_t>(position)];
  }
  /// Refuses shares that ExecDag::add cannot make sense of.
  static void check_shares(const Node& node, const Collective& op, const Shares& used,
                           const ExecDag& dag);

  const std::vector<Slice>* slices_;
  const std::vector<Shares>* shares_;
  OpEntry entry_;     ///< the one being read; its list of operations before keeps its memory
  double bytes_ = 0;  ///< upper bound of what all operations so far move and touch
};

}  // namespace parsim::json
