// The files that a sweep appends its results to: JSON Lines, a header and then a line for each
// point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/sweep_file.hpp"

namespace parsim::experiment {

/// The first line: {"sweep":"…","version":"…","points":8,"columns":["network","batch"]}.
struct ResultsHeader {
  std::string sweep, version;
  std::size_t points = 0;
  std::vector<std::string> columns;
  friend bool operator==(const ResultsHeader&, const ResultsHeader&) = default;
};
[[nodiscard]] ResultsHeader header_of(const Sweep& sweep);
/// Without a line end.
[[nodiscard]] std::string header_line(const ResultsHeader& header);

/// The beginning of a point's line: {"point":3,"id":"…","nondeterministic":false, before its
/// inputs and results. `nondeterministic`: it may come out differently when tried again.
struct LineStart {
  std::size_t point = 0;
  std::string id;
  bool nondeterministic = false;
};
[[nodiscard]] std::string line_start(const LineStart& start);

/// One after another the lines of such a file. Lines that end without a line feed were torn by a
/// kill; they count as not there.
class ResultsReader {
 public:
  /// Throws InputError if the file cannot be read or does not begin with a header.
  ResultsReader(const std::string& path, std::string_view where);

  /// Nothing: the file is empty, or its header was torn.
  [[nodiscard]] const std::optional<ResultsHeader>& header() const { return header_; }
  /// The next point; nothing at the end. Throws InputError for a line that is none, or of more
  /// than 64 MiB: a device that never ends has no other.
  [[nodiscard]] std::optional<LineStart> next();
  [[nodiscard]] const std::string& line() const { return line_; }  ///< that `next` read
  [[nodiscard]] std::uint64_t offset() const { return offset_; }   ///< of that line
  [[nodiscard]] std::size_t number() const { return number_; }     ///< of that line, from 1
  [[nodiscard]] std::uint64_t good_bytes() const { return end_; }  ///< up to the last whole line
  /// "results.1-of-4.jsonl:17", of that line.
  [[nodiscard]] std::string location() const;

 private:
  bool read_line();

  std::string path_, line_;
  std::ifstream file_;
  std::optional<ResultsHeader> header_;
  std::uint64_t offset_ = 0, end_ = 0;
  std::size_t number_ = 0;
};

/// The results file of one shard, open for appending. Only one process has it: others are refused.
class ResultsFile {
 public:
  /// Drops a torn last line; writes the header into a new file. Throws InputError if the file
  /// belongs to another sweep or version, cannot be written, or another process is writing it.
  ResultsFile(const std::string& path, const ResultsHeader& header);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  /// In one call of the system, so that a kill tears no line but the last. Throws InputError if the
  /// disk is full.
  void append(std::string line);

 private:
  void lock();

  std::string path_;
  int file_ = -1;
};

/// The name of a shard's file: "results.1-of-4.jsonl".
[[nodiscard]] std::string results_name(std::size_t index, std::size_t count);
/// The results files of a folder, sorted by name.
[[nodiscard]] std::vector<std::string> results_files(const std::string& folder);

/// By point: whether a file of the folder has its final line. Throws InputError for files of
/// another sweep or version.
[[nodiscard]] std::vector<bool> points_done(const std::string& folder, const Sweep& sweep);

}  // namespace parsim::experiment
