// How the values' parts become JSON and back: one list of fields per type serves both directions.
// Private to core/json_*.cpp.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/ids.hpp"
#include "core/json_reader.hpp"
#include "core/json_writer.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "core/spelling.hpp"
#include "core/timeline.hpp"

namespace parsim::json {

/// Extents of tensors. Products are checked apart (most_elements).
inline constexpr Limits extents{1, std::int64_t{1} << 44};

/// Accepts `T&` and `const T&`.
template <class Value, class T>
concept Of = std::same_as<std::remove_const_t<Value>, T>;

// Every type has its `fields(visit, value)`, which calls `visit(key, member)` for a required
// member, `visit(key, member, limits)` for one with a range of its own, and
// `visit.optional(key, member)` for one that is left out where it has its default, or
// `visit.optional(key, member, otherwise)` where that follows from the members before.

void fields(auto& visit, Of<Span> auto& span) {
  visit("start_s", span.start);
  visit("end_s", span.end);
}

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_id = false;
template <class Tag>
inline constexpr bool is_id<Id<Tag>> = true;

template <class T>
void put(Writer& out, const T& value);
template <class T>
void get(const Node& node, T& value, Limits limits = {});

// What has no list of fields: a variant, and arrays whose items have fixed meanings.
void put_kind(Writer& out, const LayerKind& kind);
[[nodiscard]] LayerKind get_kind(const Node& node);
/// [["channel", 64], ["height", 56], …]
void put_shape(Writer& out, const Shape& shape);
[[nodiscard]] Shape get_shape(const Node& node);
/// A number of devices, or "node".
void put_zero_group(Writer& out, const ZeroGroup& group);
[[nodiscard]] ZeroGroup get_zero_group(const Node& node);
/// The output shape of the layer that the node describes; errors name the node.
[[nodiscard]] Shape shape_made(const LayerKind& kind, const std::vector<Shape>& inputs,
                               const Node& node);

/// The members of a network, without braces: the body of `network` in a DAG.
void put_network(Writer& out, const Network& network);
[[nodiscard]] Network get_network(const Node& node);

/// The first two members of every file.
inline constexpr std::array<std::string_view, 2> heading_keys{"format", "version"};
inline void put_heading(Writer& out, std::string_view format, std::int64_t version) {
  out.key("format").text(format);
  out.key("version").integer(version);
}

class FieldWriter {
 public:
  explicit FieldWriter(Writer& out) : out_(&out) {}
  template <class T>
  void operator()(std::string_view key, const T& member, Limits = {}) {
    out_->key(key);
    put(*out_, member);
  }
  template <class T>
  void optional(std::string_view key, const T& member) {
    optional(key, member, T{});
  }
  template <class T>
  void optional(std::string_view key, const T& member, const T& otherwise) {
    if (!(member == otherwise)) (*this)(key, member);
  }

 private:
  Writer* out_;
};

class FieldNames {
 public:
  template <class T>
  void operator()(std::string_view key, const T&, Limits = {}) {
    names.push_back(key);
  }
  template <class T>
  void optional(std::string_view key, const T&, const T& = {}) {
    names.push_back(key);
  }
  std::vector<std::string_view> names;
};

class FieldReader {
 public:
  explicit FieldReader(const Node& node) : node_(node) {}
  template <class T>
  void operator()(std::string_view key, T& member, Limits limits = {}) {
    get(node_[key], member, limits);
  }
  template <class T>
  void optional(std::string_view key, T& member) {
    if (const auto found = node_.find(key)) get(*found, member);
  }
  template <class T>
  void optional(std::string_view key, T& member, const T& otherwise) {
    member = otherwise;
    optional(key, member);
  }

 private:
  Node node_;
};

/// Writes the listed members into the open object.
template <class T>
void put_fields(Writer& out, const T& value) {
  FieldWriter write(out);
  fields(write, value);
}

/// Reads the listed members from an object that has no others, except `besides`.
template <class T>
void get_fields(const Node& node, T& value, std::span<const std::string_view> besides = {}) {
  FieldNames known;
  known.names.assign(besides.begin(), besides.end());
  fields(known, value);
  node.only(known.names);  // first, so that a misspelt key is not reported as a missing one
  FieldReader read(node);
  fields(read, value);
}

template <class T>
void put(Writer& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
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
  } else if constexpr (is_id<T>) {
    out.integer(value.value);
  } else if constexpr (is_vector<T>) {
    out.open_array();
    for (const auto& item : value) put(out, item);
    out.close_array();
  } else if constexpr (std::same_as<T, LayerKind>) {
    put_kind(out, value);
  } else if constexpr (std::same_as<T, Shape>) {
    put_shape(out, value);
  } else if constexpr (std::same_as<T, ZeroGroup>) {
    put_zero_group(out, value);
  } else {
    out.open_object();
    put_fields(out, value);
    out.close_object();
  }
}

template <class T>
void get(const Node& node, T& value, Limits limits) {
  if constexpr (std::same_as<T, bool>) {
    value = node.boolean();
  } else if constexpr (std::integral<T>) {
    value = static_cast<T>(node.integer(limits));
  } else if constexpr (std::same_as<T, double>) {
    value = node.number();
  } else if constexpr (std::same_as<T, Seconds>) {
    value = Seconds{node.number()};
  } else if constexpr (std::same_as<T, std::string>) {
    value = node.text();
  } else if constexpr (std::is_enum_v<T>) {
    value = node.word_as<T>(spellings_of<T>());
  } else if constexpr (is_id<T>) {
    value = T{static_cast<std::int32_t>(node.integer(limits))};
  } else if constexpr (is_vector<T>) {
    value.clear();
    node.each([&](const Node& item) {
      typename T::value_type read{};
      get(item, read, limits);
      value.push_back(std::move(read));
    });
  } else if constexpr (std::same_as<T, LayerKind>) {
    value = get_kind(node);
  } else if constexpr (std::same_as<T, Shape>) {
    value = get_shape(node);
  } else if constexpr (std::same_as<T, ZeroGroup>) {
    value = get_zero_group(node);
  } else {
    get_fields(node, value);
  }
}

}  // namespace parsim::json
