// JSON Schemas of everything that parsim writes or reads as JSON: from their lists of fields
// (core/json_fields.hpp), but for those in report/schemas/.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "app/verbs.hpp"
#include "core/json.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/offers.hpp"
#include "experiment/sweep_keys.hpp"
#include "networks/networks.hpp"
#include "report/embedded.hpp"
#include "report/purchases.hpp"
#include "report/runs.hpp"
#include "report/show.hpp"
#include "report/sweep.hpp"
#include "report/validation.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view schema_folder = "report/schemas/", schema_ending = ".json",
                           schema_shared = "definitions";

/// Schemas that follow from lists of fields.
struct ListedSchema {
  std::string_view name;
  std::string (*text)();
};
constexpr std::array<ListedSchema, 26> listed_schemas{
    {{"buy", report::buy_schema},
     {"calibrate", calibrate_schema},
     {"cluster-file", topologies::cluster_schema},
     {"collective", collective_schema},
     {"compare", report::compare_schema},
     {"completion", completion_schema},
     {"config-file", networks::config_schema},
     {"dag-file", dag_schema},
     {"doctor", doctor_schema},
     {"explain", explain_schema},
     {"import", import_schema},
     {"layout-file", experiment::layout_schema},
     {"list", list_schema},
     {"machine-file", machine_schema},
     {"measurements-file", measurements_schema},
     {"offers-file", experiment::offers_schema},
     {"plan", report::plan_summary_schema},
     {"plan-file", plan_schema},
     {"profile-file", profile_schema},
     {"reference", reference_schema},
     {"show-cluster", report::cluster_report_schema},
     {"show-network", report::network_schema},
     {"simulate", report::simulate_schema},
     {"sweep", report::sweep_schema},
     {"sweep-file", experiment::sweep_file_schema},
     {"validate", report::validation_schema}}};

/// "compare" of "report/schemas/compare.json"; "" of other files.
std::string_view name_of_schema(std::string_view path) {
  if (!path.starts_with(schema_folder)) return {};
  path.remove_prefix(schema_folder.size());
  return path.substr(0, path.size() - schema_ending.size());
}

Json schema_file(std::string_view name) {
  for (const EmbeddedFile& file : report::report_files()) {
    if (name_of_schema(file.path) == name) return Json::parse(file.text);
  }
  throw BrokenInvariant("every name of a schema has a file");
}

/// The files write a key once: an object has the properties listed and no others, and requires
/// those whose names do not end in "?", unless "additionalProperties" says otherwise.
// NOLINTNEXTLINE(misc-no-recursion): as deep as our own files
Json expanded(const Json& schema) {
  if (schema.is_array()) {
    Json list = Json::array();
    for (const Json& inner : schema) list.push_back(expanded(inner));
    return list;
  }
  if (!schema.is_object()) return schema;
  const bool object = schema.contains("properties");
  Json result = Json::object();
  for (const auto& [key, inner] : schema.items()) {
    if (key == "enum" || key == "const") {
      result[key] = inner;
    } else if (!object || (key != "properties" && key != "required")) {
      result[key] = expanded(inner);
    }
  }
  if (!object) return result;
  if (!schema.contains("type")) result["type"] = "object";
  result["properties"] = Json::object();
  result["required"] = schema.value("required", Json::array());
  for (const auto& [key, inner] : schema["properties"].items()) {
    const bool optional = key.ends_with('?');
    const std::string name = key.substr(0, key.size() - (optional ? 1 : 0));
    result["properties"][name] = expanded(inner);
    if (!optional) result["required"].push_back(name);
  }
  if (!schema.contains("additionalProperties")) result["additionalProperties"] = false;
  return result;
}

/// Names of the definitions that a schema refers to.
// NOLINTNEXTLINE(misc-no-recursion): as deep as our own files
void collect_references(const Json& schema, std::set<std::string>& names) {
  constexpr std::string_view prefix = "#/$defs/";
  if (schema.is_object() && schema.contains("$ref")) {
    names.insert(schema["$ref"].get<std::string>().substr(prefix.size()));
  }
  for (const Json& inner : schema) {
    if (inner.is_structured()) collect_references(inner, names);
  }
}

/// Whether the verb resolves what it is asked in an Experiment, which knows more than the options.
bool loads_experiment(std::string_view verb) {
  return verb == "simulate" || verb == "compare" || verb == "plan" || verb == "explain" ||
         verb == "import";
}

/// Completes the definition of `inputs` for a verb: a property for each option that it takes.
void add_options(Json& inputs, std::string_view verb) {
  Json& properties = inputs["properties"];
  Json& required = inputs["required"];
  properties["verb"] = {{"const", verb}};
  if (!loads_experiment(verb)) {
    for (const char* key : {"network", "batch"}) properties.erase(key);  // may not be given
    for (const char* key : {"attention", "launch_interval_s"}) {
      properties.erase(key);
      required.erase(std::find(required.begin(), required.end(), key));
    }
  }
  if (verb == "collective") {
    properties["kind"] = {{"enum", collective_words()}};
    required.emplace_back("kind");
  }
  if (verb == "import") {
    properties["trace"] = {{"type", "string"}};
    required.emplace_back("trace");
  }
  bool takes_plan = false;
  for (const experiment::Option& option : experiment::options()) {
    takes_plan = takes_plan || (option.key == "plan" && option.is_for(verb));
  }
  for (const experiment::Option& option : experiment::options()) {
    if (option.key.empty()) continue;
    const std::string key(option.key);
    if (!option.is_for(verb)) {
      properties.erase(key);
      continue;
    }
    if (!properties.contains(key)) properties[key] = option.member.schema(option);
    if (!takes_plan || option.is_recorded_with_plan()) required.push_back(key);
  }
}

Json own_schema(std::string_view name) {
  for (const ListedSchema& listed : listed_schemas) {
    if (listed.name == name) return Json::parse(listed.text());
  }
  return expanded(schema_file(name));
}

/// The schema with the definitions that it needs, so that it stands alone.
Json whole_schema(std::string_view name) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"$id", fmt::format("urn:parsim:{}", name)}};
  const Json shared = schema_file(schema_shared);
  schema.update(own_schema(name));
  Json definitions = Json::object();
  for (const auto& [key, definition] : shared.items()) {
    definitions[key] = expanded(definition);
  }
  add_options(definitions["inputs"], name);
  std::set<std::string> needed, known;
  collect_references(schema, needed);
  while (known.size() < needed.size()) {
    known = needed;
    for (const std::string& one : known) collect_references(definitions.at(one), needed);
  }
  for (const auto& [key, definition] : definitions.items()) {
    if (needed.contains(key)) schema["$defs"][key] = definition;
  }
  return schema;
}

}  // namespace

const std::vector<std::string>& schema_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const EmbeddedFile& file : report::report_files()) {
      const std::string_view name = name_of_schema(file.path);
      if (!name.empty() && name != schema_shared) found.emplace_back(name);
    }
    for (const ListedSchema& listed : listed_schemas) found.emplace_back(listed.name);
    std::sort(found.begin(), found.end());
    return found;
  }();
  return names;
}

Outcome run_schema(const experiment::Arguments& arguments) {
  const std::string& name = arguments.words.at(0);
  const std::vector<std::string>& known = schema_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    experiment::refuse_word(name, "schema", known);
  }
  Outcome outcome;
  outcome.document.json = whole_schema(name).dump(2);
  outcome.document.plain = outcome.document.json + "\n";
  return outcome;
}

}  // namespace parsim::app
