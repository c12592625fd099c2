// Runs an execution DAG with numbers instead of times. It knows nothing of plans: if its results
// equal those of the unsplit network, then plan and lowering mean the right thing.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/exec_dag.hpp"
#include "tests/support/numeric.hpp"

namespace parsim::testing {

/// One tensor of one device. Buckets have no store of their own: they are windows on parameters.
struct StoreKey {
  DeviceId device;
  Tensor tensor;
  Role role = Role::activation;
  std::int32_t micro_batch = 0;
  friend auto operator<=>(const StoreKey&, const StoreKey&) = default;
};

/// How an operation touches a region of a store.
struct Access {
  enum class Kind : std::uint8_t { read, write, add } kind = Kind::read;
  OpId op;
  Region region;
};

/// The memory of all devices: whole tensors, with the elements that were ever written. Activations
/// and weights must have been written before they are read on a device (nothing else proves that a
/// plan moves all that is needed); gradients, partial sums and weight gradients start at zero.
class Memory {
 public:
  explicit Memory(const ExecDag& dag);

  /// Throws BrokenInvariant naming device, tensor and region if something was never written.
  [[nodiscard]] Block read(const StoreKey& key, const Region& region);
  void write(const StoreKey& key, const Block& block);
  void add(const StoreKey& key, const Block& block);
  /// As if the region had never been written.
  void forget(const StoreKey& key, const Region& region);
  /// True if every element was written.
  [[nodiscard]] bool has(const StoreKey& key, const Region& region) const;

  /// Accesses are logged under this operation; an invalid id logs nothing.
  void log_as(OpId op) { op_ = op; }
  [[nodiscard]] const std::map<StoreKey, std::vector<Access>>& log() const { return log_; }

  [[nodiscard]] std::int32_t micro_batches() const { return micro_batches_; }
  [[nodiscard]] std::int64_t samples() const { return dag_.batch / micro_batches_; }
  /// Devices that operations of the DAG name, in id order.
  [[nodiscard]] const std::vector<DeviceId>& devices() const { return devices_; }

 private:
  struct Store {
    Block values;
    std::vector<char> written;
  };
  Store& store(const StoreKey& key);
  [[nodiscard]] Region whole_of(const StoreKey& key) const;
  void note(const StoreKey& key, Access::Kind kind, const Region& region);

  const ExecDag& dag_;
  std::int32_t micro_batches_ = 1;
  std::vector<DeviceId> devices_;
  std::map<StoreKey, Store> stores_;
  std::map<StoreKey, std::vector<Access>> log_;
  OpId op_;
};

/// The operations in the order of their ids.
[[nodiscard]] std::vector<OpId> issue_order(const ExecDag& dag);
/// Some order in which predecessors come first and every queue keeps the order of the ids: what two
/// engines with other durations may do.
[[nodiscard]] std::vector<OpId> random_order(const ExecDag& dag, std::uint64_t seed);

/// Executes the operations. What a device computes again is gone from its last reader of the first
/// time until then. Weights lie, before the step, wherever a kernel of the device uses them
/// and where a parameter server receives gradients; training data lies everywhere.
/// `dag` must outlive the result.
[[nodiscard]] Memory interpret(const ExecDag& dag, const std::vector<OpId>& order);

/// What could go wrong because nothing orders two operations, one line each: an activation read
/// before all of it is written; any other store touched by two operations at once, unless both
/// read. Two may add to weight gradients at once, because a parameter server receives while it
/// computes: an engine must make those additions atomic.
[[nodiscard]] std::vector<std::string> races(const ExecDag& dag, const Memory& memory);

/// "transfer 12 (device 0 to 1, activation of 'conv1')".
[[nodiscard]] std::string describe(const ExecDag& dag, OpId id);
[[nodiscard]] std::string describe(const ExecDag& dag, const StoreKey& key);

}  // namespace parsim::testing
