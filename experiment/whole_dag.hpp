// How large a DAG may be that has the operations of all devices: files, traces and hardware need
// one, results do not (lowering::lower_folded).
#pragma once

#include <cstdint>
#include <string_view>

#include "experiment/experiment.hpp"

namespace parsim::experiment {

/// About 1 GB of memory, and several of a JSON file.
constexpr std::int64_t most_whole_operations = 4'000'000;

/// Operations of all devices in a step, counted without making those that equal others.
[[nodiscard]] std::int64_t whole_operations(const Network& network, const Cluster& cluster,
                                            const CostModel& cost, const Plan& plan);

/// Throws InputError with the number of operations if a step has more than `most`.
///
/// flag, where   the option or the file that needs all of them
void check_whole_dag(const Experiment& experiment, const Plan& plan, std::string_view flag,
                     std::int64_t most = most_whole_operations);
void check_whole_dag(const Network& network, const Cluster& cluster, const CostModel& cost,
                     const Plan& plan, std::string_view where,
                     std::int64_t most = most_whole_operations);

}  // namespace parsim::experiment
