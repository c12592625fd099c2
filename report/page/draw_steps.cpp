#include <fmt/format.h>

#include <algorithm>

#include "report/page/bars.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"

namespace parsim::report {

namespace {

/// The unit in which an axis of so many seconds is written.
struct TimeUnit {
  std::string_view name;
  double seconds;
};
TimeUnit unit_of(double most) {
  if (most >= 1) return {"s", 1};
  if (most >= 1e-3) return {"ms", 1e-3};
  return {"us", 1e-6};
}

std::string grid_of(const std::vector<double>& ticks, double full) {
  std::string lines;
  for (const double tick : ticks) {
    if (tick <= 0) continue;
    lines += fmt::format("<line x1={0} x2={0} y2=100% />", width_percent(tick / full));
  }
  return "<g class=grid>" + lines + "</g>";
}

/// The axis below the bars; labels at its ends stay inside.
std::string axis_of(const std::vector<double>& ticks, double full) {
  const TimeUnit unit = unit_of(full);
  std::string out = "<b></b><svg class=axis>";
  for (const double tick : ticks) {
    const double share = tick / full;
    const std::string_view anchor = share < 0.05 ? "start" : share > 0.9 ? "end" : "middle";
    out += fmt::format("<text x={} y=12 text-anchor={}>{}{}</text>", width_percent(share), anchor,
                       coordinate(tick / unit.seconds),
                       tick == ticks.back() ? fmt::format(" {}", unit.name) : "");
  }
  return out + "</svg><span></span>\n";
}

}  // namespace

std::string draw_steps(const std::vector<experiment::RunResult>& results) {
  constexpr double longest_bar = 4.0;
  Seconds shortest{}, longest{};
  for (const experiment::RunResult& result : results) {
    if (!result.error.empty() || (!result.fits() && results.front().fits())) continue;
    if (shortest == Seconds{} || result.step_time < shortest) shortest = result.step_time;
    longest = std::max(longest, result.step_time * result.interval.high);
  }
  const double full = std::min(longest, longest_bar * shortest).count();
  if (full <= 0) return {};
  const std::vector<double> ticks = axis_ticks(full);
  const std::string grid = grid_of(ticks, full);
  std::string out = "<div class=steps>\n";
  bool cut = false, below = !results.front().fits();
  for (const experiment::RunResult& result : results) {
    if (!below && !result.fits()) {
      below = true;
      out += "<p class=rule>do not fit in memory, or have no plan</p>\n";
    }
    const bool best = &result == &results.front() && result.fits();
    out += fmt::format("<b{}>{}{}</b>", best ? " class=best" : "", best ? "★ " : "",
                       html_name(result.strategy));
    if (!result.error.empty()) {
      out += "<span class=soft>no plan</span><span></span>\n";
      continue;
    }
    const std::vector<Segment> parts = time_segments(experiment::mean_use(result), Seconds{full});
    const double low = result.step_time.count() * result.interval.low / full;
    const double high = result.step_time.count() * result.interval.high / full;
    out += fmt::format("<svg class=step><title>{}; 90 % interval {} to {}</title>{}{}",
                       words_of(parts), to_text(result.step_time * result.interval.low),
                       to_text(result.step_time * result.interval.high), grid, segments_of(parts));
    if (low < 1) {
      out += fmt::format(
          "<g class=whisker><line x1={0} x2={1} y1=50% y2=50% /><line x1={0} x2={0} "
          "y1=25% y2=75% />",
          width_percent(low), width_percent(std::min(high, 1.0)));
      if (high < 1) {
        out += fmt::format("<line x1={0} x2={0} y1=25% y2=75% />", width_percent(high));
      }
      out += "</g>";
    }
    if (result.step_time.count() > full * (1 + 1e-9)) {
      cut = true;
      out += "<svg x=96%><path class=gap d=\"M0 18L6 0h5L5 18z\"/></svg>";
    }
    out += fmt::format("</svg><span class=n>{}</span>\n", to_text(result.step_time));
  }
  out += axis_of(ticks, full) + "</div>\n<p class=key>Step time: ";
  out += time_key;
  out += ", mean of the GPUs; <i class=whisk></i>90 % interval";
  if (cut) out += fmt::format("; bars longer than {} are cut", to_text(Seconds{full}));
  return out + "</p>\n";
}

std::string draw_costs(const std::vector<experiment::RunResult>& results) {
  struct Point {
    const experiment::RunResult* result;
    double cost;
  };
  std::vector<Point> points;
  double most_cost = 0, most_step = 0;
  for (const experiment::RunResult& result : results) {
    const std::optional<double> cost = result.cost_per_million_samples();
    if (!result.fits() || !cost || !result.same_plan_as.empty()) continue;
    points.push_back({&result, *cost});
    most_cost = std::max(most_cost, *cost);
    most_step = std::max(most_step, result.step_time.count());
  }
  if (points.empty() || most_cost <= 0) return {};
  constexpr double height = 220, margin = 1.08;
  const double across = most_step * margin, up = most_cost * margin;
  const TimeUnit unit = unit_of(across);
  const auto y = [&](double cost) { return coordinate(height * (1 - cost / up)); };
  std::string out = fmt::format(
      "<div class=costs><svg class=plot height={}><title>cost per million samples over step time"
      "</title>",
      height + 20);
  for (const double tick : axis_ticks(up)) {
    out += fmt::format("<line class=grid x2=100% y1={0} y2={0} /><text x=2 y={1}>{2}</text>",
                       y(tick), coordinate(height * (1 - tick / up) - 3), three_digits(tick));
  }
  for (const double tick : axis_ticks(across)) {
    if (tick <= 0) continue;
    out +=
        fmt::format("<text x={} y={} text-anchor=middle>{} {}</text>", width_percent(tick / across),
                    height + 14, coordinate(tick / unit.seconds), unit.name);
  }
  for (const Point& point : points) {
    const bool best = &point == &points.front();
    const double x = point.result->step_time.count() / across;
    out += fmt::format(
        "<circle cx={} cy={} r={}><title>{}: {} per million samples, {}</title></circle>"
        "<text x={} y={} text-anchor={} class=name>{}{}</text>",
        width_percent(x), y(point.cost), best ? 7 : 5, html_name(point.result->strategy),
        three_digits(point.cost), to_text(point.result->step_time), width_percent(x),
        coordinate(height * (1 - point.cost / up) - 10), x > 0.7 ? "end" : "start",
        best ? "★ " : "", html_name(point.result->strategy));
  }
  return out +
         "</svg></div>\n<p class=key>Up: cost of a million samples, in the currency of the cluster "
         "file; across: step time. Plans that fit, each once; lower left is better.</p>\n";
}

}  // namespace parsim::report
