// Kernel times, each asked of the cost model once: networks repeat a layer on hundreds of devices
// and in hundreds of micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/cost_model.hpp"

namespace parsim {

/// kernel_time() of a network's layers. Refers to network and cost model.
class KernelTimes {
 public:
  KernelTimes(const Network& network, const CostModel& cost, Precision precision, Precision reduce)
      : network_(network), cost_(cost), precision_(precision), reduce_(reduce) {}
  [[nodiscard]] Cost of(LayerId layer, const Part& part, Pass pass, DeviceId device);
  /// Of these passes one after the other, for a layer always the same.
  [[nodiscard]] Seconds of_all(LayerId layer, const Part& part, std::span<const Pass> passes,
                               DeviceId device);

 private:
  using Key = std::vector<std::int64_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const;  // not noexcept: tables keep its result
  };
  static constexpr std::int64_t all_passes = -1;
  /// Null if it is not known; key_ is what it is to be known by.
  [[nodiscard]] const Cost* find(LayerId layer, const Part& part, std::int64_t pass,
                                 DeviceId device);

  const Network& network_;
  const CostModel& cost_;
  Precision precision_, reduce_;
  Key key_;
  std::unordered_map<Key, Cost, Hash> known_;  ///< looked up only
};

/// device_time() of a DAG's operations. Refers to DAG and cost model.
class DeviceTimes {
 public:
  DeviceTimes(const ExecDag& dag, const CostModel& cost)
      : dag_(dag),
        cost_(cost),
        weights_(dag.network, dag.precision),
        kernels_(dag.network, cost, dag.precision, dag.reduce_precision) {}
  [[nodiscard]] Cost of(OpId id);

 private:
  const ExecDag& dag_;
  const CostModel& cost_;
  Fp8Weights weights_;
  KernelTimes kernels_;
  std::unordered_map<std::uint64_t, Cost> known_;  ///< by work, pass, devices; looked up only
};

}  // namespace parsim
