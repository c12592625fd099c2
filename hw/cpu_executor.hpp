// Cores of this machine that really compute: matrix products and convolutions by oneDNN, everything
// else by our kernels, in fp32. Without oneDNN (no_cpu.cpp) none can be had.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/executor.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

class CpuCores;

class CpuExecutor final : public Executor {
 public:
  /// A logical device of so many cores for each entry of `partition`; without one, a single device
  /// of all cores that this process may use. Devices' threads stay on their cores. Throws
  /// InputError if there are fewer cores, HardwareError if this program was built without oneDNN.
  explicit CpuExecutor(const std::vector<int>& partition);

  [[nodiscard]] const Hardware& hardware() const { return hardware_; }
  /// One step after another to warm up, by the wall clock. Throws what check_fits() throws,
  /// InputError for another precision than fp32, HardwareError for a failed call.
  [[nodiscard]] Timeline run(const ExecDag& dag) override;

  // What calibrate(), measure() and `parsim-hw check` ask; the caller has called check_fits().

  /// The operations one after the other, in the DAG's order, as often as there are samples: caches
  /// hold what the operation before left, as in a step, and nothing else runs.
  [[nodiscard]] std::vector<Spread> alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                          int samples);
  /// Of a collective only the device's own share of the work.
  [[nodiscard]] std::vector<std::vector<Beside>> together(
      const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples);
  /// None: no thread launches another's operations.
  [[nodiscard]] static Spread launch(int /*samples*/) { return {}; }
  [[nodiscard]] Measurement step(const ExecDag& dag, int steps);
  /// Compares all tensors of a step with the float64 host engine: the one with the largest relative
  /// error if that exceeds tolerance(), else "".
  [[nodiscard]] std::string check(const ExecDag& dag);

 private:
  std::shared_ptr<const CpuCores> cores_;
  Hardware hardware_;
};

}  // namespace parsim::hw
