// The options of the command line: one table with a row for each. The command line, its help and
// completion, the reference, the `inputs` of results and what plans and layouts decide instead all
// come from this table (experiment/option_table.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/plan.hpp"
#include "core/spelling.hpp"
#include "strategies/strategies.hpp"

namespace parsim::experiment {

struct Option;
struct Request;
class Experiment;

/// Sections of the help text, in its order.
enum class OptionGroup : std::uint8_t {
  question,
  plan,
  memory,
  model,
  variation,
  hardware,
  collective,
  validation,
  work,
  sweep,
  purchase,
  output,
  paper,
};
constexpr std::array<std::string_view, 13> spellings(OptionGroup) {
  return {"Question",
          "Plan",
          "Memory",
          "Model",
          "Variation",
          "Hardware",
          "Collective",
          "Validation",
          "Work",
          "Sweep",
          "Purchase",
          "Output",
          "Reproduction of papers"};
}

/// The member of a Request that an option sets. All null: of files that are written and of how a
/// result is printed, which the verb or main reads itself.
struct OptionMember {
  void (*read)(Request& request, const Option& option, const std::vector<std::string>& texts);
  /// For `inputs`; the experiment is null with verbs that load none.
  nlohmann::ordered_json (*json)(const Request& request, const Experiment* experiment);
  nlohmann::ordered_json (*schema)(const Option& option);  ///< of that JSON
  std::vector<std::string> (*spellings)();                 ///< of an enum; else empty
  std::string (*fallback)();                               ///< the default; empty: none
};

struct OptionRules {
  std::string_view long_name{};   ///< another name: "--tensor-parallel" of "--tp"
  std::string_view old_name{};    ///< refused; the message says the flag instead
  std::string_view strategies{};  ///< that read it, "layout" for --layout; empty: all
  bool repeats = false;           ///< may be given several times
  bool in_plan_file = false;      ///< decided by --plan, as all of groups `plan` and `paper` are
  std::int64_t least = 1, most = std::numeric_limits<std::int64_t>::max();  ///< of a number
};

struct Option {
  std::string_view flag;   ///< "--network"
  std::string_view value;  ///< what follows, for the help: "NAME|FILE", "auto|always|never"; empty:
                           ///< nothing, or the spellings of an enum
  OptionGroup group;
  std::string_view verbs;  ///< that take it, separated by blanks; empty: all
  std::string_view help;   ///< the default is added if the member has one
  std::string_view key{};  ///< in `inputs`; empty: not recorded
  OptionMember member{};
  OptionRules rules{};

  [[nodiscard]] bool is_for(std::string_view verb) const;
  [[nodiscard]] bool is_read_by(std::string_view strategy) const;
  /// The words that it accepts; empty if they are no closed set.
  [[nodiscard]] std::vector<std::string> words() const;
  /// What follows the flag in the help: "fp32|tf32|fp16|bf16"; empty: nothing.
  [[nodiscard]] std::string placeholder() const;
  /// The help with the default.
  [[nodiscard]] std::string explanation() const;
  [[nodiscard]] bool writes_file() const;
  [[nodiscard]] bool is_in_plan_file() const;
  /// Whether `inputs` have it although a plan file was given.
  [[nodiscard]] bool is_recorded_with_plan() const;
};
/// Every option of every verb, in the order of the help text.
[[nodiscard]] std::span<const Option> options();

/// The arguments of one command: text by flag, checked to be known to the verb.
struct Arguments {
  std::string verb;
  std::vector<std::string> words;  ///< positional arguments
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> command{};  ///< everything as typed, verb first
  /// Called now and then while something is computed; throws to give the computation up. May be
  /// empty.
  std::function<void()> poll{};
  /// Strategies of the caller's, which --strategy may name as those of the table.
  std::vector<strategies::Strategy> strategies{};

  [[nodiscard]] bool has(std::string_view flag) const { return values.contains(flag); }
  /// The value of a flag that is given at most once.
  [[nodiscard]] std::optional<std::string> text(std::string_view flag) const;
  /// The values of a flag that repeats.
  [[nodiscard]] std::vector<std::string> texts(std::string_view flag) const;
  /// A whole number within bounds, or nothing if the flag is absent.
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view flag, std::int64_t least,
                                                   std::int64_t most) const;
};

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

/// The same of an enum, whose synonyms are accepted. An old spelling is refused with its new one.
template <Spelled Enum>
[[nodiscard]] Enum parse_spelling(std::string_view text, std::string_view where) {
  if (const auto value = from_text<Enum>(text)) return *value;
  if constexpr (requires { synonyms(Enum{}); }) {
    for (const auto& [synonym, spelling] : synonyms(Enum{})) {
      if (synonym == text) return from_text<Enum>(spelling).value();
    }
  }
  if constexpr (requires { old_spellings(Enum{}); }) {
    for (const auto& [old, now] : old_spellings(Enum{})) {
      if (old == text) {
        throw InputError(where, "'" + std::string(old) + "' was renamed",
                         "use " + std::string(now));
      }
    }
  }
  constexpr auto known = spellings_of<Enum>();
  refuse_word(text, where, {known.begin(), known.end()});
}

/// "node" or a number of replicas, as --zero-group. Throws InputError for `where`.
[[nodiscard]] ZeroGroup parse_zero_group(const std::string& text, std::string_view where);

}  // namespace parsim::experiment
