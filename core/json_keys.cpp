#include "core/json_keys.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::json {

Names Keys::names() const {
  Names all;
  for (const Key& one : keys) all.push_back(one.name);
  return all;
}

const Rule& Keys::rule(std::string_view name) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.name == name; });
  ensure(found != keys.end(), "what is read has a key");
  return found->rule;
}

void put_table_schema(Writer& out, const Keys& keys) {
  out.key("type").text("object");
  out.key("properties").open_object();
  for (const Key& one : keys.keys) {
    out.key(one.name);
    one.put_schema(out, one.rule);
  }
  out.close_object();
  out.key("required").open_array();
  for (const Key& one : keys.keys) {
    if (one.required) out.text(one.name);
  }
  out.close_array();
  out.key("additionalProperties").boolean(keys.others);
  if (keys.one_of.empty()) return;
  out.key("allOf").open_array();
  for (const std::vector<Names>& choice : keys.one_of) {
    out.open_object();
    out.key("oneOf").open_array();
    for (const Names& names : choice) {
      out.open_object();
      out.key("required").open_array();
      for (const std::string_view name : names) out.text(name);
      out.close_array();
      out.close_object();
    }
    out.close_array();
    out.close_object();
  }
  out.close_array();
}

std::string table_schema(std::string_view title, const Keys& keys) {
  Writer out;
  out.open_object();
  out.key("title").text(title);
  put_table_schema(out, keys);
  out.close_object();
  return out.take();
}

void put_special_schema(Writer& out, const QuantityText&) {
  out.key("type").text("string");
  out.key("pattern").text("^ *[0-9.]");
}

}  // namespace parsim::json
