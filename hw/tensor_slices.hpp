// Where the numbers of a DAG lie: which tensors every device holds, how large a part of them, and
// what each operation reads and writes there. Follows from the DAG alone.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/exec_dag.hpp"

namespace parsim::hw {

/// One tensor of one device. Buckets have no store of their own: they are windows on parameters.
struct StoreKey {
  DeviceId device;
  Tensor tensor;
  Role role = Role::activation;
  std::int32_t micro_batch = 0;  ///< of optimizer states: which one, see StateKind
  friend auto operator<=>(const StoreKey&, const StoreKey&) = default;
  /// Spelled out: nvcc 13 loses the one that the line above implies.
  friend bool operator==(const StoreKey& a, const StoreKey& b) { return (a <=> b) == 0; }
};
/// Optimizer states of a weight, by StoreKey::micro_batch.
enum class StateKind : std::uint8_t { first, second, master };

struct TensorSlice {
  StoreKey key;
  Region region;
};
/// Where a slice of the DAG lies on a device: in one tensor, or the parts of a bucket. `narrowed`
/// replaces the slice's region (shares of collectives).
[[nodiscard]] std::vector<TensorSlice> tensor_slices(const ExecDag& dag, DeviceId device,
                                                     const Slice& slice,
                                                     std::optional<RegionId> narrowed = {});

/// What a Compute touches. Gradients that no parameter needs have an empty region.
struct ComputeSlices {
  std::vector<TensorSlice> inputs, parameters;   ///< by operand, by parameter
  TensorSlice out;                               ///< activation or partial sum
  TensorSlice out_gradient;                      ///< empty region for a Loss
  std::vector<TensorSlice> input_gradients;      ///< by operand
  std::vector<TensorSlice> parameter_gradients;  ///< by parameter
  bool adds = false;  ///< to a partial sum; else forward overwrites its output
  /// Of attention, by sample, head and token: what its forward pass may leave for its backward
  /// pass. Of a loss whose classes are cut: see loss_statistics.
  TensorSlice statistics;
};
/// Four bytes for each element, whatever the DAG's precision.
[[nodiscard]] bool holds_statistics(const StoreKey& key);
/// By layer: true if its output depends on a parameter.
[[nodiscard]] std::vector<bool> trained_layers(const Network& network);
[[nodiscard]] ComputeSlices compute_slices(const ExecDag& dag, const Compute& op,
                                           const std::vector<bool>& trained);

/// What an operation does with a part of a store.
enum class Use : std::uint8_t {
  names,       ///< has a view of it, but neither reads nor writes it
  reads,       ///< also where it adds to it or writes parts of it
  overwrites,  ///< writes all of the part, and reads nothing of it
};
/// Calls visit(slice, use) for all that an operation touches on any device; empty regions, too.
/// `trained` as of trained_layers().
void for_each_use(const ExecDag& dag, OpId op, const std::vector<bool>& trained,
                  const std::function<void(const TensorSlice&, Use)>& visit);

/// A tensor on a device.
struct Store {
  Region box;  ///< hull of what the operations touch
};
/// All that the DAG's devices hold during a step, by key.
struct Stores {
  std::map<StoreKey, Store> all;
  std::int32_t micro_batches = 1;
  std::int32_t devices = 0;  ///< one more than the largest id
};
/// statistics   also those that attention leaves for its backward pass, as fused kernels do
[[nodiscard]] Stores stores(const ExecDag& dag, bool statistics = false);

/// Weight gradients that messages add to, in order.
[[nodiscard]] std::vector<StoreKey> received_gradients(const ExecDag& dag);

/// Bytes of all stores by device, each in a place of its own: elements in the DAG's precisions,
/// optimizer states in four bytes.
[[nodiscard]] std::vector<Bytes> bytes_held(const ExecDag& dag, const Stores& stores);

/// Optimizer states that an update of the DAG keeps.
[[nodiscard]] std::vector<StateKind> states(Optimizer optimizer, Precision precision);

/// Throws InputError naming the first layer that the engines here cannot compute.
void check_runnable(const Network& network, const std::string& where);
/// The same of a DAG, whose parts of layers may also be such that they cannot.
void check_runnable(const ExecDag& dag, const std::string& where);

}  // namespace parsim::hw
