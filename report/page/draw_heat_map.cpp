#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "report/page/html.hpp"
#include "report/page/sweep_page.hpp"

namespace parsim::report {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::size_t no_row = std::numeric_limits<std::size_t>::max();
constexpr int most_level = 8;

/// The rows of a pair of values.
struct HeatCell {
  std::size_t best = no_row, best_unmet = no_row, first_failed = no_row;
  std::size_t unmet = 0, lacking = 0, unfit = 0, failed = 0;

  void add(const SweepSummary& summary, std::size_t index) {
    const SummaryRow& row = summary.rows[index];
    const auto improve = [&](std::size_t& known) {
      if (known == no_row || row.costs.front() < summary.rows[known].costs.front()) known = index;
    };
    switch (row.state) {
      case RowState::good:
        improve(best);
        break;
      case RowState::unmet:
        ++unmet;
        improve(best_unmet);
        break;
      case RowState::lacks_value:
        ++lacking;
        break;
      case RowState::unfit:
        ++unfit;
        break;
      case RowState::failed:
        ++failed;
        first_failed = std::min(first_failed, index);
        break;
    }
  }
};

/// From the worst of the good rows' best, 0, to the best, most_level; logarithmic if it may be.
class Levels {
 public:
  Levels(double best, double worst) : best_(best), worst_(worst), logarithmic_(best * worst > 0) {}
  [[nodiscard]] int of(double cost) const {
    if (!(worst_ > best_)) return most_level;
    // Costs of what is best high are negative.
    const double share = logarithmic_ ? std::log(cost / best_) / std::log(worst_ / best_)
                                      : (cost - best_) / (worst_ - best_);
    return most_level - static_cast<int>(std::lround(most_level * std::clamp(share, 0.0, 1.0)));
  }

 private:
  double best_, worst_;
  bool logarithmic_;
};

/// The cost of the best good row of each value of an axis; `never` without one.
std::vector<double> best_of_values(const SweepSummary& summary, std::size_t axis) {
  std::vector<double> best(summary.axes[axis].values.size(), never);
  for (const SummaryRow& row : summary.rows) {
    const auto value = summary.at(row, axis);
    if (row.state == RowState::good && value) {
      best[*value] = std::min(best[*value], row.costs.front());
    }
  }
  return best;
}

/// Indices of the values that are drawn, in their order.
std::vector<std::uint32_t> drawn_values(const SweepSummary& summary, std::size_t axis) {
  constexpr std::size_t most_values = 30;
  std::vector<std::uint32_t> drawn(summary.axes[axis].values.size());
  for (std::uint32_t v = 0; v < drawn.size(); ++v) drawn[v] = v;
  if (drawn.size() <= most_values) return drawn;
  const std::vector<double> best = best_of_values(summary, axis);
  std::stable_sort(drawn.begin(), drawn.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return best[a] < best[b]; });
  drawn.resize(most_values);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

/// "gpu h100, n 4: 5.46 s (point 3: …); 2 rows do not fit in memory; 1 fails: …".
std::string title_of(const SweepSummary& summary, const HeatCell& cell) {
  std::vector<std::string> parts;
  const auto row_text = [&](std::size_t index) {
    const SummaryRow& row = summary.rows[index];
    const SummaryColumn& column = summary.columns.front();
    return fmt::format("{} (point {}: {})", column.text(column.value_of(row.costs.front())),
                       row.point, summary.words_of(row));
  };
  const auto count = [&](std::size_t number, std::string_view what) {
    if (number > 0) {
      parts.push_back(
          fmt::format("{} {}", counted(static_cast<std::int64_t>(number), "row"), what));
    }
  };
  if (cell.best != no_row) parts.push_back("best " + row_text(cell.best));
  if (cell.best == no_row && cell.best_unmet != no_row) {
    parts.push_back("not as asked: " + row_text(cell.best_unmet));
  } else {
    count(cell.unmet, "not as asked");
  }
  count(cell.lacking, "without a value");
  count(cell.unfit, "that would not fit in memory");
  if (cell.failed > 0) {
    const std::size_t point = summary.rows[cell.first_failed].point;
    std::string why;
    for (const auto& [sentence, points] : summary.failed) {
      if (std::binary_search(points.begin(), points.end(), point)) why = sentence;
    }
    parts.push_back(fmt::format("{} failed, the first (point {}): {}", cell.failed, point, why));
  }
  return html(join(parts, "; "), 400);
}

std::string cell_of(const SweepSummary& summary, const HeatCell& cell, const Levels& levels,
                    const Scale& scale) {
  const SummaryColumn& column = summary.columns.front();
  const auto number = [&](std::size_t row) {
    const double value = column.value_of(summary.rows[row].costs.front()) / scale.factor;
    return three_digits(column.unit() == "%" ? 100 * value : value);
  };
  const std::string title = title_of(summary, cell);
  const auto made = [&](const std::string& css, const std::string& text) {
    return fmt::format("<td class=\"{}\" title=\"{}\">{}", css, title, text);
  };
  if (cell.best != no_row) {
    const bool top = cell.best == summary.best;
    return made(
        fmt::format("h{}{}", levels.of(summary.rows[cell.best].costs.front()), top ? " top" : ""),
        (top ? "★ " : "") + number(cell.best));
  }
  if (cell.best_unmet != no_row) return made("hu", number(cell.best_unmet));
  if (cell.lacking > 0) return made("hn", "no value");
  if (cell.unfit > 0) return made("hm", "memory");
  if (cell.failed > 0) return made("he", "error");
  return "<td title=\"no point\">";
}

std::string axis_title(const SweepAxis& axis) { return html_name(join(axis.names)); }

std::string heading(const SweepAxis& axis, std::uint32_t value) {
  const std::string& text = axis.headings[value];
  return fmt::format("<th title=\"{}\">{}", html(axis.values[value], 200),
                     text.empty() ? "–" : html_name(text));
}

}  // namespace

