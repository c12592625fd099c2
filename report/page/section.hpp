// What a page shows of one strategy in addition to its row of the table. Taken from each run before
// the next one starts: plans and timelines of many strategies do not fit into memory together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/plan.hpp"
#include "experiment/run.hpp"
#include "experiment/utilization.hpp"
#include "experiment/what_would_help.hpp"

namespace parsim::report {

/// What a bar of a timeline shows; each has a colour.
enum class BarKind : std::uint8_t { forward, backward, update, gradients, tensors, pipeline };
inline constexpr std::size_t bar_kinds = 6;

/// One operation on one track.
struct Bar {
  std::int64_t start = 0, length = 0;  ///< ns
  std::int32_t label = 0;              ///< index into Bars::labels
};
struct BarTrack {
  DeviceId device;
  std::int32_t queue = 0;  ///< see Queue
  std::vector<Bar> bars;   ///< in order, not overlapping
  std::string note{};      ///< follows the track's name
  std::string name{};      ///< in place of the device and the queue
};
struct BarLabel {
  std::string text;
  BarKind kind = BarKind::forward;
};
struct Bars {
  std::int64_t end = 0;  ///< of the step, ns
  std::vector<BarLabel> labels;
  std::vector<BarTrack> tracks;  ///< by device and queue
  std::string left_out;          ///< what is not shown, "" if all is
};
[[nodiscard]] BarKind bar_kind(const ExecDag& dag, OpId id);
[[nodiscard]] std::int64_t nanosecond(Seconds time);

/// The timeline as bars. Of more than a million bars, or of more than 64 devices, only those of the
/// first devices.
[[nodiscard]] Bars bars_of(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster);

/// Both in one drawing, every measured track below its predicted one.
[[nodiscard]] Bars side_by_side(const Bars& predicted, const Bars& measured);

/// The section of one strategy.
struct StrategySection {
  experiment::RunResult result;
  Plan plan;                    ///< empty if the strategy has none
  std::vector<double> hop_use;  ///< bytes / (rate x step) by Hop::index(); may be empty
  Bars bars;                    ///< of ranks_of(); empty without timelines
  experiment::Waterfall parts{};
  std::vector<experiment::Help> helps;  ///< of the best plan
};
[[nodiscard]] StrategySection make_section(const Cluster& cluster, const experiment::Run& run,
                                           Plan plan, bool with_timeline);

}  // namespace parsim::report
