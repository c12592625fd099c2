#include "validation/measurements.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "validation/embedded.hpp"
#include "validation/nccl_tests.hpp"
#include "validation/published_kernel.hpp"
#include "validation/table_formats.hpp"
#include "validation/unit_column.hpp"

namespace parsim::validation {

namespace {

constexpr std::string_view measurements_folder = "validation/measurements/";
constexpr std::string_view aliases_file = "validation/aliases.toml";

/// A column, or "".
std::string text_of(const Claim& claim, std::string_view key) {
  const auto found = claim.what.find(key);
  return found == claim.what.end() ? std::string() : found->second;
}

/// Columns that name a row, in this order, if the table has them.
constexpr std::string_view naming_columns[] = {
    "collective", "model",        "op",    "layer",  "machine",   "gpu",       "dtype",
    "cudnn",      "nccl_version", "nodes", "n_gpus", "precision", "framework", "parallelism"};
/// The same of kernels, each with its column's name.
constexpr std::string_view extent_columns[] = {
    "m",      "n",    "k",     "seq",    "heads",  "kv_heads", "head_dim", "mode",
    "causal", "c_in", "c_out", "r",      "r_h",    "r_w",      "in_size",  "in_h",
    "in_w",   "rows", "cols",  "stride", "groups", "dilation", "tp",       "micro_batch"};

std::string name_of(const Claim& claim) {
  std::vector<std::string> words;
  for (const std::string_view column : naming_columns) {
    std::string text = text_of(claim, column);
    if (text.empty()) continue;
    if (column == "nodes" || column == "n_gpus") text = fmt::format("{} {}", text, column);
    if (column == "cudnn") text = fmt::format("cuDNN {}", text);
    words.push_back(std::move(text));
  }
  const auto add = [&](std::string_view column, std::string_view form) {
    const std::string text = text_of(claim, column);
    if (!text.empty()) words.push_back(fmt::format(fmt::runtime(form), column, text));
  };
  if (claim.quantity == "kernel-time") {
    for (const std::string_view column : extent_columns) add(column, "{} {}");
  }
  for (const std::string_view column : {"batch_per_gpu", "batch"}) add(column, "{} {}");
  add("size_bytes", "{1} B");
  add("data_MiB", "{1} MiB");
  return fmt::format("{} (line {})", join(words), text_of(claim, "line"));
}

double step_milliseconds(const CsvTable& table, const CsvTable::Row& row) {
  if (!table.at(row, "total_ms").empty()) return table.number(row, "total_ms");
  return table.number(row, "fwd_ms") + table.number(row, "bwd_ms");
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) kept += static_cast<char>(std::tolower(byte));
  }
  return kept;
}

/// True for the status of a run that failed for lack of memory.
bool failed_for_memory(const std::string& status) {
  constexpr std::string_view words[] = {"oom", "out of memory", "out-of-memory", "failed",
                                        "did not run"};
  const std::string text = lower_case(status);
  return std::any_of(std::begin(words), std::end(words),
                     [&](std::string_view word) { return text.find(word) != text.npos; });
}

/// Column data_MiB counts the tensor of one rank, size_bytes the largest buffer of the collective.
std::string bytes_of_mebibytes(const CsvTable& table, const CsvTable::Row& row,
                               const Claim& claim) {
  double bytes = table.number(row, "data_MiB") * 1024 * 1024;
  if (claim.at("collective") == "all_gather") bytes *= table.number(row, "n_gpus");
  return fmt::format("{:.0f}", bytes);
}

/// Of columns with the same time, in microseconds, the last that is filled. The last one is the
/// first that the message names.
double microseconds(const CsvTable& table, const CsvTable::Row& row,
                    std::initializer_list<std::string_view> columns) {
  std::string_view time;
  std::string names;
  for (const std::string_view column : columns) {
    if (!table.at(row, column).empty()) time = column;
    names = names.empty() ? std::string(column)
                          : fmt::format("{}{}{}", column,
                                        names.find(' ') == names.npos ? " or " : ", ", names);
  }
  if (!time.empty()) return table.number(row, time);
  throw InputError(fmt::format("{}:{}", table.file, row.line), "no time",
                   fmt::format("accepted: column {}", names));
}

/// The name of a collective in our spelling: "AllReduce", "all-reduce" are all_reduce. Other texts
/// as they are.
std::string with_our_spelling(const std::string& collective) {
  if (collective == "alltoall") return collective;  // of nccl-tests, and of built-in tables
  const std::string plain = letters_and_digits(collective);
  for (const std::string_view ours : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "reduce", "all_to_all", "send_receive"}) {
    if (plain == letters_and_digits(ours)) return std::string(ours);
  }
  return plain == "sendrecv" ? "send_receive" : collective;
}

