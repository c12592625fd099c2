// Something that runs a DAG: the simulator, the host, GPUs. One of the two virtual interfaces.
#pragma once

#include <optional>

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
  /// Runs a folded DAG (ExecDag::units) as if it had the operations of all devices. Nothing if this
  /// engine cannot, or if the units would not stay equal: then the whole DAG must be run.
  [[nodiscard]] virtual std::optional<Timeline> run_folded(const ExecDag&) { return std::nullopt; }
};

}  // namespace parsim
