// Where a prediction of a step differs from its measurement: times of operations by class.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim::validation {

/// Predicted and measured time of all operations of a class, added up. Classes: kinds of layers,
/// "update", "copy", "transfer", collectives, "delay".
using ClassTimes = std::map<std::string, std::pair<Seconds, Seconds>>;
[[nodiscard]] ClassTimes class_times(const ExecDag& dag, const Timeline& predicted,
                                     const Timeline& measured);

/// The class whose sum differs most, and by how much: "conv (+3.1 %)"; empty if none does.
[[nodiscard]] std::string largest_gap(const ClassTimes& times);

}  // namespace parsim::validation
