// Writes values as JSON by their lists of fields (core/json_fields.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json_fields.hpp"
#include "core/units.hpp"

namespace parsim::json {

template <class T>
void put(Writer& out, const T& value);

class FieldWriter {
 public:
  explicit FieldWriter(Writer& out) : out_(&out) {}
  template <class T>
  void operator()(std::string_view key, const T& member, const Rule& = {}) {
    out_->key(key);
    put(*out_, member);
  }
  template <class T>
  void optional(std::string_view key, const T& member, const Rule& = {}) {
    if constexpr (is_vector<T>) {
      if (!member.empty()) (*this)(key, member);
    } else if constexpr (is_optional<T>) {
      if (member) (*this)(key, member);
    } else {
      optional_or(key, member, T{});
    }
  }
  template <class T>
  void optional_or(std::string_view key, const T& member, const T& otherwise, const Rule& = {}) {
    if (!(member == otherwise)) (*this)(key, member);
  }
  void constant(std::string_view key, std::string_view value) { out_->key(key).text(value); }
  void constant(std::string_view key, std::int64_t value) { out_->key(key).integer(value); }
  template <class Function>
  void table(std::string_view key, std::size_t size, Function entry_at, const Rule& = {}) {
    out_->key(key).open_array();
    for (std::size_t i = 0; i < size; ++i) put(*out_, entry_at(i));
    out_->close_array();
  }

  template <class T>
  void together(const std::optional<T>& part) {
    if (part) fields(*this, *part);
  }

 private:
  Writer* out_;
};

/// Writes the listed members into the open object.
template <class T>
void put_fields(Writer& out, const T& value) {
  FieldWriter write(out);
  fields(write, value);
}

template <class T>
void put(Writer& out, const T& value) {
  if constexpr (Special<T>) {
    put_special(out, value);
  } else if constexpr (std::same_as<T, bool>) {
    out.boolean(value);
  } else if constexpr (std::integral<T>) {
    out.integer(static_cast<std::int64_t>(value));
  } else if constexpr (std::same_as<T, double>) {
    out.number(value);
  } else if constexpr (std::same_as<T, Seconds>) {
    out.number(value.count());
  } else if constexpr (std::same_as<T, std::string>) {
    out.text(value);
  } else if constexpr (std::is_enum_v<T>) {
    out.text(spellings_of<T>()[static_cast<std::size_t>(value)]);
  } else if constexpr (is_optional<T>) {
    value ? put(out, *value) : out.null();
  } else if constexpr (is_id<T>) {
    out.integer(value.value);
  } else if constexpr (is_vector<T> || is_array<T>) {
    out.open_array();
    for (const auto& item : value) put(out, item);
    out.close_array();
  } else {
    out.open_object();
    put_fields(out, value);
    out.close_object();
  }
}

/// The text of a file that holds `value`.
template <class T>
[[nodiscard]] std::string text_of_file(const T& value) {
  Writer out;
  put(out, value);
  return out.take();
}

}  // namespace parsim::json
