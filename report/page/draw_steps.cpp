#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/errors.hpp"
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
  constexpr double margin = 1.02;  // for the ends of whiskers
  const double full = margin * std::min(longest, longest_bar * shortest).count();
  if (full <= 0) return {};
  const std::vector<double> ticks = axis_ticks(full);
  const std::string grid = grid_of(ticks, full);
  std::string out = "<h4>Predicted step time</h4>\n<div class=steps>\n";
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
    const std::vector<Segment> parts =
        time_segments(experiment::mean_use_of_working(result), Seconds{full});
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
      out += high < 1
                 ? fmt::format("<line x1={0} x2={0} y1=25% y2=75% />", width_percent(high))
                 : "<svg x=100% overflow=visible><path class=on d=\"M-7 4L-1 9L-7 14\"/></svg>";
      out += "</g>";
    }
    if (result.step_time.count() > full * (1 + 1e-9)) {
      cut = true;
      out += "<svg x=96%><path class=gap d=\"M0 18L6 0h5L5 18z\"/></svg>";
    }
    out += fmt::format("</svg><span class=n>{}</span>\n", to_text(result.step_time));
  }
  out += axis_of(ticks, full) + "</div>\n<p class=key>";
  out += time_key;
  out +=
      ", mean of the GPUs that compute; <i class=whisk></i>\u00a090\u00a0%\u00a0interval, "
      "\u203a where it goes on";
  if (cut) out += fmt::format("; bars longer than {} are cut", to_text(Seconds{full}));
  return out + "</p>\n";
}

namespace {

/// Plans of about the same step and cost.
struct CostPoint {
  double step, cost;
  std::vector<std::string> names;
  double label = 0;  ///< height of the text

  [[nodiscard]] bool near(double other_step, double other_cost) const {
    constexpr double close = 0.02;
    return std::abs(other_step / step - 1) < close && std::abs(other_cost / cost - 1) < close;
  }
  [[nodiscard]] std::string text() const {
    constexpr std::size_t most_names = 2;
    if (names.size() <= most_names) return html_name(join(names));
    return fmt::format("{} and {} more", html_name(names.front()), names.size() - 1);
  }
};

std::vector<CostPoint> cost_points(const std::vector<experiment::RunResult>& results) {
  constexpr double longest = 4;  // times the shortest step
  double shortest = std::numeric_limits<double>::infinity();
  for (const experiment::RunResult& result : results) {
    if (result.fits()) shortest = std::min(shortest, result.step_time.count());
  }
  std::vector<CostPoint> points;
  for (const experiment::RunResult& result : results) {
    const std::optional<double> cost = result.cost_per_million_samples();
    const double step = result.step_time.count();
    if (!result.fits() || !cost || *cost <= 0 || step > longest * shortest) continue;
    const auto near = std::find_if(points.begin(), points.end(),
                                   [&](const CostPoint& point) { return point.near(step, *cost); });
    if (near != points.end()) {
      near->names.push_back(result.strategy);
    } else {
      points.push_back({step, *cost, {result.strategy}});
    }
  }
  return points;
}

}  // namespace

std::string draw_costs(const std::vector<experiment::RunResult>& results) {
  std::vector<CostPoint> points = cost_points(results);
  if (points.empty()) return {};
  constexpr double height = 220, margin = 1.12, line = 14;
  double across = 0, up = 0;
  for (const CostPoint& point : points) {
    across = std::max(across, margin * point.step);
    up = std::max(up, margin * point.cost);
  }
  const TimeUnit unit = unit_of(across);
  const auto y = [&](double cost) { return height * (1 - cost / up); };
  std::string out = fmt::format("<div class=costs><svg class=plot height={}>", height + 20);
  for (const double tick : axis_ticks(up)) {
    out += fmt::format("<line class=grid x2=100% y1={0} y2={0} /><text x=2 y={1}>{2}</text>",
                       coordinate(y(tick)), coordinate(y(tick) - 3), three_digits(tick));
  }
  for (const double tick : axis_ticks(across)) {
    if (tick <= 0) continue;
    out +=
        fmt::format("<text x={} y={} text-anchor=middle>{} {}</text>", width_percent(tick / across),
                    height + 14, coordinate(tick / unit.seconds), unit.name);
  }
  // Names stand at their points, from the top, and are pushed down where they would touch.
  std::vector<CostPoint*> from_top;
  for (CostPoint& point : points) from_top.push_back(&point);
  std::stable_sort(from_top.begin(), from_top.end(),
                   [](const CostPoint* a, const CostPoint* b) { return a->cost > b->cost; });
  double last = -line;
  for (CostPoint* point : from_top) {
    last = point->label = std::max(y(point->cost) + 4, last + line);
  }
  for (const CostPoint& point : points) {
    const bool best = &point == &points.front();
    const double x = point.step / across;
    out += fmt::format(
        "<circle cx={0} cy={1} r={2}><title>{3} per million samples, {4}</title></circle>"
        "<text x={0} dx={5} y={6} text-anchor={7} class=name>{8}{9}</text>",
        width_percent(x), coordinate(y(point.cost)), best ? 7 : 5, three_digits(point.cost),
        to_text(Seconds{point.step}), x > 0.6 ? -11 : 11, coordinate(point.label),
        x > 0.6 ? "end" : "start", best ? "★ " : "", point.text());
  }
  return out +
         "</svg></div>\n<p class=key>Up: cost of a million samples, in the currency of the cluster "
         "file; across: step time. Plans that fit and take at most four times as long as the "
         "fastest; lower left is better.</p>\n";
}

}  // namespace parsim::report
