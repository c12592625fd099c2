// One table of the results files of a sweep's shards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/document.hpp"

namespace parsim::report {

struct MergeRequest {
  std::vector<std::string> paths;    ///< results files, or folders with some
  std::string output;                ///< ends in .csv, .jsonl or .sqlite; "": none
  std::optional<std::size_t> top;    ///< list the best rows
  std::string by;                    ///< column that `top` sorts by; "": step_time_s
  std::vector<std::string> pareto;   ///< columns of a Pareto front to list; empty: none
  std::vector<std::string> where;    ///< conditions that the rows meet: "step_time_s <= 10"
  std::string page;                  ///< HTML file to write; "": none
  std::vector<std::string> command;  ///< as typed, for the page
};

struct MergeReport {
  Document document;
  bool nothing_listed = false;  ///< rows were asked for, and there is none
};

/// Merges results: the same bytes however the points were divided. A point may stand in several
/// files, and is taken once; one that was given up counts only if nothing better is there. `top`
/// and `pareto` list rows that fit, of which a column's lowest value is the best, of
/// throughput_samples_per_s, probability_fastest, mfu and hfu the highest. Warns of missing and
/// repeated points, and says why rows are not listed. Throws InputError for files of different
/// sweeps or versions, a point with two different results, an unknown column, a condition that
/// cannot be read, or an output that this build cannot write.
[[nodiscard]] MergeReport merge_results(const MergeRequest& request);

}  // namespace parsim::report
