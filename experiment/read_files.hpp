// All files that are read because of one word of the command line.
#pragma once

#include <string>
#include <vector>

namespace parsim::experiment {

/// fnv1a64 of the file that a word names (file_of, or a trainer's in a folder), followed by those
/// that it leads to: what a cluster file imports, a trainer's `hostfile` and FlagScale's
/// train/*.yaml, the networks, clusters, layouts and profiles of measured rows. Files that are not
/// there are left out; "" if the word names none. Throws InputError for what cannot be read.
[[nodiscard]] std::string hash_of_files(const std::string& given);

/// The names of these files, and of a folder's results of sweeps. Regular files only: what a pipe
/// holds can be read once.
[[nodiscard]] std::vector<std::string> files_read_for(const std::string& given);

}  // namespace parsim::experiment
