// The lines of a sweep's results, and the tables made of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/results_file.hpp"
#include "experiment/run.hpp"
#include "experiment/shard.hpp"
#include "experiment/sweep_file.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// The line of a point that ran: `inputs` as the sweep's file says them, and in `results` the rows
/// of 'compare --format csv'.
[[nodiscard]] std::string point_line(const experiment::Sweep& sweep, std::size_t point,
                                     const std::vector<experiment::RunResult>& results);
/// The line of a point that has no results. `nondeterministic`: it may have some another time.
[[nodiscard]] std::string point_line(const experiment::Sweep& sweep, std::size_t point,
                                     const std::string& error, bool nondeterministic);

/// What a call of 'sweep' did.
struct SweepProgress {
  std::string results_file;
  experiment::Shard shard;
  std::size_t in_shard = 0;  ///< points
  std::size_t before = 0;    ///< done by earlier calls
  std::size_t now = 0;       ///< done by this one
  std::size_t failed = 0, unfit = 0,
              unfinished = 0;  ///< of `now`: without a plan, not fitting, killed
  std::string first_error;     ///< "point 3: …" of one that failed, or ""
};
[[nodiscard]] Document report_sweep(const experiment::Sweep& sweep, const SweepProgress& progress);

/// "point 3: unknown network" of the line of a point without results.
[[nodiscard]] std::string error_of(const std::string& line);

/// Points that --dry-run tried.
struct SampledPoints {
  std::optional<Seconds> each;  ///< of one point on one core; nothing if none ended
  std::size_t tried = 0, failed = 0, unfit = 0;
  std::string first_error;  ///< as in SweepProgress
};
/// The points, and how long they take if `jobs` processes work.
[[nodiscard]] Document report_points(const experiment::Sweep& sweep, const experiment::Shard& shard,
                                     const SampledPoints& sample, std::size_t jobs);

/// The JSON Schema of what both of these and merge_results() say.
[[nodiscard]] std::string sweep_schema();

}  // namespace parsim::report
