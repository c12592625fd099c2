#include "report/sweep_merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/results_file.hpp"
#include "report/csv.hpp"
#include "report/page/sweep_page.hpp"
#include "report/sweep_filter.hpp"
#include "report/sweep_reports.hpp"
#include "report/sweep_rows.hpp"
#include "report/sweep_sqlite.hpp"
#include "report/sweep_summary.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

std::string csv_of(SweepRows& rows) {
  std::string out = join(rows.columns(), ",") + "\n";
  rows.each_row([&](const SweepRow& row) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) out += ',';
      out += csv_cell(row[c].text);
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

void write_output(SweepRows& rows, const MergeRequest& request) {
  const std::string& path = request.output;
  if (path.ends_with(".jsonl") && !request.where.empty()) {
    throw InputError("-o", fmt::format("'{}' together with --where", path),
                     "accepted: a file that ends in .csv or .sqlite; JSON Lines are whole points");
  }
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

std::string column_of_best(const MergeRequest& request) {
  return request.by.empty() ? "step_time_s" : request.by;
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

/// Why rows are not listed.
struct Unlisted {
  std::size_t rows = 0;  ///< all that there are
  std::size_t failed = 0, unfit = 0;
  std::string first_error;                            ///< "point 3: …"
  std::map<std::string, std::size_t> without, unmet;  ///< by column; by condition
};

/// What a column without values lacks.
std::string lacking(const std::string& column) {
  if (column == "cost_per_million_samples") {
    return ": no prices; accepted: those of a cluster file, or --override "
           "'devices.*.price=2.5 /h'";
  }
  if (column.starts_with("energy_")) {
    return ": no power; accepted: that of a cluster file, or --override 'devices.*.power=700 W'";
  }
  return "";
}

/// "12 of 24 rows have an error (point 0: …), 4 do not fit in memory"; "" if all are listed.
std::string reasons(const Unlisted& unlisted) {
  std::vector<std::string> parts;
  const auto add = [&](std::size_t number, const std::string& what) {
    if (number > 0) parts.push_back(fmt::format("{} {}", number, what));
  };
  add(unlisted.failed, fmt::format("have an error (the first: {})", unlisted.first_error));
  add(unlisted.unfit, "do not fit in memory");
  for (const auto& [column, number] : unlisted.without) {
    add(number, fmt::format("have no {}{}", column, lacking(column)));
  }
  for (const auto& [condition, number] : unlisted.unmet) {
    add(number, fmt::format("do not meet '{}'", condition));
  }
  if (parts.empty()) return {};
  return fmt::format("of {}, {}", counted(static_cast<std::int64_t>(unlisted.rows), "row"),
                     join(parts));
}

/// What a request asks of each row.
class Selection {
 public:
  Selection(const SweepRows& rows, const MergeRequest& request)
      : most_(request.top.value_or(rows.header().points * 64)),
        lists_(request.top || !request.pareto.empty()),
        columns_(&rows.columns()),
        has_results_(rows.has_results()) {
    if (!has_results_) return;
    fits_ = column_index(rows, "fits", "--top");
    by_ = criterion(rows, column_of_best(request), "--by");
    for (const std::string& name : request.pareto) {
      front_.push_back(criterion(rows, name, "--pareto"));
    }
    for (const std::string& text : request.where) conditions_.emplace_back(text, rows);
  }

  /// Whether the row meets all conditions.
  [[nodiscard]] bool meets(const SweepRow& row) const {
    return has_results_ && std::all_of(conditions_.begin(), conditions_.end(),
                                       [&](const RowCondition& one) { return one.holds(row); });
  }

  void see(const SweepRow& row) {
    ++unlisted_.rows;
    if (first_.empty()) first_ = row;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c].text != first_[c].text) varying_.insert(c);
    }
    for (RowCondition& condition : conditions_) condition.see(row);
    if (!refused(row) && lists_) add(row);
  }

  /// The rows asked for, best first; ties in the order of the points. Throws as
  /// RowCondition::check.
  std::vector<RankedRow> best() && {
    for (const RowCondition& condition : conditions_) condition.check();
    if (best_.size() > most_) best_.resize(most_);
    return std::move(best_);
  }
  [[nodiscard]] const Unlisted& unlisted() const { return unlisted_; }
  /// The columns in which rows differ, listed or not.
  [[nodiscard]] const std::set<std::size_t>& varying() const { return varying_; }

 private:
  bool refused(const SweepRow& row) {
    if (row.back().kind == SweepCell::Kind::text) {
      if (unlisted_.failed++ == 0) {
        unlisted_.first_error = fmt::format("point {}: {}", row.front().text, row.back().text);
      }
      return true;
    }
    if (lists_ && row[fits_].text != "true") {
      ++unlisted_.unfit;
      return true;
    }
    const auto lacks = [&](std::size_t column) {
      ++unlisted_.without[(*columns_)[column]];
      return true;
    };
    if (lists_ && !by_.cost(row)) return lacks(by_.column);
    for (const Criterion& one : front_) {
      if (!one.cost(row)) return lacks(one.column);
    }
    for (const RowCondition& condition : conditions_) {
      if (condition.holds(row)) continue;
      if (row[condition.column()].kind == SweepCell::Kind::none) return lacks(condition.column());
      ++unlisted_.unmet[condition.text()];
      return true;
    }
    return false;
  }

  void add(const SweepRow& row) {
    std::vector<double> costs;
    for (const Criterion& one : front_) costs.push_back(one.cost(row).value_or(0));
    if (!front_.empty()) {
      if (std::any_of(best_.begin(), best_.end(),
                      [&](const RankedRow& other) { return beats(other.costs, costs); })) {
        return;
      }
      std::erase_if(best_, [&](const RankedRow& other) { return beats(costs, other.costs); });
    }
    const double key = by_.cost(row).value_or(0);
    const auto at = std::upper_bound(best_.begin(), best_.end(), key,
                                     [&](double value, const RankedRow& other) {
                                       return value < by_.cost(other.row).value_or(0);
                                     });
    // A front is cut only when it is complete.
    if (front_.empty() && best_.size() >= most_ && at == best_.end()) return;
    best_.insert(at, {std::move(costs), row});
    if (front_.empty() && best_.size() > most_) best_.pop_back();
  }

  std::size_t most_;
  bool lists_;
  const std::vector<std::string>* columns_;
  bool has_results_;
  std::size_t fits_ = 0;
  Criterion by_;
  std::vector<Criterion> front_;
  std::vector<RowCondition> conditions_;
  std::vector<RankedRow> best_;
  Unlisted unlisted_;
  SweepRow first_;
  std::set<std::size_t> varying_;
};

