// What the user says of collectives (--collective-times, --algorithm, --protocol), and what reports
// say of how far it went.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiment/run.hpp"
#include "sim/collective_tables.hpp"
#include "sim/communication_sources.hpp"

namespace parsim::experiment {

/// "FILE", "KIND:FILE" or "KIND,RANKS:FILE" of --collective-times.
struct CollectiveFile {
  std::string path;
  sim::CollectiveHint hint;
};
[[nodiscard]] CollectiveFile collective_file(const std::string& given);
/// The tables of all files together. Throws InputError for what cannot be read or is there twice.
[[nodiscard]] std::vector<sim::CollectiveTable> read_collective_times(
    const std::vector<std::string>& given);

/// "NCCL collectives hop by hop, simulated by SimGrid 3.32": the network model of a report.
[[nodiscard]] std::string communication_model(const sim::SimOptions& options,
                                              const Cluster& cluster);
/// What is assumed of measured times that do not say on how many machines they were measured, or
/// "".
[[nodiscard]] std::string assumed_machines(const sim::CommunicationSources& sources);
/// What a report says of the run beyond its experiment's warnings: collectives without a table, or
/// that cannot run as --algorithm and --protocol ask.
[[nodiscard]] std::vector<std::string> communication_warnings(const RunResult& result);
/// "communication by time alone: data 92.1 % measured, …", or "" without tables.
[[nodiscard]] std::string communication_line(const Experiment& experiment,
                                             std::span<const RunResult> results);
/// Throws InputError if --algorithm or --protocol made no difference to any collective.
void check_algorithm_used(const Request& request, std::span<const RunResult> results);

}  // namespace parsim::experiment
