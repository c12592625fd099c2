// How enums are spelled in files, options and reports. Each enum says it once, right below its
// definition: constexpr std::array<std::string_view, count> spellings(Enum), in order of the
// values.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace parsim {

template <class Enum>
concept Spelled = std::is_enum_v<Enum> && requires { spellings(Enum{}); };

/// All spellings of an enum, by value.
template <Spelled Enum>
[[nodiscard]] constexpr auto spellings_of() {
  return spellings(Enum{});
}

template <Spelled Enum>
[[nodiscard]] constexpr std::string_view to_text(Enum value) {
  return spellings_of<Enum>().at(static_cast<std::size_t>(value));
}

/// Inverse of to_text; nothing for another text.
template <Spelled Enum>
[[nodiscard]] constexpr std::optional<Enum> from_text(std::string_view text) {
  constexpr auto known = spellings_of<Enum>();
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace parsim
