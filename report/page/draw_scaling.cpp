#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/scaling.hpp"

namespace parsim::report {

namespace {

constexpr double left = 46, top = 12, plot_width = 560, plot_height = 300, right = 150, below = 40;

/// Doublings are equally far apart on both axes.
struct Doublings {
  double least = 1, most = 2;
  [[nodiscard]] double share(double value) const {
    return (std::log2(value) - std::log2(least)) / (std::log2(most) - std::log2(least));
  }
};

struct Curve {
  std::string strategy, path, dots;
  double end = 0.0;  ///< y of the last point
};

}  // namespace

std::string draw_scaling(const experiment::Scaling& scaling) {
  if (scaling.points.empty() || scaling.reference <= 0) return {};
  const auto fewest = static_cast<double>(scaling.points.front().gpus);
  const auto most = static_cast<double>(scaling.points.back().gpus);
  double least_speedup = fewest, most_speedup = std::max(most, 2 * fewest);
  for (const experiment::ScalingPoint& point : scaling.points) {
    if (!point.speedup) continue;
    least_speedup = std::min(least_speedup, *point.speedup);
    most_speedup = std::max(most_speedup, *point.speedup);  // above the count: faster GPUs follow
  }
  const Doublings across{fewest, std::max(most, 2 * fewest)};
  const Doublings up{std::exp2(std::floor(std::log2(least_speedup))), most_speedup};
  const auto x = [&](double gpus) { return left + across.share(gpus) * plot_width; };
  const auto y = [&](double speedup) { return top + (1 - up.share(speedup)) * plot_height; };
  std::string out = fmt::format("<div class=scroll><svg class=scaling viewBox=\"0 0 {} {}\">",
                                left + plot_width + right, top + plot_height + below);
  for (double tick = up.least; tick <= up.most * 1.001; tick *= 2) {
    out += fmt::format("<path class=grid d=\"M{} {}h{}\"/><text x={} y={} class=n>{}</text>", left,
                       coordinate(y(tick)), plot_width, left - 6, coordinate(y(tick) + 4),
                       coordinate(tick));
  }
  std::vector<std::string> strategies;
  for (const experiment::ScalingPoint& point : scaling.points) {
    if (std::find(strategies.begin(), strategies.end(), point.strategy) == strategies.end()) {
      strategies.push_back(point.strategy);
    }
    if (&point == &scaling.points.front() || (&point)[-1].gpus != point.gpus) {
      out += fmt::format("<text x={} y={} class=m>{}</text>",
                         coordinate(x(static_cast<double>(point.gpus))), top + plot_height + 18,
                         point.gpus);
    }
  }
  out += fmt::format("<text x={} y={} class=m>GPUs</text><path class=ideal d=\"M{} {}L{} {}\"/>",
                     left + plot_width / 2, top + plot_height + 34, coordinate(x(fewest)),
                     coordinate(y(fewest)), coordinate(x(across.most)), coordinate(y(across.most)));
  std::vector<Curve> curves;
  for (std::size_t s = 0; s < strategies.size(); ++s) {
    Curve curve{strategies[s], {}, {}, 0.0};
    for (const experiment::ScalingPoint& point : scaling.points) {
      if (point.strategy != strategies[s] || !point.speedup) continue;
      const std::string px = coordinate(x(static_cast<double>(point.gpus)));
      const std::string py = coordinate(y(*point.speedup));
      curve.path += fmt::format("{}{} {}", curve.path.empty() ? "M" : "L", px, py);
      curve.dots +=
          fmt::format("<circle cx={} cy={} r=3.5><title>{} on {}: {} x{}</title></circle>", px, py,
                      html_name(point.strategy), point.gpus, three_digits(*point.speedup),
                      point.fits ? "" : ", does not fit in memory");
      curve.end = y(*point.speedup);
    }
    if (!curve.path.empty()) {
      out += fmt::format("<path class=curve d=\"{}\"/>{}", curve.path, curve.dots);
      curves.push_back(std::move(curve));
    }
  }
  // Names at the right, pushed apart where curves end together.
  std::vector<std::size_t> order(curves.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return curves[a].end < curves[b].end; });
  double lowest = 0.0;
  for (const std::size_t i : order) {
    lowest = std::max(lowest + 15, curves[i].end);
    out += fmt::format("<text class=end x={} y={}>{}</text>", left + plot_width + 10,
                       coordinate(lowest + 4), html_name(curves[i].strategy));
  }
  return out + "</svg></div>\n" + html_table(scaling_table(scaling), true);
}

}  // namespace parsim::report
