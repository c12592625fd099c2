#include "validation/nccl_tests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/spelling.hpp"
#include "core/text.hpp"
#include "sim/collective_tables.hpp"
#include "validation/published_machines.hpp"
#include "validation/table_formats.hpp"

namespace parsim::validation {

namespace {

constexpr std::string_view as_table =
    "a CSV table with the columns collective, size_bytes, time_us, gpu, n_gpus, nodes and "
    "interconnect";

constexpr std::string_view no_network =
    "several machines, whose network nccl-tests does not print: add a line such as '# interconnect "
    "NVLink4 + 8x400 Gb/s' to the file, or give the run a --cluster";

/// What the output says beyond sizes, times and the collective.
struct Header {
  std::string version;            ///< of NCCL: "2.21.5"
  std::vector<std::string> gpus;  ///< by rank, of the first group
  std::string group;
  std::string interconnect;  ///< of a line that the user added
  std::map<std::string, int> of_host;
  std::map<std::string, std::size_t> lines;  ///< by the first word, of the table
};

/// "#  Rank  0 Group  0 Pid 53016 on  node1 device  0 [0x07] NVIDIA H100 80GB HBM3"
void read_rank(std::string_view line, const std::vector<std::string_view>& words, Header& header) {
  const auto on = std::find(words.begin(), words.end(), "on");
  const std::size_t bracket = line.find("] ");
  if (on == words.end() || on + 1 == words.end() || bracket == line.npos) return;
  const std::string group(words.size() > 4 && words[3] == "Group" ? words[4] : "");
  if (header.gpus.empty()) header.group = group;
  if (group != header.group) return;
  header.gpus.emplace_back(line.substr(bracket + 2));
  ++header.of_host[std::string(*(on + 1))];
}

Header read_header(std::string_view text) {
  constexpr std::string_view nccl = "NCCL version ";
  Header header;
  std::size_t number = 0;
  for (const std::string& line : split_at(text, '\n')) {
    ++number;
    const std::vector<std::string_view> words = split_at_blanks(line);
    if (words.empty()) continue;
    if (const std::size_t at = line.find(nccl); at != line.npos && header.version.empty()) {
      const std::string rest = line.substr(at + nccl.size());
      header.version = rest.substr(0, rest.find_first_not_of("0123456789."));
    }
    if (words.size() > 2 && words[0] == "#" && words[1] == "Rank") read_rank(line, words, header);
    constexpr std::string_view connects = "interconnect";
    if (words.size() > 2 && words[0] == "#" && words[1].starts_with(connects)) {
      header.interconnect = line.substr(line.find(words[2], line.find(connects)));
    }
    header.lines.emplace(words.front(), number);
  }
  return header;
}

/// Without "[1,0]<stdout>:", which mpirun puts before each line, and blanks at its end.
std::string without_marks(std::string_view text) {
  constexpr std::string_view mark = ">:";
  std::string plain;
  for (const std::string& whole : split_at(text, '\n')) {
    std::string_view line = whole;
    const std::size_t at = line.find(mark);
    if (line.starts_with('[') && at != line.npos) line.remove_prefix(at + mark.size());
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    plain.append(line).append("\n");
  }
  return plain;
}

/// Of "runs/all_reduce_perf.txt".
std::optional<CollectiveKind> kind_in_name(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  constexpr std::pair<std::string_view, CollectiveKind> programs[] = {
      {"all_reduce", CollectiveKind::all_reduce},
      {"all_gather", CollectiveKind::all_gather},
      {"reduce_scatter", CollectiveKind::reduce_scatter},
      {"broadcast", CollectiveKind::broadcast},
      {"alltoall", CollectiveKind::all_to_all}};
  for (const auto& [program, kind] : programs) {
    if (name.find(program) != name.npos) return kind;
  }
  return std::nullopt;
}

void check(const Header& header, const std::string& file) {
  if (header.gpus.empty()) {
    throw InputError(file, "output of nccl-tests without its lines of ranks",
                     fmt::format("accepted: lines as '#  Rank  0 Group  0 Pid 1 on host device  0 "
                                 "[0x07] NVIDIA H100 80GB HBM3', or {}",
                                 as_table));
  }
  const std::set<std::string> kinds(header.gpus.begin(), header.gpus.end());
  if (kinds.size() > 1) {
    throw InputError(file, fmt::format("ranks on unlike GPUs, {}", fmt::join(kinds, " and ")),
                     "accepted: one type of GPU");
  }
  const auto& [first, ranks] = *header.of_host.begin();
  for (const auto& [host, count] : header.of_host) {
    if (count == ranks) continue;
    throw InputError(file, fmt::format("{} ranks on {}, but {} on {}", ranks, first, count, host),
                     "accepted: as many on each machine");
  }
}

}  // namespace

bool lacks_network(const Claim& claim) { return column(claim, unpredictable) == no_network; }

void take_network_of(Claim& claim, const std::string& cluster) {
  const std::int64_t nodes = nodes_of(claim);
  const std::string each = fmt::format("{}", count_column(claim, "n_gpus", nodes) / nodes);
  claim.what["cluster"] = cluster;
  claim.what["placement"] = fmt::format(
      "{}", fmt::join(std::vector<std::string>(static_cast<std::size_t>(nodes), each), "+"));
  claim.what[std::string(unpredictable)].clear();
}

std::optional<CsvTable> read_nccl_tests(std::string_view text, const std::string& file) {
  if (text.find(" algbw") == text.npos) return std::nullopt;  // of a CSV table no blank
  const std::string plain = without_marks(text);
  const Header header = read_header(plain);
  check(header, file);
  sim::CollectiveHint hint;
  if (plain.find("_perf") == plain.npos) {
    hint.kind = kind_in_name(file);
    if (!hint.kind) {
      throw InputError(file, "output of nccl-tests that does not name the collective",
                       "accepted: its line '# Collective test starting: all_reduce_perf', or a "
                       "file named as the program, all_reduce_perf.txt");
    }
  }
  const std::size_t nodes = header.of_host.size(), gpus = header.gpus.size();
  CsvTable table;
  table.file = file;
  table.columns = {"collective",   "gpu",          "nodes",
                   "n_gpus",       "size_bytes",   "time_us_outofplace",
                   "interconnect", "nccl_version", std::string(unpredictable)};
  for (const sim::CollectiveTable& read : sim::read_collective_tables(plain, file, hint)) {
    std::string kind(to_text(read.kind));
    std::replace(kind.begin(), kind.end(), '-', '_');
    for (const auto& [size, time] : read.times) {
      const std::string bytes = fmt::format("{}", size);
      table.rows.push_back(
          {header.lines.at(bytes),
           {kind, header.gpus.front(), fmt::format("{}", nodes), fmt::format("{}", gpus), bytes,
            fmt::format("{}", 1e6 * time.count()), header.interconnect, header.version,
            nodes == 1 || !header.interconnect.empty() ? "" : std::string(no_network)}});
    }
  }
  return table;
}

}  // namespace parsim::validation
