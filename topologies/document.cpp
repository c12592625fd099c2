#include "topologies/document.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::topologies {

std::string Value::described() const {
  switch (kind) {
    case Kind::text:
      return fmt::format("the string '{}'", text);
    case Kind::integer:
      return fmt::format("the number {}", integer);
    case Kind::boolean:
      return "a boolean";
    case Kind::other:
      return text;
    case Kind::list:
      return "a list";
    case Kind::table:
      return "a table";
  }
  return {};
}

Fields::Fields(const Value& table, std::string file, std::string path, const Keys& keys)
    : table_(table), file_(std::move(file)), path_(std::move(path)), keys_(&keys) {
  const Names known = keys.names();
  if (table.kind != Value::Kind::table) {
    throw InputError(fmt::format("{}:{}:{}", file_, table.line, path_),
                     fmt::format("expected a table, found {}", table.described()),
                     fmt::format("accepted: a table with the keys {}", fmt::join(known, ", ")));
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const std::string& key : table.keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw InputError(where(key), fmt::format("unknown key '{}'", key),
                     fmt::format("accepted: {}{}", join(names), did_you_mean(key, names)));
  }
}

const Value* Fields::find(std::string_view key) const {
  const auto found = std::find(table_.keys.begin(), table_.keys.end(), key);
  if (found == table_.keys.end()) return nullptr;
  return &table_.items[static_cast<std::size_t>(found - table_.keys.begin())];
}

std::string Fields::where(std::string_view key) const {
  const Value* value = find(key);
  return fmt::format("{}:{}:{}{}{}", file_, value == nullptr ? table_.line : value->line, path_,
                     path_.empty() ? "" : ".", key);
}

std::optional<std::string> Fields::maybe_text(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == Value::Kind::text) return value->text;
  throw InputError(where(key), fmt::format("expected a string, found {}", value->described()),
                   "accepted: a quoted string, quantities with their unit: \"25 GB/s\", \"1 us\"");
}

std::string Fields::text(std::string_view key) const {
  std::optional<std::string> found = maybe_text(key);
  if (found) return *std::move(found);
  throw InputError(where(key), fmt::format("the key '{}' is missing", key),
                   "accepted: a quoted string");
}

std::string Fields::text_or(std::string_view key, std::string_view fallback) const {
  return maybe_text(key).value_or(std::string(fallback));
}

std::int64_t Fields::integer_or(std::string_view key, std::int64_t fallback,
                                json::Limits limits) const {
  const auto [least, most] = limits;
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  const std::string accepted = fmt::format("accepted: a whole number from {} to {}", least, most);
  if (value->kind != Value::Kind::integer) {
    const std::string found =
        value->described() == "a bare number" ? "a fractional number" : value->described();
    throw InputError(where(key), fmt::format("expected a whole number, found {}", found), accepted);
  }
  if (value->integer < least || value->integer > most) {
    throw InputError(where(key), fmt::format("{} is out of range", value->integer), accepted);
  }
  return value->integer;
}

const std::vector<Value>& Fields::list(std::string_view key) const {
  static const std::vector<Value> none;
  const Value* value = find(key);
  if (value == nullptr) return none;
  if (value->kind == Value::Kind::list) return value->items;
  throw InputError(where(key), fmt::format("expected a list, found {}", value->described()),
                   "accepted: a list [ … ], or one [[…]] per entry");
}

}  // namespace parsim::topologies
