// What the GPUs of a cluster make of a precision.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/units.hpp"

namespace parsim::experiment {

/// Throws InputError with `where` if a GPU does not multiply in the FP8 that the precision asks
/// for.
void check_fp8(const Cluster& cluster, Precision precision, const std::string& where);

/// For each type of GPU that does not have the precision, or multiplies it at less than half of the
/// rate of fp16 for want of tensor cores, what a user should know.
[[nodiscard]] std::vector<std::string> precision_warnings(const Cluster& cluster,
                                                          Precision precision);

}  // namespace parsim::experiment
