#include "report/page/bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page/html.hpp"

namespace parsim::report {

std::string segments_of(const std::vector<Segment>& segments) {
  constexpr double visible = 0.003;
  std::string shapes;
  double x = 0.0;
  for (const Segment& segment : segments) {
    if (segment.share <= 0) continue;
    const double shown = std::min(segment.share, std::max(0.0, 1.0 - x));
    if (shown > visible) {
      shapes += fmt::format("<rect class={}{} width={} />", segment.css,
                            x > 0 ? " x=" + width_percent(x) : "", width_percent(shown));
    }
    x += segment.share;
  }
  return shapes;
}

std::string words_of(const std::vector<Segment>& segments) {
  std::string words;
  for (const Segment& segment : segments) {
    if (segment.share <= 0) continue;
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", segment.word, segment.text);
  }
  return words;
}

std::vector<Segment> time_segments(const DeviceUse& use, Seconds full) {
  const auto segment = [&](std::string_view css, std::string_view word, Seconds time) {
    return Segment{css, word, time / full, to_text(time)};
  };
  return {segment("c", "compute", use.compute),
          segment("x", "exposed communication", use.exposed_communication),
          segment("i", "idle", use.idle)};
}

std::vector<double> axis_ticks(double most) {
  if (!(most > 0)) return {0};
  constexpr int most_steps = 5;
  const double power = std::pow(10, std::floor(std::log10(most / most_steps)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (most / step <= most_steps + 1e-9) break;
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace parsim::report
