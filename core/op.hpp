// The operations of an execution DAG: what each reads, writes and adds, on which device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "core/ids.hpp"
#include "core/spelling.hpp"
#include "core/units.hpp"

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
constexpr std::array<std::string_view, 4> spellings(Tensor::Kind) {
  return {"output", "edge", "parameter", "bucket"};
}

enum class Role : std::uint8_t {
  activation,  ///< values of an output
  gradient,    ///< of an output: complete, or sums on their way; of an edge: received contributions
  partial_sum,      ///< of an output: forward sums over a part of the contraction; of an edge:
                    ///< contributions
  weight,           ///< values of a parameter or bucket
  weight_gradient,  ///< gradient of a parameter or bucket
  optimizer_state,
  statistics,  ///< of the output of a Loss whose classes are cut: see loss_statistics
};
constexpr std::array<std::string_view, 7> spellings(Role) {
  return {"activation",      "gradient",        "partial-sum", "weight",
          "weight-gradient", "optimizer-state", "statistics"};
}

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
constexpr std::array<std::string_view, 5> spellings(Pass) {
  return {"forward", "backward", "backward-data", "backward-weights", "recompute"};
}

/// What a Compute works on: a part of a layer. Operand regions follow from it (core/layers.hpp).
struct Work {
  LayerId layer;
  RegionId out;
  std::int32_t contraction_begin = 0, contraction_end = 0;
  /// Role of the input gradients: `gradient` = added straight into the producer's gradient on this
  /// device, `partial_sum` = added into the edge's own store, because they must travel. One bit per
  /// operand.
  std::uint32_t edges_to_partial_sum = 0;
  std::int32_t zigzag = 0;  ///< as in Part
  /// Of a Loss whose contraction is cut: into how many parts, and which one this is.
  std::int32_t class_parts = 0, class_part = 0;
  friend bool operator==(const Work&, const Work&) = default;
};

/// A kernel. What it reads and writes, all on `device`, all for `micro_batch`:
///
///   forward, recompute   reads activation of each operand over input_region, weights over
///                        parameter_region; writes activation of the output over `out` — or, if the
///                        contraction is cut, to its partial_sum: forward ADDS, recompute
///                        OVERWRITES. Attention with a share of the keys leaves what all shares so
///                        far give, and backward has the gradients of that share alone. A Loss with
///                        a share of the classes writes its statistics instead
///   backward_data        reads gradient of the output over `out`, and weights (only layers that
///                        are linear in their operand have this pass); ADDS over input_region to
///                        each operand's gradient, or to its edge's partial_sum (see Work)
///   backward_weights     reads gradient of the output and activations; ADDS to weight_gradient
///   backward             both, in one kernel; the Loss starts the chain with 1/batch, with a share
///                        of the classes it reads all statistics and writes its output, too
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

/// The optimizer's step: weight −= rate · weight_gradient, over a parameter's region or a bucket's.
struct Update {
  DeviceId device;
  Slice slice;  ///< role weight
};

enum class LocalKind : std::uint8_t { copy, add, drop };
constexpr std::array<std::string_view, 3> spellings(LocalKind) { return {"copy", "add", "drop"}; }
/// A copy or addition inside one device: `to` = or += `from` over to.region. What is dropped reads
/// as zero for the next addition, but takes no time: no kernel writes zeros, the memory is freed.
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
constexpr std::array<std::string_view, 5> spellings(CollectiveKind) {
  return {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all"};
}

/// One operation of all members of a group.
///
///     all_reduce      every member's `slice` is summed; the sum OVERWRITES `target` on all members
///     all_gather      member i holds `slice` over regions[i]; afterwards every member holds
///                     `target` over all regions (role gradient: what is received is ADDED)
///     reduce_scatter  every member's `slice` over all regions is summed; member i gets the sum
///                     over regions[i] ADDED into `target`, or written there if it is an activation
///     broadcast       member 0's `slice` overwrites `target` on the others
///     all_to_all      member i holds `slice` over regions[i] and needs `target` over needs[i]: for
///                     every j, j = i included, needs[i] ∩ regions[j] of j's slice goes to i and
///                     overwrites (role activation) or is ADDED (role gradient)
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
constexpr std::array<std::string_view, 6> spellings(OpKind) {
  return {"compute", "update", "local", "transfer", "collective", "delay"};
}

/// In-order queues of a device. A pipeline has one for each direction: an activation that is ready
/// must not wait for a gradient that is not. Each stream of communication has a sending and a
/// receiving side that do not wait for each other; a collective occupies both sides on all members.
/// What is summed over the groups that split states (ZeroGroup) has a stream, too: FSDP's hybrid
/// sharding reduces on one of its own (torch/distributed/fsdp/_runtime_utils.py,
/// _all_reduce_stream).
enum class Stream : std::uint8_t { compute, gradient, tensor, pipeline, pipeline_back, replicas };
constexpr std::array<std::string_view, 6> spellings(Stream) {
  return {"compute", "gradient", "tensor", "pipeline", "pipeline_back", "replicas"};
}
inline constexpr std::size_t stream_count = spellings_of<Stream>().size();

}  // namespace parsim
