#include "report/page/sweep_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/sweep_keys.hpp"
#include "report/page/html.hpp"
#include "report/page/page.hpp"

namespace parsim::report {

namespace {

constexpr std::string_view step_column = "step_time_s";

/// "is the cheapest", of a column that ranks.
std::string superlative(const SummaryColumn& column) {
  if (column.name == step_column) return "Fastest";
  if (column.name == "cost_per_million_samples") return "Cheapest";
  return fmt::format("{} {}", column.criterion.highest ? "Highest" : "Lowest", column.title());
}

std::string with_conditions(const SweepPage& page) {
  return page.where.empty() ? "" : " with " + join(page.where, " and ");
}

/// A row as its file has it.
SweepRow whole_row(const SweepPage& page, const SummaryRow& row) {
  SweepRow found;
  std::size_t place = 0;
  page.rows.each_row_of(row.point, [&](const SweepRow& each) {
    if (place++ == row.place) found = each;
  });
  return found;
}

std::string cell_named(const SweepPage& page, const SweepRow& row, std::string_view name) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    if (page.rows.columns()[c] == name) return row[c].text;
  }
  return {};
}

/// The call of 'compare' that a point is.
std::vector<std::string> call_of(const SweepPage& page, const SweepRow& row) {
  constexpr std::string_view prefix = "input_";
  std::vector<std::string> words = {"compare"};
  for (std::size_t c = 0; c < row.size(); ++c) {
    const std::string& name = page.rows.columns()[c];
    if (!name.starts_with(prefix)) continue;
    const experiment::Option* option = experiment::sweepable(name.substr(prefix.size()));
    if (option == nullptr || row[c].kind == SweepCell::Kind::none) continue;
    const std::string flag(option->flag);
    if (option->placeholder().empty()) {
      if (row[c].text == "true") words.push_back(flag);
      continue;
    }
    const auto list = nlohmann::json::parse(row[c].text, nullptr, false);
    if (!list.is_array()) {
      words.insert(words.end(), {flag, row[c].text});
      continue;
    }
    for (const auto& entry : list) {
      words.insert(words.end(),
                   {flag, entry.is_string() ? entry.get<std::string>() : entry.dump()});
    }
  }
  return words;
}

/// "tp 8, pp 2, micro-batches 16" of those that the plan has and that are not 1.
std::string degrees_of(const SweepPage& page, const SweepRow& row) {
  std::vector<std::string> parts;
  for (const auto& [name, title] : {std::pair("tp", "tp"),
                                    {"pp", "pp"},
                                    {"dp", "dp"},
                                    {"cp", "cp"},
                                    {"ep", "ep"},
                                    {"vp", "vp"},
                                    {"zero", "ZeRO"},
                                    {"micro_batches", "micro-batches"}}) {
    const std::string text = cell_named(page, row, name);
    const bool plain = text == "1" || text == "0" || text == "none";
    if (!text.empty() && (!plain || name == std::string_view("dp"))) {
      parts.push_back(fmt::format("{} {}", title, text));
    }
  }
  return join(parts);
}

/// The best point in a sentence, or why there is none.
std::string answer_of(const SweepPage& page) {
  const SweepSummary& summary = page.summary;
  if (!summary.best) {
    return fmt::format("<p class=answer>No point is the best{}\n<p class=answer>{}\n",
                       html(with_conditions(page)), html(join(page.document.warnings, "; "), 1000));
  }
  const SummaryRow& best = summary.rows[*summary.best];
  const SummaryColumn& column = summary.columns.front();
  return fmt::format(
      "<p class=answer>{}{}: {}\n<p class=answer>{}{}\n", html(superlative(column)),
      html(with_conditions(page)), html(unbroken(column.text(column.value_of(best.costs.front())))),
      html(summary.words_of(best)),
      best.point < page.rows.header().points && summary.axes.empty() ? "the only point" : "");
}

