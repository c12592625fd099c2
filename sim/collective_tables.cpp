#include "sim/collective_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "sim/nccl.hpp"

namespace parsim::sim {

namespace {

/// What the rest of the world calls a kind: nccl-tests' programs are NAME_perf.
constexpr std::pair<std::string_view, CollectiveKind> test_names[] = {
    {"all_reduce", CollectiveKind::all_reduce},         {"all_gather", CollectiveKind::all_gather},
    {"reduce_scatter", CollectiveKind::reduce_scatter}, {"broadcast", CollectiveKind::broadcast},
    {"alltoall", CollectiveKind::all_to_all},           {"all_to_all", CollectiveKind::all_to_all}};
constexpr std::string_view accepted_tests =
    "accepted: all_reduce, all_gather, reduce_scatter, broadcast or alltoall";

std::optional<CollectiveKind> kind_named(std::string_view name) {
  for (const auto& [word, kind] : test_names) {
    if (word == name) return kind;
  }
  return std::nullopt;
}

std::string location(const std::string& file, std::size_t line) {
  return fmt::format("{}:{}", file, line);
}

/// Checks the fields of a row and adds it.
void add_row(std::string_view size, std::string_view time, const std::string& where,
             CollectiveTable& table) {
  const auto bytes = to_number<std::int64_t>(size);
  if (!bytes || *bytes < 0) {
    throw InputError(where, fmt::format("size '{}'", size), "accepted: whole bytes");
  }
  const auto micros = to_number<double>(time);
  if (!micros || !std::isfinite(*micros) || *micros <= 0) {
    throw InputError(where, fmt::format("time '{}'", time), "accepted: microseconds above 0");
  }
  if (*bytes == 0) return;
  if (!table.times.empty() && *bytes <= table.times.rbegin()->first) {
    throw InputError(
        where,
        fmt::format("size {} after {} (of {} over {} ranks)", *bytes, table.times.rbegin()->first,
                    to_text(table.kind), table.ranks),
        "accepted: one measurement of one machine, sizes that increase (some kinds round "
        "to 16 B a rank: two steps of -i may be one size)");
  }
  if (table.times.empty()) table.source = where;
  table.times.emplace_hint(table.times.end(), *bytes, Seconds{*micros * 1e-6});
}

// ------------------------------------------------------------------ what nccl-tests print

class TestOutput {
 public:
  TestOutput(const std::string& file, const CollectiveHint& hint) : file_(file), hint_(hint) {}

  [[nodiscard]] CollectiveTable read(std::string_view text) {
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      read_line(text.substr(at, end - at), ++number);
      at = end + 1;
    }
    if (columns_.empty()) {
      throw InputError(file_, "neither a table of nccl-tests nor CSV with a column size_bytes",
                       "accepted: what nccl-tests print, with its head line '#  size  count  type "
                       "…  time  algbw  busbw …'");
    }
    CollectiveTable table{resolved_kind(), resolved_ranks(), {}, {}};
    if (!truncated_ranks_) table.machines = static_cast<std::int32_t>(hosts_.size());
    for (const Row& row : rows_) add_row(row.size, row.time, location(file_, row.line), table);
    if (table.times.empty()) {
      throw InputError(location(file_, head_line_), "a table without rows",
                       "accepted: at least one size");
    }
    return table;
  }

 private:
  struct Row {
    std::string_view size, time;
    std::size_t line = 0;
  };

  void read_line(std::string_view line, std::size_t number) {
    const std::vector<std::string_view> fields = split_at_blanks(line);
    if (fields.empty()) return;
    note_name(line, number);
    const bool comment = fields.front().starts_with('#');
    if (!comment) {
      // Before and behind the table anything may stand; NCCL's own log anywhere.
      const bool log = line.find("NCCL INFO") != line.npos || line.find("NCCL WARN") != line.npos;
      if (!columns_.empty() && !closed_ && !log) read_row(fields, number);
      return;
    }
    if (fields.size() > 2 && fields[1] == "Rank") note_rank(fields, number);
    const auto has = [&](std::string_view word) {
      return std::find(fields.begin(), fields.end(), word) != fields.end();
    };
    if (has("size") && has("algbw")) {
      read_head(fields, number);
    } else if (!columns_.empty() && number == head_line_ + 1) {
      check_units(fields, number);
    } else if (!columns_.empty() && line.find("Out of bounds") != line.npos) {
      closed_ = true;
    }
  }

