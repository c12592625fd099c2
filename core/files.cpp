#include "core/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/hash.hpp"

namespace parsim {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_reading(const std::string& path, std::string_view where,
                                 const std::string& reason) {
  throw InputError(where, fmt::format("cannot read '{}': {}", path, reason),
                   "accepted: a readable file");
}

bool has_control_characters(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return true;
  }
  return false;
}

/// Where a chain of symbolic links leads; nothing if it is endless.
std::string behind_links(std::string path) {
  constexpr int most = 40;  // as Linux follows
  std::error_code error;
  for (int links = 0; links < most; ++links) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path to = fs::read_symlink(path, error);
    if (error) return path;
    path = (fs::path(path).parent_path() / to).string();
  }
  return {};
}

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return file_; }
  /// False if what was written could not be kept.
  [[nodiscard]] bool close() { return ::close(std::exchange(file_, -1)) == 0; }

 private:
  int file_;
};

/// Signals that end a program wait while this lives: all that can come from outside, since batch
/// systems send SIGUSR1 and SIGXCPU, too. What the program itself does wrong ends it at once.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t ending;
    ::sigfillset(&ending);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      ::sigdelset(&ending, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &ending, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_{};
};

/// Everything, or false with errno.
bool write_whole(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// Appends what can be read from `file`; false with errno, EFBIG if there is more than
/// largest_input.
bool append_from(int file, std::string& content) {
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    if (static_cast<std::size_t>(got) > largest_input - content.size()) {
      errno = EFBIG;
      return false;
    }
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::string read_file(const std::string& path, std::string_view where) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) refuse_reading(path, where, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) refuse_reading(path, where, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse_reading(path, where, "it is a directory");
  const auto size = static_cast<std::size_t>(status.st_size);
  const bool regular = S_ISREG(status.st_mode), too_large = regular && size > largest_input;
  std::string content;
  if (regular && !too_large) content.reserve(size);
  if (too_large || !append_from(file.number(), content)) {
    refuse_reading(path, where,
                   too_large || errno == EFBIG
                       ? fmt::format("it is larger than {} MiB", largest_input >> 20U)
                       : std::strerror(errno));
  }
  return content;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

std::string shown_path(const std::string& path) {
  return path == standard_output ? "standard output" : path;
}

bool same_file(const std::string& a, const std::string& b) {
  if (a == b) return true;
  if (a == standard_output || b == standard_output || a.empty() || b.empty()) return false;
  std::error_code error;
  const auto whole = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(behind_links(path), error), error);
  };
  return whole(a) == whole(b) && !error;
}

OutputFile::OutputFile(std::string path, std::string_view where, bool executable)
    : path_(std::move(path)), where_(where), executable_(executable) {
  if (path_ == standard_output) {
    file_ = STDOUT_FILENO;
    return;
  }
  if (path_.empty()) refuse("the name is empty");
  if (has_control_characters(path_)) refuse("the name has control characters");
  target_ = behind_links(path_);
  if (target_.empty()) refuse(std::strerror(ELOOP));
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) refuse("it is a directory");
    struct stat out {};
    if (::fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == status.st_dev &&
        out.st_ino ==
            status.st_ino) {  // /dev/stdout, above all: replaced, it would lose the report
      file_ = STDOUT_FILENO;
      return;
    }
    if (!S_ISREG(status.st_mode) || status.st_nlink == 0) {
      file_ = ::open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
      if (file_ < 0) refuse(std::strerror(errno));
      return;
    }
    constexpr unsigned permissions = 07777;
    mode_ = status.st_mode & permissions;
  }
  // The name itself is tried, too: it may be too long.
  if (::lstat(target_.c_str(), &status) != 0 && errno != ENOENT) refuse(std::strerror(errno));
  const SignalsWait guard;
  ::close(open_temporary());
  remove_temporary();
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      where_(std::move(other.where_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      mode_(other.mode_),
      executable_(other.executable_),
      file_(std::exchange(other.file_, -1)) {}

OutputFile::~OutputFile() {
  if (file_ > STDERR_FILENO) ::close(file_);
  remove_temporary();
}

void OutputFile::remove_temporary() noexcept {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

/// O_EXCL: an existing file or link of that name is never written through.
int OutputFile::open_temporary() {
  const fs::path folder = fs::path(target_).parent_path();
  // Names of several files in one folder hardly ever meet.
  constexpr std::uint64_t most = 1000;
  for (std::uint64_t attempt = 0; attempt < most; ++attempt) {
    temporary_ = (folder / fmt::format(".parsim-{}-{:x}.tmp", ::getpid(), fnv1a(target_) + attempt))
                     .string();
    constexpr mode_t anyone = 0666;  // less what umask takes away
    const int file =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, anyone);
    if (file >= 0) return file;
    if (errno != EEXIST) break;
  }
  temporary_.clear();  // not ours
  refuse(std::strerror(errno));
}

void OutputFile::write_all(int file, std::string_view content) {
  if (!write_whole(file, content)) refuse(std::strerror(errno));
}

void OutputFile::stage(std::string_view content) {
  Descriptor file(open_temporary());
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) refuse(std::strerror(errno));
  constexpr unsigned permissions = 07777, all_run = 0111, all_read = 0444;
  unsigned mode = mode_ != 0 ? mode_ : status.st_mode & permissions;
  // Who may read it may run it.
  if (executable_) mode |= (mode & all_read) >> 2U & all_run;
  if (mode != (status.st_mode & permissions) && ::fchmod(file.number(), mode) != 0) {
    refuse(std::strerror(errno));
  }
  write_all(file.number(), content);
  if (::fsync(file.number()) != 0 || !file.close()) refuse(std::strerror(errno));
}

void OutputFile::publish(const std::string& written_before) {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    refuse(written_before.empty() ? reason : reason + "; already written: " + written_before);
  }
  temporary_.clear();
}

