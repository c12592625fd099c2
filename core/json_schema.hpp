// JSON Schemas from lists of fields (core/json_fields.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_put.hpp"

namespace parsim::json {

template <class T>
void put_schema(Writer& out, const T& value, const Rule& rule = {});
/// The same without the braces and the meaning.
template <class T>
void put_schema_members(Writer& out, const T& value, const Rule& rule);

/// The properties of an object.
class FieldSchema {
 public:
  explicit FieldSchema(Writer& out) : out_(&out) {}
  template <class T>
  void operator()(std::string_view key, const T& member, const Rule& rule = {}) {
    required_.emplace_back(key);
    optional(key, member, rule);
  }
  template <class T>
  void optional(std::string_view key, const T& member, const Rule& rule = {}) {
    out_->key(key);
    put_schema(*out_, member, rule);
  }
  template <class T>
  void optional_or(std::string_view key, const T& member, const T&, const Rule& rule = {}) {
    optional(key, member, rule);
  }
  template <class T>
  void constant(std::string_view key, T value) {
    required_.emplace_back(key);
    out_->key(key).open_object();
    FieldWriter(*out_).constant("const", value);
    out_->close_object();
  }
  template <class Function>
  void table(std::string_view key, std::size_t, Function entry_at, const Rule& rule = {}) {
    (*this)(key, std::vector<decltype(entry_at(0))>{}, rule);
  }
  template <class T>
  void together(const std::optional<T>&) {
    const std::size_t before = required_.size();
    const T part{};
    fields(*this, part);
    required_.resize(before);
  }
  [[nodiscard]] const std::vector<std::string>& required() const { return required_; }

 private:
  Writer* out_;
  std::vector<std::string> required_;
};

/// The members of an object's schema; `list` calls a FieldSchema.
template <class List>
void put_object_schema(Writer& out, List list) {
  out.key("type").text("object");
  out.key("properties").open_object();
  FieldSchema visit(out);
  list(visit);
  out.close_object();
  out.key("required");
  put(out, visit.required());
  out.key("additionalProperties").boolean(false);
}

inline void put_limits(Writer& out, const Limits& limits) {
  if (limits.least != any_integer.least) out.key("minimum").integer(limits.least);
  if (limits.most != any_integer.most) out.key("maximum").integer(limits.most);
}

template <class T>
void put_kinds_schema(Writer& out, const std::vector<T>& kinds) {
  out.key("oneOf").open_array();
  for (const T& kind : kinds) {
    out.open_object();
    put_object_schema(out, [&](FieldSchema& visit) { fields(visit, kind); });
    out.close_object();
  }
  out.close_array();
}

/// `value` matters only where its type's fields follow from it.
template <class T>
void put_schema(Writer& out, const T& value, const Rule& rule) {
  out.open_object();
  if (!rule.meaning.empty()) out.key("description").text(rule.meaning);
  put_schema_members(out, value, rule);
  out.close_object();
}

template <class T>
void put_schema_members(Writer& out, const T& value, const Rule& rule) {
  if constexpr (requires { put_special_schema(out, value); }) {
    put_special_schema(out, value);
  } else if constexpr (std::same_as<T, bool>) {
    out.key("type").text("boolean");
  } else if constexpr (std::integral<T> || is_id<T>) {
    out.key("type").text("integer");
    put_limits(out, rule.limits);
  } else if constexpr (std::same_as<T, double> || std::same_as<T, Seconds>) {
    out.key("type").text("number");
    if (rule.limits.least != any_integer.least) out.key("minimum").integer(rule.limits.least);
    if (rule.limits.most < Limits{}.most) out.key("maximum").integer(rule.limits.most);
  } else if constexpr (std::same_as<T, std::string>) {
    out.key("type").text("string");
  } else if constexpr (is_optional<T>) {
    out.key("anyOf").open_array();
    put_schema(out, typename T::value_type{}, Rule(rule.limits, {}, rule.except));
    out.open_object();
    out.key("type").text("null");
    out.close_object();
    out.close_array();
  } else if constexpr (std::is_enum_v<T>) {
    out.key("enum").open_array();
    for (const std::string_view word : words_of<T>(rule)) out.text(word);
    out.close_array();
  } else if constexpr (is_vector<T> || is_array<T>) {
    out.key("type").text("array");
    out.key("items");
    put_schema(out, typename T::value_type{}, Rule(rule.limits));
    if constexpr (is_array<T>) {
      out.key("minItems").integer(static_cast<std::int64_t>(value.size()));
      out.key("maxItems").integer(static_cast<std::int64_t>(value.size()));
    }
  } else if constexpr (HasKinds<T>) {
    put_kinds_schema(out, each_kind(value));
  } else {
    put_object_schema(out, [&](FieldSchema& visit) { fields(visit, value); });
  }
}

/// The schema of a file that holds one T.
template <class T>
[[nodiscard]] std::string schema_of_file(std::string_view title) {
  Writer out;
  out.open_object();
  out.key("title").text(title);
  put_schema_members(out, T{}, {});
  out.close_object();
  return out.take();
}

}  // namespace parsim::json
