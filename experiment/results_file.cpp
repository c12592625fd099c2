#include "experiment/results_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

namespace {

using Json = nlohmann::ordered_json;

/// Files may have any number of lines; each of them is read whole. A point of a thousand rows has
/// one MiB.
constexpr std::size_t longest_line = std::size_t{64} << 20U;

/// Removes `prefix` from the front; false if it is not there.
bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<LineStart> parse_line_start(std::string_view line) {
  LineStart start;
  if (!take_prefix(line, "{\"point\":")) return std::nullopt;
  const std::size_t comma = line.find(',');
  const auto point = to_number<std::uint32_t>(line.substr(0, comma));
  if (!point || comma == line.npos) return std::nullopt;
  start.point = *point;
  line.remove_prefix(comma);
  if (!take_prefix(line, ",\"id\":\"")) return std::nullopt;
  const std::size_t quote = line.find('"');
  if (quote == line.npos) return std::nullopt;
  start.id = line.substr(0, quote);
  line.remove_prefix(quote);
  if (!take_prefix(line, "\",\"nondeterministic\":")) return std::nullopt;
  start.nondeterministic = take_prefix(line, "true");
  if (!start.nondeterministic && !take_prefix(line, "false")) return std::nullopt;
  return start;
}

/// Inputs and results are lists of lists at most; writers of JSON call themselves for each level.
bool is_deep(std::string_view line) {
  constexpr int most = 64;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') in_text = !in_text;
    if (in_text) {
      i += c == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/// What 'sweep' counts as done, '--merge' must be able to read.
bool is_point(const std::string& line) {
  if (is_deep(line)) return false;
  const Json json = Json::parse(line, nullptr, false);
  const auto has = [&](const char* key) { return json.contains(key); };
  if (!json.is_object() || !has("inputs") || !has("results") || !has("error")) return false;
  const Json& results = json["results"];
  return json["inputs"].is_object() && results.is_array() &&
         std::all_of(results.begin(), results.end(),
                     [](const Json& row) { return row.is_object(); }) &&
         (json["error"].is_null() || json["error"].is_string());
}

std::optional<ResultsHeader> parse_header(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || json.size() != 4) return std::nullopt;
  const auto text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!text("sweep") || !text("version") || !json.contains("points") ||
      !json["points"].is_number_unsigned() || !json.contains("columns") ||
      !json["columns"].is_array()) {
    return std::nullopt;
  }
  if (json["points"] > most_points) return std::nullopt;
  ResultsHeader header{json["sweep"], json["version"], json["points"], {}};
  for (const Json& column : json["columns"]) {
    if (!column.is_string()) return std::nullopt;
    header.columns.push_back(column);
  }
  return header;
}

void check_header(const std::string& path, const ResultsHeader& found,
                  const ResultsHeader& wanted) {
  if (found == wanted) return;
  std::string what = "results with another number of points or other columns";
  if (found.version != wanted.version) {
    what = fmt::format("results of parsim {}, not {}", found.version, wanted.version);
  } else if (found.sweep != wanted.sweep) {
    what = fmt::format("results of another sweep ({}, not {})", found.sweep, wanted.sweep);
  }
  throw InputError(path, what, "accepted: an empty folder, or one with results of the same sweep");
}

}  // namespace

ResultsHeader header_of(const Sweep& sweep) {
  ResultsHeader header{sweep.id, sweep.version, sweep.points.size(), {}};
  for (const SweepColumn& column : sweep.columns) header.columns.push_back(column.name);
  return header;
}

