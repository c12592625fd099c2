#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/progress.hpp"
#include "experiment/request.hpp"
#include "report/page/report_file.hpp"
#include "report/page/validation_page.hpp"
#include "report/runs.hpp"
#include "report/validation.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_collective.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"
#include "validation/validation.hpp"

namespace parsim::app {

namespace {

validation::Validation predicted(const std::vector<validation::Claim>& claims,
                                 const experiment::Arguments& arguments,
                                 const validation::Predict& predict) {
  experiment::Progress progress(claims.size(), arguments.has("--quiet"), arguments.poll);
  std::vector<validation::PlanRun> runs;
  validation::Validation validation = validation::validate_claims(
      claims, [&](const validation::Claim& claim) -> validation::Prediction {
        progress.next(claim.set);
        try {
          validation::Prediction prediction = predict(claim);
          if (std::optional<validation::PlanRun> run = validation::plan_run(claim, prediction))
            runs.push_back(std::move(*run));
          return prediction;
        } catch (const InputError& error) {
          return {std::nullopt, std::nullopt, error.what()};
        }
      });
  validation.groups = validation::plan_groups(runs);
  return validation;
}

/// Rows to be scored or named; those that calibrate are neither.
std::vector<validation::Claim> rows_to_predict(const std::vector<validation::Claim>& claims) {
  std::vector<validation::Claim> rows;
  for (const validation::Claim& claim : claims) {
    if (validation::split_of(claim) != validation::Split::calibrate) rows.push_back(claim);
  }
  return rows;
}

/// Every row of the files, or those that are built in. Files of one name are two sets.
std::vector<validation::Claim> rows_of(const std::vector<std::string>& files,
                                       std::vector<std::string>& notes) {
  if (files.empty()) return validation::published_measurements();
  std::vector<validation::Claim> all;
  std::set<std::string> sets;
  for (const std::string& file : files) {
    std::vector<validation::Claim> rows = measured_rows(file, "--data", notes);
    if (!rows.empty() && !sets.insert(rows.front().set).second) {
      throw InputError("--data", fmt::format("two files named '{}'", rows.front().set),
                       "accepted: different names, which become names of sets");
    }
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  return all;
}

/// Of every set, how many rows there are, and how many could be predicted, scored or not.
void count_rows(const std::vector<validation::Claim>& claims,
                std::vector<validation::ValidationSet>& sets) {
  for (const validation::Claim& claim : claims) {
    const auto set =
        std::find_if(sets.begin(), sets.end(),
                     [&](const validation::ValidationSet& s) { return s.name == claim.set; });
    if (set == sets.end()) continue;  // every row of it calibrates
    ++set->all;
    set->expressible += validation::PublishedPredictor::not_expressible(claim).empty() ? 1 : 0;
  }
}

/// Rows that should calibrate and cannot, with why.
std::vector<validation::Unresolved> useless_rows(const std::vector<validation::Claim>& claims) {
  std::vector<validation::Unresolved> rows;
  for (const validation::Claim& claim : claims) {
    if (validation::split_of(claim) != validation::Split::calibrate || !claim.ran) continue;
    std::string reason = validation::PublishedPredictor::not_expressible(claim);
    if (reason.empty()) continue;
    rows.push_back({claim.set, claim.name, std::move(reason) + "; calibrates nothing", {}});
  }
  return rows;
}

/// Rows that calibrate but count for no row to be predicted, by table.
void note_unused(const std::vector<validation::Claim>& claims,
                 const validation::PublishedPredictor& predictor, std::vector<std::string>& notes) {
  struct Unused {
    std::int64_t rows = 0, all = 0;
    const validation::Claim* first = nullptr;
  };
  std::map<std::string, Unused> tables;
  for (const validation::Claim& claim : claims) {
    if (validation::split_of(claim) != validation::Split::calibrate || !claim.ran) continue;
    Unused& table = tables[claim.set];
    ++table.all;
    if (predictor.counts(claim) ||
        !validation::PublishedPredictor::not_expressible(claim).empty()) {
      continue;
    }
    if (table.rows++ == 0) table.first = &claim;
  }
  for (const auto& [set, table] : tables) {
    if (table.rows == 0) continue;
    const std::string& quantity = table.first->quantity;
    notes.push_back(fmt::format(
        "{}: {} of {} count for no predicted row, such as {}: {}", set, table.rows,
        counted(table.all, "calibrating row"), table.first->name,
        quantity == "kernel-time" ? "kernels calibrate nothing"
        : quantity == "collective-time"
            ? "collectives count where machine, gpu, nodes, n_gpus, interconnect, nccl_version, "
              "collective and settings are the same"
            : "steps count where gpu, precision and framework are spelled the same, and of "
              "transformers with a micro_batch where GPU and precision are the same"));
  }
}

/// From here on a suspicion is worth its line.
constexpr double notable_error = 0.1;
/// Longer simulations are left out by --quick: about a second.
constexpr double quick_length = 3e5;

validation::Validation validate_published(const experiment::Arguments& arguments,
                                          std::vector<std::string>& notes) {
  const std::vector<std::string> files = arguments.texts("--data");
  std::vector<validation::Claim> claims = rows_of(files, notes);
  const std::vector<validation::Claim> own =
      calibrating_rows(arguments.texts("--calibrate-with"), notes);
  const validation::PublishedPredictor predictor(
      claims,
      files.empty() ? std::vector<validation::Claim>{} : validation::published_measurements(),
      arguments.has("--from-scratch"), own);
  if (files.empty()) {
    const std::vector<validation::Claim> again = validation::uncalibrated_collectives(claims);
    claims.insert(claims.begin(), again.begin(), again.end());
  }
  note_unused(own, predictor, notes);
  if (!files.empty()) note_unused(claims, predictor, notes);
  const bool quick = arguments.has("--quick");
  const auto predict = [&](const validation::Claim& claim) -> validation::Prediction {
    if (quick && validation::split_of(claim) == validation::Split::validate &&
        validation::simulation_length(claim) > quick_length) {
      return {std::nullopt, std::nullopt, "a long simulation, left out by --quick"};
    }
    return predictor(claim);
  };
  validation::Validation validation = predicted(rows_to_predict(claims), arguments, predict);
  for (const std::vector<validation::Claim>* source : {&std::as_const(claims), &own}) {
    for (validation::Unresolved& row : useless_rows(*source)) {
      validation.unresolved.push_back(std::move(row));
    }
  }
  count_rows(claims, validation.sets);
  for (validation::ValidationRow& row : validation.rows) {
    if (std::abs(row.error()) < notable_error) continue;
    row.claim.reason = validation::suspected_reason(row);
  }
  return validation;
}

Outcome validated(const experiment::Arguments& arguments) {
  if (arguments.has("--hw")) {
    if (!arguments.has("--calibrate-with")) return run_validate_hardware(arguments);
    throw InputError("--calibrate-with", "unused with --hw", "accepted: together with --published");
  }
  for (const experiment::Option& option : experiment::options()) {
    const bool of_hardware = option.is_for("validate") && !option.key.empty() &&
                             option.flag != "--calibrate-with" &&
                             option.group != experiment::OptionGroup::validation;
    if (of_hardware && arguments.has(option.flag)) {
      throw InputError(option.flag, "unused without --hw", "accepted: together with --hw");
    }
  }
  const bool published = arguments.has("--published");
  if (published == arguments.has("--papers")) {
    throw InputError(
        "validate",
        published ? "--papers given together with --published" : "nothing to validate against",
        "accepted: --papers, --published or --hw");
  }
  for (const std::string_view flag : {"--data", "--from-scratch", "--quick", "--calibrate-with"}) {
    if (arguments.has(flag) && !published) {
      throw InputError(flag, "unused with --papers", "accepted: together with --published");
    }
  }
  const report::InputsText inputs = report::inputs_of(experiment::read_options(arguments));
  Outcome outcome;
  if (published) {
    std::vector<std::string> notes;
    const validation::Validation rows = validate_published(arguments, notes);
    outcome.document = report::report_published(rows, notes, inputs);
  } else {
    outcome.document = report::report_papers(
        predicted(validation::paper_claims(), arguments, validation::predict_claim), inputs);
  }
  return outcome;
}

}  // namespace

Outcome run_validate(const experiment::Arguments& arguments) {
  const std::optional<std::string> path = arguments.text("--report");
  if (!path) return validated(arguments);
  if (report::is_latex(*path)) {
    throw InputError("--report", fmt::format("'{}' with 'validate'", shown_path(*path)),
                     "accepted: .tex with compare and simulate, else a page");
  }
  OutputFile file(*path, "--report");
  Outcome outcome = validated(arguments);
  file.commit(
      report::render_validation_page(outcome.document, outcome.timelines, arguments.command));
  outcome.document.notes.push_back(fmt::format("report written to {}", shown_path(*path)));
  return outcome;
}

}  // namespace parsim::app
