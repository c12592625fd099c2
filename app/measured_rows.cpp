#include "app/measured_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/files.hpp"
#include "validation/interconnect_column.hpp"
#include "validation/known_columns.hpp"
#include "validation/measurements.hpp"
#include "validation/nccl_tests.hpp"
#include "validation/published_calibration.hpp"
#include "validation/published_machines.hpp"

namespace parsim::app {

namespace {

/// Files that rows name are looked up in the table's folder.
void find_files_of_rows(const std::string& folder, std::vector<validation::Claim>& claims) {
  for (validation::Claim& claim : claims) {
    for (const char* name : {"network", "layout_file", "cluster", "profile"}) {
      const auto found = claim.what.find(name);
      if (found == claim.what.end() || found->second.starts_with('/')) continue;
      if (experiment::file_exists(folder + found->second)) found->second = folder + found->second;
    }
  }
}

}  // namespace

std::vector<validation::Claim> measured_rows(const std::string& path, const std::string& flag,
                                             std::vector<std::string>& notes) {
  const std::size_t slash = path.rfind('/');
  std::string set = slash == std::string::npos ? path : path.substr(slash + 1);
  if (set.ends_with(".csv")) set.resize(set.size() - 4);
  std::vector<validation::Claim> claims =
      validation::read_measurements(read_file(path, flag), path, set);
  const auto add_note = [&](std::string_view what, const std::string& text) {
    std::string note = fmt::format("{}: {}{}", shown_path(path), what, text);
    const bool again = std::find(notes.begin(), notes.end(), note) != notes.end();
    if (!text.empty() && !again) notes.push_back(std::move(note));
  };
  add_note("columns not read: ", validation::unread_columns(claims));
  add_note("", validation::assumed_links(claims));
  find_files_of_rows(path.substr(0, slash == std::string::npos ? 0 : slash + 1), claims);
  return claims;
}

std::vector<validation::Claim> calibrating_rows(const std::vector<std::string>& files,
                                                std::vector<std::string>& notes) {
  std::vector<validation::Claim> all;
  for (auto given = files.begin(); given != files.end(); ++given) {
    const std::string& file = *given;
    const auto same = [&](const std::string& other) { return same_file(other, file); };
    if (std::any_of(files.begin(), given, same)) {
      throw InputError("--calibrate-with",
                       fmt::format("'{}' is given twice, and its rows would count twice", file),
                       "accepted: each file once");
    }
    std::vector<validation::Claim> rows = measured_rows(file, "--calibrate-with", notes);
    if (rows.empty()) {
      throw InputError(file, "no rows", "accepted: a table with a row for each measured step");
    }
    const std::size_t all_rows = rows.size();
    std::erase_if(rows, [](const validation::Claim& claim) {
      const std::string split = validation::column(claim, "split");
      return split == "validate" || split == "unscored";
    });
    const std::string marked =
        fmt::format("{} marked validate or unscored",
                    counted(static_cast<std::int64_t>(all_rows - rows.size()), "row"));
    if (rows.empty()) {
      throw InputError(file, "only " + marked,
                       "accepted: rows whose column split is calibrate, or empty");
    }
    if (rows.size() < all_rows) {
      notes.push_back(fmt::format("{}: {}, never used to calibrate", shown_path(file), marked));
    }
    for (validation::Claim& claim : rows) {
      claim.what["split"] = "calibrate";
      all.push_back(std::move(claim));
    }
  }
  return all;
}

void fit_measured_steps(experiment::Request& request) {
  std::vector<validation::Claim> rows = calibrating_rows(request.calibrate_with, request.notes);
  std::set<std::string> taken;
  for (validation::Claim& row : rows) {
    if (request.cluster.empty() || !validation::lacks_network(row)) continue;
    validation::take_network_of(row, request.cluster);
    if (!taken.insert(row.set).second) continue;
    request.notes.push_back(fmt::format(
        "{}: measured on {} machines, whose network nccl-tests does not print: taken as machines "
        "of {}",
        row.set, validation::nodes_of(row), shown_path(request.cluster)));
  }
  request.fitted = validation::fitted_steps(rows);
}

experiment::Request request_of_one_plan(const experiment::Arguments& arguments) {
  experiment::Request request = experiment::make_request(arguments);
  fit_measured_steps(request);
  if (request.strategies.size() > 1) {
    throw InputError("--strategy", fmt::format("given {} times", request.strategies.size()),
                     "accepted: one name");
  }
  return request;
}

}  // namespace parsim::app
