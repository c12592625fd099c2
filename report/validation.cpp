#include "report/validation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/text.hpp"
#include "validation/intervals.hpp"

namespace parsim::report {

namespace {

std::string magnitude(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string two_decimals(double value) { return fmt::format("{:.2f}", value); }

/// A column whose text and raw number are made from each row.
template <class Row>
void add(Table& table, const std::vector<Row>& rows, Column column, auto cell) {
  std::vector<TableCell> cells;
  for (const Row& row : rows) cells.push_back(cell(row));
  add_column(table, std::move(column), std::move(cells));
}

TableCell maybe(const std::optional<double>& value, std::string (*text)(double)) {
  return value ? TableCell{text(*value), exact(*value)} : TableCell{"-", ""};
}

Table table_of_sets(const std::vector<validation::ValidationSet>& sets, bool published) {
  Table table;
  table.title = "errors by set";
  using S = validation::ValidationSet;
  const auto error = [&](const char* title, const char* key, double S::*field) {
    add(table, sets, {title, key}, [field](const S& set) {
      return maybe(set.rows > 0 ? std::optional(set.*field) : std::nullopt, magnitude);
    });
  };
  add(table, sets, {"set", "name", false}, [](const S& set) { return TableCell::word(set.name); });
  const auto count = [&](const char* title, const char* key, std::size_t S::*field) {
    add(table, sets, {title, key},
        [field](const S& set) { return TableCell::word(std::to_string(set.*field)); });
  };
  count(published ? "scored" : "rows", "rows", &S::rows);
  if (published) {
    count("expressible", "expressible", &S::expressible);
    count("all", "all", &S::all);
  }
  error("mean error", "mean_error", &S::mean_error);
  error("median", "median_error", &S::median_error);
  error("largest", "max_error", &S::max_error);
  add(table, sets, {"naive mean error", "baseline_mean_error"},
      [](const S& set) { return maybe(set.baseline_mean_error, magnitude); });
  if (published) {
    add(table, sets, {"skill", "skill"},
        [](const S& set) { return maybe(set.skill(), two_decimals); });
  }
  add(table, sets, {"rank correlation", "spearman"},
      [](const S& set) { return maybe(set.spearman, three_digits); });
  if (std::any_of(sets.begin(), sets.end(),
                  [](const S& set) { return set.peak_memory_error.has_value(); })) {
    add(table, sets, {"peak memory", "peak_memory_error"},
        [](const S& set) { return maybe(set.peak_memory_error, magnitude); });
  }
  return table;
}

Table table_of_groups(const std::vector<validation::PlanGroup>& groups) {
  Table table;
  table.title = "choice of the best plan";
  using G = validation::PlanGroup;
  const auto count = [&](const char* title, const char* key, std::size_t G::*field) {
    add(table, groups, {title, key},
        [field](const G& group) { return TableCell::word(std::to_string(group.*field)); });
  };
  count("plans", "plans", &G::plans);
  add(table, groups, {"regret", "regret"},
      [](const G& group) { return maybe(group.regret, magnitude); });
  add(table, groups, {"rank correlation", "spearman"},
      [](const G& group) { return maybe(group.spearman, three_digits); });
  count("false misfits", "over_wrongly", &G::over_wrongly);
  count("false fits", "fits_wrongly", &G::fits_wrongly);
  add(table, groups, {"job", "group", false},
      [](const G& group) { return TableCell::word(group.group); });
  return table;
}

Table table_of_systems(const std::vector<validation::CollectiveSystem>& systems) {
  Table table;
  table.title = "collectives from 64 KiB on: from scratch, and fitted to other sizes";
  using S = validation::CollectiveSystem;
  add(table, systems, {"scored", "rows"},
      [](const S& system) { return TableCell::word(std::to_string(system.rows)); });
  for (const auto& [title, key, field] :
       {std::tuple{"median", "median_error", &S::median},
        std::tuple{"mean", "mean_error", &S::mean},
        std::tuple{"fitted median", "fitted_median_error", &S::fitted_median},
        std::tuple{"fitted mean", "fitted_mean_error", &S::fitted_mean}}) {
    add(table, systems, {title, key}, [field](const S& system) {
      return TableCell{magnitude(system.*field), exact(system.*field)};
    });
  }
  add(table, systems, {"machine", "machine", false},
      [](const S& system) { return TableCell::word(system.machine); });
  return table;
}

Table table_of_intervals(const std::vector<validation::IntervalScores>& scores) {
  Table table;
  table.title = "90 % intervals, without the rows of the predicted system";
  using S = validation::IntervalScores;
  add(table, scores, {"set", "set", false}, [](const S& s) { return TableCell::word(s.set); });
  add(table, scores, {"rows", "rows"},
      [](const S& s) { return TableCell::word(std::to_string(s.rows)); });
  add(table, scores, {"covered", "coverage"}, [](const S& s) {
    return TableCell{magnitude(s.coverage), exact(s.coverage)};
  });
  add(table, scores, {"median half-width", "median_half_width"}, [](const S& s) {
    return TableCell{magnitude(s.median_half_width), exact(s.median_half_width)};
  });
  add(table, scores, {"score", "interval_score"}, [](const S& s) {
    return TableCell{two_decimals(s.score), exact(s.score)};
  });
  add(table, scores, {"score of one width", "constant_score"}, [](const S& s) {
    return TableCell{two_decimals(s.constant_score), exact(s.constant_score)};
  });
  return table;
}

/// "16 groups: mean regret 3.1 %, mean rank correlation 0.85", or nothing.
std::vector<std::string> group_lines(const std::vector<validation::PlanGroup>& groups) {
  std::vector<double> regrets, correlations;
  for (const validation::PlanGroup& group : groups) {
    if (group.regret) regrets.push_back(*group.regret);
    if (group.spearman) correlations.push_back(*group.spearman);
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  if (regrets.empty() || correlations.empty()) return {};
  return {
      fmt::format("{} job{} with several plans: mean regret {}, mean rank correlation {}",
                  groups.size(), groups.size() == 1 ? "" : "s", magnitude(mean(regrets)),
                  three_digits(mean(correlations))),
      "regret: measured time of the plan predicted fastest among those predicted to fit, divided "
      "by the best measured time, minus 1; among equal predictions the slowest counts",
      "false misfits: plans that ran but were predicted not to fit in memory; false fits: plans "
      "that ran out of memory but were predicted to fit"};
}

/// A line for every set of training steps or collectives.
std::vector<std::string> calibration_lines(const std::vector<validation::ValidationSet>& sets) {
  constexpr std::size_t named = 3;
  std::vector<std::string> lines;
  for (const validation::ValidationSet& set : sets) {
    if (set.rows == 0) continue;
    if (set.calibrated_by.empty()) {
      lines.push_back(fmt::format("{}: not calibrated", set.name));
      continue;
    }
    std::vector<std::string> rows;
    for (const auto& [row, count] : set.calibrated_by) {
      if (rows.size() == named) break;
      rows.push_back(row.set == set.name ? row.name : fmt::format("{} of {}", row.name, row.set));
    }
    if (set.calibrated_by.size() > named) {
      rows.push_back(fmt::format("{} more", set.calibrated_by.size() - named));
    }
    lines.push_back(fmt::format("{}: calibrated by {}{}", set.name, fmt::join(rows, "; "),
                                set.uncalibrated == 0
                                    ? ""
                                    : fmt::format("; {} row{} not calibrated", set.uncalibrated,
                                                  set.uncalibrated == 1 ? "" : "s")));
  }
  return lines;
}

/// The rows with the largest errors, largest first; equal ones in their order.
std::vector<validation::ValidationRow> worst_rows(
    const std::vector<validation::ValidationRow>& rows, std::size_t count) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(rows[a].error()) > std::abs(rows[b].error());
  });
  std::vector<validation::ValidationRow> worst;
  for (const std::size_t i : order) {
    if (worst.size() == count) break;
    worst.push_back(rows[i]);
  }
  return worst;
}

/// A reason with a location "set:line:column: …" without the line.
std::string without_line(const std::string& reason, const std::string& set) {
  const std::size_t line = set.size() + 1, end = reason.find_first_not_of("0123456789", line);
  if (end == reason.npos || end == line || reason[end] != ':') return reason;
  return set + reason.substr(end);
}

/// How many cases have no prediction, by set and reason, in the order of their first.
std::vector<std::string> unresolved_lines(const std::vector<validation::Unresolved>& all) {
  struct Reason {
    std::string alike, first;
    std::size_t rows = 0;
  };
  std::vector<Reason> reasons;
  for (const validation::Unresolved& item : all) {
    // Reasons with a location begin with the set.
    const bool placed = item.reason.starts_with(item.set + ":");
    const std::string line = placed ? item.reason : fmt::format("{}: {}", item.set, item.reason);
    const std::string alike = placed ? without_line(line, item.set) : line;
    auto known = std::find_if(reasons.begin(), reasons.end(),
                              [&](const Reason& reason) { return reason.alike == alike; });
    if (known == reasons.end()) known = reasons.insert(known, Reason{alike, line});
    ++known->rows;
  }
  std::vector<std::string> lines;
  for (const Reason& reason : reasons) {
    lines.push_back(reason.rows == 1
                        ? fmt::format("not predicted: 1 row: {}", reason.first)
                        : fmt::format("not predicted: {} rows: {}", reason.rows, reason.alike));
  }
  return lines;
}

}  // namespace

