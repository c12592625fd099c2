// The merged table of a sweep as a database of SQLite, where the build has it.
#pragma once

#include <string>

#include "report/sweep_rows.hpp"

namespace parsim::report {

/// Whether this build has SQLite.
[[nodiscard]] bool has_sqlite();

/// The bytes of a database with the tables `rows` and `sweep` (its id, version, number of points).
/// Throws InputError without SQLite.
[[nodiscard]] std::string sqlite_of(SweepRows& rows);

}  // namespace parsim::report
