// The keys of a table of a TOML or JSON file that people or other programs write: one list says
// what the reader (topologies/document.hpp, networks/hf_config.hpp) accepts and what the JSON
// Schema says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_schema.hpp"

namespace parsim::json {

/// A key. Its value is described by the schema of a C++ type.
struct Key {
  std::string_view name;
  Rule rule;
  bool required = false;
  void (*put_schema)(Writer& out, const Rule& rule) = nullptr;
};

/// A key that may be absent; `required` of one that may not.
template <class T>
[[nodiscard]] Key key(std::string_view name, const Rule& rule = {}) {
  return {name, rule, false, [](Writer& out, const Rule& r) { put_schema(out, T{}, r); }};
}
template <class T>
[[nodiscard]] Key required(std::string_view name, const Rule& rule = {}) {
  Key made = key<T>(name, rule);
  made.required = true;
  return made;
}

using Names = std::vector<std::string_view>;

struct Keys {
  std::vector<Key> keys;
  /// Of each entry exactly one list of keys must be there.
  std::vector<std::vector<Names>> one_of{};
  bool others = false;  ///< any other key may be there, too

  [[nodiscard]] Names names() const;
  /// Throws BrokenInvariant if there is no such key.
  [[nodiscard]] const Rule& rule(std::string_view name) const;
  /// The range of an integer.
  [[nodiscard]] Limits limits(std::string_view name) const { return rule(name).limits; }
};

/// The members of a table's schema.
void put_table_schema(Writer& out, const Keys& keys);
/// The schema of a file that is one table.
[[nodiscard]] std::string table_schema(std::string_view title, const Keys& keys);

/// A text such as "25 GB/s".
struct QuantityText {};
void put_special_schema(Writer& out, const QuantityText&);

/// A table with these keys: required<std::vector<TableOf<&link_keys>>>("links").
template <const Keys& (*keys)()>
struct TableOf {};
template <const Keys& (*keys)()>
void put_special_schema(Writer& out, const TableOf<keys>&) {
  put_table_schema(out, keys());
}

}  // namespace parsim::json
