#pragma once

#include <cstdlib>

namespace parsim::testing {

/// Whether tests shall run their long forms: PARSIM_LONG is set, and not to the empty string, which
/// is what ./test sets when it was not asked for --all.
[[nodiscard]] inline bool long_tests() {
  const char* value = std::getenv("PARSIM_LONG");
  return value != nullptr && *value != '\0';
}

}  // namespace parsim::testing
