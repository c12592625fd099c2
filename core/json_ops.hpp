// The operations of a DAG as JSON. Private to core/json_*.cpp.
#pragma once

#include <span>

#include "core/exec_dag.hpp"
#include "core/json_reader.hpp"
#include "core/json_writer.hpp"

namespace parsim::json {

inline constexpr Limits device_number{0, (1 << 24) - 1};

/// The box that every slice of the tensor lies in; the sample axis spans the batch. Not for
/// buckets.
[[nodiscard]] Region whole_tensor(const ExecDag& dag, const Tensor& tensor);
[[nodiscard]] Region whole_parameter(const Parameter& parameter);
/// Volume without overflow.
[[nodiscard]] double elements(const Region& region);
/// Largest number of elements of a tensor's whole: keeps sums over it far from overflow. The
/// largest real ones have about 2^38.
inline constexpr double most_elements = 0x1p44;
/// Refuses `node`, which names `region`, unless it has the rank of `whole` and lies inside.
void check_inside(const Node& node, const Region& region, const Region& whole);

/// {"op": "transfer", "from": 0, "to": 1, "slice": 3, …, "bytes": 4096, "after": [1, 2]}
void put_op(Writer& out, const ExecDag& dag, OpId id);

/// Appends operations to a DAG whose tables are complete.
class OpReader {
 public:
  /// The file's tables by position; both vectors must outlive the reader.
  OpReader(const std::vector<Slice>& slices, const std::vector<Shares>& shares, std::size_t works,
           std::size_t groups);
  void read(const Node& node, ExecDag& dag);

 private:
  /// Refuses `target` unless it has the region of `slice`, and the contents if one is a bucket.
  static void check_alike(const Node& target, const Slice& slice, const Slice& to,
                          const ExecDag& dag);
  [[nodiscard]] OpId add(OpKind kind, const Node& node, std::span<const OpId> after,
                         ExecDag& dag) const;
  [[nodiscard]] OpId add_collective(const Node& node, std::span<const OpId> after,
                                    ExecDag& dag) const;
  [[nodiscard]] const Slice& slice(const Node& node) const;
  [[nodiscard]] static Stream stream(const Node& node);
  /// Refuses shares that ExecDag::add cannot make sense of.
  static void check_shares(const Node& node, const Collective& op, const Shares& used,
                           const ExecDag& dag);

  const std::vector<Slice>* slices_;
  const std::vector<Shares>* shares_;
  std::size_t works_, groups_;
  double bytes_ = 0;  ///< upper bound of what all operations so far move and touch
};

}  // namespace parsim::json