/// What a reader decides by.
std::string brief_of_best(const SweepPage& page) {
  const SweepSummary& summary = page.summary;
  if (!summary.best) return {};
  const SummaryRow& best = summary.rows[*summary.best];
  const SweepRow row = whole_row(page, best);
  std::string out = "<dl class=brief>";
  const auto line = [&](std::string_view title, const std::string& text) {
    if (!text.empty()) out += fmt::format("<dt>{}<dd>{}\n", title, html(unbroken(text)));
  };
  std::vector<std::string> numbers;
  for (std::size_t c = 0; c < summary.columns.size(); ++c) {
    if (std::isnan(best.costs[c])) continue;
    const SummaryColumn& column = summary.columns[c];
    numbers.push_back(
        fmt::format("{} {}", column.title(), column.text(column.value_of(best.costs[c]))));
  }
  line("Numbers", join(numbers));
  const std::string low = cell_named(page, row, "interval_low_s");
  const std::string high = cell_named(page, row, "interval_high_s");
  if (const auto from = to_number<double>(low), to = to_number<double>(high); from && to) {
    line("How sure", fmt::format("nine of ten measured steps are expected between {} and {}; all "
                                 "numbers here are predictions",
                                 SummaryColumn{{}, std::string(step_column)}.text(*from),
                                 SummaryColumn{{}, std::string(step_column)}.text(*to)));
  }
  const std::string degrees = degrees_of(page, row);
  line("Plan", fmt::format("strategy {}{}", cell_named(page, row, "strategy"),
                           degrees.empty() ? "" : ": " + degrees));
  const std::vector<std::size_t> ranked = summary.ranked();
  for (const std::size_t r : ranked) {
    if (summary.rows[r].point == best.point) continue;
    const SummaryRow& second = summary.rows[r];
    const SummaryColumn& column = summary.columns.front();
    line("Next", fmt::format("{}: {}", column.text(column.value_of(second.costs.front())),
                             summary.words_of(second)));
    break;
  }
  std::vector<std::string> counts = {
      counted(static_cast<std::int64_t>(summary.rows.size()), "row")};
  const auto count = [&](std::size_t number, std::string_view what) {
    if (number > 0) counts.push_back(fmt::format("{} {}", number, what));
  };
  count(ranked.size(), page.where.empty() ? "that fit" : "that fit and are as asked");
  count(summary.unmet, "that fit and are not");
  count(summary.unfit, "that would not fit in memory");
  count(summary.lacking, "without " + summary.columns.front().title());
  std::size_t failed = 0;
  for (const auto& [sentence, points] : summary.failed) failed += points.size();
  count(failed, "failed");
  line("Of", join(counts));
  out +=
      fmt::format("<dt>In full<dd><code>{}</code>\n", html(command_text(call_of(page, row)), 4000));
  return out + "</dl>\n";
}

std::string heat_maps(const SweepPage& page) {
  constexpr std::size_t most_axes = 4;
  const SweepSummary& summary = page.summary;
  if (summary.columns.empty() || summary.axes.empty()) return {};
  const std::vector<std::size_t> axes = main_axes(summary, most_axes);
  std::string out = fmt::format(
      "<h2>What {} depends on</h2>\n<p class=key>Each cell is the best of its rows over all that "
      "is "
      "not named; <i class=\"box h8\">best</i><i class=\"box h4\">to</i><i class=\"box "
      "h0\">worst</i>",
      html(summary.columns.front().title()));
  if (summary.unmet > 0) {
    out += fmt::format("<i class=\"box hu\">1.23</i>no row{}", html(with_conditions(page)));
  }
  if (summary.unfit > 0) out += "<i class=\"box hm\">memory</i>no row fits";
  if (!summary.failed.empty()) out += "<i class=\"box he\">error</i>no row has results";
  out +=
      "; the title of a cell, shown under the pointer, says which row it is, or why there is "
      "none.";
  if (axes.size() < summary.axes.size()) {
    out += fmt::format(" Of {} inputs that vary, those that matter most.", summary.axes.size());
  }
  out += "</p>\n<div class=maps>\n";
  if (axes.size() == 1) out += draw_heat_map(summary, axes.front(), axes.front());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = i + 1; j < axes.size(); ++j) {
      // The longer axis goes down, where there is more room.
      const bool turned = summary.axes[axes[j]].values.size() > summary.axes[axes[i]].values.size();
      out += turned ? draw_heat_map(summary, axes[j], axes[i])
                    : draw_heat_map(summary, axes[i], axes[j]);
    }
  }
  return out + "</div>\n";
}