std::string header_line(const ResultsHeader& header) {
  return Json{{"sweep", header.sweep},
              {"version", header.version},
              {"points", header.points},
              {"columns", header.columns}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_start(const LineStart& start) {
  return fmt::format("{{\"point\":{},\"id\":\"{}\",\"nondeterministic\":{}", start.point, start.id,
                     start.nondeterministic);
}

ResultsReader::ResultsReader(const std::string& path, std::string_view where)
    : path_(path), file_(path, std::ios::binary) {
  if (!file_) {
    throw InputError(where, fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)),
                     "accepted: a results file of a sweep");
  }
  if (!read_line()) return;
  header_ = parse_header(line_);
  if (!header_) {
    throw InputError(location(), "not the first line of a sweep's results",
                     "accepted: files that 'parsim sweep' wrote");
  }
}

bool ResultsReader::read_line() {
  line_.clear();
  std::streambuf& in = *file_.rdbuf();
  constexpr int end = std::char_traits<char>::eof();
  int next = end;
  try {
    while ((next = in.sbumpc()) != end && next != '\n' && line_.size() <= longest_line) {
      line_ += static_cast<char>(next);
    }
  } catch (const std::ios_base::failure&) {  // a directory
    return false;
  }
  if (line_.size() > longest_line) {
    ++number_;
    throw InputError(location(), fmt::format("a line of more than {} MiB", longest_line >> 20U),
                     "accepted: files that 'parsim sweep' wrote");
  }
  if (next == end) return false;  // torn, if there is something
  offset_ = end_;
  end_ += line_.size() + 1;
  ++number_;
  return true;
}

std::optional<LineStart> ResultsReader::next() {
  if (!header_ || !read_line()) return std::nullopt;
  std::optional<LineStart> start = parse_line_start(line_);
  if (!start || start->point >= header_->points || !is_point(line_)) {
    throw InputError(location(), "not a line of a sweep's results",
                     "accepted: files as 'parsim sweep' wrote them");
  }
  return start;
}

std::string ResultsReader::location() const { return fmt::format("{}:{}", path_, number_); }

ResultsFile::ResultsFile(const std::string& path, const ResultsHeader& header) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw InputError("-o", fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)),
                     "accepted: a folder that can be written");
  }
  lock();
  std::uint64_t good = 0;
  {
    ResultsReader reader(path, "-o");
    if (reader.header()) check_header(path, *reader.header(), header);
    while (reader.next()) {
    }
    good = reader.good_bytes();
  }
  lock();  // closing the reader's file ended the first one
  if (::ftruncate(file_, static_cast<off_t>(good)) != 0 || ::lseek(file_, 0, SEEK_END) < 0) {
    throw InputError("-o", fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)),
                     "accepted: a folder that can be written");
  }
  if (good == 0) append(header_line(header));
}

ResultsFile::~ResultsFile() {
  if (file_ >= 0) ::close(file_);
}

// A record lock is the process's own: workers do not inherit it, and it ends with the process. Some
// file systems have none; then nothing guards against the same shard started twice.
void ResultsFile::lock() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file_, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN)) return;
  ::close(file_);
  throw InputError("--shard", fmt::format("another process is writing '{}'", path_),
                   "accepted: each shard once at a time");
}

void ResultsFile::append(std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t put = ::write(file_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      throw InputError("-o", fmt::format("'{}' cannot be written: {}", path_, std::strerror(errno)),
                       "accepted: a disk with free space; what was written counts");
    }
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
}

std::string results_name(std::size_t index, std::size_t count) {
  return fmt::format("results.{}-of-{}.jsonl", index + 1, count);
}

std::vector<std::string> results_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("results.") && name.ends_with(".jsonl")) {
      found.push_back(folder + "/" + name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<bool> points_done(const std::string& folder, const Sweep& sweep) {
  std::vector<bool> done(sweep.points.size());
  const ResultsHeader wanted = header_of(sweep);
  for (const std::string& path : results_files(folder)) {
    ResultsReader reader(path, "-o");
    if (reader.header()) check_header(path, *reader.header(), wanted);
    while (const std::optional<LineStart> start = reader.next()) {
      if (!start->nondeterministic && start->id == sweep.points[start->point].id) {
        done[start->point] = true;
      }
    }
  }
  return done;
}

}  // namespace parsim::experiment