void fill_quantity(const CsvTable& table, const CsvTable::Row& row, Claim& claim) {
  const bool by_rank = table.has("collective") && table.has("data_MiB");
  if (by_rank) claim.what["size_bytes"] = bytes_of_mebibytes(table, row, claim);
  if (by_rank || table.has("size_bytes")) {
    claim.quantity = "collective-time";
    claim.unit = "us";
    claim.expected = microseconds(table, row, {"time_us_inplace", "time_us_outofplace", "time_us"});
    if (table.at(row, "usable") == "no") claim.what["split"] = "unscored";
  } else if (has_kernels(table)) {
    claim.quantity = "kernel-time";
    claim.unit = "us";
    claim.expected = microseconds(table, row, {"time_us", "median_us", "sustained_us"});
  } else if (table.has("total_ms") || table.has("fwd_ms")) {
    claim.quantity = "step-time";
    claim.unit = "ms";
    claim.expected = step_milliseconds(table, row);
  } else if (table.has("value")) {
    claim.quantity = "throughput";
    const UnitOfRow unit = unit_of(table.at(row, "unit"));
    claim.unit = unit.unit;
    claim.ran = !table.at(row, "value").empty() || !failed_for_memory(table.at(row, "status"));
    if (!claim.ran) return;
    check_metric(table, row);
    claim.expected = table.number(row, "value");
    try {
      claim.expected *= factor_of_unit(claim, unit);
    } catch (const InputError& error) {
      claim.what[std::string(unpredictable)] = error.what();
    }
  } else {
    throw InputError(
        table.file, "no column with a measurement",
        "accepted: size_bytes (or data_MiB) with time_us or time_us_outofplace, total_ms (or "
        "fwd_ms and bwd_ms), value with unit, or time_us (median_us, sustained_us) of a kernel "
        "with op_class, m, n and k, or head_dim");
  }
}

void check_positive(const CsvTable& table, const CsvTable::Row& row, const Claim& claim) {
  if (!claim.ran || (claim.expected > 0 && std::isfinite(claim.expected))) return;
  throw InputError(fmt::format("{}:{}", table.file, row.line),
                   fmt::format("a measurement of {}", claim.expected),
                   "accepted: a positive number");
}

/// Earlier spellings of `gpt:`'s options. The command line refuses them; tables of measurements
/// that use them stay readable.
constexpr std::pair<std::string_view, std::string_view> former_spellings[] = {
    {"width=", "hidden="},     {"tokens=", "seq_length="},  {"words=", "vocab_size="},
    {"inner=", "ffn_hidden="}, {"key_heads=", "kv_heads="}, {"attention=maps", "attention=eager"}};

/// True of what only `--network` can read, not of a name.
bool is_call_or_file(std::string_view model) {
  return model.find(':') != model.npos || model.ends_with(".json") || model.ends_with(".onnx");
}

std::string with_current_spellings(const std::string& call) {
  if (!call.starts_with("gpt:")) return call;
  std::string result;
  for (std::size_t at = 0; at < call.size();) {
    const std::size_t end = std::min(call.find_first_of(":,", at), call.size() - 1) + 1;
    std::string option = call.substr(at, end - at);
    for (const auto& [former, current] : former_spellings) {
      if (option.starts_with(former)) option.replace(0, former.size(), current);
    }
    result += option;
    at = end;
  }
  return result;
}

struct Alias {
  std::string from, plain, hint, to;
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
      const std::string from = entry[0].value_or(std::string());
      all.push_back({from, letters_and_digits(from),
                     letters_and_digits(entry.size() == 3 ? entry[2].value_or(std::string()) : ""),
                     entry[1].value_or(std::string())});
    }
    return all;
  }
  throw BrokenInvariant("the alias table is built in");
}

}  // namespace

std::string recompute_text(const Claim& claim) {
  std::string text = text_of(claim, "recompute");
  if (!text.empty()) return text;
  // torchtitan's [activation_checkpoint] selective_ac_option = "op".
  const bool by_operation =
      text_of(claim, "notes").find("selective (per operation)") != std::string::npos;
  return by_operation ? "op" : "";
}

std::string missing_needs(const Claim& claim) {
  // Features in `needs` that can be expressed by now. "scale": a simulation that took too long;
  // "device": one that is unknown is refused by its name.
  constexpr std::string_view met[] = {
      "cp",     "device", "ep",  "etp",   "fp8",        "hierarchical-zero", "hsdp",
      "layout", "mla",    "moe", "scale", "tp-overlap", "uneven-placement",  "vp"};
  const std::string needs = text_of(claim, "needs");
  const bool recompute_known = !recompute_text(claim).empty();
  std::vector<std::string> missing;
  for (const std::string& word : split_at(needs, ',')) {
    const bool is_met = std::find(std::begin(met), std::end(met), word) != std::end(met) ||
                        (word == "selective-recompute" && recompute_known);
    if (!word.empty() && !is_met) missing.push_back(word);
  }
  return join(missing);
}