Table table_of_rows(const std::vector<validation::ValidationRow>& rows,
                    const std::string& compared) {
  Table table;
  table.title = compared + " and predicted";
  using R = validation::ValidationRow;
  add(table, rows, {"set", "set", false}, [](const R& r) { return TableCell::word(r.claim.set); });
  add(table, rows, {"case", "case", false},
      [](const R& r) { return TableCell::word(r.claim.name); });
  add(table, rows, {compared, "expected"}, [](const R& r) {
    return TableCell{three_digits(r.claim.expected), exact(r.claim.expected)};
  });
  add(table, rows, {"predicted", "predicted"}, [](const R& r) {
    return TableCell{three_digits(r.predicted), exact(r.predicted)};
  });
  add(table, rows, {"unit", "unit", false},
      [](const R& r) { return TableCell::word(r.claim.unit); });
  add(table, rows, {"error", "error"}, [](const R& r) {
    return TableCell{signed_percent(r.error()), exact(r.error())};
  });
  if (std::any_of(rows.begin(), rows.end(),
                  [](const R& r) { return r.claim.within.has_value(); })) {
    add(table, rows, {"promised", "promised"},
        [](const R& r) { return maybe(r.claim.within, magnitude); });
  }
  // Reasons of papers' claims were looked for.
  const bool likely = compared != "measured";
  add(table, rows, {likely ? "likely reason" : "possible reason", "reason", false},
      [](const R& r) { return TableCell::word(r.claim.reason); });
  return table;
}

