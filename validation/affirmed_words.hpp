// What the words of a column say that holds: of "FP32 (TF32 off)" FP32, not TF32. All that look for
// words in columns of free text look here.
#pragma once

#include <string>
#include <string_view>

namespace parsim::validation {

/// The text in small letters, with '~' for each word that it denies: the word after "no", "not",
/// "without", "w/o", "non-" or "neither" (and after "or" or '/' behind it), the word before "off",
/// "disabled", "not used", "=False" or "=0". Words end at blanks, brackets and , ; : = / + |, and a
/// denial does not reach beyond brackets, ',', ';', '+' and '|'. PyTorch's NO_SHARD stays.
[[nodiscard]] std::string affirmed(std::string_view text);

}  // namespace parsim::validation
