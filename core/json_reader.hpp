// Reads untrusted JSON text: depth, duplicate keys and number ranges are checked, and every error
// names its location.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::json {

/// Whole numbers that a value may have.
struct Limits {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int32_t>::max();
};
inline constexpr Limits any_integer{std::numeric_limits<std::int64_t>::min(),
                                    std::numeric_limits<std::int64_t>::max()};
/// Positions in a table of `size` entries.
[[nodiscard]] constexpr Limits index_of(std::size_t size) {
  return {0, static_cast<std::int64_t>(size) - 1};
}

/// At most `most` bytes of a text, control characters as spaces, so that a message stays one line.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most = 60);

enum class Kind : std::uint8_t { null, boolean, integer, number, text, array, object };

/// One value of a document; members and items lie next to each other in the document's table, so
/// that a DAG of a million operations takes 24 bytes per value.
struct Value {
  Kind kind = Kind::null;
  std::uint32_t key = 0;    ///< of a member: position in Document::texts_
  std::uint32_t line = 0;   ///< where it begins; of a member: where its key stands
  std::uint32_t count = 0;  ///< of an array or object
  /// boolean, integer: itself; number: the bits of the double; text: position in
  /// Document::texts_; array, object: position of the first child in Document::values_
  std::int64_t content = 0;
};

class Node;

/// Objects of other programs may have any number of members. Errors name the values of our own
/// files `file:/layers/3/name`, but `file:12:name` in what people edit.
enum class Origin : std::uint8_t { parsim, elsewhere };

class Document {
 public:
  /// `where` is the file or flag, used in messages. Throws InputError for text that is not JSON,
  /// nested too deeply or with a key twice in an object (elsewhere: among the first 64).
  Document(const std::string& text, std::string where, Origin origin = Origin::parsim);
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  [[nodiscard]] Node root() const;
  /// The whole, after a check of its "format" and "version" members.
  [[nodiscard]] Node root(std::string_view format, std::int64_t version) const;

 private:
  friend class Node;
  struct Builder;

  std::string where_;
  Origin origin_;
  std::vector<Value> values_;  ///< the last one is the root
  std::vector<std::string> texts_;
};

/// A location in a document. Every function throws InputError with that location
/// (`file:/layers/3/cuts/0/dim`), what is there and what is accepted.
class Node {
 public:
  Node(const Document& document, std::size_t index) : document_(&document), index_(index) {}

  [[nodiscard]] Kind kind() const { return value().kind; }
  [[nodiscard]] std::int64_t line() const { return value().line; }
  /// Items of an array, members of an object.
  [[nodiscard]] std::size_t children() const { return value().count; }
  [[nodiscard]] std::int64_t integer(Limits limits = {}) const;
  /// A finite number of at least `least`.
  [[nodiscard]] double number(double least = 0) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] const std::string& text() const;
  /// Position of the text among `words`.
  [[nodiscard]] std::size_t word(std::span<const std::string_view> words) const;
  template <class Enum>
  [[nodiscard]] Enum word_as(std::span<const std::string_view> words) const {
    return static_cast<Enum>(word(words));
  }

  /// Items of an array.
  [[nodiscard]] std::size_t size() const;
  template <class Function>
  void each(Function function) const {
    for (std::size_t i = 0, n = size(); i < n; ++i) function(child(i));
  }
  /// The item of an array that has exactly `expected` of them.
  [[nodiscard]] Node item(std::size_t position, std::size_t expected) const;

  /// Calls `function(key, member)` for the members of an object, in the order of the text.
  template <class Function>
  void each_member(Function function) const {
    for (std::size_t i = 0; i < value().count; ++i) {
      function(document_->texts_[child(i).value().key], child(i));
    }
  }
  /// Refuses members other than these.
  void only(std::span<const std::string_view> keys) const;
  void only(std::initializer_list<std::string_view> keys) const {
    only(std::span(keys.begin(), keys.size()));
  }
  /// A member that must be there.
  [[nodiscard]] Node operator[](std::string_view key) const;
  [[nodiscard]] std::optional<Node> find(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view found, std::string_view accepted) const;
  /// `refuse` with a description of the value as what was found.
  [[noreturn]] void refuse(std::string_view accepted) const;
  /// `file:/layers/3`.
  [[nodiscard]] std::string location() const;

 private:
  [[nodiscard]] const Value& value() const { return document_->values_[index_]; }
  [[nodiscard]] Node child(std::size_t position) const {
    return {*document_, static_cast<std::size_t>(value().content) + position};
  }
  [[nodiscard]] std::string describe() const;
  /// Appends the way from `from` to this value; false if it is not below it.
  [[nodiscard]] bool path_from(const Node& from, std::string& path) const;

  const Document* document_;
  std::size_t index_;
};

}  // namespace parsim::json
