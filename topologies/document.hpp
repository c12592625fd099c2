// A TOML or JSON file as a tree with line numbers, and a reader whose errors name file, line and
// key. Both formats share one schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_keys.hpp"

namespace parsim::topologies {

using json::key;
using json::Key;
using json::Keys;
using json::Names;
using json::QuantityText;
using json::required;
using json::table_schema;
using json::TableOf;

/// One value of a file.
struct Value {
  enum class Kind : std::uint8_t { text, integer, boolean, other, list, table } kind = Kind::other;
  std::string text;               ///< of a text; what was found ("a bare number") of an `other`
  std::int64_t integer = 0;       ///< of an integer; of a boolean 0 or 1
  std::vector<Value> items;       ///< of a list, or the values of a table
  std::vector<std::string> keys;  ///< of a table, in the order of the file
  std::int64_t line = 0;          ///< where it begins; of a table's value: where its key stands

  /// "a text", "a table", …: what a message says was found.
  [[nodiscard]] std::string described() const;
};

/// Read a whole file. Throw InputError with `file:line:column` for broken syntax, and for a key
/// that occurs twice.
[[nodiscard]] Value parse_toml(std::string_view text, const std::string& file);
[[nodiscard]] Value parse_json(std::string_view text, const std::string& file);
/// The one that the file's name says, or its first character.
[[nodiscard]] Value parse_document(std::string_view text, const std::string& file);

/// A table whose keys are known: `keys` must outlive it. An unknown key is refused at once, before
/// anything that may only follow from it (the required key that it misspells).
class Fields {
 public:
  /// `path` is the name of the table in messages ("links"), empty at the top of the file.
  Fields(const Value& table, std::string file, std::string path, const Keys& keys);

  /// `file:line:path.key`; the table's own line if the key is absent.
  [[nodiscard]] std::string where(std::string_view key) const;
  /// Null if absent.
  [[nodiscard]] const Value* find(std::string_view key) const;

  /// A text; required, with a fallback, or maybe absent. An empty text is a text.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::string text_or(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::optional<std::string> maybe_text(std::string_view key) const;
  /// An integer in the range of its key, or in a smaller one.
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback) const {
    return integer_or(key, fallback, keys_->limits(key));
  }
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t fallback,
                                        json::Limits limits) const;
  /// The entries of a list that may be absent.
  [[nodiscard]] const std::vector<Value>& list(std::string_view key) const;

  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  const Value& table_;
  std::string file_, path_;
  const Keys* keys_;
};

}  // namespace parsim::topologies
