// Files of measured steps that the user gives: to score, or to calibrate with.
#pragma once

#include <string>
#include <vector>

#include "experiment/request.hpp"
#include "validation/validation.hpp"

namespace parsim::app {

/// The rows of a file, as one set of its name. Files that rows name are looked up in the file's
/// folder. `flag` is the option that names it, for messages. Columns that are not read become one
/// of `notes`.
[[nodiscard]] std::vector<validation::Claim> measured_rows(const std::string& path,
                                                           const std::string& flag,
                                                           std::vector<std::string>& notes);

/// The rows of the files of --calibrate-with, each marked `calibrate`, without those whose column
/// `split` says validate or unscored, which `notes` counts. Throws InputError for a file without
/// others.
[[nodiscard]] std::vector<validation::Claim> calibrating_rows(const std::vector<std::string>& files,
                                                              std::vector<std::string>& notes);

/// What the files of the request's --calibrate-with fit, into the request.
void fit_measured_steps(experiment::Request& request);

/// The request of a verb that looks at one plan, measured steps fitted. Throws InputError for more
/// than one strategy.
[[nodiscard]] experiment::Request request_of_one_plan(const experiment::Arguments& arguments);

}  // namespace parsim::app
