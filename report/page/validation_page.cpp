#include "report/page/validation_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/page/page.hpp"
#include "report/validation.hpp"

namespace parsim::report {

namespace {

constexpr double plot_size = 240, plot_left = 52, plot_top = 8, plot_right = 14, plot_below = 40;

using Rows = std::vector<validation::ValidationRow>;

double number_of(const nlohmann::json& json) {
  return json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// Both axes of a scatter alike: logarithmic unless something is not positive.
class SquareAxes {
 public:
  explicit SquareAxes(const Rows& rows) {
    least_ = std::numeric_limits<double>::infinity();
    most_ = -least_;
    for (const validation::ValidationRow& row : rows) {
      for (const double value : {row.claim.expected, row.predicted}) {
        least_ = std::min(least_, value);
        most_ = std::max(most_, value);
      }
    }
    logarithmic_ = least_ > 0;
    if (logarithmic_) {
      constexpr double margin = 1.15;
      least_ /= margin;
      most_ *= margin;
    } else {
      const double margin = 0.05 * (most_ - least_) + 1e-12;
      least_ -= margin;
      most_ += margin;
    }
  }
  [[nodiscard]] double share(double value) const {
    if (!logarithmic_) return (value - least_) / (most_ - least_);
    return std::log(value / least_) / std::log(most_ / least_);
  }
  [[nodiscard]] double least() const { return least_; }
  [[nodiscard]] double most() const { return most_; }
  /// Powers of ten inside, or five equal steps; with few powers also 2 and 5 times them.
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> found;
    if (!logarithmic_) {
      for (int i = 0; i <= 4; ++i) found.push_back(least_ + i * (most_ - least_) / 4);
      return found;
    }
    const double decades = std::log10(most_ / least_);
    for (double power = std::pow(10, std::floor(std::log10(least_))); power < most_; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const bool wanted = factor == 1.0 || decades < 2;
        const double tick = power * factor;
        if (wanted && tick >= least_ && tick <= most_) found.push_back(tick);
      }
    }
    constexpr std::size_t most_ticks = 7;
    while (found.size() > most_ticks) {  // every second one
      for (std::size_t i = 1; i < found.size(); ++i) {
        found.erase(found.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return found;
  }

 private:
  double least_ = 1, most_ = 2;
  bool logarithmic_ = true;
};

std::string scatter(const std::string& name, const Rows& rows) {
  const SquareAxes axes(rows);
  const auto x = [&](double value) {
    return coordinate(plot_left + axes.share(value) * plot_size);
  };
  const auto y = [&](double value) {
    return coordinate(plot_top + (1 - axes.share(value)) * plot_size);
  };
  std::string out =
      fmt::format("<figure><svg class=scaling viewBox=\"0 0 {} {}\">",
                  plot_left + plot_size + plot_right, plot_top + plot_size + plot_below);
  for (const double tick : axes.ticks()) {
    out += fmt::format(
        "<path class=grid d=\"M{} {}h{}M{} {}v{}\"/><text x={} y={} class=n>{}</text>"
        "<text x={} y={} class=m>{}</text>",
        plot_left, y(tick), plot_size, x(tick), plot_top, plot_size, plot_left - 5, y(tick),
        three_digits(tick), x(tick), plot_top + plot_size + 14, three_digits(tick));
  }
  out += fmt::format("<path class=ideal d=\"M{} {}L{} {}\"/>", x(axes.least()), y(axes.least()),
                     x(axes.most()), y(axes.most()));
  const std::string& unit = rows.front().claim.unit;
  for (const validation::ValidationRow& row : rows) {
    out += fmt::format(
        "<circle cx={} cy={} r=3><title>{}: expected {} {}, predicted {} {}, {}"
        "</title></circle>",
        x(row.claim.expected), y(row.predicted), html_name(row.claim.name),
        three_digits(row.claim.expected), html_name(row.claim.unit), three_digits(row.predicted),
        html_name(row.claim.unit), signed_percent(row.error()));
  }
  return out + fmt::format(
                   "<text x={} y={} class=m>x: expected, y: predicted{}</text></svg>"
                   "<figcaption>{}: {} row{}</figcaption></figure>\n",
                   plot_left + plot_size / 2, plot_top + plot_size + 32,
                   html(unit.empty() ? "" : fmt::format(" [{}]", unit)), html_name(name),
                   rows.size(), rows.size() == 1 ? "" : "s");
}

/// A bar for the mean error of every set, on one scale that ends at 100 %.
std::string error_bars(const nlohmann::json& sets) {
  std::string out = "<div class=bars>\n";
  for (const nlohmann::json& set : sets) {
    const double mean = number_of(set["mean_error"]), naive = number_of(set["baseline_mean_error"]);
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    std::string text = std::isnan(mean) ? "-" : percent(mean);
    if (!std::isnan(naive)) text += fmt::format(" (naive {})", percent(naive));
    out += fmt::format(
        "<b>{}</b><span>{}</span><svg class=bar><title>mean error {}</title><rect class=c width={} "
        "/></svg>\n",
        html(set["name"].get<std::string>(), 80), text, text,
        width_percent(std::isnan(mean) ? 0 : std::min(mean, 1.0)));
  }
  return out + "</div>\n";
}

Table table_of_classes(const nlohmann::json& classes) {
  std::vector<std::string> sets, cases, names;
  Numbers predicted{"predicted", "predicted_s", {}}, measured{"measured", "measured_s", {}};
  std::vector<TableCell> errors;
  for (const nlohmann::json& one : classes) {
    sets.push_back(one["set"]);
    cases.push_back(one["case"]);
    names.push_back(one["class"]);
    predicted.values.push_back(number_of(one["predicted_s"]));
    measured.values.push_back(number_of(one["measured_s"]));
    const double error = predicted.values.back() / measured.values.back() - 1;
    errors.push_back(std::isfinite(error) ? TableCell{signed_percent(error), exact(error)}
                                          : TableCell{"-", ""});
  }
  Table table;
  add_words(table, "network", "set", sets);
  add_words(table, "strategy", "case", cases);
  add_words(table, "operations", "class", names);
  add_numbers(table, "s", {predicted, measured});
  add_column(table, {"error", "error"}, std::move(errors));
  return table;
}

}  // namespace

std::string draw_both(const std::vector<BothTimelines>& steps, const Cluster& cluster) {
  if (steps.empty()) return {};
  std::string out = "<h2>Timelines: predicted above measured</h2>\n";
  out +=
      "<p class=key>Measured with events around each operation, in the median step. Both timelines "
      "start at zero.</p>\n";
  out += timeline_key();
  for (const BothTimelines& step : steps) {
    out += fmt::format("<details{}><summary>{}</summary>\n{}</details>\n",
                       &step == &steps.front() ? " open" : "", html_name(step.name),
                       draw_timeline(step.bars, cluster));
  }
  return out;
}

std::string render_validation_page(const Document& document, const std::string& timelines,
                                   const std::vector<std::string>& command) {
  const nlohmann::json json = nlohmann::json::parse(document.json);
  Rows rows;
  std::vector<std::pair<std::string, Rows>> sets;
  for (const nlohmann::json& entry : json["rows"]) {
    validation::ValidationRow row;
    row.claim.set = entry["set"];
    row.claim.name = entry["case"];
    row.claim.unit = entry["unit"];
    row.claim.expected = number_of(entry["expected"]);
    row.claim.reason = entry["reason"];
    row.predicted = number_of(entry["predicted"]);
    auto at = std::find_if(sets.begin(), sets.end(),
                           [&](const auto& set) { return set.first == row.claim.set; });
    if (at == sets.end()) at = sets.insert(sets.end(), {row.claim.set, {}});
    at->second.push_back(row);
    rows.push_back(std::move(row));
  }
  std::string out = page_head("Validation of predictions", !timelines.empty());
  for (const std::string& line : document.head) out += fmt::format("<p>{}\n", html(line));
  out += "</header>\n<main>\n";
  if (!json["sets"].empty()) out += "<h2>Mean error by set</h2>\n" + error_bars(json["sets"]);
  constexpr std::size_t most_open = 20;
  const Table* every_row = nullptr;
  for (const Table& table : document.tables) {
    const bool of_rows = std::any_of(table.columns.begin(), table.columns.end(),
                                     [](const Column& column) { return column.key == "case"; });
    if (of_rows && table.rows.size() == rows.size()) every_row = &table;
    if (!of_rows || table.rows.size() <= most_open) out += html_table(table);
  }
  if (!sets.empty()) {
    out +=
        "<h2>Predicted against expected</h2>\n<p class=key>Expected: measured or published. Points "
        "above the dashed line are predicted too high.</p>\n<div class=multiples>\n";
    for (const auto& [name, of_set] : sets) out += scatter(name, of_set);
    out += "</div>\n";
  }
  if (json.contains("classes") && !json["classes"].empty()) {
    out += "<h2>By operation class</h2>\n<p class=key>Sums over all devices.</p>\n" +
           html_table(table_of_classes(json["classes"]));
  }
  out += timelines;
  if (rows.size() > most_open || (!rows.empty() && every_row == nullptr)) {
    out += "<h2>All rows</h2>\n<details><summary>table</summary>" +
           html_table(every_row != nullptr ? *every_row : table_of_rows(rows)) + "</details>\n";
  }
  out += "<h2>Notes</h2>\n<ul class=notes>";
  for (const std::string& note : document.notes) out += fmt::format("<li>{}", html(note));
  return out + "</ul>\n<h2>Command</h2>\n" + page_end(command, !timelines.empty());
}

}  // namespace parsim::report
