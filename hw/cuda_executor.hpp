// GPUs of this machine. Without CUDA (no_cuda.cpp) none can be had.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/executor.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

class CudaDevices;

class CudaExecutor final : public Executor {
 public:
  /// The machine's GPUs, or, with `partition`, logical devices of so many multiprocessors on its
  /// first GPU. With `link` messages take modelled_duration(), or longer if copying does. Throws
  /// HardwareError if this program was built without CUDA, or with the driver's reason.
  ///
  /// others   the processes of this launch: this one runs the GPU with its local rank, and no
  ///          partition. Must outlive this.
  explicit CudaExecutor(const std::vector<int>& partition,
                        const std::optional<LinkThrottle>& link = {}, Processes* others = nullptr);

  [[nodiscard]] const Hardware& hardware() const { return hardware_; }
  /// One step after another to warm up, with an event before and after every operation. With
  /// several processes rank 0 returns it, and the others no spans. Throws what check_fits() throws,
  /// InputError for a precision that the engine does not have, HardwareError for a failed call.
  [[nodiscard]] Timeline run(const ExecDag& dag) override;

  // What calibrate(), measure() and `parsim-hw check` ask; the caller has called check_fits().

  /// Of one process only, like together() and launch().
  [[nodiscard]] std::vector<Spread> alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                          int samples);
  [[nodiscard]] std::vector<std::vector<Beside>> together(
      const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples);
  [[nodiscard]] Spread launch(int samples);
  [[nodiscard]] Measurement step(const ExecDag& dag, int steps);
  /// Compares all tensors of a step with the float64 host engine: the one with the largest relative
  /// error if that exceeds tolerance(), else "".
  [[nodiscard]] std::string check(const ExecDag& dag);

 private:
  std::shared_ptr<CudaDevices> devices_;
  Hardware hardware_;
};

}  // namespace parsim::hw