Table table_of_rows(const SweepPage& page, const std::vector<std::size_t>& wanted) {
  const SweepSummary& summary = page.summary;
  Table table;
  std::vector<TableCell> numbers, points;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    numbers.push_back(TableCell::word(fmt::format("{}", i + 1)));
    points.push_back(TableCell::word(fmt::format("{}", summary.rows[wanted[i]].point)));
  }
  add_column(table, {"no.", "", true}, std::move(numbers));
  for (std::size_t a = 0; a < summary.axes.size(); ++a) {
    std::vector<std::string> words;
    for (const std::size_t r : wanted) {
      const auto value = summary.at(summary.rows[r], a);
      words.push_back(value ? summary.axes[a].headings[*value] : "");
    }
    add_words(table, join(summary.axes[a].names), "", words);
  }
  if (!summary.strategy_axis) {
    std::vector<std::string> words;
    for (const std::size_t r : wanted) {
      words.push_back(summary.strategies[summary.rows[r].strategy]);
    }
    const bool known = std::any_of(summary.axes.begin(), summary.axes.end(), [](const auto& axis) {
      return axis.names == std::vector<std::string>{"strategy"};
    });
    if (!known) add_words(table, "strategy", "", words);
  }
  for (std::size_t c = 0; c < summary.columns.size(); ++c) {
    const SummaryColumn& column = summary.columns[c];
    const double factor = column.unit() == "%" ? 100 : 1;
    Numbers values{column.title(), column.name, {}};
    double typical = std::numeric_limits<double>::quiet_NaN();
    for (const std::size_t r : wanted) {
      values.values.push_back(factor * column.value_of(summary.rows[r].costs[c]));
      if (values.values.back() > 0) typical = std::fmin(typical, values.values.back());
    }
    add_numbers(table, column.unit(), {values}, typical);
  }
  add_column(table, {"point", "", true}, std::move(points));
  return table;
}

std::string fronts(const SweepPage& page) {
  const SweepSummary& summary = page.summary;
  const auto index_of = [&](std::string_view name) -> std::optional<std::size_t> {
    for (std::size_t c = 0; c < summary.columns.size(); ++c) {
      if (summary.columns[c].name == name) return c;
    }
    return std::nullopt;
  };
  std::vector<std::pair<std::string, std::string>> pairs;
  if (page.pareto.size() == 2) pairs.emplace_back(page.pareto[0], page.pareto[1]);
  for (const std::string other : {"cost_per_million_samples", "peak_memory_bytes"}) {
    const std::pair<std::string, std::string> pair(step_column, other);
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
  }
  std::string out;
  for (const auto& [across, up] : pairs) {
    const auto a = index_of(across), b = index_of(up);
    if (!a || !b || *a == *b) continue;
    const std::vector<std::size_t> front = summary.front(*a, *b);
    if (front.empty()) continue;
    constexpr std::size_t most_rows = 30;
    std::vector<std::size_t> listed = front;
    if (listed.size() > most_rows) listed.resize(most_rows);
    out += fmt::format("<h3 class=part>{} and {}</h3>\n", html(summary.columns[*a].title()),
                       html(summary.columns[*b].title()));
    out += draw_front(summary, *a, *b, front);
    out += html_table(table_of_rows(page, listed));
    if (listed.size() < front.size()) {
      out += fmt::format("<p class=key>and {} more</p>\n", front.size() - listed.size());
    }
  }
  if (out.empty()) return {};
  return "<h2>Trade-offs</h2>\n<p class=key>Rows that fit" +
         std::string(page.where.empty() ? "" : " and are as asked") +
         "; numbered are those of the Pareto front: no other row is better in one and as good in "
         "the other.</p>\n" +
         out;
}

