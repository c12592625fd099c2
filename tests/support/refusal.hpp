// What bad input is answered with.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "core/errors.hpp"

namespace parsim::testing {

/// The message of the InputError that `read()` throws; "accepted" if it throws none.
template <class Read>
std::string refusal_of(const Read& read) {
  try {
    static_cast<void>(read());
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

/// `text` with the first `from` replaced by `to`; a test that replaces nothing fails.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, "the text has no ", from);
  return text.replace(at, from.size(), to);
}

}  // namespace parsim::testing
