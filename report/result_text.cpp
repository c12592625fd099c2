#include "report/result_text.hpp"

#include <nlohmann/json.hpp>

#include "experiment/calibration.hpp"

namespace parsim::report {

std::string indented(const std::string& json) {
  return nlohmann::ordered_json::parse(json).dump(2);
}

void put_special(json::Writer& out, const InputsText& inputs) { out.raw(inputs.json); }

void put_special_schema(json::Writer& out, const InputsText&) {
  out.key("$ref").text("#/$defs/inputs");
}

void put_special(json::Writer& out, const TextMap& map) {
  out.open_object();
  for (const auto& [key, text] : map.entries) out.key(key).text(text);
  out.close_object();
}

void put_special_schema(json::Writer& out, const TextMap&) {
  out.key("type").text("object");
  out.key("additionalProperties").open_object();
  out.key("type").text("string");
  out.close_object();
}

void put_special(json::Writer& out, const OpenObject& object) { out.raw(object.json); }

void put_special_schema(json::Writer& out, const OpenObject&) { out.key("type").text("object"); }

std::vector<CalibratedRow> calibrated_rows(const experiment::Experiment& experiment) {
  std::vector<CalibratedRow> rows;
  if (!experiment.calibration) return rows;
  for (const experiment::FittedStep& step : experiment.calibration->by) {
    CalibratedRow row{step.set,     step.name,  step.machine, step.gpu,
                      step.kernels, step.links, step.host,    {}};
    if (step.launch) row.launch = step.launch->count();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace parsim::report