  /// A program's name, as in "./build/all_reduce_perf -g 8" or "starting: all_reduce_perf".
  void note_name(std::string_view line, std::size_t number) {
    constexpr std::string_view ending = "_perf";
    std::size_t end = line.find(ending);
    for (; end != line.npos; end = line.find(ending, end + 1)) {
      const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
      std::size_t begin = end;
      while (begin > 0 && in_name(line[begin - 1])) --begin;
      const std::string_view name = line.substr(begin, end - begin);
      const auto kind = kind_named(name);
      if (!kind && !hint_.kind) {
        throw InputError(location(file_, number), fmt::format("a test of '{}'", name),
                         accepted_tests);
      }
      if (kind && kind_ && *kind != *kind_) {
        throw InputError(location(file_, number),
                         fmt::format("'{}' after '{}'", to_text(*kind), to_text(*kind_)),
                         "accepted: one test in a file");
      }
      if (kind) kind_ = kind;
    }
  }

  /// "#  Rank  0 Group  0 Pid …"; older ones have no groups. Of several groups, that of rank 0.
  void note_rank(const std::vector<std::string_view>& fields, std::size_t number) {
    const bool grouped = fields.size() > 4 && fields[3] == "Group";
    const auto group = grouped ? to_number<std::int32_t>(fields[4]) : std::int32_t{0};
    if (!to_number<std::int32_t>(fields[2]) || !group) {
      throw InputError(location(file_, number), "a line of a rank without its number",
                       "accepted: '#  Rank  0 …' as nccl-tests print it");
    }
    if (ranks_ == 0) group_ = *group;
    if (*group == group_) {
      ++ranks_;
      const auto on = std::find(fields.begin(), fields.end(), "on");
      if (on != fields.end() && on + 1 != fields.end()) hosts_.emplace(*(on + 1));
    }
    // A process has room for the names of some 25 GPUs.
    if (fields.back().ends_with("...")) truncated_ranks_ = true;
  }

  void read_head(const std::vector<std::string_view>& fields, std::size_t number) {
    if (!columns_.empty()) {
      throw InputError(location(file_, number), "a second table", "accepted: one test in a file");
    }
    head_line_ = number;
    columns_.assign(fields.begin(), fields.end());
    if (columns_.front() == "#") columns_.erase(columns_.begin());
    const auto at = [&](std::string_view word) {
      const auto found = std::find(columns_.begin(), columns_.end(), word);
      if (found == columns_.end()) {
        throw InputError(location(file_, number), fmt::format("no column '{}'", word),
                         "accepted: size, time and algbw among the columns of nccl-tests (times "
                         "of GPUs, so without --report_cputime)");
      }
      return static_cast<std::size_t>(found - columns_.begin());
    };
    size_ = at("size");
    time_ = at("time");
    rate_ = at("algbw");
    timestamps_ = columns_.back() == "timestamp";
    if (timestamps_) columns_.pop_back();
  }

  /// The line below the head has units where columns have one.
  void check_units(const std::vector<std::string_view>& fields, std::size_t number) const {
    constexpr std::array<std::string_view, 5> known{"(B)", "(elements)", "(us)", "(GB/s)", "(%)"};
    for (const std::string_view word : fields) {
      if (!word.starts_with('(')) continue;
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        throw InputError(location(file_, number), fmt::format("the unit {}", word),
                         "accepted: (B) for sizes, (us) for times, (GB/s) for rates");
      }
    }
  }

