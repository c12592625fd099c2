#include "validation/unit_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "core/errors.hpp"
#include "experiment/experiment.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

std::string small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Removes "/GPU" or " per GPU" from the end.
bool take_per_gpu(std::string& text) {
  for (const std::string_view end : {"/gpu", " per gpu", "/device", " per device"}) {
    if (!text.ends_with(end)) continue;
    text.resize(text.size() - end.size());
    return true;
  }
  return false;
}

/// A metric without what it says in brackets, of its source.
std::string without_brackets(const std::string& text) {
  std::string rest;
  int open = 0;
  for (const char c : text) {
    open += c == '(' ? 1 : 0;
    if (open == 0) rest += c;
    open -= c == ')' ? 1 : 0;
  }
  return rest;
}

std::int64_t tokens_of(const Claim& claim) {
  std::int64_t length = count_column(claim, "seq_len", 0);
  try {
    if (length == 0) length = experiment::tokens_per_sample(load_network_of(claim));
  } catch (const InputError&) {
    length = 0;  // predicting the row gives the reason, unless the file is not in this folder
  }
  if (length > 0) return length;
  throw InputError(
      location_of(claim, "unit"),
      fmt::format("'{}', and the tokens of a sample are not known", column(claim, "unit")),
      "accepted: with column seq_len, or images/s or samples/s");
}

}  // namespace

UnitOfRow unit_of(const std::string& text) {
  constexpr std::pair<std::string_view, double> times[] = {
      {"ms", 1},    {"msec", 1},    {"millisecond", 1},    {"milliseconds", 1},
      {"s", 1e3},   {"sec", 1e3},   {"second", 1e3},       {"seconds", 1e3},
      {"us", 1e-3}, {"usec", 1e-3}, {"microsecond", 1e-3}, {"microseconds", 1e-3}};
  std::string small = small_letters(text);
  for (const auto& [word, factor] : times) {
    if (small == word) return {"ms", factor};
  }
  const bool per_gpu = take_per_gpu(small);
  for (const std::string_view thing :
       {"image", "img", "sample", "sequence", "seq", "token", "tok"}) {
    for (const std::string_view each :
         {"s/s", "/s", "s/sec", "/sec", "s/second", "/second", "s per second", " per second"}) {
      if (small != fmt::format("{}{}", thing, each)) continue;
      const bool images = thing.starts_with("im");
      return {images ? "images/s" : "samples/s", 1, thing.starts_with("tok"), per_gpu};
    }
  }
  return {text};
}

double factor_of_unit(const Claim& claim, const UnitOfRow& unit) {
  double factor = unit.factor;
  if (unit.tokens) {
    factor /= static_cast<double>(tokens_of(claim));
  }
  if (!unit.per_gpu) return factor;
  const std::int64_t gpus = count_column(
      claim, "n_gpus", count_column(claim, "nodes", 1) * count_column(claim, "gpus_per_node", 0));
  if (gpus == 0) {
    throw InputError(location_of(claim, "n_gpus"), "empty, but the unit is of one GPU",
                     "accepted: the number of GPUs");
  }
  return factor * static_cast<double>(gpus);
}

void check_metric(const CsvTable& table, const CsvTable::Row& row) {
  const std::string metric = small_letters(table.at(row, "metric")),
                    unit = unit_of(table.at(row, "unit")).unit;
  const auto has = [&](std::string_view word) { return metric.find(word) != std::string::npos; };
  const std::string own = without_brackets(metric);
  const bool per_gpu = unit_of(table.at(row, "unit")).per_gpu;
  for (const std::string_view word :
       {"per gpu", "per device", "per sample", "per image", "per token", "epoch time"}) {
    if (own.find(word) == std::string::npos) continue;
    if (per_gpu && (word == "per gpu" || word == "per device")) continue;
    throw InputError(
        fmt::format("{}:{}:metric", table.file, row.line),
        fmt::format("'{}'", table.at(row, "metric")),
        "accepted: the time of a step, or samples a second of all GPUs together; of one GPU "
        "with a unit such as tokens/s/GPU");
  }
  const bool time = has("time") || has("latency") || has("duration");
  const bool rate = has("throughput") || has("/s") || has("per second");
  if (time == rate || time == (unit == "ms")) return;
  throw InputError(fmt::format("{}:{}:unit", table.file, row.line),
                   fmt::format("'{}' for '{}'", unit, table.at(row, "metric")),
                   time ? "accepted: ms" : "accepted: images/s, samples/s or tokens/s");
}

}  // namespace parsim::validation