std::vector<std::size_t> main_axes(const SweepSummary& summary, std::size_t most) {
  std::vector<std::pair<double, std::size_t>> apart;
  for (std::size_t a = 0; a < summary.axes.size(); ++a) {
    double least = never, greatest = -never;
    for (const double cost : best_of_values(summary, a)) {
      least = std::min(least, cost);
      greatest = std::max(greatest, cost);
    }
    // A value without any good row tells more than any number.
    const double spread = greatest == never      ? never
                          : least * greatest > 0 ? std::abs(std::log(greatest / least))
                                                 : greatest - least;
    apart.emplace_back(-spread, a);
  }
  std::stable_sort(apart.begin(), apart.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  if (apart.size() > most) apart.resize(most);
  std::vector<std::size_t> axes;
  for (const auto& [spread, axis] : apart) axes.push_back(axis);
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::string draw_heat_map(const SweepSummary& summary, std::size_t down, std::size_t across) {
  const bool one = down == across;
  const SweepAxis& columns = summary.axes[across];
  const SweepAxis& lines = summary.axes[down];
  const std::vector<std::uint32_t> xs = drawn_values(summary, across);
  const std::vector<std::uint32_t> ys =
      one ? std::vector<std::uint32_t>{0} : drawn_values(summary, down);
  std::map<std::pair<std::uint32_t, std::uint32_t>, HeatCell> cells;
  for (std::size_t r = 0; r < summary.rows.size(); ++r) {
    const auto x = summary.at(summary.rows[r], across);
    const auto y = one ? std::optional<std::uint32_t>(0) : summary.at(summary.rows[r], down);
    for (const std::uint32_t cx : x ? std::vector<std::uint32_t>{*x} : xs) {
      for (const std::uint32_t cy : y ? std::vector<std::uint32_t>{*y} : ys) {
        cells[{cy, cx}].add(summary, r);
      }
    }
  }
  double best = never, worst = -never;
  for (const auto& [place, cell] : cells) {
    if (cell.best == no_row) continue;
    best = std::min(best, summary.rows[cell.best].costs.front());
    worst = std::max(worst, summary.rows[cell.best].costs.front());
  }
  const SummaryColumn& column = summary.columns.front();
  const std::string unit = column.unit();
  const Scale scale = unit.empty() || unit == "%" || best == never
                          ? Scale{}
                          : scale_for(std::abs(column.value_of(best)), unit);
  const std::string in = unit.empty() ? "" : fmt::format(" [{}{}]", scale.prefix, unit);
  std::string out =
      fmt::format("<div class=scroll><table class=heat><caption>{}{}", column.title(), html(in));
  const auto cut = [&](const SweepAxis& axis, std::size_t drawn) {
    if (drawn < axis.values.size()) {
      out += fmt::format("; {}: the best {} of {} values", axis_title(axis), drawn,
                         axis.values.size());
    }
  };
  cut(columns, xs.size());
  if (!one) cut(lines, ys.size());
  out += fmt::format("</caption><thead><tr><th><th colspan={}>{}<tr><th>{}", xs.size(),
                     axis_title(columns), one ? "" : axis_title(lines));
  for (const std::uint32_t x : xs) out += heading(columns, x);
  out += "<tbody>";
  const Levels levels(best, worst);
  for (const std::uint32_t y : ys) {
    out += "<tr>" + (one ? std::string("<th>") : heading(lines, y));
    for (const std::uint32_t x : xs) out += cell_of(summary, cells[{y, x}], levels, scale);
    out += "\n";
  }
  return out + "</table></div>\n";
}

}  // namespace parsim::report
