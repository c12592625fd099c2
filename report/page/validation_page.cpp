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

/// `compared`: what x shows, "measured".
std::string scatter(const std::string& name, const Rows& rows, const std::string& compared) {
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
        "<circle cx={} cy={} r=3><title>{}: {} {} {}, predicted {} {}, {}"
        "</title></circle>",
        x(row.claim.expected), y(row.predicted), html_name(row.claim.name), compared,
        three_digits(row.claim.expected), html_name(row.claim.unit), three_digits(row.predicted),
        html_name(row.claim.unit), signed_percent(row.error()));
  }
  return out + fmt::format(
                   "<text x={} y={} class=m>x: {}, y: predicted{}</text></svg>"
                   "<figcaption>{}: {} row{}</figcaption></figure>\n",
                   plot_left + plot_size / 2, plot_top + plot_size + 32, compared,
                   html(unit.empty() ? "" : fmt::format(" [{}]", unit)), html_name(name),
                   rows.size(), rows.size() == 1 ? "" : "s");
}

std::string percent_of(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// A bar with what lies between two marks as a line; both on a scale that ends at `full`.
std::string marked_bar(const std::string& name, const std::string& text, double share, double low,
                       double high, double full) {
  const auto place = [&](double value) {
    return width_percent(std::isnan(value) ? 0 : std::clamp(value / full, 0.0, 1.0));
  };
  std::string out = fmt::format(
      "<b>{}</b><span>{}</span><svg class=bar><title>{}</title><rect class=c width={} />", name,
      text, text, place(share));
  if (high > low) {
    out += fmt::format(
        "<g class=whisker><line x1={0} x2={1} y1=50% y2=50% /><line x1={0} x2={0} y1=25% y2=75% />"
        "<line x1={1} x2={1} y1=25% y2=75% /></g>",
        place(low), place(high));
  }
  return out + "</svg>\n";
}

/// A bar for the mean error of every set, and a line from the 5 % to the 95 % quantile.
std::string error_bars(const nlohmann::json& sets) {
  constexpr double longest = 1.0;
  double full = 0;
  for (const nlohmann::json& set : sets) {
    const double high = number_of(set["high_error"]);
    if (!std::isnan(high)) full = std::max(full, std::min(high, longest));
  }
  if (full <= 0) full = longest;
  std::string out = "<h2>Errors by set</h2>\n<div class=bars>\n";
  for (const nlohmann::json& set : sets) {
    const double mean = number_of(set["mean_error"]), low = number_of(set["low_error"]),
                 high = number_of(set["high_error"]), naive = number_of(set["baseline_mean_error"]);
    if (std::isnan(mean)) continue;
    std::string text = fmt::format("{} ({} to {}), {} rows", percent_of(mean), percent_of(low),
                                   percent_of(high), set["rows"].get<std::size_t>());
    if (!std::isnan(naive)) text += fmt::format("; naive {}", percent_of(naive));
    out += marked_bar(html(set["name"].get<std::string>(), 80), text, mean, low, high, full);
  }
  return out +
         fmt::format(
             "</div>\n<p class=key><i class=c></i> mean error; <i class=whisk></i>\u00a0nine of "
             "ten rows, in brackets; the scale ends at {}</p>\n",
             percent_of(full));
}

/// "GPT-18.4B, 256 x a100-sxm4-80" of a job's description.
std::string short_job(const std::string& job) {
  std::string name = job.substr(0, job.find(" ("));
  const std::size_t tokens = job.find(" tokens, ");
  if (tokens == std::string::npos) return name;
  const std::size_t from = tokens + std::string_view(" tokens, ").size();
  return name + ", " + job.substr(from, job.find(',', from) - from);
}

/// How much slower the plan predicted to be the fastest is than the one that is, by job.
std::string regret_bars(const nlohmann::json& groups) {
  double full = 0.1;
  for (const nlohmann::json& group : groups) {
    const double regret = number_of(group["regret"]);
    if (!std::isnan(regret)) full = std::max(full, regret);
  }
  std::string bars;
  for (const nlohmann::json& group : groups) {
    const double regret = number_of(group["regret"]), order = number_of(group["spearman"]);
    if (std::isnan(regret)) continue;
    std::string text = fmt::format("{} slower than the best of {} plans", percent_of(regret),
                                   group["plans"].get<std::size_t>());
    if (!std::isnan(order)) text += ", rank correlation " + three_digits(order);
    bars += marked_bar(html(short_job(group["group"].get<std::string>()), 80), text, regret, 0, 0,
                       full);
  }
  if (bars.empty()) return {};
  return "<h2>Regret by job: is the plan predicted to be the fastest the fastest?</h2>\n<div "
         "class=bars>\n" +
         bars + fmt::format("</div>\n<p class=key>The scale ends at {}.</p>\n", percent_of(full));
}

/// What the page says first.
std::string answers(const nlohmann::json& json) {
  std::string out;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  std::size_t rows = 0, sets = 0;
  for (const nlohmann::json& set : json["sets"]) {
    const double mean = number_of(set["mean_error"]);
    if (std::isnan(mean)) continue;
    least = std::min(least, mean);
    most = std::max(most, mean);
    rows += set["rows"].get<std::size_t>();
    ++sets;
  }
  const auto line = [&](const std::string& text) {
    out += "<p class=answer>" + html(unbroken(text)) + "\n";
  };
  if (sets == 1) line(fmt::format("Off by {} on average over {} rows", percent_of(most), rows));
  if (sets > 1) {
    line(fmt::format("Off by {} to {} on average, by set ({} sets, {} rows)", percent_of(least),
                     percent_of(most), sets, rows));
  }
  if (json.contains("groups")) {
    double sum = 0, worst = 0;
    std::size_t jobs = 0;
    for (const nlohmann::json& group : json["groups"]) {
      const double regret = number_of(group["regret"]);
      if (std::isnan(regret)) continue;
      sum += regret;
      worst = std::max(worst, regret);
      ++jobs;
    }
    if (jobs > 0) {
      line(
          fmt::format("The plan predicted to be the fastest is {} slower than the fastest on "
                      "average, {} at worst ({} {} with several plans)",
                      percent_of(sum / static_cast<double>(jobs)), percent_of(worst), jobs,
                      jobs == 1 ? "job" : "jobs"));
    }
  }
  if (json.contains("intervals") && !json["intervals"].empty()) {
    const nlohmann::json& all = json["intervals"].back();
    line(fmt::format("{} of the measured values lie in their 90 % intervals",
                     percent_of(number_of(all["coverage"]))));
  }
  return out;
}

/// The title of the column with what predictions are compared with.
std::string compared_with(const Document& document) {
  for (const Table& table : document.tables) {
    for (const Column& column : table.columns) {
      if (column.key == "expected") return column.title;
    }
  }
  return "measured";
}

/// Error and reason first: the names of cases are long.
Table reasons_first(const Table& table) {
  Table out;
  out.title = table.title;
  out.rows.resize(table.rows.size());
  std::vector<std::size_t> order(table.columns.size());
  for (std::size_t c = 0; c < order.size(); ++c) order[c] = c;
  std::stable_partition(order.begin(), order.end(), [&](std::size_t c) {
    const std::string& key = table.columns[c].key;
    return key == "error" || key == "reason";
  });
  std::stable_partition(order.begin(), order.end(), [&](std::size_t c) {
    const std::string& key = table.columns[c].key;
    return key != "set" && key != "case";
  });
  for (const std::size_t c : order) {
    out.columns.push_back(table.columns[c]);
    for (std::size_t r = 0; r < out.rows.size(); ++r) out.rows[r].push_back(table.rows[r][c]);
  }
  return out;
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
  const std::string compared = compared_with(document);
  std::string out = page_head("Validation of predictions", !timelines.empty()) + answers(json);
  for (const std::string& line : document.head) out += fmt::format("<p>{}\n", html(line));
  out += "</header>\n<main>\n";
  if (json.contains("groups")) out += regret_bars(json["groups"]);
  if (!json["sets"].empty()) out += error_bars(json["sets"]);
  if (!sets.empty()) {
    out += fmt::format(
        "<h2>Predicted against {}</h2>\n<p class=key>A point is a row. Above the dashed line it is "
        "predicted too high.</p>\n<div class=multiples>\n",
        compared);
    for (const auto& [name, of_set] : sets) out += scatter(name, of_set, compared);
    out += "</div>\n";
  }
  constexpr std::size_t most_open = 20;
  const Table* every_row = nullptr;
  std::string worst, tables;
  for (const Table& table : document.tables) {
    const bool of_rows = std::any_of(table.columns.begin(), table.columns.end(),
                                     [](const Column& column) { return column.key == "case"; });
    if (of_rows && table.rows.size() == rows.size()) every_row = &table;
    if (!of_rows) tables += html_table(table);
    if (of_rows && table.rows.size() <= most_open) worst += html_table(reasons_first(table));
  }
  if (!worst.empty()) out += "<h2>Rows with their reasons</h2>\n" + worst;
  if (!tables.empty()) out += "<h2>All numbers</h2>\n" + tables;
  if (json.contains("classes") && !json["classes"].empty()) {
    out += "<h2>By operation class</h2>\n<p class=key>Sums over all devices.</p>\n" +
           html_table(table_of_classes(json["classes"]));
  }
  out += timelines;
  if (rows.size() > most_open || (!rows.empty() && every_row == nullptr)) {
    out += "<h2>All rows</h2>\n<details><summary>table</summary>" +
           html_table(every_row != nullptr ? *every_row : table_of_rows(rows, compared)) +
           "</details>\n";
  }
  out += "<h2>Notes</h2>\n<ul class=notes>";
  for (const std::string& note : document.notes) out += fmt::format("<li>{}", html(note));
  return out + "</ul>\n<h2>Command</h2>\n" + page_end(command, !timelines.empty());
}

}  // namespace parsim::report
