// What simulate and compare say besides their numbers.
#pragma once

#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// "2 x p100-pcie, 2 x v100-pcie", in the order of the devices.
[[nodiscard]] std::string device_mix(const Cluster& cluster, const std::vector<DeviceId>& devices);
/// "resnet50 on dgx-v100 (8 x v100-sxm2), batch 256, fp32, momentum".
[[nodiscard]] std::string question_line(const experiment::Experiment& experiment);
/// Of two pipelines with the same stages, what `next` does otherwise: " (the same stages without
/// ZeRO)"; "" for any other pair.
[[nodiscard]] std::string same_stages(const experiment::RunResult& best,
                                      const experiment::RunResult& next);
/// Where the times of kernels and of communication come from, and how far kernels are off.
[[nodiscard]] std::vector<std::string> source_lines(
    const experiment::Experiment& experiment, const std::vector<experiment::RunResult>& results);
/// The same in two lines, and one for a calibration.
[[nodiscard]] std::vector<std::string> short_source_lines(
    const experiment::Experiment& experiment, const std::vector<experiment::RunResult>& results);
/// What plans would fit in memory if none of these does, else "".
[[nodiscard]] std::string advice_for(const experiment::Experiment& experiment,
                                     const std::vector<experiment::RunResult>& results);
/// Names the rows that the fast engine simulated in place of SimGrid; "" if there are none.
[[nodiscard]] std::string engine_note(const sim::SimOptions& sim,
                                      const std::vector<experiment::RunResult>& results);
/// Those of the experiment and of communication.
[[nodiscard]] std::vector<std::string> warnings_of(
    const experiment::Experiment& experiment, const std::vector<experiment::RunResult>& results);

}  // namespace parsim::report
