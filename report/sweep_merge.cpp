#include "report/sweep_merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/results_file.hpp"
#include "report/sweep_reports.hpp"
#include "report/sweep_rows.hpp"
#include "report/sweep_sqlite.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

std::string quoted_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_of(SweepRows& rows) {
  std::string out = join(rows.columns(), ",") + "\n";
  rows.each_row([&](const SweepRow& row) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) out += ',';
      out += quoted_field(row[c].text);
    }
    out += '\n';
  });
  return out;
}

/// As one process would have written it.
std::string jsonl_of(SweepRows& rows) {
  std::string out = experiment::header_line(rows.header()) + "\n";
  for (std::size_t p = 0; p < rows.header().points; ++p) {
    const std::string line = rows.line(p);
    if (!line.empty()) out += line + "\n";
  }
  return out;
}

void write_output(SweepRows& rows, const std::string& path) {
  if (path.ends_with(".csv")) {
    OutputFile(path, "-o").commit(csv_of(rows));
  } else if (path.ends_with(".jsonl")) {
    OutputFile(path, "-o").commit(jsonl_of(rows));
  } else if (path.ends_with(".sqlite")) {
    OutputFile(path, "-o").commit(sqlite_of(rows));
  } else {
    throw InputError("-o", fmt::format("'{}'", path),
                     "accepted: a file that ends in .csv, .jsonl or .sqlite");
  }
}

std::size_t column_index(const SweepRows& rows, const std::string& name, std::string_view flag) {
  const auto found = std::find(rows.columns().begin(), rows.columns().end(), name);
  if (found == rows.columns().end()) experiment::refuse_word(name, flag, rows.columns());
  return static_cast<std::size_t>(found - rows.columns().begin());
}

/// A column whose lowest value, or highest, is the best.
struct Criterion {
  std::size_t column = 0;
  bool highest = false;

  /// Lower is better; nothing if the cell is no number.
  [[nodiscard]] std::optional<double> cost(const SweepRow& row) const {
    const auto value = to_number<double>(row[column].text);
    if (!value || std::isnan(*value)) return std::nullopt;
    return highest ? -*value : *value;
  }
};
Criterion criterion(const SweepRows& rows, const std::string& name, std::string_view flag) {
  return {column_index(rows, name, flag), name == "throughput_samples_per_s" ||
                                              name == "probability_fastest" || name == "mfu" ||
                                              name == "hfu"};
}

struct RankedRow {
  std::vector<double> costs;
  SweepRow row;
};

/// At least as good in all costs, and better in one.
bool beats(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better;
}

/// The rows asked for, best first; ties in the order of the points.
std::vector<RankedRow> best_rows(SweepRows& rows, const MergeRequest& request) {
  const Criterion by = criterion(rows, request.by.empty() ? "step_time_s" : request.by, "--by");
  std::vector<Criterion> front;
  for (const std::string& name : request.pareto) {
    front.push_back(criterion(rows, name, "--pareto"));
  }
  const std::size_t fits = column_index(rows, "fits", "--top");
  const std::size_t most = request.top.value_or(rows.header().points * 64);
  std::vector<RankedRow> best;
  rows.each_row([&](const SweepRow& row) {
    const std::optional<double> key = by.cost(row);
    if (row[fits].text != "true" || !key) return;
    std::vector<double> costs;
    for (const Criterion& one : front) {
      const std::optional<double> cost = one.cost(row);
      if (!cost) return;
      costs.push_back(*cost);
    }
    if (!front.empty()) {
      if (std::any_of(best.begin(), best.end(),
                      [&](const RankedRow& other) { return beats(other.costs, costs); })) {
        return;
      }
      std::erase_if(best, [&](const RankedRow& other) { return beats(costs, other.costs); });
    }
    const auto at =
        std::upper_bound(best.begin(), best.end(), *key, [&](double value, const RankedRow& other) {
          return value < by.cost(other.row).value_or(0);
        });
    // A front is cut only when it is complete.
    if (front.empty() && best.size() >= most && at == best.end()) return;
    best.insert(at, {std::move(costs), row});
    if (front.empty() && best.size() > most) best.pop_back();
  });
  if (best.size() > most) best.resize(most);
  return best;
}

