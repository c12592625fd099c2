// Values as bytes for another process of the same program, bit by bit. Not a file format: it has no
// version, and the machine's byte order.
#pragma once

#include <any>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/shared_list.hpp"

namespace parsim {

/// A struct that is more than numbers says what it holds:
///
///     auto packed_parts(PackedAs<Value> auto& value) { auto& [a, b] = value; return std::tie(a, b); }
///
/// A structured binding, so that a new member does not compile until it is there, too.
template <class T, class Value>
concept PackedAs = std::is_same_v<std::remove_const_t<T>, Value>;
template <class T>
concept HasPackedParts = requires(T& value) { packed_parts(value); };

/// Appends values to a text.
class Packer {
 public:
  template <class T>
  Packer& put(const T& value) {
    static_assert(!std::is_pointer_v<T> && !std::is_same_v<T, std::string_view>);
    if constexpr (HasPackedParts<const T>) {
      std::apply([this](const auto&... parts) { (put(parts), ...); }, packed_parts(value));
    } else {
      static_assert(std::is_trivially_copyable_v<T>, "packed_parts() is missing");
      std::array<char, sizeof(T)> bytes;
      std::memcpy(bytes.data(), &value, sizeof value);
      text_.append(bytes.data(), bytes.size());
    }
    return *this;
  }
  Packer& put(const std::string& text) {
    put(text.size());
    text_ += text;
    return *this;
  }
  template <class T>
  Packer& put(const std::vector<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
    return *this;
  }
  template <class T>
  Packer& put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
    return *this;
  }

  /// Lists that share their items do so again when they are read, if they all live until then.
  template <class T>
  Packer& put(const SharedList<T>& values) {
    const auto [known, fresh] = lists_.try_emplace(values.identity(), lists_.size());
    put(known->second);
    return fresh ? put(values.items()) : *this;
  }

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
  std::map<const void*, std::size_t> lists_;  ///< numbers by SharedList::identity
};

/// Reads them in the same order. Throws BrokenInvariant at the end of the text, which it refers to.
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : left_(text) {}

  template <class T>
  [[nodiscard]] T get() {
    T value{};
    get(value);
    return value;
  }
  template <class T>
  void get(T& value) {
    if constexpr (HasPackedParts<T>) {
      std::apply([this](auto&... parts) { (get(parts), ...); }, packed_parts(value));
    } else {
      static_assert(std::is_trivially_copyable_v<T>, "packed_parts() is missing");
      std::memcpy(&value, take(sizeof value).data(), sizeof value);
    }
  }
  void get(std::string& text) {
    const auto size = get<std::size_t>();
    text = take(size);
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.clear();
    for (auto count = get<std::size_t>(); count > 0; --count) values.push_back(get<T>());
  }
  template <class T>
  void get(std::optional<T>& value) {
    value.reset();
    if (get<bool>()) value = get<T>();
  }
  template <class T>
  void get(SharedList<T>& values) {
    const auto number = get<std::size_t>();
    ensure(number <= lists_.size(), "lists that another process sent are numbered");
    if (number == lists_.size()) lists_.emplace_back(SharedList<T>(get<std::vector<T>>()));
    const auto* known = std::any_cast<SharedList<T>>(&lists_[number]);
    values = known == nullptr ? SharedList<T>() : *known;  // those without items share a number
  }

 private:
  std::string_view take(std::size_t size) {
    ensure(size <= left_.size(), "what another process sent is complete");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
  std::vector<std::any> lists_;
};

}  // namespace parsim
