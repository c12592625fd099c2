#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/text.hpp"
#include "report/page/bars.hpp"
#include "report/page/html.hpp"
#include "report/page/sweep_page.hpp"

namespace parsim::report {

namespace {

constexpr double front_left = 64, front_top = 14, front_width = 620, front_height = 320,
                 front_right = 24, front_below = 44;

/// An axis from the least to the greatest value; logarithmic if they are far apart.
class FrontAxis {
 public:
  explicit FrontAxis(const std::vector<double>& values) {
    constexpr double far_apart = 8, margin = 1.08;
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const double value : values) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
    logarithmic_ = least > 0 && most > far_apart * least;
    from_ = logarithmic_ ? least / margin : std::min(0.0, least);
    to_ = most > 0 ? most * margin : 1;
  }
  [[nodiscard]] double share(double value) const {
    return logarithmic_ ? std::log(value / from_) / std::log(to_ / from_)
                        : (value - from_) / (to_ - from_);
  }
  [[nodiscard]] double most() const { return to_; }
  /// In units of `unit`.
  [[nodiscard]] std::vector<double> ticks(double unit) const {
    std::vector<double> found;
    if (!logarithmic_) {
      for (const double tick : axis_ticks(to_ / unit)) found.push_back(tick * unit);
      return found;
    }
    const bool few = to_ / from_ < 300;
    for (double power = std::pow(10, std::floor(std::log10(from_ / unit))) * unit; power < to_;
         power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = power * factor;
        if ((few || factor == 1.0) && tick >= from_ && tick <= to_) found.push_back(tick);
      }
    }
    return found;
  }

 private:
  double from_ = 0, to_ = 1;
  bool logarithmic_ = false;
};

Scale front_scale(const SummaryColumn& column, double most) {
  const std::string unit = column.unit();
  if (unit == "%") return {0.01, ""};
  return unit.empty() ? Scale{} : scale_for(most, unit);
}

std::string front_title(const SummaryColumn& column, const Scale& scale) {
  const std::string unit = column.unit();
  return unit.empty() ? column.title()
                      : fmt::format("{} [{}{}]", column.title(), scale.prefix, unit);
}

}  // namespace

std::string draw_front(const SweepSummary& summary, std::size_t across, std::size_t up,
                       const std::vector<std::size_t>& front) {
  const SummaryColumn& x_column = summary.columns[across];
  const SummaryColumn& y_column = summary.columns[up];
  const auto x_of = [&](const SummaryRow& row) { return x_column.value_of(row.costs[across]); };
  const auto y_of = [&](const SummaryRow& row) { return y_column.value_of(row.costs[up]); };
  std::vector<double> xs, ys;
  std::vector<const SummaryRow*> drawn;
  for (const SummaryRow& row : summary.rows) {
    if (row.state != RowState::good) continue;
    if (std::isnan(row.costs[across]) || std::isnan(row.costs[up])) continue;
    drawn.push_back(&row);
    xs.push_back(x_of(row));
    ys.push_back(y_of(row));
  }
  if (drawn.empty()) return {};
  const FrontAxis x_axis(xs), y_axis(ys);
  const Scale x_scale = front_scale(x_column, x_axis.most());
  const Scale y_scale = front_scale(y_column, y_axis.most());
  const auto x = [&](double value) { return front_left + x_axis.share(value) * front_width; };
  const auto y = [&](double value) { return front_top + (1 - y_axis.share(value)) * front_height; };
  std::string out =
      fmt::format("<div class=scroll><svg class=front viewBox=\"0 0 {} {}\">",
                  front_left + front_width + front_right, front_top + front_height + front_below);
  for (const double tick : y_axis.ticks(y_scale.factor)) {
    out +=
        fmt::format("<path class=grid d=\"M{0} {1}h{2}\"/><text x={3} y={4} class=n>{5}</text>",
                    front_left, coordinate(y(tick)), front_width, front_left - 6,
                    coordinate(y(tick) + 4), exact(std::round(tick / y_scale.factor * 1e6) / 1e6));
  }
  for (const double tick : x_axis.ticks(x_scale.factor)) {
    out += fmt::format("<path class=grid d=\"M{0} {1}v{2}\"/><text x={0} y={3} class=m>{4}</text>",
                       coordinate(x(tick)), front_top, front_height, front_top + front_height + 17,
                       exact(std::round(tick / x_scale.factor * 1e6) / 1e6));
  }
  out += fmt::format("<text x={} y={} class=m>{}</text>", front_left + front_width / 2,
                     front_top + front_height + 36, html(front_title(x_column, x_scale)));
  out += fmt::format("<text x=14 y={0} class=m transform=\"rotate(-90 14 {0})\">{1}</text>\n",
                     front_top + front_height / 2, html(front_title(y_column, y_scale)));
  // Of rows that would cover each other one is drawn.
  std::set<std::pair<long, long>> taken;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double px = x(xs[i]), py = y(ys[i]);
    if (!taken.emplace(std::lround(px / 2), std::lround(py / 2)).second) continue;
    out += fmt::format("<circle class=dot cx={} cy={} r=2.5 />", coordinate(px), coordinate(py));
  }
  std::string path, circles;
  double last_x = -1e9, last_y = -1e9;
  for (std::size_t i = 0; i < front.size(); ++i) {
    const SummaryRow& row = summary.rows[front[i]];
    const double px = x(x_of(row)), py = y(y_of(row));
    path += path.empty() ? fmt::format("M{} {}", coordinate(px), coordinate(py))
                         : fmt::format("H{}V{}", coordinate(px), coordinate(py));
    circles += fmt::format(
        "<circle class=on cx={} cy={} r=5><title>{}: {}, {}: point {}, {}</title></circle>",
        coordinate(px), coordinate(py), i + 1, x_column.text(x_of(row)), y_column.text(y_of(row)),
        row.point, html(summary.words_of(row), 300));
    constexpr double apart = 15;
    if (std::hypot(px - last_x, py - last_y) < apart) continue;
    circles += fmt::format("<text class=no x={} y={}>{}</text>", coordinate(px + 6),
                           coordinate(py - 7), i + 1);
    last_x = px;
    last_y = py;
  }
  return out + fmt::format("<path class=curve d=\"{}\"/>{}</svg></div>\n", path, circles);
}

}  // namespace parsim::report
