// A plan: which device holds which slice of which layer, and in which order it works. Every
// strategy returns one; one function (lowering/lower.hpp) turns any of them into an execution DAG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/framework.hpp"
#include "core/network.hpp"
#include "core/shared_list.hpp"
#include "core/spelling.hpp"

namespace parsim {

/// One dimension of a layer's grid with the size of each part. Sizes add up to the extent: of the
/// micro-batch for sample, of the output for channel and the spatial dimensions, of the input for
/// in_channel. For replica only their count matters. Parts of size zero are idle.
struct Cut {
  Dim dim = Dim::sample;
  SharedList<std::int64_t> sizes;
  friend bool operator==(const Cut&, const Cut&) = default;
};

/// How the copies of a layer's gradient become one sum.
struct Sync {
  enum class Kind : std::uint8_t { automatic, ring, server } kind = Kind::automatic;
  DeviceId server;  ///< the parameter server, for `server`; may be one of the layer's own devices
                    ///< or a CPU
  friend bool operator==(const Sync&, const Sync&) = default;
};
constexpr std::array<std::string_view, 3> spellings(Sync::Kind) { return {"auto", "ring", "ps"}; }

/// How many of the devices that sum a gradient split its states; each group has all of them (HSDP
/// of PyTorch's FSDP: Zhao et al. 2023, section 3.2.2; MiCS: Zhang et al. 2022, section 3.2).
struct ZeroGroup {
  std::int32_t ranks = 0;  ///< devices one after the other, ascending; 0: all of them
  bool node = false;       ///< instead: those of one machine
  [[nodiscard]] bool all() const { return ranks == 0 && !node; }
  friend bool operator==(const ZeroGroup&, const ZeroGroup&) = default;
};

/// Which states of a layer's parameters its devices split: ZeRO (Rajbhandari et al. 2020, section
/// 5).
struct ZeroSharding {
  std::int32_t stage =
      0;  ///< 0 nothing, 1 what the optimizer keeps, 2 gradients too, 3 weights too
  std::vector<std::int64_t> shares;  ///< relative sizes of a group's shards; empty = equal
  ZeroGroup group{};
  friend bool operator==(const ZeroSharding&, const ZeroSharding&) = default;
};

/// How one layer is split. The grid is the product of the cuts, row-major, the last cut fastest.
struct LayerPlan {
  std::vector<Cut> cuts;         ///< none: one cell that computes everything
  SharedList<DeviceId> devices;  ///< one per cell; repeats are allowed
  ZeroSharding zero;
  bool recompute = false;  ///< drop the output after forward and compute it again before backward
  Sync sync;
  /// Neighbours along the last cut that lie on one device are one cell: replicas of a layer may
  /// then be shared by groups of different size. No other cut is of the contraction.
  bool joined = false;
  /// Drop what readers' devices have gathered of the output's parts after forward, or received from
  /// other devices that have parts, and gather or send it again in backward.
  bool regather = false;
  /// Of attention with a causal mask: the tokens of its samples are in zigzag order over so many
  /// devices (Part); 0: in their own order.
  std::int32_t zigzag = 0;
  /// Of attention whose tokens are cut: keys and values go round a ring of the devices that share a
  /// sample's tokens, and each device attends to the parts as they come (Liu et al. 2023, "Ring
  /// Attention with Blockwise Transformers"). False: a device has all before it begins.
  bool ring = false;
  /// Of a dense layer that devices share: it works in as many chunks of its tokens as there are
  /// devices, so that communication overlaps. By channel: all-gathered tokens are used as they
  /// arrive. By contraction: each chunk's partial sums leave for the device that keeps them while
  /// the next is computed, and in backward gradients come in parts. (TransformerEngine's
  /// CommOverlapP2PBase; PyTorch's _symmetric_memory, fused_all_gather_matmul.)
  bool overlap = false;
  /// Readers' partial sums of gradients are summed apart, while kernels wait (transformers' way).
  bool apart = false;
  /// Of a learned tensor under context parallelism: the parts of the tokens, which all have it
  /// whole (replicas of one part are neighbours) and its gradient of their own tokens: weights that
  /// are synchronised as those of parts by sample. 0: a device has the part that makes its output.
  std::int32_t token_parts = 0;
  friend bool operator==(const LayerPlan&, const LayerPlan&) = default;
};

/// When replicas sum their gradients, where a step has several micro-batches and one stage:
///   automatic    gradients that are sharded (ZeRO 2 and 3) are reduce-scattered after every
///                micro-batch, everything else is summed once a step
///   micro_batch  all are, and the next one waits: DDP and FSDP without no_sync, as in torchtitan
///   step         all are summed once a step and stay whole until then: accelerate's FSDP
/// In a pipeline, and where weight gradients have slots of their own, all are summed once a step.
enum class ReduceEvery : std::uint8_t { automatic, micro_batch, step };
constexpr std::array<std::string_view, 3> spellings(ReduceEvery) {
  return {"auto", "micro-batch", "step"};
}

enum class Direction : std::uint8_t { forward, backward, weights };
constexpr std::array<std::string_view, 3> spellings(Direction) {
  return {"forward", "backward", "weights"};
}

/// One slot of a pipeline schedule: a stage's forward or backward of a micro-batch, or, where
/// backward is split, its weight gradients.
struct Slot {
  std::int32_t stage = 0, micro_batch = 0;
  Direction direction = Direction::forward;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// Devices that run the same slots, in this order.
struct RankList {
  std::vector<DeviceId> devices;
  std::vector<Slot> slots;
  friend bool operator==(const RankList&, const RankList&) = default;
};

/// The order of a training step. A stage is a set of layers. Every device is in at most one rank
/// list, and every rank list has each (stage, micro-batch, direction) of its devices' stages
/// exactly once; `weights` only if backward is split.
struct Schedule {
  std::int32_t micro_batches = 1;
  std::vector<std::int32_t> stage_of_layer;  ///< by LayerId
  std::vector<RankList> rank_lists;
  /// A device sends and receives between stages one thing at a time, and computes nothing until
  /// what it sends has arrived.
  bool blocking_sends = false;
  /// Backward slots leave weight gradients of matrix products and tables (Pass::backward_weights)
  /// to slots of their own (Qi et al. 2023, "Zero Bubble Pipeline Parallelism").
  bool split_backward = false;
  ReduceEvery reduce_every = ReduceEvery::automatic;
  /// ZeRO 3 gathers for backward after the sums of the units before (FSDP 1 without prefetching).
  bool late_gathers = false;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

enum class Optimizer : std::uint8_t { sgd, momentum, adam };
constexpr std::array<std::string_view, 3> spellings(Optimizer) {
  return {"sgd", "momentum", "adam"};
}
/// Accepted on the command line: decoupled weight decay takes neither memory nor a kernel of its
/// own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 1> synonyms(Optimizer) {
  return {{{"adamw", "adam"}}};
}
/// Numbers of optimizer state per parameter: 0, 1, 2.
[[nodiscard]] constexpr std::int64_t state_per_parameter(Optimizer optimizer) {
  return static_cast<std::int64_t>(optimizer);
}

struct Plan {
  std::string strategy, network, cluster;
  std::vector<std::string> dims;  ///< of the network, as --dim gave them: "seq_length=128"
  /// fingerprint() of the network that it was made for; empty if that is not known.
  std::string network_fingerprint;
  std::int64_t batch = 0;  ///< samples of one step over all devices; a multiple of micro_batches
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;  ///< of gradients' sums: fp32, fp16 or bf16
  Optimizer optimizer = Optimizer::momentum;
  Framework framework = Framework::pytorch;
  std::vector<LayerPlan> layers;  ///< by LayerId
  Schedule schedule;
  /// Parameters whose gradients travel together, in the order in which they become ready. Those in
  /// no bucket travel alone.
  std::vector<std::vector<ParameterId>> buckets;
  std::vector<std::string> notes;  ///< what a reader of the plan should know
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// One cell of a layer's grid.
struct Cell {
  DeviceId device;
  Part part;
  std::int32_t replica = 0;      ///< (first) index along the replica cut, or its part's of that
  std::int32_t contraction = 0;  ///< (first) index along the in_channel cut
  std::int32_t replicas = 1;     ///< how many indices along the replica cut it stands for
  std::int32_t token_part = 0;   ///< of LayerPlan::token_parts that are no parts of the output
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// The non-empty cells of a layer for one micro-batch of `samples`, in grid order; joined ones as
/// one, without contraction if they have all of it. `plan` must be valid for the layer.
[[nodiscard]] std::vector<Cell> cells(const Network& network, LayerId layer, const LayerPlan& plan,
                                      std::int64_t samples);

/// Checks a plan: a plan for every layer, sizes that add up, cuts the layer allows, devices that
/// exist, replica cells on different devices, schedule complete, batch a multiple of the
/// micro-batches. Throws InputError with `where` (a file or "strategy data") and the layer's name.
void validate(const Plan& plan, const Network& network, const Cluster& cluster,
              const std::string& where);

/// Sizes of `parts` parts of `extent`, as equal as possible, larger ones first.
[[nodiscard]] std::vector<std::int64_t> even_split(std::int64_t extent, std::size_t parts);
/// Sizes proportional to `weights` by the largest-remainder rule; ties go to the lower index.
[[nodiscard]] std::vector<std::int64_t> proportional_split(std::int64_t extent,
                                                           const std::vector<double>& weights);

}  // namespace parsim
