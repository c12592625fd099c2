// The drawings of a report, as HTML with SVG inside. Each also has its numbers as text: colour is
// never the only carrier of information.
#pragma once

#include <string>
#include <vector>

#include "experiment/scaling.hpp"
#include "report/page/section.hpp"

namespace parsim::report {

/// A bar for every strategy: compute, exposed communication and idle, means of the GPUs, to one
/// scale. Bars longer than four times the shortest are cut and marked.
[[nodiscard]] std::string draw_strategies(const std::vector<experiment::RunResult>& results);

/// A row for every device: its step, and its memory against its limit. Neighbours with equal
/// numbers share a row; of many rows those with the highest memory use.
[[nodiscard]] std::string draw_devices(const experiment::RunResult& result);

/// Machines as boxes with their devices and switches, links coloured by the busier of their two
/// directions. Large clusters as one box for each machine; the largest not at all.
///
/// alone   with boxes, tooltips and a legend; a later drawing reuses the boxes of the first
[[nodiscard]] std::string draw_cluster(const Cluster& cluster, const std::vector<double>& hop_use,
                                       bool alone);
/// The busiest directed links, one sentence.
[[nodiscard]] std::string list_links(const Cluster& cluster, const std::vector<double>& hop_use);

/// Layers from left to right, devices from top to bottom: which dimension is split where; then a
/// table, neighbours with the same split in one row.
[[nodiscard]] std::string draw_plan(const Network& network, const Cluster& cluster,
                                    const Plan& plan);

/// Tracks of all devices: an SVG that needs no script, and the bars for the script that zooms.
[[nodiscard]] std::string draw_timeline(const Bars& bars, const Cluster& cluster);

/// Speed-up over the number of GPUs: a curve for every strategy, and the ideal.
[[nodiscard]] std::string draw_scaling(const experiment::Scaling& scaling);

}  // namespace parsim::report
