// Reads values from JSON by their lists of fields (core/json_fields.hpp).
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "core/errors.hpp"
#include "core/json_fields.hpp"
#include "core/units.hpp"

namespace parsim::json {

template <class T>
void get(const Node& node, T& value, const Rule& rule = {});

/// The keys of a list.
class FieldNames {
 public:
  template <class T>
  void operator()(std::string_view key, const T&, const Rule& = {}) {
    add(key);
  }
  template <class T>
  void optional(std::string_view key, const T&, const Rule& = {}) {
    add(key);
  }
  template <class T>
  void optional_or(std::string_view key, const T&, const T&, const Rule& = {}) {
    add(key);
  }
  template <class T>
  void constant(std::string_view key, T) {
    add(key);
  }
  template <class Function>
  void table(std::string_view key, std::size_t, Function, const Rule& = {}) {
    add(key);
  }
  [[nodiscard]] std::span<const std::string_view> names() const { return {names_.data(), size_}; }

 private:
  void add(std::string_view key) {
    ensure(size_ < names_.size(), "a list of fields is short");
    names_[size_++] = key;
  }
  std::array<std::string_view, 32> names_;  // no vector: a DAG has millions of entries
  std::size_t size_ = 0;
};

class FieldReader {
 public:
  explicit FieldReader(const Node& node) : node_(node) {}
  template <class T>
  void operator()(std::string_view key, T& member, const Rule& rule = {}) {
    get(node_[key], member, rule);
  }
  template <class T>
  void optional(std::string_view key, T& member, const Rule& rule = {}) {
    if (const auto found = node_.find(key)) get(*found, member, rule);
  }
  template <class T>
  void optional_or(std::string_view key, T& member, const T& otherwise, const Rule& rule = {}) {
    member = otherwise;
    optional(key, member, rule);
  }
  template <class T>
  void constant(std::string_view, T) {}  // a file's heading and kinds are checked before
  template <class Function>
  void table(std::string_view, std::size_t, Function, const Rule& = {}) {}

 private:
  Node node_;
};

/// Reads the listed members from an object that has no others.
template <class T>
void get_fields(const Node& node, T& value) {
  if constexpr (HasKinds<T>) read_kind(node, value);
  FieldNames known;
  fields(known, value);
  node.only(known.names());  // first, so that a misspelt key is not reported as a missing one
  FieldReader read(node);
  fields(read, value);
}

template <class T>
void get(const Node& node, T& value, const Rule& rule) {
  if constexpr (requires { get_special(node, value); }) {
    get_special(node, value);
  } else if constexpr (std::same_as<T, bool>) {
    value = node.boolean();
  } else if constexpr (std::integral<T>) {
    value = static_cast<T>(node.integer(rule.limits));
  } else if constexpr (std::same_as<T, double>) {
    value = node.number(static_cast<double>(rule.limits.least));
  } else if constexpr (std::same_as<T, Seconds>) {
    value = Seconds{node.number()};
  } else if constexpr (std::same_as<T, std::string>) {
    value = node.text();
  } else if constexpr (std::is_enum_v<T>) {
    if (excepts(rule, node.text())) node.refuse(accepted_words<T>(rule));
    value = node.word_as<T>(spellings_of<T>());
  } else if constexpr (is_id<T>) {
    value = T{static_cast<std::int32_t>(node.integer(rule.limits))};
  } else if constexpr (is_array<T>) {
    for (std::size_t i = 0; i < value.size(); ++i) get(node.item(i, value.size()), value[i], rule);
  } else if constexpr (is_vector<T>) {
    value.clear();
    node.each([&](const Node& item) {
      typename T::value_type read{};
      get(item, read, rule);
      value.push_back(std::move(read));
    });
  } else {
    get_fields(node, value);
  }
}

}  // namespace parsim::json
