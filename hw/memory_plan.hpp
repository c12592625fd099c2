// Where every tensor of a step lies in a device's memory: tensors share bytes if the streams' order
// has all that one of them is used for before the other begins.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "hw/dispatch.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

/// How long tensors stay.
struct MemoryRules {
  /// Activations and gradients give way to others after their last use; without it every tensor has
  /// bytes of its own. Weights, states and data always stay.
  bool reuse = true;
  /// What must begin as zero is zero when the step begins, not before its first use. Not with
  /// reuse.
  bool zero_at_start = false;
  /// Weight gradients of fewer bytes stay, too: a kernel that sets them to zero before their first
  /// use would take longer than they are worth.
  std::size_t small = std::size_t{64} << 10;
};

struct MemoryPlan {
  struct Device {
    std::size_t zeroed = 0;  ///< the first bytes, which the step begins with as zero
    std::size_t total = 0;
    /// Lower bound of any plan by these rules: the most bytes that some operation finds in use.
    std::size_t least = 0;
  };
  /// From an operation on, until the next: what is written anew may lie elsewhere (recomputation, a
  /// gradient after it was dropped).
  struct Place {
    OpId from;
    std::size_t offset = 0;
  };
  std::map<StoreKey, std::vector<Place>> places;
  /// Offset of a store for an operation.
  [[nodiscard]] std::size_t offset(const StoreKey& key, OpId op) const;
  std::vector<Device> devices;
  /// By operation: what it uses first, and must find as zero, unless it overwrites all of it.
  std::vector<std::vector<StoreKey>> begins_as_zero;
  /// Operations that use a store before all others, and in one way only: they may overwrite where
  /// they would add, if they cover the store.
  std::set<std::pair<StoreKey, OpId>> first_uses;
  /// Stores that an operation drops for good: their bytes may be another's already, and are zero
  /// before the next use, which is in begins_as_zero.
  std::set<std::pair<StoreKey, OpId>> given_back;
};

/// Tensors of `stores`, whose elements have so many bytes (optimizer states and attention's
/// statistics 4), at multiples of
/// `alignment`. `order` is the DAG's on all devices, or one device's; stores are of the same.
/// Largest first at the lowest place that is free (Pisarchyk and Lee 2020, "Efficient Memory
/// Management for Deep Neural Net Inference", greedy by size), or in the order of their first use,
/// whichever needs less.
[[nodiscard]] MemoryPlan plan_memory(const ExecDag& dag, const Dispatch& order,
                                     const Stores& stores, std::int64_t element_bytes,
                                     std::size_t alignment, const MemoryRules& rules);

}  // namespace parsim::hw
