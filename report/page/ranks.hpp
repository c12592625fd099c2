// Timelines small enough for a page: devices that do the same at the same times are drawn once, and
// bars too narrow to see are one.
#pragma once

#include <cstdint>
#include <vector>

#include "report/page/section.hpp"

namespace parsim::report {

/// By column, of `columns` equally wide ones over the step: the kind that fills most of it, or
/// `nothing` where all bars fill less than a twentieth.
[[nodiscard]] std::vector<std::uint8_t> columns_of(const BarTrack& track, const Bars& bars,
                                                   std::size_t columns);
inline constexpr std::uint8_t nothing = bar_kinds;

/// Two tracks for each device that works, kernels and communication; kernels of a micro-batch that
/// follow one another are one bar. Devices whose tracks differ in at most one hundredth of the
/// step are one rank, the first of them, named with their number; of many ranks the first 16.
[[nodiscard]] Bars ranks_of(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster);

/// The same bars if they are at most `most`, else those of the finest columns that are.
[[nodiscard]] Bars thinned(const Bars& bars, std::size_t most);

}  // namespace parsim::report
