// The settings of a trainer's file, by the names that its command line has: of shell scripts with
// arguments, of YAML, and of JSON and TOML by their tables ("parallelism.tensor_parallel_degree").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::experiment {

/// Of letters of ASCII.
[[nodiscard]] std::string lower_case(std::string text);

struct TrainerWord {
  std::vector<std::string> values;  ///< none of a flag without a value
  std::int64_t line = 0;
  std::string unsure{};  ///< why a script may not give it: "within a condition or loop"
  std::string file{};    ///< if it is not that of the others
};

class TrainerWords {
 public:
  TrainerWords(std::string file, std::map<std::string, TrainerWord> words)
      : file_(std::move(file)), words_(std::move(words)) {}

  // All that look for a name throw InputError if the script may not give it, or another value.
  [[nodiscard]] bool has(std::string_view name) const;
  /// All names that begin so.
  [[nodiscard]] std::vector<std::string> names_below(std::string_view prefix) const;
  /// A flag that is there, or set to anything but false, False, 0 and no.
  [[nodiscard]] bool is_on(std::string_view name) const;
  /// The first value. Throws InputError for a flag without one.
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
  /// Throws InputError unless it is a whole number of `least` or more.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name,
                                                    std::int64_t least = 1) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
  /// "file:line:name"
  [[nodiscard]] std::string where(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, const std::string& accepted) const;
  [[nodiscard]] const std::string& file() const { return file_; }
  /// Throws InputError for a name that was never looked for and differs in one place, by one or two
  /// letters, from one that was: a slip, which the trainer would refuse, too.
  void check_spelling() const;
  /// Words of another file, which replace those of the same name.
  void add(const TrainerWords& later);
  /// A key or table of this name counts as one of the other, unless that is there.
  void rename(const std::string& old, const std::string& now);

 private:
  [[nodiscard]] const TrainerWord* find(std::string_view name) const;
  /// The same for its value.
  [[nodiscard]] const TrainerWord* find_sure(std::string_view name) const;

  std::string file_;
  std::map<std::string, TrainerWord> words_;
  mutable std::set<std::string, std::less<>> asked_{};
};

/// Of a script: "--name value …", quoted or not; comments and line ends with a backslash are left
/// out. Of YAML: "name: value" and "--name: value" at any depth, lists in one line or one item a
/// line; a name above deeper ones is a table's, which has no value. Names have dashes for
/// underscores, and no dashes in front. A name given twice is that of the last time, as for the
/// trainer. "$" are the variables of arguments that the text does not assign, and "$more" is there
/// if other words may be arguments, too, such as "$@". What a script gives within a condition, a
/// loop, a function, a subshell or a here-document, or differently to several launches, is marked
/// as unsure.
[[nodiscard]] TrainerWords read_words(std::string_view text, const std::string& file);
/// Of JSON or TOML: names are those of the tables and keys, with a dot between. Throws InputError
/// for broken syntax.
[[nodiscard]] TrainerWords read_tables(std::string_view text, const std::string& file);

}  // namespace parsim::experiment
