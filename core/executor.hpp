// Something that runs a DAG: the simulator, the host, GPUs. One of the two virtual interfaces.
#pragma once

#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim {

class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs every operation and returns when each started and ended.
  /// Throws SimulationError naming the blocked operations if some could never start; on hardware
  /// InputError for what it cannot run, hw::MemoryError for what does not fit, hw::HardwareError
  /// for what fails.
  [[nodiscard]] virtual Timeline run(const ExecDag& dag) = 0;
};

}  // namespace parsim
