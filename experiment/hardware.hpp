// The hardware of this machine, through the program parsim-hw: started as a child that reads and
// writes files, because neither CUDA nor its threads may meet the simulator in one process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/profile.hpp"
#include "experiment/options.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// What runs the plans; with --hw-measured nothing runs.
struct HardwareRequest {
  HardwareOptions given;
  std::optional<Measurements> measured;
};
/// Throws InputError for a partition that is no list of numbers, and for a file of measurements
/// that cannot be read or comes with a backend or partition.
[[nodiscard]] HardwareRequest hardware_request(const Request& request);

/// A value, or the reason why the hardware refused: an expected outcome (exit 3), not an error.
template <class Value>
struct Answer {
  std::optional<Value> value;
  std::string refusal;
  int exit_code = 0;  ///< of parsim-hw
};

/// The machine of the measurements, if there are some; these rows then come from there.
[[nodiscard]] Answer<Machine> probe_hardware(const HardwareRequest& request);
[[nodiscard]] Answer<Profile> calibrate_hardware(const HardwareRequest& request,
                                                 const std::vector<ExecDag>& dags);
[[nodiscard]] Answer<Measurements> measure_on_hardware(const HardwareRequest& request,
                                                       const std::vector<ExecDag>& dags);

/// The profile in a file. Throws InputError if it is none or is of another machine than `here`.
[[nodiscard]] Profile read_profile(const std::string& text, const std::string& path,
                                   const std::optional<Machine>& here);

/// What --hw adds to a report: per row the measured step, or why there is none.
struct HardwareRows {
  std::string refusal;  ///< nothing ran at all
  Machine machine;
  std::vector<Timeline> timelines;  ///< by row, of its median step with events; empty: not measured
};
/// Runs every row that has a plan and writes what was measured into it. `dags` by row.
[[nodiscard]] HardwareRows measure_rows(const HardwareRequest& request, const Answer<Machine>& here,
                                        std::vector<RunResult>& results,
                                        const std::vector<ExecDag>& dags);

}  // namespace parsim::experiment
