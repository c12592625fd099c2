// What hosts do for a step: they launch kernels, and read and prepare its samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/exec_dag.hpp"
#include "core/profile.hpp"
#include "experiment/calibration.hpp"
#include "experiment/request.hpp"

namespace parsim::experiment {

class Experiment;
struct RunResult;

/// Sets what the simulation knows of hosts: launches as asked, else the profile's, the time of the
/// input, and what measured steps say.
void set_hosts(Request& request, const std::optional<Profile>& profile,
               const std::optional<RunCalibration>& calibration);

/// Whether steps may wait for hosts.
[[nodiscard]] bool hosts_matter(const sim::SimOptions& options);

/// "; a launch every 5.00 us; hosts feed 3000 samples/s each", for reports; "" if they keep up.
[[nodiscard]] std::string hosts_summary(const Request& request);

/// Samples a second that the host of the machine with most of them reads in a step.
[[nodiscard]] double read_by_fullest(std::span<const MachineReads> reads, Seconds step);

/// "hosts: assumed to keep up with 2049 samples/s from each machine (--input-rate)" for the results
/// that fit, of the machine with most samples; "" where an option or a measured step says what
/// hosts take, and for networks whose samples are tokens, which are quick to read.
[[nodiscard]] std::string input_line(const Experiment& experiment,
                                     std::span<const RunResult> results);

}  // namespace parsim::experiment