Json json_of(const SweepCell& cell) {
  using Kind = SweepCell::Kind;
  if (cell.kind == Kind::none) return nullptr;
  if (cell.kind == Kind::text) return cell.text;
  return Json::parse(cell.text);
}

/// `varying`: inputs that say which point of the sweep a row is, though all listed ones have them.
Table table_of(const SweepRows& rows, const std::vector<RankedRow>& best,
               const std::set<std::size_t>& varying, const MergeRequest& request) {
  std::vector<std::string> shown = {"strategy", "step_time_s", "throughput_samples_per_s",
                                    "peak_memory_bytes", request.by};
  shown.insert(shown.end(), request.pareto.begin(), request.pareto.end());
  Table table;
  for (std::size_t c = 0; c < rows.columns().size(); ++c) {
    const std::string& name = rows.columns()[c];
    const bool input = name.starts_with("input_");
    const bool varies = input && varying.contains(c);
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

void write_page(SweepRows& rows, const MergeRequest& request, Document& document) {
  std::vector<RowCondition> where;
  if (rows.has_results()) {
    for (const std::string& text : request.where) where.emplace_back(text, rows);
  }
  std::vector<std::string> columns = {"step_time_s", "throughput_samples_per_s",
                                      "cost_per_million_samples", "peak_memory_bytes", "mfu"};
  columns.insert(columns.end(), request.pareto.begin(), request.pareto.end());
  OutputFile file(request.page, "--report");
  rows.keep_only({});  // the page also says what is not as asked
  const SweepSummary summary = summary_of(rows, column_of_best(request), columns, where);
  SweepPage page{rows, summary, document, request.where, request.pareto};
  if (request.top) page.top = *request.top;
  page.command = request.command;
  file.commit(render_sweep_page(page));
  document.head.push_back("page written to " + request.page);
}

}  // namespace

MergeReport merge_results(const MergeRequest& request) {
  SweepRows rows(request.paths);
  MergeReport merged;
  Document& document = merged.document;
  const std::size_t points = rows.header().points;
  const bool lists = request.top || !request.pareto.empty();
  document.head.push_back(fmt::format("{} of {} points in {}", points - rows.missing().size(),
                                      points,
                                      counted(static_cast<std::int64_t>(rows.files()), "file")));
  Selection selection(rows, request);
  std::vector<RankedRow> best;
  if (lists || !request.where.empty()) {
    rows.each_row([&](const SweepRow& row) { selection.see(row); });
    best = std::move(selection).best();
    if (!request.where.empty()) {
      rows.keep_only([&](const SweepRow& row) { return selection.meets(row); });
    }
  }
  if (!request.output.empty()) {
    write_output(rows, request);
    document.head.push_back("written to " + request.output);
  }
  const auto warn = [&](const std::vector<std::size_t>& some, std::string_view what) {
    if (!some.empty()) document.warnings.push_back(fmt::format("{}: {}", what, some_points(some)));
  };
  warn(rows.missing(), "missing");
  warn(rows.repeated(), "in several places, with equal results");
  warn(rows.unfinished(), "not finished; run the sweep again to try them again");
  merged.nothing_listed = lists && best.empty();
  if (const std::string why = reasons(selection.unlisted()); merged.nothing_listed) {
    document.warnings.push_back("no row to list: " + why);
  } else if (!why.empty()) {
    document.notes.push_back("not listed: " + why);
  }
  if (!request.page.empty()) write_page(rows, request, document);
  MergedReport report{rows.header().sweep,
                      points,
                      rows.files(),
                      rows.missing(),
                      rows.repeated(),
                      rows.unfinished(),
                      request.output.empty() ? std::nullopt : std::optional(request.output),
                      {},
                      rows.header().version};
  if (lists) {
    if (rows.has_results())
      document.tables.push_back(table_of(rows, best, selection.varying(), request));
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
  return merged;
}

}  // namespace parsim::report
