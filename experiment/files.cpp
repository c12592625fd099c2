#include "experiment/files.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/errors.hpp"
#include "core/hash.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_file = std::size_t{1} << 30U;

// Plans of thousands of devices take some ten megabytes; /dev/zero has no end.
constexpr std::size_t largest_input = std::size_t{256} << 20;

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

}  // namespace

std::string read_file(const std::string& path, std::string_view where) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) refuse_reading(path, where, "it is a directory");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) refuse_reading(path, where, std::strerror(errno));
  std::string content;
  char buffer[1 << 16];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
    content.append(buffer, got);
    if (content.size() > largest_file) {  // /dev/zero never ends
      std::fclose(file);
      refuse_reading(path, where, "it is larger than 256 MiB");
    }
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) refuse_reading(path, where, "reading failed");
  return content;
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

std::string file_of(const std::string& given) {
  const std::string in_folder = (fs::path(given) / "config.json").string();
  for (const std::string& path : {given, given.substr(0, given.rfind(",device=")), in_folder}) {
    if (file_exists(path)) return path;
  }
  return {};
}

std::string fnv1a64(std::string_view bytes) { return fmt::format("{:016x}", fnv1a(bytes)); }

std::string gzip(std::string_view bytes) {
  constexpr int gzip_format = 15 + 16;  // zlib.h: largest window, + 16 for a gzip header
  constexpr int default_memory = 8;
  z_stream stream{};
  ensure(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_format, default_memory,
                      Z_DEFAULT_STRATEGY) == Z_OK,
         "zlib can be initialised");
  std::string in(bytes);  // zlib's input pointer is not const
  std::string out;
  std::string buffer(1 << 16, '\0');
  std::size_t taken = 0;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0 && taken < in.size()) {
      constexpr std::size_t chunk = 1 << 20;  // avail_in has 32 bits
      stream.avail_in = static_cast<uInt>(std::min(chunk, in.size() - taken));
      stream.next_in = reinterpret_cast<Bytef*>(in.data() + taken);
      taken += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = deflate(&stream, taken == in.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

std::string shown_path(const std::string& path) {
  return path == standard_output ? "standard output" : path;
}

void make_folder(const std::string& path, std::string_view where) {
  std::error_code error;
  if (!path.empty()) fs::create_directory(path, error);
  if (!path.empty() && fs::is_directory(path)) return;
  throw InputError(where,
                   path.empty() ? std::string("the name is empty")
                                : fmt::format("cannot make the folder '{}': {}", path,
                                              error ? error.message() : "a file has this name"),
                   "accepted: a folder, or a name for one in a folder that can be written");
}

OutputFile::OutputFile(std::string path, std::string_view where)
    : path_(std::move(path)), where_(where) {
  if (path_ == standard_output) {
    file_ = stdout;
    return;
  }
  if (path_.empty()) refuse("the name is empty");
  if (has_control_characters(path_)) refuse("the name has control characters");
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) refuse("it is a directory");
  const bool in_place = fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored);
  const std::string name = in_place ? path_ : fmt::format("{}.{}.tmp", path_, ::getpid());
  file_ = std::fopen(name.c_str(), "wb");
  if (file_ == nullptr) refuse(std::strerror(errno));
  if (!in_place) written_ = name;
}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!written_.empty()) std::remove(written_.c_str());
}

void OutputFile::commit(std::string_view content) {
  ensure(file_ != nullptr, "a file is committed once");
  const bool complete = std::fwrite(content.data(), 1, content.size(), file_) == content.size();
  const bool closed = (file_ == stdout ? std::fflush(file_) : std::fclose(file_)) == 0;
  file_ = nullptr;
  if (!complete || !closed) refuse(std::strerror(errno));
  if (written_.empty()) return;
  if (std::rename(written_.c_str(), path_.c_str()) != 0) refuse(std::strerror(errno));
  written_.clear();
}

void OutputFile::refuse(const std::string& reason) const {
  throw InputError(where_, fmt::format("cannot write '{}': {}", shown_path(path_), reason),
                   "accepted: a file name in a folder that can be written");
}

}  // namespace parsim::experiment