std::string best_rows(const SweepPage& page) {
  std::vector<std::size_t> ranked = page.summary.ranked();
  if (ranked.empty()) return {};
  if (ranked.size() > page.top) ranked.resize(page.top);
  return fmt::format("<h2>The best {}</h2>\n",
                     counted(static_cast<std::int64_t>(ranked.size()), "row")) +
         html_table(table_of_rows(page, ranked));
}

std::string failures(const SweepPage& page) {
  const auto& failed = page.summary.failed;
  if (failed.empty()) return {};
  constexpr std::size_t most_sentences = 200, most_points = 12;
  // The most frequent first.
  std::vector<const std::pair<const std::string, std::vector<std::size_t>>*> order;
  for (const auto& entry : failed) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->second.size() > b->second.size();
  });
  std::string out =
      "<h2>Points without results</h2>\n<div class=scroll><table><thead><tr><th class=n>points"
      "<th>why<th>which<tbody>";
  for (std::size_t i = 0; i < std::min(most_sentences, order.size()); ++i) {
    const auto& [sentence, points] = *order[i];
    std::vector<std::string> names;
    for (std::size_t p = 0; p < std::min(most_points, points.size()); ++p) {
      names.push_back(fmt::format("{}", points[p]));
    }
    std::string which = join(names);
    if (points.size() > most_points) {
      which += fmt::format(" and {} more", points.size() - most_points);
    }
    out += fmt::format("<tr><td class=n>{}<td>{}<td>{}\n", points.size(), html(sentence), which);
  }
  out += "</table></div>\n";
  if (order.size() > most_sentences) {
    out += fmt::format("<p class=key>and {} more sentences</p>\n", order.size() - most_sentences);
  }
  return out;
}

/// The values of every axis, and what all points have.
std::string inputs_of(const SweepPage& page) {
  std::string out = "<h2>What was asked</h2>\n<dl class=brief>";
  for (const SweepAxis& axis : page.summary.axes) {
    constexpr std::size_t most_values = 60;
    std::vector<std::string> values = axis.headings;
    if (values.size() > most_values) {
      values.resize(most_values);
      values.push_back(fmt::format("and {} more", axis.values.size() - most_values));
    }
    out += fmt::format("<dt>{}<dd>{}\n", axis.names.empty() ? "" : html_name(join(axis.names)),
                       html(join(values)));
  }
  for (const SweepInput& input : page.summary.constant) {
    if (input.of_point.front().empty()) continue;
    out += fmt::format("<dt>{}<dd class=soft>{}\n", html_name(input.name),
                       html(input.of_point.front()));
  }
  return out + "</dl>\n";
}

}  // namespace

std::string render_sweep_page(const SweepPage& page) {
  std::string title = fmt::format("Sweep of {} points", page.rows.header().points);
  for (const SweepInput& input : page.summary.constant) {
    if (input.name == "network") title += ": " + html_name(input.of_point.front());
  }
  std::string out = page_head(title, false, file_named("sweep.css")) + answer_of(page);
  for (const std::string& line : page.document.head) out += fmt::format("<p>{}\n", html(line));
  out += "</header>\n<main>\n" + brief_of_best(page) + list_of(page.document.warnings, "warnings") +
         heat_maps(page) + fronts(page) + best_rows(page) + failures(page) + inputs_of(page);
  out += "<h2>Command</h2>\n" +
         page_end(page.command, false,
                  fmt::format("<p class=key>Sweep {}, parsim {}</p>\n",
                              html(page.rows.header().sweep), html(page.rows.header().version)));
  return out;
}

}  // namespace parsim::report