Document report_papers(const validation::Validation& validation, const InputsText& inputs) {
  Document document;
  document.head = {"claims of papers (tables as printed, figures digitised) and predictions"};
  using validation::ClaimOrigin;
  std::vector<validation::ValidationSet> sets[2];
  for (const auto& set : validation.sets) {
    if (set.rows > 0) sets[set.origin == ClaimOrigin::own].push_back(set);
  }
  std::vector<validation::ValidationRow> rows[2];
  for (const auto& row : validation.rows) rows[row.claim.origin == ClaimOrigin::own].push_back(row);
  document.tables = {table_of_sets(sets[0], false), table_of_rows(rows[0], "published")};
  if (!rows[1].empty()) {
    document.tables.push_back(table_of_sets(sets[1], false));
    document.tables.back().title = "errors by set, of our own arithmetic and runs";
    document.tables.push_back(table_of_rows(rows[1], "own"));
  }
  document.notes = {
      "error: (predicted − published) / published; mean, median and largest of its magnitude",
      "own: not published; worked out by hand or found by other programs",
      "naive: devices x the rate of one device",
      "promised: largest error that the tests accept; '-': none"};
  for (const validation::Unresolved& item : validation.unresolved) {
    document.notes.push_back(
        fmt::format("{}: {}: not predicted: {}", item.set, item.name, item.reason));
  }
  for (const validation::ValidationRow& row : validation.rows) {
    if (row.promise_broken()) {
      document.warnings.push_back(fmt::format("{}: {}: the error of {} is larger than promised",
                                              row.claim.set, row.claim.name,
                                              signed_percent(row.error())));
    }
  }
  document.json = papers_json(validation, inputs);
  return document;
}

Document report_published(const validation::Validation& validation,
                          const std::vector<std::string>& notes, const InputsText& inputs) {
  constexpr std::size_t shown = 10;
  Document document;
  document.head = {"measurements that others published, and predictions"};
  Table worst = table_of_rows(worst_rows(validation.rows, shown), "measured");
  worst.title = "largest errors";
  document.tables = {table_of_sets(validation.sets, true)};
  const auto intervals = validation::interval_scores(validation.rows);
  if (!intervals.empty()) document.tables.push_back(table_of_intervals(intervals));
  if (const auto systems = validation::collective_systems(validation.rows); !systems.empty()) {
    document.tables.push_back(table_of_systems(systems));
  }
  if (!validation.groups.empty()) document.tables.push_back(table_of_groups(validation.groups));
  document.tables.push_back(std::move(worst));
  const bool fitted =
      std::any_of(validation.sets.begin(), validation.sets.end(),
                  [](const validation::ValidationSet& set) { return !set.calibrated_by.empty(); });
  document.notes = {
      "error: (predicted − measured) / measured; mean, median and largest of its magnitude",
      "naive: devices x the rate of one device; for single steps the FLOP/s of the calibrating "
      "row; "
      "for collectives latency and bandwidth of the links only",
      "skill: 1 - mean error / naive mean error; score: width of the interval of ln(time), and 20 "
      "times by how much a measurement lies outside; less is better",
      "scored: rows whose errors count; expressible: rows that can be predicted, including those "
      "that "
      "calibrate and those of doubtful source; all: rows of the table",
      fitted ? "only rows marked 'calibrate' are used to fit; --json lists all rows"
             : "nothing was fitted; --json lists all rows"};
  for (std::string& line : group_lines(validation.groups)) {
    document.notes.push_back(std::move(line));
  }
  for (std::string& line : calibration_lines(validation.sets)) {
    document.notes.push_back(std::move(line));
  }
  for (std::string& line : unresolved_lines(validation.unresolved)) {
    document.notes.push_back(std::move(line));
  }
  document.notes.insert(document.notes.end(), notes.begin(), notes.end());
  document.json = published_json(validation, notes, inputs);
  return document;
}

}  // namespace parsim::report
