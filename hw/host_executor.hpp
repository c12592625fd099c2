// The synthetic host: threads of this program whose operations sleep for modelled_duration().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/executor.hpp"
#include "hw/clock.hpp"
#include "hw/hardware.hpp"
#include "hw/memory_contention.hpp"

namespace parsim::hw {

class HostExecutor final : public Executor {
 public:
  /// One device per entry of `shares`, in 64ths of a whole device; they share the host's memory
  /// bandwidth. Without shares: two whole devices with a memory each. They sleep in virtual time:
  /// exact, repeatable and quick.
  ///
  /// others   the processes of this launch: this one runs the device with its rank, by the wall
  ///          clock. Without shares every process has a whole device. Must outlive this.
  explicit HostExecutor(const std::vector<int>& shares,
                        const std::optional<LinkThrottle>& link = {}, Processes* others = nullptr);

  [[nodiscard]] const Hardware& hardware() const { return hardware_; }
  /// One step. With several processes rank 0 returns it, and the others no spans. Throws what
  /// check_fits() throws.
  [[nodiscard]] Timeline run(const ExecDag& dag) override;

  // What calibrate(), measure() and `parsim-hw check` ask; the caller has called check_fits().

  /// Of one process only, like together().
  [[nodiscard]] std::vector<Spread> alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                          int samples);
  [[nodiscard]] std::vector<std::vector<Beside>> together(
      const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples);
  /// None: no thread launches another's operations.
  [[nodiscard]] static Spread launch(int /*samples*/) { return {}; }
  [[nodiscard]] Measurement step(const ExecDag& dag, int steps);
  /// Compares all tensors of a step with the float64 host engine: the one with the largest relative
  /// error if that exceeds tolerance(), else "". With
  /// several processes only: throws HardwareError in one, where the host computes nothing.
  [[nodiscard]] std::string check(const ExecDag& dag);

 private:
  void sleep(const ExecDag& dag, OpId op, Seconds alone);
  [[nodiscard]] Spread time(const ExecDag& dag, OpId op, int samples);

  Hardware hardware_;
  Processes* others_;
  Clock clock_;
  std::optional<MemoryContention> contention_;  ///< of parts of one host
};

}  // namespace parsim::hw
