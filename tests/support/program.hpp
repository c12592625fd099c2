// Runs a program as a child process, as a user's shell would, and says what it printed and how it
// ended.
#pragma once

#include <string>
#include <vector>

namespace parsim::testing {

struct Finished {
  int exit_code = -1;  ///< negative: the signal that killed it
  std::string out, err;
  friend bool operator==(const Finished&, const Finished&) = default;
};

/// Runs `program` with arguments, without a shell; standard input is empty and NO_COLOR is not set.
/// directory     where it runs; "" is here
/// environment   "NAME=value" additions
[[nodiscard]] Finished run_program(const std::string& program,
                                   const std::vector<std::string>& arguments,
                                   const std::string& directory = {},
                                   const std::vector<std::string>& environment = {});

/// A folder that is removed with everything in it at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// Absolute path of a file in the folder.
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// Names of what is in the folder, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string folder_;
};

/// A whole file; throws std::runtime_error if it cannot be read.
[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace parsim::testing
