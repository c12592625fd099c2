// Timelines small enough for a page: devices that do the same at the same times are drawn once, and
// bars too narrow to see are one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "report/page/section.hpp"
#include "strategies/degrees.hpp"

namespace parsim::report {

/// By BarKind, how much of a column of the picture is filled, in ns.
using ColumnFill = std::array<std::int64_t, bar_kinds>;
/// By column, of `columns` equally wide ones over the step.
[[nodiscard]] std::vector<ColumnFill> fills_of(const BarTrack& track, const Bars& bars,
                                               std::size_t columns);
/// What a picture of so many columns shows: of as many columns as the bars fill together, spread as
/// they are (a column is shown once half a column has been filled but not shown), the kind that
/// fills most; else `nothing`.
[[nodiscard]] std::vector<std::uint8_t> columns_of(const BarTrack& track, const Bars& bars,
                                                   std::size_t columns);
inline constexpr std::uint8_t nothing = bar_kinds;

/// Two tracks for each device that works, kernels and communication; kernels of a micro-batch that
/// follow one another are one bar. Devices whose tracks differ in at most one hundredth of
/// their time are one rank, the first of them, named with their number, unless they work on
/// different stages of a pipeline. Ranks of a pipeline are in the order of `stages`, others in that
/// of devices; of many ranks 16, at least one of each stage or else of each type of device.
[[nodiscard]] Bars ranks_of(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster,
                            const std::vector<strategies::StageSummary>& stages = {});

/// Indices, ascending, of the at most `most` that are shown, by the group of each: the first of
/// each group, then the second of each, and so on; of more than `most` groups some in equal steps.
[[nodiscard]] std::vector<std::size_t> shown_of(const std::vector<std::size_t>& groups,
                                                std::size_t most);

/// The same bars if they are at most `most`, else those of the finest columns that are.
[[nodiscard]] Bars thinned(const Bars& bars, std::size_t most);

}  // namespace parsim::report
