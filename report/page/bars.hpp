// A bar of segments side by side, as wide as its place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"

namespace parsim::report {

struct Segment {
  std::string_view css, word;
  double share = 0.0;  ///< of the bar's full length
  std::string text;    ///< what it stands for
};

/// The shapes of a bar: what does not fit in it is cut.
[[nodiscard]] std::string segments_of(const std::vector<Segment>& segments);
/// "compute 123 ms, exposed communication 2 ms": of segments that are not empty.
[[nodiscard]] std::string words_of(const std::vector<Segment>& segments);
/// Compute, exposed communication and idle time, `full` being the bar's length.
[[nodiscard]] std::vector<Segment> time_segments(const DeviceUse& use, Seconds full);

/// Ticks of an axis from 0 to `most`: steps of 1, 2 or 5 times a power of ten, at most six.
[[nodiscard]] std::vector<double> axis_ticks(double most);

/// Its legend.
inline constexpr std::string_view time_key =
    "<i class=c></i>\u00a0compute <i class=x></i>\u00a0exposed communication <i "
    "class=i></i>\u00a0idle";

}  // namespace parsim::report
