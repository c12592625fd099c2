#include "validation/measurements.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "validation/embedded.hpp"

namespace parsim {

namespace {

constexpr std::string_view measurements_folder = "validation/measurements/";
constexpr std::string_view aliases_file = "validation/aliases.toml";

/// Words that tell rows apart, those that a table has, in this order.
constexpr std::string_view naming_columns[] = {
    "collective",   "model", "layer",  "machine",   "gpu",       "cudnn",
    "nccl_version", "nodes", "n_gpus", "precision", "framework", "parallelism"};

std::string name_of(const CsvTable& table, const CsvTable::Row& row) {
  std::vector<std::string> words;
  for (const std::string_view column : naming_columns) {
    std::string text = table.at(row, column);
    if (text.empty()) continue;
    if (column == "nodes" || column == "n_gpus") text = fmt::format("{} {}", text, column);
    if (column == "cudnn") text = fmt::format("cuDNN {}", text);
    words.push_back(std::move(text));
  }
  for (const std::string_view column : {"batch_per_gpu", "batch"}) {
    if (!table.at(row, column).empty()) {
      words.push_back(fmt::format("{} {}", column, table.at(row, column)));
    }
  }
  if (table.has("size_bytes")) words.push_back(fmt::format("{} B", table.at(row, "size_bytes")));
  return fmt::format("{} (line {})", join(words), row.line);
}

double step_milliseconds(const CsvTable& table, const CsvTable::Row& row) {
  if (!table.at(row, "total_ms").empty()) return table.number(row, "total_ms");
  return table.number(row, "fwd_ms") + table.number(row, "bwd_ms");
}

void fill_quantity(const CsvTable& table, const CsvTable::Row& row, Claim& claim) {
  if (table.has("size_bytes")) {
    claim.quantity = "collective-time";
    claim.unit = "us";
    const bool out = !table.at(row, "time_us_outofplace").empty();
    claim.expected = table.number(row, out ? "time_us_outofplace" : "time_us_inplace");
  } else if (table.has("total_ms") || table.has("fwd_ms")) {
    claim.quantity = "step-time";
    claim.unit = "ms";
    claim.expected = step_milliseconds(table, row);
  } else if (table.has("value")) {
    claim.quantity = "throughput";
    claim.unit = table.at(row, "unit");
    if (!ran(claim) && table.at(row, "value").empty()) return;
    claim.expected = table.number(row, "value");
  } else {
    throw InputError(table.file, "no column with a measurement",
                     "accepted: size_bytes with time_us_outofplace, total_ms (or fwd_ms and "
                     "bwd_ms), or value with unit");
  }
  if (!(claim.expected > 0)) {
    throw InputError(fmt::format("{}:{}", table.file, row.line),
                     fmt::format("a measurement of {}", claim.expected),
                     "accepted: more than nothing");
  }
}

std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) kept += static_cast<char>(std::tolower(byte));
  }
  return kept;
}

struct Alias {
  std::string from, hint, to;
};

std::vector<Alias> read_aliases(const std::string& kind) {
  for (const EmbeddedFile& file : validation_files()) {
    if (file.path != aliases_file) continue;
    const toml::table root = toml::parse(file.text, file.path);
    const toml::array* list = root[kind].as_array();
    ensure(list != nullptr, "the alias table has every kind");
    std::vector<Alias> all;
    for (const toml::node& node : *list) {
      const toml::array& entry = *node.as_array();
      ensure(entry.size() == 2 || entry.size() == 3, "an alias is [from, to] or [from, to, hint]");
      all.push_back({letters_and_digits(entry[0].value_or(std::string())),
                     letters_and_digits(entry.size() == 3 ? entry[2].value_or(std::string()) : ""),
                     entry[1].value_or(std::string())});
    }
    return all;
  }
  throw BrokenInvariant("the alias table is built in");
}

}  // namespace

Split split_of(const Claim& claim) {
  const auto found = claim.what.find("split");
  if (found == claim.what.end() || found->second.empty() || found->second == "validate") {
    return Split::validate;
  }
  if (found->second == "calibrate") return Split::calibrate;
  if (found->second == "unscored") return Split::unscored;
  throw InputError(fmt::format("{}:{}:split", claim.set, claim.at("line")),
                   fmt::format("'{}'", found->second),
                   "accepted: calibrate, validate, unscored, or nothing for validate");
}

bool ran(const Claim& claim) {
  const auto status = claim.what.find("status");
  if (status == claim.what.end()) return true;
  constexpr std::string_view failures[] = {"did not run", "out of memory", "OOM"};
  return std::none_of(std::begin(failures), std::end(failures), [&](std::string_view words) {
    return status->second.find(words) != std::string::npos;
  });
}

std::vector<Claim> read_measurements(std::string_view csv, const std::string& file,
                                     const std::string& set) {
  const CsvTable table = read_csv(csv, file);
  std::vector<Claim> claims;
  for (const CsvTable::Row& row : table.rows) {
    Claim claim;
    claim.set = set;
    claim.name = name_of(table, row);
    claim.source = fmt::format("{}, {}", table.at(row, "source"), table.at(row, "locator"));
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      claim.what[table.columns[i]] = row.fields[i];
    }
    claim.what["line"] = fmt::format("{}", row.line);
    fill_quantity(table, row, claim);
    static_cast<void>(split_of(claim));
    claims.push_back(std::move(claim));
  }
  return claims;
}

std::vector<Claim> published_measurements() {
  std::vector<Claim> all;
  for (const EmbeddedFile& file : validation_files()) {
    if (!file.path.starts_with(measurements_folder)) continue;
    const std::string_view name = file.path.substr(measurements_folder.size());
    const std::string set(name.substr(0, name.rfind('.')));
    for (Claim& claim : read_measurements(file.text, std::string(file.path), set)) {
      all.push_back(std::move(claim));
    }
  }
  return all;
}

std::optional<std::string> resolve_alias(AliasKind kind, std::string_view text,
                                         std::string_view hint) {
  static const std::vector<Alias> tables[] = {read_aliases("networks"), read_aliases("devices"),
                                              read_aliases("clusters")};
  const std::string wanted = letters_and_digits(text), hints = letters_and_digits(hint);
  const Alias* best = nullptr;
  for (const Alias& alias : tables[static_cast<std::size_t>(kind)]) {
    const bool matches = wanted.starts_with(alias.from) && hints.find(alias.hint) != hints.npos;
    if (!matches) continue;
    if (best == nullptr || std::pair(alias.from.size(), alias.hint.size()) >
                               std::pair(best->from.size(), best->hint.size())) {
      best = &alias;
    }
  }
  if (best == nullptr) return std::nullopt;
  return best->to;
}

}  // namespace parsim