void OutputFile::commit(std::string_view content) {
  if (in_place()) {
    if (file_ == STDOUT_FILENO && std::fflush(stdout) != 0) refuse(std::strerror(errno));
    write_all(file_, content);
    if (file_ != STDOUT_FILENO && ::close(std::exchange(file_, -1)) != 0) {
      refuse(std::strerror(errno));
    }
    return;
  }
  const SignalsWait guard;
  try {
    stage(content);
    publish({});
  } catch (...) {
    remove_temporary();  // before signals come
    throw;
  }
}

void OutputFile::refuse(const std::string& reason) const {
  throw InputError(where_, fmt::format("cannot write '{}': {}", shown_path(path_), reason),
                   "accepted: a file name in a folder that can be written");
}

void commit_all(std::span<FileContent> files) {
  std::vector<FileContent*> renamed;
  for (FileContent& one : files) {
    if (one.file.in_place())
      one.file.commit(one.content);  // and is closed: a device is no longer known as one
    else
      renamed.push_back(&one);
  }
  const SignalsWait guard;
  try {
    for (FileContent* one : renamed) one->file.stage(one->content);
    std::string written;
    for (FileContent* one : renamed) {
      one->file.publish(written);
      written += (written.empty() ? "" : ", ") + one->file.path_;
    }
  } catch (...) {
    for (FileContent& one : files) one.file.remove_temporary();
    throw;
  }
}

MemoryFile::MemoryFile(std::string_view content) : file_(::memfd_create("parsim", MFD_CLOEXEC)) {
  if (file_ >= 0 && write_whole(file_, content)) return;
  const int error = errno;
  if (file_ >= 0) ::close(file_);
  throw std::system_error(error, std::generic_category(), "no file in memory");
}

MemoryFile::~MemoryFile() { ::close(file_); }

std::string MemoryFile::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_); }

std::string MemoryFile::text() const {
  std::string text;
  if (::lseek(file_, 0, SEEK_SET) < 0 || !append_from(file_, text)) {
    throw std::system_error(errno, std::generic_category(), "a file in memory cannot be read");
  }
  return text;
}

bool write_text(std::FILE* stream, std::string_view text) noexcept {
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  return std::fflush(stream) == 0 && written;
}

void print_text(std::FILE* stream, std::string_view text) {
  if (write_text(stream, text)) return;
  throw InputError(stream == stderr ? "standard error" : "standard output", "cannot be written",
                   "accepted: a disk with free space");
}

bool ended_by_lack_of_memory() noexcept {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
  return false;
}

void protect_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The other direction: using it gives an error, as if it were still closed.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace parsim
