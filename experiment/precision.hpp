// What the GPUs of a cluster make of a precision.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/profile.hpp"
#include "core/units.hpp"

namespace parsim::experiment {

/// Throws InputError with `where` if a GPU does not multiply in the FP8 that the precision asks
/// for.
void check_fp8(const Cluster& cluster, Precision precision, const std::string& where);

/// bf16, fp16 or fp32: that with the highest peak of all GPUs together; of equals bf16, which needs
/// no scaling of the loss, and fp32 unless half precision is faster.
[[nodiscard]] Precision fastest_precision(const Cluster& cluster);

/// For each type of GPU that does not have the precision, or multiplies it at less than half of the
/// rate of fp16 for want of tensor cores, what a user should know.
[[nodiscard]] std::vector<std::string> precision_warnings(const Cluster& cluster,
                                                          Precision precision);

/// For each type of GPU of which the profile in `file` has kernels, but none in this precision.
[[nodiscard]] std::vector<std::string> profile_warnings(const Profile& profile,
                                                        const std::string& file,
                                                        const Cluster& cluster,
                                                        Precision precision);

}  // namespace parsim::experiment
