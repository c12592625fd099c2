// How values become JSON and back: one list of fields per type serves writing, reading and the JSON
// Schema.
//
// Every type has its `fields(visit, value)`, which calls in the order of the file
//
//     visit(key, member, rule)                        a member that must be there
//     visit.optional(key, member, rule)               left out where it has its default
//     visit.optional_or(key, member, otherwise, rule) the same; it follows from members before
//     visit.constant(key, value)                      always the same text or number
//     visit.table(key, size, entry_at)                written and described; read by its owner
//     visit.together(part)                            the fields of an optional part, or none
//
// where `rule` gives a range or a meaning. Types whose members follow from a kind also have
// `read_kind(node, value)` and `each_kind(value)`; those that are no objects have `put_special`,
// `get_special` and `put_special_schema` instead. What is only written may also have members
// that are optional values: null where absent.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/ids.hpp"
#include "core/json_reader.hpp"
#include "core/json_writer.hpp"
#include "core/shared_list.hpp"
#include "core/spelling.hpp"

namespace parsim::json {

/// A range of whole numbers, or from where numbers may be; what the schema says of the field;
/// spellings of the enum that are none here, with spaces between them.
struct Rule {
  Limits limits{};
  std::string_view meaning{};
  std::string_view except{};

  constexpr Rule() = default;
  // Not explicit: lists of fields give either alone.
  constexpr Rule(Limits range, std::string_view says = {})  // NOLINT(google-explicit-constructor)
      : limits(range), meaning(says) {}
  constexpr Rule(Limits range, std::string_view says, std::string_view never)
      : limits(range), meaning(says), except(never) {}
  constexpr Rule(const char* says,
                 std::string_view never = {})  // NOLINT(google-explicit-constructor)
      : meaning(says), except(never) {}
};

/// Accepts `T&` and `const T&`.
template <class Value, class T>
concept Of = std::same_as<std::remove_const_t<Value>, T>;

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_vector<SharedList<T>> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T, std::size_t n>
inline constexpr bool is_array<std::array<T, n>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_id = false;
template <class Tag>
inline constexpr bool is_id<Id<Tag>> = true;
template <class T>
concept Special = requires(Writer& out, const T& value) { put_special(out, value); };
template <class T>
concept HasKinds = requires(const T& value) { each_kind(value); };

/// Whether a spelling is none here.
[[nodiscard]] constexpr bool excepts(const Rule& rule, std::string_view word) {
  for (std::string_view rest = rule.except; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == word) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

/// The spellings that a field of an enum may have.
template <Spelled Enum>
[[nodiscard]] std::vector<std::string_view> words_of(const Rule& rule) {
  std::vector<std::string_view> words;
  for (const std::string_view word : spellings_of<Enum>()) {
    if (!excepts(rule, word)) words.push_back(word);
  }
  return words;
}

template <Spelled Enum>
[[nodiscard]] std::string accepted_words(const Rule& rule) {
  std::string text;
  for (const std::string_view word : words_of<Enum>(rule)) {
    text += (text.empty() ? "accepted: " : ", ") + std::string(word);
  }
  return text;
}

}  // namespace parsim::json
