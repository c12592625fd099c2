// What --hw adds to reports: measured columns, and the machine they were measured on.
#pragma once

#include <string>
#include <vector>

#include "experiment/hardware.hpp"
#include "report/document.hpp"
#include "validation/validation.hpp"

namespace parsim::report {

/// Appends the measured step and the prediction's error to the first table and to the JSON of
/// simulate or compare. Without a measurement both are null and a note says why.
void add_hardware(Document& document, const std::vector<experiment::RunResult>& results,
                  const experiment::HardwareRows& rows);

/// The whole result where no hardware was found and no cluster was named.
[[nodiscard]] Document report_no_hardware(const std::string& refusal);

/// "paced host (host): parsim-hw 1; clocks: …".
[[nodiscard]] std::string machine_line(const Machine& machine);

/// Predicted and measured steps of `validate --hw`, a row each; `set` is the network, `name` the
/// strategy.
[[nodiscard]] Table measured_rows(const std::vector<validation::ValidationRow>& rows);

}  // namespace parsim::report
