// What hosts do for a step: they launch kernels, and read and prepare its samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/profile.hpp"
#include "experiment/calibration.hpp"
#include "experiment/request.hpp"

namespace parsim::experiment {

class Experiment;

/// What the machines of the cluster's GPUs take to prepare a batch, at `rate` samples a second
/// each; 0 if the rate is 0: hosts keep up.
[[nodiscard]] Seconds input_time(double rate, std::int64_t batch, const Cluster& cluster);

/// What hosts add to a step according to measured ones: for the GPUs of the fullest machine beyond
/// those of the rows that fit the kernels.
[[nodiscard]] Seconds host_delay(const RunCalibration& calibration, std::int64_t batch,
                                 const Cluster& cluster);

/// Sets what the simulation knows of hosts: launches as asked, else the profile's, the time of the
/// input, and what measured steps say.
void set_hosts(Request& request, const std::optional<Profile>& profile,
               const std::optional<RunCalibration>& calibration, const Cluster& cluster,
               std::int64_t batch);

/// "; a launch every 5.00 us; hosts feed 3000 samples/s each", for reports; "" if they keep up.
[[nodiscard]] std::string hosts_summary(const Request& request);

/// "hosts: assumed to keep up with 2049 samples/s from each machine (--input-rate)" at so many
/// samples a second of all; "" where an option or a measured step says what hosts take, and for
/// networks whose samples are tokens, which are quick to read.
[[nodiscard]] std::string input_line(const Experiment& experiment, double samples_per_second);

}  // namespace parsim::experiment
