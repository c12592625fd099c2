#include "experiment/sweep_keys.hpp"

#include <algorithm>

namespace parsim::experiment {

namespace {

using json::Writer;

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz_", digits = "0123456789";

void put_type(Writer& out, std::initializer_list<std::string_view> names) {
  out.key("type").open_array();
  for (const std::string_view name : names) out.text(name);
  out.close_array();
}

/// What a column may say in a point; `option` is null of a variable.
void put_value(Writer& out, const Option* option) {
  out.open_object();
  if (option == nullptr) {
    put_type(out, {"string", "integer", "boolean"});
  } else if (option->placeholder().empty()) {
    out.key("type").text("boolean");
  } else {
    put_type(out, {"string", "integer", "array"});
    out.key("items").open_object();
    put_type(out, {"string", "integer"});
    out.close_object();
    if (!option->rules.repeats) out.key("maxItems").integer(1);
  }
  out.close_object();
}

void put_values(Writer& out, const Option* option) {
  out.open_object();
  out.key("type").text("array");
  out.key("minItems").integer(1);
  out.key("items");
  put_value(out, option);
  out.close_object();
}

/// A table of options and variables.
template <auto put>
struct Columns {};
template <auto put>
void put_special_schema(Writer& out, const Columns<put>&) {
  out.key("type").text("object");
  out.key("properties").open_object();
  for (const Option& option : options()) {
    if (!is_sweepable(option)) continue;
    for (const std::string_view name : {option.flag, option.rules.long_name}) {
      if (name.empty()) continue;
      out.key(without_dashes(name));
      put(out, &option);
    }
  }
  out.close_object();
  out.key("propertyNames").open_object();
  out.key("pattern").text("^[a-z_][a-z0-9_-]*$");
  out.close_object();
  out.key("additionalProperties");
  put(out, nullptr);
}

/// A table of columns of this file with one of their values or several.
struct Filter {};
void put_special_schema(Writer& out, const Filter&) {
  out.key("type").text("object");
  out.key("additionalProperties").open_object();
  put_type(out, {"string", "integer", "boolean", "array"});
  out.close_object();
}

}  // namespace

bool is_sweepable(const Option& option) {
  return option.is_for("compare") && !option.key.empty() && option.group != OptionGroup::hardware &&
         option.flag != "--scaling";
}

std::string_view without_dashes(std::string_view flag) {
  flag.remove_prefix(2);
  return flag;
}

const Option* sweepable(std::string_view name) {
  for (const Option& option : options()) {
    if (!is_sweepable(option)) continue;
    if (without_dashes(option.flag) == name) return &option;
    if (!option.rules.long_name.empty() && without_dashes(option.rules.long_name) == name) {
      return &option;
    }
  }
  return nullptr;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && letters.find(name.front()) != letters.npos &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return letters.find(c) != letters.npos || digits.find(c) != digits.npos;
         });
}

const topologies::Keys& sweep_keys() {
  using topologies::key;
  static const topologies::Keys keys{
      {key<Columns<put_value>>("options", "of every point; other names are variables"),
       key<Columns<put_values>>("axes", "every combination"),
       key<std::vector<Columns<put_values>>>("zip", "values that change together"),
       key<std::vector<Filter>>("skip", "leaves out the points that have all of these values"),
       key<std::vector<Filter>>("only", "leaves out the others")}};
  return keys;
}

std::string sweep_file_schema() {
  return json::table_schema("The file of parsim sweep, as TOML or JSON", sweep_keys());
}

}  // namespace parsim::experiment
