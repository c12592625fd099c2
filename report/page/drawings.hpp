// The drawings of a report, as HTML with SVG inside. Each also has its numbers as text: colour is
// never the only carrier of information.
#pragma once

#include <string>
#include <vector>

#include "experiment/scaling.hpp"
#include "report/page/section.hpp"

namespace parsim::report {

/// A bar for every strategy to one scale with an axis: compute, exposed communication and idle
/// time, means of the GPUs, and the interval of the step; plans that do not fit below a line. Bars
/// longer than four times the shortest are cut and marked.
[[nodiscard]] std::string draw_steps(const std::vector<experiment::RunResult>& results);
/// Cost of a million samples over the step time, a point for each plan that fits; "" without
/// prices.
[[nodiscard]] std::string draw_costs(const std::vector<experiment::RunResult>& results);

/// A row for devices with equal numbers: time, memory by what it holds, and its limit. Of many rows
/// those with the highest memory use. A page explains the colours once, `with_key`.
[[nodiscard]] std::string draw_devices(const experiment::RunResult& result, bool with_key);

/// Links by kind and rate: how many there are, the busiest and the mean use of both directions.
///
/// hop_use   by Hop::index(), share of what the link could have carried; may be empty
[[nodiscard]] std::string link_table(const Cluster& cluster, const std::vector<double>& hop_use);

/// A box for every stage: blocks, devices by type, degrees, samples of each replica; below them
/// how layers are split where that differs inside a stage.
[[nodiscard]] std::string draw_stages(const Network& network, const Cluster& cluster,
                                      const Plan& plan, const experiment::RunResult& result);

/// How large a timeline may be.
struct TimelineSize {
  std::size_t strokes = 50'000;  ///< of the picture: of more it gets coarser
  std::size_t bars = 1'000'000;  ///< of the script that zooms: the same; 0: no zoom
};
/// Tracks from top to bottom: an SVG that needs no script, and the bars for the script that zooms.
[[nodiscard]] std::string draw_timeline(const Bars& bars, const Cluster& cluster,
                                        const TimelineSize& size = {});

/// Speed-up over the number of GPUs: a curve for every strategy, and the ideal.
[[nodiscard]] std::string draw_scaling(const experiment::Scaling& scaling);

}  // namespace parsim::report
