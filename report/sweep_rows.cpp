#include "report/sweep_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/errors.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

SweepCell cell_of(const Json& value) {
  using Kind = SweepCell::Kind;
  switch (value.type()) {
    case Json::value_t::null:
      return {};
    case Json::value_t::boolean:
      return {Kind::boolean, value.get<bool>() ? "true" : "false"};
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return {Kind::integer, value.dump()};
    case Json::value_t::number_float:
      return {Kind::real, fmt::format("{}", value.get<double>())};
    case Json::value_t::string:
      return {Kind::text, value.get<std::string>()};
    default:
      return {Kind::text, value.dump()};
  }
}

/// The reader has seen that the line is good: it can only have changed since.
Json parsed(const std::string& line, const std::string& location) {
  Json json = Json::parse(line, nullptr, false);
  if (json.is_object() && json.contains("inputs") && json.contains("results")) return json;
  throw InputError(location, "changed while it was read", "accepted: a file that stays");
}

}  // namespace

SweepRows::SweepRows(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      add_file(path);
      continue;
    }
    const std::vector<std::string> inside = experiment::results_files(path);
    if (inside.empty()) {
      throw InputError("--merge", fmt::format("no results in folder '{}'", path),
                       "accepted: folders with files results.I-of-N.jsonl");
    }
    for (const std::string& file : inside) add_file(file);
  }
  if (header_.points == 0) {
    throw InputError("--merge", "no results", "accepted: files with at least their first line");
  }
  for (std::size_t p = 0; p < points_.size(); ++p) {
    if (points_[p].size == 0) missing_.push_back(p);
    if (points_[p].nondeterministic) unfinished_.push_back(p);
  }
  std::sort(repeated_.begin(), repeated_.end());
  repeated_.erase(std::unique(repeated_.begin(), repeated_.end()), repeated_.end());
  find_columns();
}

void SweepRows::add_file(const std::string& path) {
  experiment::ResultsReader reader(path, "--merge");
  if (!reader.header()) return;
  files_.push_back(path);
  if (files_.size() == 1 || header_.points == 0) {
    header_ = *reader.header();
    points_.resize(header_.points);
  } else if (*reader.header() != header_) {
    const bool version = reader.header()->version != header_.version;
    throw InputError(path,
                     version
                         ? fmt::format("results of parsim {}, but those of {} are of {}",
                                       reader.header()->version, files_.front(), header_.version)
                         : fmt::format("results of sweep {}, but those of {} are of {}",
                                       reader.header()->sweep, files_.front(), header_.sweep),
                     "accepted: results of one sweep and version");
  }
  while (const auto start = reader.next()) add_line(*start, reader);
}

void SweepRows::add_line(const experiment::LineStart& start,
                         const experiment::ResultsReader& reader) {
  Place& known = points_[start.point];
  const Place here{files_.size() - 1, reader.offset(), reader.line().size(), reader.number(),
                   start.nondeterministic};
  if (known.size == 0 || known.nondeterministic) {
    known = here;
  } else if (!here.nondeterministic) {
    if (read(known) != reader.line()) {
      throw InputError(
          reader.location(),
          fmt::format("point {} has other results in {}", start.point, files_[known.file]),
          "accepted: one of them; the inputs or the program changed in between");
    }
    repeated_.push_back(start.point);
  }
}

std::string SweepRows::read(const Place& place) {
  constexpr std::size_t most_open = 64;
  auto found = open_.find(place.file);
  if (found == open_.end()) {
    if (open_.size() >= most_open) open_.erase(open_.begin());
    found = open_.emplace(place.file, std::ifstream(files_[place.file], std::ios::binary)).first;
  }
  std::ifstream& file = found->second;
  std::string line(place.size, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(place.offset));
  if (!file.read(line.data(), static_cast<std::streamsize>(line.size()))) {
    throw InputError(files_[place.file], "became shorter while it was read",
                     "accepted: a file that stays");
  }
  return line;
}

std::string SweepRows::location(const Place& place) const {
  return fmt::format("{}:{}", files_[place.file], place.number);
}

std::string SweepRows::line(std::size_t point) {
  return points_[point].size == 0 ? std::string() : read(points_[point]);
}

void SweepRows::find_columns() {
  columns_ = {"point", "id", "nondeterministic"};
  for (const std::string& column : header_.columns) columns_.push_back("input_" + column);
  first_result_ = columns_.size();
  for (std::size_t p = 0; p < points_.size(); ++p) {
    if (points_[p].size == 0 || points_[p].nondeterministic) continue;
    const Json json = parsed(line(p), location(points_[p]));
    if (json["results"].empty()) continue;
    for (const auto& [key, value] : json["results"].front().items()) columns_.push_back(key);
    if (columns_.back() == "error") return;
    throw InputError(location(points_[p]), "results without a last key 'error'",
                     "accepted: files as 'parsim sweep' wrote them");
  }
  columns_.emplace_back("error");
}

void SweepRows::each_row(const std::function<void(const SweepRow& row)>& each) {
  for (std::size_t p = 0; p < points_.size(); ++p) each_row_of(p, each);
}

void SweepRows::each_row_of(std::size_t point,
                            const std::function<void(const SweepRow& row)>& each) {
  if (points_[point].size == 0) return;
  const auto pass_on = [&](const SweepRow& row) {
    if (!keep_ || keep_(row)) each(row);
  };
  const Json json = parsed(line(point), location(points_[point]));
  SweepRow row(columns_.size());
  row[0] = {SweepCell::Kind::integer, fmt::format("{}", point)};
  row[1] = cell_of(json["id"]);
  row[2] = cell_of(json["nondeterministic"]);
  std::size_t c = 3;
  for (const std::string& name : header_.columns) {
    const auto input = json["inputs"].find(name);
    row[c++] = input == json["inputs"].end() ? SweepCell{} : cell_of(*input);
  }
  if (json["results"].empty()) {
    row.back() = cell_of(json["error"]);
    pass_on(row);
  }
  for (const Json& result : json["results"]) {
    c = first_result_;
    for (const auto& [key, value] : result.items()) {
      if (c == columns_.size() || key != columns_[c]) {
        throw InputError(location(points_[point]),
                         fmt::format("point {} has other columns than others", point),
                         "accepted: files as 'parsim sweep' wrote them");
      }
      row[c++] = cell_of(value);
    }
    pass_on(row);
  }
}

}  // namespace parsim::report
