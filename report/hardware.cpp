#include "report/hardware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "report/result_parts.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

HardwareRow hardware_row(const experiment::HardwareRows& rows) {
  if (!rows.refusal.empty()) return {{}, {}, {}, {}, rows.refusal};
  HardwareRow row{rows.machine.backend, rows.machine.name, {}, rows.machine.clocks, {}};
  for (const Version& version : rows.machine.versions) {
    row.versions.entries.emplace_back(version.name, version.version);
  }
  return row;
}

/// (predicted − measured) / measured.
double error_of(const experiment::RunResult& result) {
  return (result.step_time - result.measured->median) / result.measured->median;
}

/// The device of whose memory the measured step took most; nothing where that is not known.
std::optional<std::size_t> fullest(const experiment::RunResult& result) {
  const std::vector<Bytes>& all = result.measured_bytes;
  if (all.empty() || all.size() > result.devices.size()) return std::nullopt;
  return static_cast<std::size_t>(std::max_element(all.begin(), all.end()) - all.begin());
}

MeasuredRow measured_row(const experiment::RunResult& result,
                         const experiment::HardwareRows& rows) {
  MeasuredRow row{
      result.measured, {}, rows.refusal.empty() ? result.measured_note : rows.refusal, {}};
  if (const std::optional<std::size_t> most = fullest(result)) {
    row.peak_bytes = result.measured_bytes[*most].value;
  }
  if (result.measured) row.error = error_of(result);
  return row;
}

/// Predicted and measured peak of the device that was fullest, if any is known.
void add_memory(Table& table, const std::vector<experiment::RunResult>& results) {
  Numbers predicted{"predicted peak", "predicted_peak_memory_bytes", {}};
  Numbers measured{"measured peak", "measured_peak_memory_bytes", {}};
  bool any = false;
  for (const experiment::RunResult& result : results) {
    const std::optional<std::size_t> most = fullest(result);
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    any = any || most;
    predicted.values.push_back(most ? static_cast<double>(result.devices[*most].peak().value)
                                    : unknown);
    measured.values.push_back(most ? static_cast<double>(result.measured_bytes[*most].value)
                                   : unknown);
  }
  if (any) add_numbers(table, "B", {predicted, measured});
}

template <class Row>
Json json_of(const Row& row) {
  return Json::parse(result_text(row));
}

}  // namespace

std::string machine_line(const Machine& machine) {
  std::string versions;
  for (const Version& version : machine.versions) {
    versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", version.name, version.version);
  }
  return fmt::format("{} ({}; {}); clocks: {}", machine.name, machine.backend, versions,
                     machine.clocks);
}

void add_hardware(Document& document, const std::vector<experiment::RunResult>& results,
                  const experiment::HardwareRows& rows) {
  Numbers measured{"measured", "measured_step_time_s", {}};
  std::vector<TableCell> errors;
  for (const experiment::RunResult& result : results) {
    const bool known = result.measured.has_value();
    measured.values.push_back(known ? result.measured->median.count()
                                    : std::numeric_limits<double>::quiet_NaN());
    errors.push_back(known ? TableCell{signed_percent(error_of(result)), exact(error_of(result))}
                           : TableCell{"-", ""});
  }
  Table& table = document.tables.front();
  add_numbers(table, "s", {measured});
  add_column(table, {"error", "measured_error"}, std::move(errors));
  add_memory(table, results);
  if (rows.refusal.empty()) {
    document.head.push_back("measured on " + machine_line(rows.machine));
    if (results.size() == 1 && results[0].measured) {
      document.answer.push_back(fmt::format("      measured: {} (prediction {})",
                                            to_text(results[0].measured->median),
                                            signed_percent(error_of(results[0]))));
    }
    for (const experiment::RunResult& result : results) {
      if (result.measured_note.empty()) continue;
      document.notes.push_back(
          fmt::format("{}: not measured: {}", result.strategy, result.measured_note));
    }
  } else {
    document.notes.push_back("not measured: " + rows.refusal);
  }
  Json json = Json::parse(document.json);
  json["hardware"] = json_of(hardware_row(rows));
  for (std::size_t i = 0; i < results.size(); ++i) {
    Json& row = json.contains("results") ? json["results"][i] : json;
    row.update(json_of(measured_row(results[i], rows)));
  }
  document.json = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

Document report_no_hardware(const std::string& refusal) {
  Document document;
  document.head = {"no GPU to measure on: " + refusal,
                   "--cluster CLUSTER simulates without hardware"};
  const Json json = {{"results", Json::array()},
                     {"best", nullptr},
                     {"hardware", json_of(hardware_row({refusal, {}, {}}))}};
  document.json = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  return document;
}

Table measured_rows(const std::vector<validation::ValidationRow>& rows) {
  Table table;
  std::vector<std::string> sets;
  std::vector<std::string> names;
  std::vector<std::string> reasons;
  Numbers predicted{"predicted step", "predicted", {}};
  Numbers expected{"measured step", "expected", {}};
  std::vector<TableCell> errors;
  for (const validation::ValidationRow& row : rows) {
    sets.push_back(row.claim.set);
    names.push_back(row.claim.name);
    predicted.values.push_back(row.predicted);
    expected.values.push_back(row.claim.expected);
    errors.push_back({signed_percent(row.error()), exact(row.error())});
    reasons.push_back(row.claim.reason);
  }
  add_words(table, "network", "set", sets);
  add_words(table, "strategy", "case", names);
  add_numbers(table, "s", {predicted, expected});
  add_column(table, {"error", "error"}, std::move(errors));
  add_words(table, "largest difference", "reason", reasons);
  return table;
}

}  // namespace parsim::report
