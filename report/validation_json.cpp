#include "report/validation_result.hpp"

namespace parsim::report {

namespace {

SetRow set_row(const validation::ValidationSet& set, bool published) {
  SetRow row{set, {}};
  if (!published) return row;
  row.published = {set.peak_memory_error, set.expressible, set.all, {}, set.uncalibrated};
  for (const auto& [calibration, count] : set.calibrated_by) {
    row.published->calibrated_by.push_back({calibration, count});
  }
  return row;
}

CaseRow case_row(const validation::ValidationRow& row, bool published) {
  CaseRow out{row, {}, {}};
  if (!published) return out;
  out.published = {validation::system_of(row.claim), row.calibrated, {}, {}};
  if (const auto interval = validation::interval_of(row)) {
    out.published->interval = {interval->first, interval->second};
  }
  if (row.parts) out.published->parts = {*row.parts};
  return out;
}

ValidationRows rows_of(const validation::Validation& validation, bool published,
                       const InputsText& inputs) {
  ValidationRows rows;
  for (const auto& set : validation.sets) rows.sets.push_back(set_row(set, published));
  for (const auto& row : validation.rows) rows.rows.push_back(case_row(row, published));
  for (const auto& item : validation.unresolved) rows.unresolved.push_back({item});
  rows.inputs = inputs;
  return rows;
}

}  // namespace

std::string papers_json(const validation::Validation& validation, const InputsText& inputs) {
  return result_text(rows_of(validation, false, inputs));
}

std::string published_json(const validation::Validation& validation,
                           const std::vector<std::string>& notes, const InputsText& inputs) {
  ValidationRows rows = rows_of(validation, true, inputs);
  rows.published.emplace().notes = notes;
  for (const auto& group : validation.groups) rows.published->groups.push_back({group});
  for (const auto& scores : validation::interval_scores(validation.rows)) {
    rows.published->intervals.push_back({scores});
  }
  return result_text(rows);
}

std::string measured_json(const MeasuredValidation& measured, const InputsText& inputs) {
  ValidationRows rows = rows_of(measured.validation, false, inputs);
  for (std::size_t i = 0; i < measured.steps.size(); ++i) {
    const MeasuredValidation::Step& step = measured.steps[i];
    rows.rows.at(i).measured = {rows.rows[i].row.claim.expected, step.step, step.with_events};
  }
  rows.measured = {measured.classes, {}};
  if (measured.refusal.empty()) {
    rows.measured->hardware = {measured.machine.backend, measured.machine.name, {}};
  } else {
    rows.measured->hardware.reason = measured.refusal;
  }
  return result_text(rows);
}

std::string validation_schema() {
  return json::schema_of_file<ValidationRows>("What parsim validate --json prints");
}

}  // namespace parsim::report
