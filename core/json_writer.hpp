// Writes JSON text piece by piece, without a document in memory. Private to core/json_*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace parsim::json {

/// Appends values to a text and puts the commas. Members of the outermost object and the members or
/// items one level below begin a line, so that tables have one record per line.
class Writer {
 public:
  /// Whether 5.0 is written as 5, which reads back as the same double, or as 5.0, which also tells
  /// other programs that it is one.
  enum class Numbers : std::uint8_t { shortest, typed };
  explicit Writer(Numbers numbers = Numbers::shortest) : numbers_(numbers) {}

  void open_object() { open('{'); }
  void close_object() { close('}'); }
  void open_array() { open('['); }
  void close_array() { close(']'); }
  /// The next value belongs to this key.
  Writer& key(std::string_view name);
  void integer(std::int64_t value);
  /// The shortest text that reads back as the same double. Throws BrokenInvariant unless finite.
  void number(double value);
  void boolean(bool value);
  void null();
  /// JSON as it is.
  void raw(std::string_view json);
  /// Bytes that are not UTF-8 become U+FFFD.
  void text(std::string_view value);

  /// The whole text with a final newline.
  [[nodiscard]] std::string take();

 private:
  void open(char bracket);
  void close(char bracket);
  /// The comma and the line break before a value or key.
  void separate();

  Numbers numbers_;
  std::string out_;
  std::size_t depth_ = 0;
  bool after_value_ = false;  ///< a comma is due before what comes next
  bool after_key_ = false;
};

}  // namespace parsim::json