Json json_of(const SweepCell& cell) {
  using Kind = SweepCell::Kind;
  if (cell.kind == Kind::none) return nullptr;
  if (cell.kind == Kind::text) return cell.text;
  return Json::parse(cell.text);
}

Table table_of(const SweepRows& rows, const std::vector<RankedRow>& best,
               const MergeRequest& request) {
  std::vector<std::string> shown = {"strategy", "step_time_s", "throughput_samples_per_s",
                                    "peak_memory_bytes", request.by};
  shown.insert(shown.end(), request.pareto.begin(), request.pareto.end());
  Table table;
  for (std::size_t c = 0; c < rows.columns().size(); ++c) {
    const std::string& name = rows.columns()[c];
    const bool input = name.starts_with("input_");
    const bool varies = input && std::any_of(best.begin(), best.end(), [&](const RankedRow& row) {
                          return row.row[c].text != best.front().row[c].text;
                        });
    const bool wanted = varies || std::find(shown.begin(), shown.end(), name) != shown.end();
    bool number = true;
    std::vector<TableCell> cells;
    for (const RankedRow& row : best) {
      const SweepCell& cell = row.row[c];
      number = number && cell.kind != SweepCell::Kind::text;
      cells.push_back({cell.kind == SweepCell::Kind::real
                           ? three_digits(to_number<double>(cell.text).value_or(0))
                           : cell.text,
                       cell.text});
    }
    add_column(table,
               {input ? name.substr(std::string_view("input_").size()) : name, name, number,
                wanted ? Audience::everyone : Audience::programs},
               std::move(cells));
  }
  return table;
}

/// "points 3, 17 and 12 more".
std::string some_points(const std::vector<std::size_t>& points) {
  constexpr std::size_t most = 10;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(most, points.size()); ++i) {
    names.push_back(fmt::format("{}", points[i]));
  }
  return fmt::format("point{} {}{}", points.size() == 1 ? "" : "s", join(names),
                     points.size() > most ? fmt::format(" and {} more", points.size() - most) : "");
}

}  // namespace

Document merge_results(const MergeRequest& request) {
  SweepRows rows(request.paths);
  Document document;
  const std::size_t points = rows.header().points;
  document.head.push_back(fmt::format("{} of {} points in {}", points - rows.missing().size(),
                                      points,
                                      counted(static_cast<std::int64_t>(rows.files()), "file")));
  if (!request.output.empty()) {
    write_output(rows, request.output);
    document.head.push_back("written to " + request.output);
  }
  const auto warn = [&](const std::vector<std::size_t>& some, std::string_view what) {
    if (!some.empty()) document.warnings.push_back(fmt::format("{}: {}", what, some_points(some)));
  };
  warn(rows.missing(), "missing");
  warn(rows.repeated(), "in several places, with equal results");
  warn(rows.unfinished(), "not finished; run the sweep again to try them again");
  MergedReport report{rows.header().sweep,
                      points,
                      rows.files(),
                      rows.missing(),
                      rows.repeated(),
                      rows.unfinished(),
                      request.output.empty() ? std::nullopt : std::optional(request.output),
                      {},
                      rows.header().version};
  if (request.top || !request.pareto.empty()) {
    const std::vector<RankedRow> best = best_rows(rows, request);
    document.tables.push_back(table_of(rows, best, request));
    report.ranked.emplace();
    for (const RankedRow& row : best) {
      Json object = Json::object();
      for (std::size_t c = 0; c < row.row.size(); ++c) {
        object[rows.columns()[c]] = json_of(row.row[c]);
      }
      report.ranked->rows.push_back({object.dump(-1, ' ', false, Json::error_handler_t::replace)});
    }
  }
  document.json = result_text(report);
  return document;
}

}  // namespace parsim::report
