// Sets and cases of `validate` in JSON, as lists of fields (core/json_fields.hpp).
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lowering/headroom.hpp"
#include "report/result_parts.hpp"
#include "report/runs.hpp"
#include "report/validation.hpp"
#include "validation/intervals.hpp"
#include "validation/published_machines.hpp"

namespace parsim::report {

inline constexpr json::Limits share_limits{0, 1};

/// A row that fitted something, and how many scored rows it calibrates.
struct CalibrationRow {
  validation::Calibration calibration{};
  std::size_t rows = 0;
};
void fields(auto& visit, json::Of<CalibrationRow> auto& row) {
  visit("set", row.calibration.set);
  visit("case", row.calibration.name);
  visit("machine", row.calibration.machine);
  visit("gpu", row.calibration.gpu);
  visit("kernels", row.calibration.kernels, "factor of kernel times");
  visit("links", row.calibration.links, "share of their rate that links between machines reach");
  visit("host_s", row.calibration.host,
        "what hosts add for a sample and each further GPU of a machine");
  visit("rows", row.rows, Rule(from_one, "scored rows that it calibrates"));
}

/// What only sets of published measurements have.
struct PublishedSetRow {
  std::optional<double> peak_memory_error{};
  std::size_t expressible = 0, all = 0;
  std::vector<CalibrationRow> calibrated_by{};
  std::size_t uncalibrated = 0;
};
void fields(auto& visit, json::Of<PublishedSetRow> auto& row) {
  visit("peak_memory_error", row.peak_memory_error,
        "mean magnitude over rows with peak_memory_gib");
  visit("expressible", row.expressible,
        Rule(any_count, "rows that could be predicted, scored or not"));
  visit("all", row.all, any_count);
  visit("calibrated_by", row.calibrated_by);
  visit("uncalibrated", row.uncalibrated, Rule(any_count, "scored rows without a calibration"));
}

struct SetRow {
  validation::ValidationSet set{};
  std::optional<PublishedSetRow> published{};
};
void fields(auto& visit, json::Of<SetRow> auto& row) {
  const auto error = [&](double value) {
    return row.set.rows > 0 ? std::optional(value) : std::nullopt;
  };
  visit("name", row.set.name);
  visit("rows", row.set.rows, any_count);
  visit("mean_error", error(row.set.mean_error));
  visit("median_error", error(row.set.median_error));
  visit("max_error", error(row.set.max_error));
  visit("low_error", error(row.set.low_error), "5 % of the rows are off by no more");
  visit("high_error", error(row.set.high_error), "95 % of the rows are off by no more");
  visit("baseline_mean_error", row.set.baseline_mean_error);
  visit("skill", row.set.skill(), Rule(any_number, "1 - mean_error / baseline_mean_error"));
  visit("spearman", row.set.spearman, any_number);
  visit.together(row.published);
}

struct PartsRow {
  experiment::StepParts parts{};
};
void fields(auto& visit, json::Of<PartsRow> auto& row) {
  for (std::size_t i = 0; i < row.parts.size(); ++i) {
    const auto cost_class = static_cast<experiment::CostClass>(i);
    visit(to_text(cost_class), row.parts[i],
          cost_class == experiment::CostClass::launches
              ? Rule(share_limits, "collectives without payload")
              : Rule(share_limits));
  }
}

/// What only rows of published measurements have.
struct PublishedCaseRow {
  std::string system{};
  bool calibrated = false;
  std::optional<std::array<double, 2>> interval{};
  std::optional<PartsRow> parts{};
};
void fields(auto& visit, json::Of<PublishedCaseRow> auto& row) {
  visit("system", row.system, "machine, card and framework");
  visit("calibrated", row.calibrated, "whether a row fitted anything");
  visit("interval", row.interval,
        "in the row's unit, 90 %; the row's system is left out of its fit");
  visit("parts", row.parts,
        "of a training step: the share that each class of prices has in the operations that bound "
        "it");
}

/// What only rows measured with --hw have.
struct MeasuredCaseRow {
  double measured = 0;
  Spread step{};
  Seconds with_events{};
};
void fields(auto& visit, json::Of<MeasuredCaseRow> auto& row) {
  visit("measured", row.measured);
  visit("measured_low_s", row.step.low);
  visit("measured_high_s", row.step.high);
  visit("samples", row.step.samples, any_count);
  visit("with_events_s", row.with_events, "with an event around every operation");
}

inline constexpr Rule verdict_meaning{"with the default headroom; null where memory is unknown"};

struct CaseRow {
  validation::ValidationRow row{};
  std::optional<PublishedCaseRow> published{};
  std::optional<MeasuredCaseRow> measured{};
};
void fields(auto& visit, json::Of<CaseRow> auto& row) {
  const validation::ValidationRow& of = row.row;
  const auto finite = [](double value) {
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  };
  visit("set", of.claim.set);
  visit("case", of.claim.name);
  visit("expected", of.claim.expected);
  visit("predicted", finite(of.predicted));
  visit("unit", of.claim.unit);
  visit("error", finite(of.error()), Rule(any_number, "(predicted - expected) / expected"));
  visit("promised", of.claim.within);
  visit("source", of.claim.source);
  visit("origin", of.claim.origin, "own: by this project's arithmetic or runs, not published");
  visit("reason", of.claim.reason);
  visit("peak_memory_gib", of.peak_memory_gib, "predicted, of the fullest device");
  visit("peak_memory_error", of.peak_memory_error(), any_number);
  visit("verdict", from_text<lowering::Verdict>(of.verdict), verdict_meaning);
  visit.together(row.published);
  visit.together(row.measured);
}

}  // namespace parsim::report
