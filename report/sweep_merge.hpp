// One table of the results files of a sweep's shards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/document.hpp"

namespace parsim::report {

struct MergeRequest {
  std::vector<std::string> paths;   ///< results files, or folders with some
  std::string output;               ///< ends in .csv, .jsonl or .sqlite; "": none
  std::optional<std::size_t> top;   ///< list the best rows
  std::string by;                   ///< column that `top` sorts by; "": step_time_s
  std::vector<std::string> pareto;  ///< columns of a Pareto front to list; empty: none
};

/// Merges results: the same bytes however the points were divided. A point may stand in several
/// files, and is taken once; one that was given up counts only if nothing better is there. `top`
/// and `pareto` list rows that fit, of which a column's lowest value is the best, of
/// throughput_samples_per_s, probability_fastest, mfu and hfu the highest. Warns of missing and
/// repeated points. Throws InputError for files of different sweeps or versions, a point with two
/// different results, an unknown column, or an output that this build cannot write.
[[nodiscard]] Document merge_results(const MergeRequest& request);

}  // namespace parsim::report
