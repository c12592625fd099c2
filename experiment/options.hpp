// The options of the command line: one table of all of them, one table of verbs that says which
// verb takes which, and what a user gave. Everything is text here; experiment/request.hpp turns it
// into values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"

namespace parsim {

struct OptionSpec {
  std::string_view flag;   ///< "--network"
  std::string_view value;  ///< what follows, for the help text: "NAME|FILE"; empty: nothing follows
  std::string_view help;
  bool repeats = false;  ///< may be given several times
};
/// Every option of every verb, in the order of the help text.
[[nodiscard]] std::span<const OptionSpec> option_table();

/// The arguments of one command: text by flag, checked to be known to the verb.
struct Arguments {
  std::string verb;
  std::vector<std::string> words;  ///< positional arguments
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> command{};  ///< everything as typed, verb first

  [[nodiscard]] bool has(std::string_view flag) const { return values.contains(flag); }
  /// The value of a flag that is given at most once.
  [[nodiscard]] std::optional<std::string> text(std::string_view flag) const;
  /// The values of a flag that repeats.
  [[nodiscard]] std::vector<std::string> texts(std::string_view flag) const;
  /// A whole number within bounds, or nothing if the flag is absent.
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view flag, std::int64_t least,
                                                   std::int64_t most) const;
};

/// "; did you mean 'x'?", or "" if nothing known is near.
[[nodiscard]] std::string spelling_hint(std::string_view found,
                                        const std::vector<std::string>& known);

/// Refuses a word that is none of `accepted`, listing them with a "did you mean".
[[noreturn]] void refuse_word(std::string_view text, std::string_view where,
                              const std::vector<std::string>& accepted);

/// The value that a word stands for. Throws InputError listing the accepted words.
template <class Value, std::size_t count>
[[nodiscard]] Value parse_word(std::string_view text, std::string_view where,
                               const std::pair<std::string_view, Value> (&words)[count]) {
  std::vector<std::string> accepted;
  for (const auto& [word, value] : words) {
    if (word == text) return value;
    accepted.emplace_back(word);
  }
  refuse_word(text, where, accepted);
}

}  // namespace parsim
