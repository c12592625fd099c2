// From a result's list of fields (core/json_fields.hpp) to the JSON that people and programs get.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_schema.hpp"
#include "experiment/experiment.hpp"

namespace parsim::report {

using json::Rule;

inline constexpr json::Limits any_count{0, json::any_integer.most};
inline constexpr json::Limits from_one{1, json::any_integer.most};
inline constexpr json::Limits any_number = json::any_integer;
inline constexpr Rule wall_clock_meaning{"by the wall clock; null with --no-timings"};

/// JSON with two spaces of indentation.
[[nodiscard]] std::string indented(const std::string& json);
/// The JSON of a value that has a list of fields.
template <class Row>
[[nodiscard]] std::string result_text(const Row& row) {
  json::Writer out(json::Writer::Numbers::typed);
  json::put(out, row);
  return indented(out.take());
}

/// What a verb was asked, as JSON; its schema follows from the table of options.
struct InputsText {
  std::string json{};
};
void put_special(json::Writer& out, const InputsText& inputs);
void put_special_schema(json::Writer& out, const InputsText& inputs);

/// An object of texts.
struct TextMap {
  std::vector<std::pair<std::string, std::string>> entries{};
};
void put_special(json::Writer& out, const TextMap& map);
void put_special_schema(json::Writer& out, const TextMap& map);

/// An object whose keys depend on what was asked.
struct OpenObject {
  std::string json{};
};
void put_special(json::Writer& out, const OpenObject& object);
void put_special_schema(json::Writer& out, const OpenObject& object);

/// A row of --calibrate-with that applies to the run.
struct CalibratedRow {
  std::string set{}, name{}, machine{}, gpu{};
  double kernels = 1;
  std::optional<double> links{}, host{}, launch{};
};
void fields(auto& visit, json::Of<CalibratedRow> auto& row) {
  visit("set", row.set, "name of the file");
  visit("case", row.name);
  visit("machine", row.machine);
  visit("gpu", row.gpu);
  visit("kernels", row.kernels, "factor of kernel times");
  visit("links", row.links, "share of their rate that links between machines reach");
  visit("host_s", row.host,
        "what a host adds to a step for a sample and each further GPU of a machine");
  visit("collective_launch_s", row.launch,
        "of a small collective, which fits no kernels: what it takes beyond NCCL's model");
}
[[nodiscard]] std::vector<CalibratedRow> calibrated_rows(const experiment::Experiment& experiment);

}  // namespace parsim::report