  void read_row(const std::vector<std::string_view>& fields, std::size_t number) {
    const bool whole =
        fields.size() == columns_.size() || (timestamps_ && fields.size() > columns_.size());
    if (!whole) {
      throw InputError(location(file_, number), fmt::format("{} columns", fields.size()),
                       fmt::format("accepted: the {} of the head line", columns_.size()));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] != "#wrong" || fields[i] == "N/A" || to_number<double>(fields[i]) == 0.0) {
        continue;
      }
      throw InputError(location(file_, number), fmt::format("{} wrong values", fields[i]),
                       "accepted: a run whose results are right");
    }
    check_rate(fields, number);
    rows_.push_back({fields[size_], fields[time_], number});
  }

  /// Checks that algbw is size over time, which detects converted columns. (Early versions counted
  /// all-gathers without the part that stays, hence the wide margin.)
  void check_rate(const std::vector<std::string_view>& fields, std::size_t number) const {
    const auto bytes = to_number<double>(fields[size_]);
    const auto micros = to_number<double>(fields[time_]);
    const auto rate = to_number<double>(fields[rate_]);
    constexpr double least_told = 0.1, margin = 2.5;  // rates have two decimals
    if (!bytes || !micros || !rate || *rate < least_told) return;
    if (*bytes <= 0 || *micros <= 0 || !std::isfinite(*micros)) return;  // refused later
    const double ratio = *bytes / *micros * 1e-3 / *rate;
    if (ratio > margin || ratio < 1 / margin) {
      throw InputError(location(file_, number),
                       fmt::format("{} B in {} us, which is not {} GB/s", fields[size_],
                                   fields[time_], fields[rate_]),
                       "accepted: sizes in bytes, times in microseconds");
    }
  }

  [[nodiscard]] CollectiveKind resolved_kind() const {
    if (kind_ && hint_.kind && *kind_ != *hint_.kind) {
      throw InputError(
          file_, fmt::format("a test of {}, given as {}", to_text(*kind_), to_text(*hint_.kind)),
          "accepted: KIND:FILE of the same kind");
    }
    if (kind_) return *kind_;
    if (hint_.kind) return *hint_.kind;
    throw InputError(file_, "no name of the test that printed it",
                     "accepted: with its line '# Collective test starting: …_perf', or KIND:FILE, "
                     "as in all-reduce:FILE");
  }

  [[nodiscard]] std::int32_t resolved_ranks() const {
    const bool known = ranks_ > 0 && !truncated_ranks_;
    if (known && hint_.ranks && *hint_.ranks != ranks_) {
      throw InputError(file_, fmt::format("{} ranks, given as {}", ranks_, *hint_.ranks),
                       "accepted: KIND,RANKS:FILE with the ranks of the file");
    }
    const std::int32_t ranks = known ? ranks_ : hint_.ranks.value_or(0);
    if (ranks == 0) {
      throw InputError(
          file_,
          truncated_ranks_ ? "its list of ranks is cut off" : "it does not say over how many ranks",
          "accepted: with its lines '#  Rank  0 …', or KIND,RANKS:FILE, as in "
          "all-reduce,8:FILE");
    }
    if (ranks < 2) {
      throw InputError(file_, "one rank", "accepted: at least two ranks");
    }
    return ranks;
  }

  const std::string& file_;
  const CollectiveHint& hint_;
  std::optional<CollectiveKind> kind_;
  std::int32_t ranks_ = 0, group_ = 0;
  std::set<std::string, std::less<>> hosts_;
  bool truncated_ranks_ = false, timestamps_ = false, closed_ = false;
  std::vector<std::string> columns_;
  std::size_t head_line_ = 0, size_ = 0, time_ = 0, rate_ = 0;
  std::vector<Row> rows_;
};

// ------------------------------------------------------------------ CSV

std::int32_t csv_count(const CsvTable& csv, const CsvTable::Row& row, std::string_view column) {
  const double number = csv.number(row, column);
  if (!(number >= 1 && number <= 1e6) || number != std::floor(number)) {
    throw InputError(fmt::format("{}:{}:{}", csv.file, row.line, column),
                     fmt::format("'{}'", csv.at(row, column)), "accepted: a whole number");
  }
  return static_cast<std::int32_t>(number);
}

std::int32_t csv_ranks(const CsvTable& csv, const CsvTable::Row& row) {
  if (!csv.at(row, "n_gpus").empty()) return csv_count(csv, row, "n_gpus");
  return csv_count(csv, row, "nodes") * csv_count(csv, row, "gpus_per_node");
}

/// 0: not known.
std::int32_t csv_machines(const CsvTable& csv, const CsvTable::Row& row, std::int32_t ranks) {
  const auto given = [&](std::string_view column) {
    return csv.has(column) && !csv.at(row, column).empty();
  };
  if (given("nodes")) return csv_count(csv, row, "nodes");
  if (!given("gpus_per_node")) return 0;
  const std::int32_t each = csv_count(csv, row, "gpus_per_node");
  return (ranks + each - 1) / each;
}

