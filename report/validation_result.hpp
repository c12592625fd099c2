// What `validate` prints in JSON, as lists of fields (core/json_fields.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/validation_rows.hpp"

namespace parsim::report {

struct UnresolvedRow {
  validation::Unresolved item{};
};
void fields(auto& visit, json::Of<UnresolvedRow> auto& row) {
  visit("set", row.item.set);
  visit("case", row.item.name);
  visit("reason", row.item.reason);
  visit("verdict", from_text<lowering::Verdict>(row.item.verdict), verdict_meaning);
}

struct GroupRow {
  validation::PlanGroup group{};
};
void fields(auto& visit, json::Of<GroupRow> auto& row) {
  const validation::PlanGroup& group = row.group;
  visit("group", group.group);
  visit("plans", group.plans, Rule(any_count, "different ones, measured and predicted"));
  visit("chosen", group.chosen.empty() ? std::nullopt : std::optional(group.chosen),
        "predicted to be the fastest of those predicted to fit");
  visit("best", group.best, "measured to be the fastest");
  visit("regret", group.regret, "measured time of chosen / best - 1");
  visit("spearman", group.spearman, any_number);
  visit("over_wrongly", group.over_wrongly, Rule(any_count, "ran but are predicted not to fit"));
  visit("fits_wrongly", group.fits_wrongly,
        Rule(any_count, "ran out of memory but are predicted to fit"));
}

struct IntervalRow {
  validation::IntervalScores scores{};
};
void fields(auto& visit, json::Of<IntervalRow> auto& row) {
  visit("set", row.scores.set);
  visit("rows", row.scores.rows, from_one);
  visit("coverage", row.scores.coverage, share_limits);
  visit("median_half_width", row.scores.median_half_width, any_count);
  visit("interval_score", row.scores.score, Rule(any_count, "of ln(time); less is better"));
  visit("constant_score", row.scores.constant_score,
        Rule(any_count, "of the best interval of one width"));
}

void fields(auto& visit, json::Of<ClassRow> auto& row) {
  visit("set", row.set);
  visit("case", row.name);
  visit("class", row.cost_class);
  visit("predicted_s", row.predicted);
  visit("measured_s", row.measured);
}

struct PublishedRows {
  std::vector<GroupRow> groups{};
  std::vector<IntervalRow> intervals{};
  std::vector<std::string> notes{};
};
void fields(auto& visit, json::Of<PublishedRows> auto& rows) {
  visit("groups", rows.groups);
  visit("intervals", rows.intervals,
        "of each set, and of all sets together, how well the intervals of its rows hold");
  visit("notes", rows.notes, "what of the files' rows was assumed, or not read");
}

struct MachineRow {
  std::optional<std::string> backend{}, name{}, reason{};
};
void fields(auto& visit, json::Of<MachineRow> auto& row) {
  visit("backend", row.backend);
  visit("name", row.name);
  visit.optional("reason", row.reason, "why nothing was measured");
}
struct MeasuredRows {
  std::vector<ClassRow> classes{};
  MachineRow hardware{};
};
void fields(auto& visit, json::Of<MeasuredRows> auto& rows) {
  visit("classes", rows.classes, "times of operations, added up over all devices");
  visit("hardware", rows.hardware);
}

struct ValidationRows {
  std::vector<SetRow> sets{};
  std::vector<CaseRow> rows{};
  std::vector<UnresolvedRow> unresolved{};
  std::optional<PublishedRows> published{};
  std::optional<MeasuredRows> measured{};
  InputsText inputs{};
};
void fields(auto& visit, json::Of<ValidationRows> auto& rows) {
  visit("sets", rows.sets);
  visit("rows", rows.rows);
  visit("unresolved", rows.unresolved);
  visit.together(rows.published);
  visit.together(rows.measured);
  visit("version", version());
  visit("inputs", rows.inputs);
}

}  // namespace parsim::report
