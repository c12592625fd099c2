// Reading input files and writing output files: nothing half-written ever stays.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace parsim::experiment {

/// The content of a file. Throws InputError naming `where` and the path if it cannot be read
/// or is larger than 256 MiB.
[[nodiscard]] std::string read_file(const std::string& path, std::string_view where);

/// True if the path names something that is not a directory.
[[nodiscard]] bool file_exists(const std::string& path);

/// The file that a word of the command line reads, or "": a path, one before ",device=NAME", or the
/// config.json of a model's folder.
[[nodiscard]] std::string file_of(const std::string& given);

/// FNV-1a, 64 bits, as 16 hexadecimal digits: tells whether an input is the one it was. Not against
/// forgery. Source: Fowler, Noll & Vo, draft-eastlake-fnv.
[[nodiscard]] std::string fnv1a64(std::string_view bytes);

/// The same bytes as a gzip file; without a time stamp, so that equal texts give equal files.
[[nodiscard]] std::string gzip(std::string_view bytes);

/// As the name of a file to write: standard output.
inline constexpr std::string_view standard_output = "-";
/// The name of a file to write, for people.
[[nodiscard]] std::string shown_path(const std::string& path);

/// Makes the folder unless there is one. `where` is the flag, for messages. Throws InputError.
void make_folder(const std::string& path, std::string_view where);

/// A file that appears under its name when it is complete: written beside it under a temporary name
/// and renamed by commit(). Without commit() nothing stays. What is no regular file (/dev/null, a
/// pipe, "-" for standard output) is written in place.
class OutputFile {
 public:
  /// `where` is the flag, for messages. Throws InputError if the place cannot be written, so that a
  /// long computation does not end in that.
  OutputFile(std::string path, std::string_view where);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws InputError if the disk is full or the file cannot be renamed.
  void commit(std::string_view content);

 private:
  [[noreturn]] void refuse(const std::string& reason) const;

  std::string path_, where_;
  std::string written_;        ///< the name written under; empty once there is nothing to remove
  std::FILE* file_ = nullptr;  ///< closed here unless it is standard output
};

}  // namespace parsim::experiment
