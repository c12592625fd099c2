// The texts of options on what makes a step slower (sim/slowdowns.hpp).
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::experiment {

/// What --straggler asks for.
struct Stragglers {
  std::vector<double> factors;              ///< by DeviceId, for the whole step; empty: none
  std::vector<SlowPeriods> devices, links;  ///< all else, as in Slowdowns
  std::vector<std::string> others;          ///< their texts
};
/// Reads "NAME=FACTOR[@FROM[-TO]]": a device or a link, dates with units since the step's start.
/// Throws InputError for anything else, for a name that is both, and for periods that overlap.
[[nodiscard]] Stragglers parse_stragglers(const Cluster& cluster,
                                          const std::vector<std::string>& texts);

/// `known`, a profile's, with the factors of --interference, "tensor/communication=1.2", instead.
/// Throws InputError for another pair, a factor below 1, or a pair given twice.
[[nodiscard]] Interference parse_interference(const std::vector<std::string>& texts,
                                              const Interference& known = {});
/// "tensor/communication=1.2" of each pair that holds something up.
[[nodiscard]] std::vector<std::string> interference_texts(const Interference& interference);
/// "gpu0, gpu1 share 4.10 TB/s of memory".
[[nodiscard]] std::string common_memory_text(const CommonMemory& memory, const Cluster& cluster);

}  // namespace parsim::experiment
