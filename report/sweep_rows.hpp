// The rows of a sweep's results, read from its files in the order of the points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiment/results_file.hpp"

namespace parsim::report {

struct SweepCell {
  enum class Kind : std::uint8_t { none, boolean, integer, real, text } kind = Kind::none;
  std::string text;  ///< as in a CSV file
};
using SweepRow = std::vector<SweepCell>;

class SweepRows {
 public:
  /// Finds every point's line; see merge_results.
  ///
  /// paths   results files, or folders with some
  explicit SweepRows(const std::vector<std::string>& paths);

  [[nodiscard]] const experiment::ResultsHeader& header() const { return header_; }
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] const std::vector<std::size_t>& missing() const { return missing_; }
  /// Points that stand in several places, with equal results.
  [[nodiscard]] const std::vector<std::size_t>& repeated() const { return repeated_; }
  /// Points that were given up and not tried again since.
  [[nodiscard]] const std::vector<std::size_t>& unfinished() const { return unfinished_; }

  /// The line of a point, "" if it is missing.
  [[nodiscard]] std::string line(std::size_t point);

  /// point, id, nondeterministic, an input_… for each column of the sweep, those of 'compare
  /// --format csv'. Of results without a row only the last of these, `error`.
  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  /// Whether some point has results, so that `columns` has theirs.
  [[nodiscard]] bool has_results() const { return columns_.size() > first_result_ + 1; }
  /// each_row passes over all rows that this refuses.
  void keep_only(std::function<bool(const SweepRow& row)> keep) { keep_ = std::move(keep); }
  /// Calls `each` with the values of every row, in the order of `columns`; a point without results
  /// is a row with its error.
  void each_row(const std::function<void(const SweepRow& row)>& each);
  /// The same for the rows of one point.
  void each_row_of(std::size_t point, const std::function<void(const SweepRow& row)>& each);

 private:
  /// Where a point's line stands.
  struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0;
    std::size_t size = 0;    ///< without the line feed; 0: missing
    std::size_t number = 0;  ///< of the line, from 1
    bool nondeterministic = false;
  };

  void add_file(const std::string& path);
  void add_line(const experiment::LineStart& start, const experiment::ResultsReader& reader);
  void find_columns();
  std::string read(const Place& place);
  /// "results.1-of-4.jsonl:17".
  [[nodiscard]] std::string location(const Place& place) const;

  std::vector<std::string> files_;
  experiment::ResultsHeader header_;
  std::vector<Place> points_;
  std::vector<std::size_t> missing_, repeated_, unfinished_;
  std::map<std::size_t, std::ifstream> open_;
  std::vector<std::string> columns_;
  std::function<bool(const SweepRow& row)> keep_;  ///< empty: all
  std::size_t first_result_ = 0;                   ///< index of the first column of results
};

}  // namespace parsim::report
