#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/files.hpp"
#include "app/page/validation_page.hpp"
#include "app/predict_claims.hpp"
#include "app/predict_published.hpp"
#include "app/progress.hpp"
#include "app/report_validation.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "validation/measurements.hpp"

namespace parsim {

namespace {

Validation predicted(const std::vector<Claim>& claims, bool quiet, const Predict& predict) {
  Progress progress(claims.size(), quiet);
  return validate_claims(claims, [&](const Claim& claim) -> Prediction {
    progress.next(claim.set);
    try {
      return predict(claim);
    } catch (const InputError& error) {
      return {std::nullopt, std::nullopt, error.what()};
    }
  });
}

/// Files that rows name are looked for beside the table.
void find_files_of_rows(const std::string& folder, std::vector<Claim>& claims) {
  for (Claim& claim : claims) {
    for (const char* name : {"network", "layout_file", "cluster", "profile"}) {
      const auto found = claim.what.find(name);
      if (found == claim.what.end() || found->second.starts_with('/')) continue;
      if (file_exists(folder + found->second)) found->second = folder + found->second;
    }
  }
}

/// The rows of a file, as one set of its name.
std::vector<Claim> measurements_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  std::string set = slash == std::string::npos ? path : path.substr(slash + 1);
  if (set.ends_with(".csv")) set.resize(set.size() - 4);
  std::vector<Claim> claims = read_measurements(read_file(path, "--data"), path, set);
  find_files_of_rows(path.substr(0, slash == std::string::npos ? 0 : slash + 1), claims);
  return claims;
}

/// Large collectives once more, as a set of their own, without what is fitted on their system.
std::vector<Claim> uncalibrated_collectives(const std::vector<Claim>& claims) {
  constexpr double least_bytes = 64.0 * 1024 * 1024;
  std::vector<Claim> rows;
  for (const Claim& claim : claims) {
    if (claim.quantity != "collective-time" || split_of(claim) != Split::validate) continue;
    if (std::stod(claim.at("size_bytes")) < least_bytes) continue;
    Claim again = claim;
    again.set += "_uncalibrated";
    again.what[std::string(uncalibrated)] = "yes";
    rows.push_back(std::move(again));
  }
  return rows;
}

/// Rows to be scored or named; those that calibrate are neither.
std::vector<Claim> rows_to_predict(const std::vector<Claim>& claims) {
  std::vector<Claim> rows;
  for (const Claim& claim : claims) {
    if (split_of(claim) != Split::calibrate) rows.push_back(claim);
  }
  return rows;
}

/// From here on a suspicion is worth its line.
constexpr double notable_error = 0.1;

Validation validate_published(const Arguments& arguments) {
  const std::optional<std::string> file = arguments.text("--data");
  const std::vector<Claim> claims = file ? measurements_of(*file) : published_measurements();
  const PublishedPredictor predictor(claims);
  std::vector<Claim> rows = rows_to_predict(claims);
  if (!file) {
    const std::vector<Claim> again = uncalibrated_collectives(claims);
    rows.insert(rows.begin(), again.begin(), again.end());
  }
  Validation validation = predicted(rows, arguments.has("--quiet"), predictor);
  for (ValidationRow& row : validation.rows) {
    if (std::abs(row.error()) < notable_error) continue;
    row.claim.reason = suspected_reason(row.claim, row.error(), row.baseline);
  }
  return validation;
}

Outcome validated(const Arguments& arguments) {
  if (arguments.has("--hw")) return run_validate_hardware(arguments);
  std::vector<std::string_view> of_hardware = planning_flags();
  of_hardware.insert(of_hardware.end(),
                     {"--hw-backend", "--hw-partition", "--hw-link", "--hw-measured", "--network",
                      "--strategy", "--batch", "--precision", "--optimizer", "--profile"});
  for (const std::string_view flag : of_hardware) {
    if (arguments.has(flag)) {
      throw InputError(flag, "unused without --hw", "accepted: together with --hw");
    }
  }
  const bool published = arguments.has("--published");
  if (published == arguments.has("--papers")) {
    throw InputError(
        "validate",
        published ? "--papers given together with --published" : "nothing to validate against",
        "accepted: --papers, --published or --hw");
  }
  if (arguments.has("--data") && !published) {
    throw InputError("--data", "unused with --papers", "accepted: together with --published");
  }
  Outcome outcome;
  outcome.document =
      published ? report_published(validate_published(arguments))
                : report_papers(predicted(paper_claims(), arguments.has("--quiet"), predict_claim));
  return outcome;
}

}  // namespace

Outcome run_validate(const Arguments& arguments) {
  const std::optional<std::string> path = arguments.text("--report");
  if (!path) return validated(arguments);
  OutputFile file(*path, "--report");
  Outcome outcome = validated(arguments);
  file.commit(render_validation_page(outcome.document, outcome.timelines, arguments.command));
  outcome.document.notes.push_back(fmt::format("report written to {}", shown_path(*path)));
  return outcome;
}

}  // namespace parsim
