// What faster links would bring a step, and whether they would slow it down: a question that only
// a second simulation answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "experiment/run.hpp"

namespace parsim::experiment {

/// How long the same operations would take if every link carried twice as much.
///
/// Never longer if flows do not compete: times of operations shrink, and their order stays
/// (checked: tests/property/laws_test.cpp). If they do, it can be: what comes earlier takes a share
/// of links from what matters more (checked: tests/experiment/faster_links_test.cpp).
[[nodiscard]] Seconds step_on_faster_links(const ExecDag& dag, const Cluster& cluster,
                                           const CostModel& cost, const sim::SimOptions& options);
/// The same of a run; nothing where links do not tell how long messages take, or there are none.
[[nodiscard]] std::optional<Seconds> step_on_faster_links(const Experiment& experiment,
                                                          const Run& run);

/// How the line begins that says that faster links slow a step down.
constexpr std::string_view links_anomaly_begins = "anomaly: ";
/// One line of a report.
[[nodiscard]] std::string faster_links_text(Seconds step, Seconds on_faster_links);

/// The same line if faster links slow the run down; "" if they do not, or if the run has so many
/// operations that asking costs more than a tenth of a second.
[[nodiscard]] std::string links_anomaly(const Experiment& experiment, const Run& run,
                                        const Plan& plan);

}  // namespace parsim::experiment
