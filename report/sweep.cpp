#include "report/sweep.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "report/runs.hpp"
#include "report/sweep_reports.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> text_if_any(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

/// A number where the text is one, as the file would have it.
Json scalar(const std::string& text) {
  const auto number = to_number<std::int64_t>(text);
  return number && fmt::format("{}", *number) == text ? Json(*number) : Json(text);
}

Json input_json(const experiment::Sweep& sweep, const experiment::SweepPoint& point,
                std::size_t column) {
  const experiment::SweepValue value = sweep.value(point, column);
  const experiment::Option* option = sweep.columns[column].option;
  if (option != nullptr && option->placeholder().empty()) return !value.empty();
  if (value.empty()) return nullptr;
  if (value.size() == 1) return scalar(value.front());
  return value;
}

std::string start_of_line(const experiment::Sweep& sweep, std::size_t point,
                          bool nondeterministic) {
  const experiment::SweepPoint& asked = sweep.points[point];
  Json inputs = Json::object();
  for (std::size_t c = 0; c < sweep.columns.size(); ++c) {
    inputs[sweep.columns[c].name] = input_json(sweep, asked, c);
  }
  return fmt::format("{},\"inputs\":{},",
                     experiment::line_start({point, asked.id, nondeterministic}), one_line(inputs));
}

Json cell_json(const Column& column, const TableCell& cell) {
  if (cell.raw.empty()) return nullptr;
  if (cell.raw == "true" || cell.raw == "false") return cell.raw == "true";
  const Json number = column.is_number ? Json::parse(cell.raw, nullptr, false) : Json();
  return number.is_number() ? number : Json(cell.raw);
}

}  // namespace

std::string point_line(const experiment::Sweep& sweep, std::size_t point,
                       const std::vector<experiment::RunResult>& results) {
  const Table table = comparison_table(results);
  Json rows = Json::array();
  for (const std::vector<TableCell>& cells : table.rows) {
    Json row = Json::object();
    for (std::size_t c = 0; c < cells.size(); ++c) {
      row[table.columns[c].key] = cell_json(table.columns[c], cells[c]);
    }
    rows.push_back(std::move(row));
  }
  return fmt::format("{}\"results\":{},\"error\":null}}", start_of_line(sweep, point, false),
                     one_line(rows));
}

std::string point_line(const experiment::Sweep& sweep, std::size_t point, const std::string& error,
                       bool nondeterministic) {
  return fmt::format("{}\"results\":[],\"error\":{}}}",
                     start_of_line(sweep, point, nondeterministic), one_line(error));
}

Document report_sweep(const experiment::Sweep& sweep, const SweepProgress& progress) {
  Document document;
  const experiment::Shard& shard = progress.shard;
  const std::size_t done = progress.before + progress.now - progress.unfinished;
  std::string part;
  if (shard.count > 1) {
    part = fmt::format(" of shard {} of {} ({})", shard.index + 1, shard.count, shard.source);
  }
  document.head.push_back(fmt::format("{} of {} points{} done, {} now, in {}", done,
                                      progress.in_shard, part, progress.now,
                                      progress.results_file));
  const auto add = [&](std::size_t number, const std::string& what) {
    if (number > 0) document.notes.push_back(fmt::format("{} {}", number, what));
  };
  add(progress.unfit, "of them do not fit in memory with any strategy");
  add(progress.failed, "of them have an error instead of results");
  add(progress.unfinished, "did not end and will be tried again by the next call");
  if (!progress.first_error.empty()) document.notes.push_back(progress.first_error);
  document.json = result_text(ComputedReport{
      sweep.id,
      sweep.points.size(),
      {shard.index + 1, shard.count,
       shard.source.empty() ? std::nullopt : std::optional(shard.source), progress.in_shard},
      done,
      progress.now,
      progress.unfit,
      progress.failed,
      progress.unfinished,
      text_if_any(progress.first_error),
      progress.results_file,
      version()});
  return document;
}

std::string error_of(const std::string& line) {
  const Json json = Json::parse(line);
  return fmt::format("point {}: {}", json.at("point").get<std::size_t>(),
                     json.at("error").get<std::string>());
}

Document report_points(const experiment::Sweep& sweep, const experiment::Shard& shard,
                       const SampledPoints& sample, std::size_t jobs) {
  Document document;
  std::vector<PointReport> points;
  Table table;
  table.columns = {{"point", "point"}, {"id", "id", false}};
  for (const experiment::SweepColumn& column : sweep.columns) {
    table.columns.push_back({column.name, "input_" + column.name, false});
  }
  for (std::size_t p = 0; p < sweep.points.size(); ++p) {
    if (!shard.has(p)) continue;
    const experiment::SweepPoint& point = sweep.points[p];
    Json inputs = Json::object();
    std::vector<TableCell> row = {TableCell::word(fmt::format("{}", p)), TableCell::word(point.id)};
    for (std::size_t c = 0; c < sweep.columns.size(); ++c) {
      const Json input = input_json(sweep, point, c);
      inputs[sweep.columns[c].name] = input;
      row.push_back(TableCell::word(input.is_null()     ? ""
                                    : input.is_string() ? input.get<std::string>()
                                                        : one_line(input)));
    }
    table.rows.push_back(std::move(row));
    points.push_back({p, point.id, {one_line(inputs)}});
  }
  const std::size_t here = table.rows.size();
  std::optional<Seconds> all;
  if (sample.each) all = *sample.each * static_cast<double>(here) / static_cast<double>(jobs);
  document.head.push_back(fmt::format(
      "{} points{}{}{}", sweep.points.size(),
      sweep.skipped > 0 ? fmt::format(", {} skipped by filters", sweep.skipped) : "",
      sweep.repeated > 0 ? fmt::format(", {} that repeat others left out", sweep.repeated) : "",
      shard.count > 1 ? fmt::format(", {} in shard {} of {}", here, shard.index + 1, shard.count)
                      : ""));
  if (all) {
    document.notes.push_back(
        fmt::format("estimated time: {} with {} of {} each (from {})", to_text(*all),
                    counted(static_cast<std::int64_t>(jobs), "job"), to_text(*sample.each),
                    counted(static_cast<std::int64_t>(sample.tried), "point")));
  }
  const auto warn = [&](std::size_t number, const std::string& what) {
    if (number == 0) return;
    document.warnings.push_back(
        fmt::format("{} of {} that were tried {}", number,
                    counted(static_cast<std::int64_t>(sample.tried), "point"), what));
  };
  warn(sample.failed, fmt::format("have an error instead of results; {}", sample.first_error));
  warn(sample.unfit, "do not fit in memory with any strategy");
  document.json = result_text(
      PointsReport{sweep.id, std::move(points), sweep.skipped, sweep.repeated, all, sample.tried,
                   sample.failed, sample.unfit, text_if_any(sample.first_error), version()});
  document.tables.push_back(std::move(table));
  return document;
}

std::string sweep_schema() {
  json::Writer out;
  out.open_object();
  out.key("title").text("What parsim sweep --json prints");
  out.key("anyOf").open_array();
  json::put_schema(out, ComputedReport{}, "what was computed");
  json::put_schema(out, PointsReport{}, "with --dry-run: the points");
  json::put_schema(out, MergedReport{}, "with --merge: the table");
  out.close_array();
  out.close_object();
  return out.take();
}

}  // namespace parsim::report
