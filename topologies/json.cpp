// JSON to the tree of document.hpp.
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/json_reader.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

// The document bounds the nesting, so the recursion is bounded too.
Value convert(const json::Node& node) {
  Value value;
  value.line = node.line();
  switch (node.kind()) {
    case json::Kind::null:
      value.text = "null";
      break;
    case json::Kind::boolean:
      value.kind = Value::Kind::boolean;
      value.integer = node.boolean() ? 1 : 0;
      break;
    case json::Kind::number: {
      // Whole ones, which some write as 5e8.
      constexpr double exact = 9007199254740992;  // 2^53
      const double number = node.number(std::numeric_limits<double>::lowest());
      if (number == std::floor(number) && std::abs(number) <= exact) {
        value.kind = Value::Kind::integer;
        value.integer = static_cast<std::int64_t>(number);
      } else {
        value.text = "a bare number";
      }
      break;
    }
    case json::Kind::integer:
      value.kind = Value::Kind::integer;
      value.integer = node.integer(json::any_integer);
      break;
    case json::Kind::text:
      value.kind = Value::Kind::text;
      value.text = node.text();
      break;
    case json::Kind::array:
      value.kind = Value::Kind::list;
      node.each([&](const json::Node& item) { value.items.push_back(convert(item)); });
      break;
    case json::Kind::object:
      value.kind = Value::Kind::table;
      node.each_member([&](const std::string& key, const json::Node& member) {
        value.keys.push_back(key);
        value.items.push_back(convert(member));
      });
      break;
  }
  return value;
}

}  // namespace

Value parse_json(std::string_view text, const std::string& file) {
  return convert(json::Document(std::string(text), file).root());
}

Value parse_document(std::string_view text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool begins_as_json = first != std::string_view::npos && text[first] == '{';
  const bool is_json = file.ends_with(".json") || (begins_as_json && !file.ends_with(".toml"));
  return is_json ? parse_json(text, file) : parse_toml(text, file);
}

}  // namespace parsim::topologies
