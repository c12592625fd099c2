// Files as both programs read and write them: input is bounded, output is complete or not there.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace parsim {

/// Most bytes that an input file may have: plans of thousands of devices take some ten megabytes.
inline constexpr std::size_t largest_input = std::size_t{256} << 20;

/// The content of a file, a pipe or a device. Throws InputError naming `where` and the path if it
/// cannot be read or has more than largest_input bytes; no more than that is ever read.
[[nodiscard]] std::string read_file(const std::string& path, std::string_view where);
/// Of UTF-8 from editors and tables that begin it with one.
[[nodiscard]] std::string_view without_byte_order_mark(std::string_view text);

/// As the name of a file to write: standard output.
inline constexpr std::string_view standard_output = "-";
/// The name of a file to write, for people.
[[nodiscard]] std::string shown_path(const std::string& path);
/// True if both names lead to the same file, whether it exists yet or not.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

struct FileContent;

/// A file that appears under its name when it is complete: written next to it under a temporary
/// name, flushed to the disk, and renamed. A symbolic link is followed and stays; a file that is
/// replaced leaves its permissions (other hard links keep the old text). What is no regular file
/// (/dev/null, a pipe), has no name, or is standard output ("-", /dev/stdout), is written in place.
///
/// The temporary file exists only during commit() and for a moment of the constructor, while
/// signals wait: only SIGKILL or a power failure in that moment leaves one, `.parsim-PID-N.tmp`.
class OutputFile {
 public:
  /// `where` is the flag, for messages. Throws InputError if the place cannot be written, so that a
  /// long computation does not end in that. `executable`: a script.
  OutputFile(std::string path, std::string_view where, bool executable = false);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  /// Throws InputError if the disk is full or the file cannot be renamed.
  void commit(std::string_view content);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  friend void commit_all(std::span<FileContent> files);
  [[nodiscard]] bool in_place() const { return file_ >= 0; }
  void stage(std::string_view content);
  void publish(const std::string& written_before);
  void write_all(int file, std::string_view content);
  [[nodiscard]] int open_temporary();
  void remove_temporary() noexcept;
  [[noreturn]] void refuse(const std::string& reason) const;

  std::string path_, where_;
  std::string target_;     ///< behind symbolic links
  std::string temporary_;  ///< its name while it exists
  unsigned mode_ = 0;      ///< permissions; 0: those of a new file
  bool executable_ = false;
  int file_ = -1;  ///< what is written in place
};

struct FileContent {
  OutputFile file;
  std::string content;
};
/// Writes all files or none: each is complete on the disk before the first gets its name. Throws
/// InputError; should renaming fail half-way, it names the files that are there.
void commit_all(std::span<FileContent> files);

/// A file in memory. It has no name in any folder, so that nothing is left of it when this process
/// ends, in any way. Throws std::system_error if there is no memory or descriptor for it.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content = {});
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Every process of this user on this machine can open it while this object lives.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] int descriptor() const { return file_; }
  [[nodiscard]] std::string text() const;

 private:
  int file_ = -1;
};

/// Whether all of the text was written; throws nothing.
[[nodiscard]] bool write_text(std::FILE* stream, std::string_view text) noexcept;
/// Throws InputError if it cannot be written, for instance to a full disk.
void print_text(std::FILE* stream, std::string_view text);

/// Throws nothing. Inside a handler of std::set_terminate(): whether memory was lacking where no
/// exception may pass, as in destructors of nlohmann-json, which allocate.
[[nodiscard]] bool ended_by_lack_of_memory() noexcept;

/// To be called first in main(): a file opened later must not become a standard stream that was
/// closed (`>&-`), and a limit of file sizes gives a message, not a signal.
void protect_standard_streams();

}  // namespace parsim