Split split_of(const Claim& claim) {
  const auto parsed = [&](std::string_view key) {
    const std::string text = text_of(claim, key);
    if (text.empty() || text == "validate") return Split::validate;
    if (text == "calibrate") return Split::calibrate;
    if (text == "unscored") return Split::unscored;
    throw InputError(fmt::format("{}:{}:{}", claim.set, claim.at("line"), key),
                     fmt::format("'{}'", text),
                     "accepted: calibrate, validate, unscored, or nothing for validate");
  };
  const Split split = parsed("split");
  const bool waits = split == Split::unscored && !text_of(claim, "needs").empty() &&
                     !text_of(claim, "split_when_ready").empty();
  return waits && missing_needs(claim).empty() ? parsed("split_when_ready") : split;
}

std::vector<Claim> read_measurements(std::string_view csv, const std::string& file,
                                     const std::string& set) {
  std::optional<CsvTable> output = read_nccl_tests(csv, file);
  const CsvTable table = output ? *std::move(output) : read_csv(csv, file);
  std::vector<Claim> claims;
  for (const CsvTable::Row& row : table.rows) {
    Claim claim;
    claim.set = set;
    claim.source = fmt::format("{}, {}", table.at(row, "source"), table.at(row, "locator"));
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      claim.what[table.columns[i]] = row.fields[i];
    }
    std::string call = table.at(row, "network");
    if (call.empty() && is_call_or_file(table.at(row, "model"))) call = table.at(row, "model");
    if (!call.empty()) claim.what["network"] = with_current_spellings(call);
    if (const auto name = claim.what.find("collective"); name != claim.what.end()) {
      name->second = with_our_spelling(name->second);
    }
    claim.what["line"] = fmt::format("{}", row.line);
    std::vector<Claim> of_row = claims_of_format(table, row, claim);
    if (of_row.empty()) {
      fill_quantity(table, row, claim);
      of_row.push_back(std::move(claim));
    }
    for (Claim& one : of_row) {
      check_positive(table, row, one);
      one.name = name_of(one);
      static_cast<void>(split_of(one));
      claims.push_back(std::move(one));
    }
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

bool begins_with_name(AliasKind kind, std::string_view text, std::string_view name) {
  const std::string wanted = letters_and_digits(name);
  std::size_t at = 0, matched = 0;
  for (; at < text.size() && matched < wanted.size(); ++at) {
    const std::string one = letters_and_digits(text.substr(at, 1));
    if (one.empty()) continue;
    if (one.front() != wanted[matched]) return false;
    ++matched;
  }
  if (matched < wanted.size() || wanted.empty()) return false;
  const auto is = [&](std::size_t i, auto of) {
    return i < text.size() && of(static_cast<unsigned char>(text[i])) != 0;
  };
  const bool digit = is(at - 1, [](int c) { return std::isdigit(c); });
  if (digit && is(at, [](int c) { return std::isdigit(c); })) return false;
  if (kind != AliasKind::device) return true;
  const std::string rest = letters_and_digits(text.substr(at));
  if (is(at, [](int c) { return std::isalpha(c); }) && !rest.starts_with("gb")) return false;
  constexpr std::string_view others[] = {"ti", "super", "laptop", "mobile"};
  return std::none_of(std::begin(others), std::end(others),
                      [&](std::string_view word) { return rest.starts_with(word); });
}

std::optional<std::string> resolve_alias(AliasKind kind, std::string_view text,
                                         std::string_view hint, std::string_view at_least,
                                         std::string* from) {
  static const std::vector<Alias> tables[] = {read_aliases("networks"), read_aliases("devices"),
                                              read_aliases("clusters")};
  const std::string hints = letters_and_digits(hint);
  const Alias* best = nullptr;
  for (const Alias& alias : tables[static_cast<std::size_t>(kind)]) {
    const bool matches =
        begins_with_name(kind, text, alias.from) && hints.find(alias.hint) != hints.npos;
    if (!matches) continue;
    if (best == nullptr || std::pair(alias.plain.size(), alias.hint.size()) >
                               std::pair(best->plain.size(), best->hint.size())) {
      best = &alias;
    }
  }
  if (best == nullptr || best->plain.size() < letters_and_digits(at_least).size()) {
    return std::nullopt;
  }
  if (from != nullptr) *from = best->from;
  return best->to;
}

}  // namespace parsim::validation
