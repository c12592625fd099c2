// Words, numbers and rates in a text about a network, such as "NVLink4 + 8x HDR 200 Gb/s".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace parsim::validation {

/// What a token is: "8x" are times, "HDR" is a generation of InfiniBand.
enum class TokenKind { number, times, in_bits, in_bytes, generation, word, slash, end };

/// One of them.
struct NetworkToken {
  TokenKind kind = TokenKind::end;
  double value = 0;  ///< the number; the rate in Gb/s
  std::string text;  ///< of a word in small letters
};

/// Tokens of the text's parts between '+', ',' and ';' outside parentheses, which are blanks.
[[nodiscard]] std::vector<std::vector<NetworkToken>> network_tokens(std::string_view text);

}  // namespace parsim::validation