std::vector<CollectiveTable> read_csv_tables(std::string_view text, const std::string& file,
                                             const CollectiveHint& hint) {
  const CsvTable csv = read_csv(text, file);
  const bool ranks = csv.has("n_gpus") || (csv.has("nodes") && csv.has("gpus_per_node"));
  const bool times = csv.has("time_us_outofplace") || csv.has("time_us_inplace");
  for (const auto& [there, columns] : {std::pair{csv.has("collective"), "collective"},
                                       std::pair{csv.has("size_bytes"), "size_bytes"},
                                       std::pair{ranks, "n_gpus (or nodes and gpus_per_node)"},
                                       std::pair{times, "time_us_outofplace or time_us_inplace"}}) {
    if (there) continue;
    throw InputError(location(file, 1), fmt::format("no column {}", columns),
                     "accepted: collective, size_bytes, n_gpus and time_us_outofplace, or what "
                     "nccl-tests print");
  }
  std::map<std::tuple<CollectiveKind, std::int32_t, std::int32_t>, CollectiveTable> tables;
  for (const CsvTable::Row& row : csv.rows) {
    const auto kind = kind_named(csv.at(row, "collective"));
    if (hint.kind && kind != hint.kind) continue;
    if (!kind) {
      throw InputError(fmt::format("{}:{}:collective", file, row.line),
                       fmt::format("'{}'", csv.at(row, "collective")),
                       fmt::format("{}; or KIND:FILE to take the rows of one", accepted_tests));
    }
    const std::int32_t count = csv_ranks(csv, row);
    if (hint.ranks && count != *hint.ranks) continue;
    const std::int32_t machines = csv_machines(csv, row, count);
    CollectiveTable& table = tables[{*kind, count, machines}];
    table.kind = *kind;
    table.ranks = count;
    table.machines = machines;
    const bool out = !csv.at(row, "time_us_outofplace").empty();
    add_row(csv.at(row, "size_bytes"), csv.at(row, out ? "time_us_outofplace" : "time_us_inplace"),
            location(file, row.line), table);
  }
  std::vector<CollectiveTable> all;
  for (auto& [key, table] : tables) {
    if (!table.times.empty()) all.push_back(std::move(table));
  }
  if (all.empty()) throw InputError(file, "no rows of the requested collective", accepted_tests);
  return all;
}

bool looks_like_csv(std::string_view text) {
  bool comma = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    // mpirun and ssh may talk, with commas, before nccl-tests prints its head line.
    if (line.starts_with('#') && line.find("busbw") != line.npos) return false;
    if (comma || line.empty() || line.front() == '#' || line.front() == '\r') continue;
    if (line.find(',') == line.npos || line.find("_perf") != line.npos) return false;
    // Prose: names of columns are single words.
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == ' ' && line[i - 1] != ',') return false;
    }
    comma = true;
  }
  return comma;
}

}  // namespace

std::vector<CollectiveTable> read_collective_tables(std::string_view text, const std::string& file,
                                                    const CollectiveHint& hint) {
  if (looks_like_csv(text)) return read_csv_tables(text, file, hint);
  return {TestOutput(file, hint).read(text)};
}

void add_tables(std::vector<CollectiveTable>& all, std::vector<CollectiveTable> more) {
  for (CollectiveTable& table : more) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const CollectiveTable& one) {
      return one.kind == table.kind && one.ranks == table.ranks && one.machines == table.machines;
    });
    if (known != all.end()) {
      throw InputError(table.source,
                       fmt::format("{} over {} ranks again, after {}", to_text(table.kind),
                                   table.ranks, known->source),
                       "accepted: one table for each kind and number of ranks and machines");
    }
    all.push_back(std::move(table));
  }
}

RankPlaces places_of(const CommShape& shape) {
  return {static_cast<std::size_t>(shape.ranks), static_cast<std::size_t>(shape.nodes),
          static_cast<std::size_t>(shape.fewest_nodes)};
}

const CollectiveTable* find_table(std::span<const CollectiveTable> tables, CollectiveKind kind,
                                  const RankPlaces& where) {
  const CollectiveTable* of_unknown = nullptr;
  for (const CollectiveTable& table : tables) {
    if (table.kind != kind || static_cast<std::size_t>(table.ranks) != where.ranks) continue;
    if (static_cast<std::size_t>(table.machines) == where.machines) return &table;
    if (table.machines == 0 && where.machines == where.fewest) of_unknown = &table;
  }
  return of_unknown;
}

Bytes table_size(CollectiveKind kind, std::size_t ranks, Bytes payload) {
  const bool exchange = kind == CollectiveKind::all_to_all && ranks > 1;
  return exchange ? Bytes{payload.value / static_cast<std::int64_t>(ranks - 1)} : payload;
}

}  // namespace parsim::sim
