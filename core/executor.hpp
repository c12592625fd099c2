// Something that runs a DAG: the simulator, the host, GPUs. One of the two virtual interfaces.
#pragma once

#include <cstdint>
#include <optional>

#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim {

/// What of a folded DAG an engine takes for alike: of units whose links carry the same, one; or of
/// any, as long as what each of them sends ends together, which costs a flow for each.
enum class FoldedLinks : std::uint8_t { alike, any };

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
  [[nodiscard]] virtual std::optional<Timeline> run_folded(const ExecDag&,
                                                           FoldedLinks = FoldedLinks::any) {
    return std::nullopt;
  }
};

}  // namespace parsim
