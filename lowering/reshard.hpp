// Resharding: from the layout in which a tensor is produced to the layout in which it is read, by
// intersecting regions. Forward it moves values to their readers, backward the readers' gradient
// contributions to the producer. Regular patterns become collectives.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/plan.hpp"

namespace parsim::lowering {

/// The pattern of a movement.
enum class Pattern : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  halo,            ///< a transfer of the border of the receiver's own part
  point_to_point,  ///< any other transfer
  scatter_gather,  ///< each member receives its share from outside, then the members gather them
  local_add,       ///< no transfer: a device adds what it contributes to its own part
};

/// One transfer of a scatter_gather.
struct Leg {
  DeviceId from, to;
  Region region;
  std::int32_t cell = -1;  ///< forward: the tensor's cell that `from` sends a piece of
  friend bool operator==(const Leg&, const Leg&) = default;
};

/// One operation on a tensor. `producers` are indices of the tensor's cells: forward those that
/// must have finished, backward those whose gradient it completes.
///
/// A scatter_gather is several operations: a tensor that one group of devices holds (or has summed)
/// and another group needs whole is sent once, a share to each member, and all-gathered inside the
/// receiving group: the scatter/gather optimization of Narayanan et al. 2021, section 4.1, and
/// DeepSpeed's partitioned tensors between pipeline stages. Contributions that are partial sums are
/// first reduce-scattered among their senders.
struct Movement {
  Pattern pattern = Pattern::point_to_point;
  std::vector<DeviceId>
      devices;                  ///< collective: members; transfer: from, to; local_add: the device
  std::vector<Region> regions;  ///< by member what it has; one region where it is the same for all
  std::vector<Region> needs;    ///< all_to_all: by member what it wants
  std::vector<std::int32_t> producers;
  std::vector<Leg> legs;          ///< scatter_gather: the transfers before the members gather
  std::vector<DeviceId> summing;  ///< scatter_gather backward: senders whose contributions are
                                  ///< partial sums; empty: each contribution is complete
  std::vector<Region> sums;       ///< what each of `summing` keeps of the reduce-scatter
  friend bool operator==(const Movement&, const Movement&) = default;
};
[[nodiscard]] bool is_collective(Pattern pattern);

/// A box of the tensor that a reader's cell needs on its device.
struct Need {
  DeviceId device;
  Region region;
  std::int64_t replica = 0;  ///< of the reader
};

/// A part of a tensor and the cells that hold it (several under replica or in_channel cuts).
struct Owner {
  Region region;
  std::vector<std::int32_t> cells;
};

/// Where a reader's boxes come from, see TensorLayout::bring. `aligned`: cell i reads from cell i,
/// and `by_need` is empty; clusters of thousands of devices must not keep a list for each.
struct Sources {
  bool aligned = false;
  std::vector<std::vector<std::int32_t>> by_need;
};

/// Which devices hold which parts of a layer's output, including parts that readers have received.
class TensorLayout {
 public:
  TensorLayout() = default;
  /// whole_sends   where scatter_gather could divide what each of several devices has among as many
  ///               others, each sends all of it to one of them
  explicit TensorLayout(std::vector<Cell> cells, bool whole_sends = false);

  [[nodiscard]] const std::vector<Cell>& cells() const { return cells_; }
  [[nodiscard]] bool whole_sends() const { return whole_sends_; }
  /// Distinct parts, in order of their first cell. Computed at the first call.
  [[nodiscard]] const std::vector<Owner>& owners();
  /// Movements found so far, in the order of the bring() calls.
  [[nodiscard]] const std::vector<Movement>& arrivals() const { return arrivals_; }

  /// By need: where its box comes from on its own device: the index of a cell (>= 0), or ~index of
  /// an arrival. Adds the arrivals that are missing; a piece that an earlier reader brought to a
  /// device is not moved again.
  [[nodiscard]] Sources bring(std::span<const Need> needs, const Cluster& cluster);
  /// True if every need lies in the cell of the same index, on its device, and no part has two
  /// holders.
  [[nodiscard]] bool aligned(std::span<const Need> needs) const;

 private:
  struct Held {
    Region region;
    std::int32_t source = 0;
  };
  struct Missing {
    std::size_t owner = 0;
    std::int32_t source = 0;  ///< cell that sends
    DeviceId to;
    Region piece;
  };
  /// Takes from `missing` the pieces that travel by scatter_gather: those with at least `holders`
  /// copies, needed by several devices that hold nothing of the tensor.
  void scatter(std::vector<Missing>& missing, std::size_t holders, const Cluster& cluster);
  void arrive(Movement movement, std::span<const DeviceId> receivers,
              std::span<const Region> boxes);
  void bring_component(std::vector<Missing> missing, std::span<const Need> needs,
                       const Cluster& cluster);
  [[nodiscard]] std::vector<Held>& held(DeviceId device);

  std::vector<Cell> cells_;
  bool whole_sends_ = false;
  std::vector<Owner> owners_;
  std::vector<Movement> arrivals_;
  std::vector<std::vector<Held>> held_;  ///< by device id
};

/// How gradient contributions of one reader return to a tensor.
struct GradientReturn {
  /// Every part's contributions arise where the part is: kernels add straight into its gradient.
  bool direct = true;
  std::vector<Movement> movements;
};

/// Contributions by the reader's cells (their needs) to the tensor's parts. Where the reader has
/// replicas, a part takes the contributions of one replica only: its own device's, else the first;
/// if they travel by scatter_gather, replicas send a share each.
[[nodiscard]] GradientReturn return_gradients(TensorLayout& tensor, std::span<const Need> needs);

/// A reader whose contributions have to be moved.
struct Returning {
  std::vector<Need> needs;
  const GradientReturn* back = nullptr;  ///< if it returns by itself
};

/// Several readers' contributions that return together: each device adds up the contributions of
/// its readers in the first reader's buffer, and the sum moves once.
struct JointReturn {
  /// By reader: its contributions on each device, in disjoint boxes. Empty: they return separately.
  std::vector<std::vector<std::pair<DeviceId, Region>>> given;
  GradientReturn back;
};

/// Empty unless fewer elements move than separately; readers whose replicas are on different
/// devices return separately.
[[nodiscard]] JointReturn joint_return(TensorLayout& tensor, std::span<const Returning> readers);

}  // namespace parsim::lowering
