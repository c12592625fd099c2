#include "experiment/files.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <filesystem>
#include <system_error>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/hash.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

}  // namespace

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

bool make_folder(const std::string& path, std::string_view where) {
  std::error_code error;
  const bool made = !path.empty() && fs::create_directory(path, error);
  if (!path.empty() && fs::is_directory(path)) return made;
  throw InputError(where,
                   path.empty() ? std::string("the name is empty")
                                : fmt::format("cannot make the folder '{}': {}", path,
                                              error ? error.message() : "a file has this name"),
                   "accepted: a folder, or a name for one in a folder that can be written");
}

}  // namespace parsim::experiment
