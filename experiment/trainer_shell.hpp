// Arguments in a shell script: its words, variables, and where the script may not give them. Used
// by trainer_words alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/shell_statements.hpp"

namespace parsim::experiment {

struct TrainerWord;

/// A word of a script, or the value of a variable; `unsure` as in TrainerWord.
struct ShellWord {
  std::string text, unsure;
};

/// "$MODEL_ARGS", "${MODEL_ARGS[@]}": arguments, if nothing in the text assigns them.
[[nodiscard]] bool names_unknown_arguments(const std::string& word, std::string_view text);

class ShellReader {
 public:
  [[nodiscard]] bool in_document() const { return statements_.in_document(); }
  /// The words of the next line, with variables replaced by what was assigned; those in quotes
  /// apart, too: "--tp 2 --pp 4" of ARGS="…" are arguments. Comments are left out.
  [[nodiscard]] std::vector<ShellWord> read(std::string_view line);
  /// Call with each name of that line, and the line's number.
  void give(const std::string& name, std::int64_t line);
  /// At the end: marks what not all launches of the script are given alike. `values` is what each
  /// line gives to each name.
  void mark(
      std::map<std::string, TrainerWord>& words,
      const std::map<std::pair<std::string, std::int64_t>, std::vector<std::string>>& values) const;

 private:
  struct Giving {
    std::int64_t launch = 0, line = 0;
    bool in_command = false;  ///< of the launch, else before it
  };
  void assign(const ShellAssignment& made, const PlacedWord& word);
  void find_launch(std::string_view line, const std::vector<PlacedWord>& words);

  ShellStatements statements_;
  std::map<std::string, ShellWord> variables_;
  std::set<std::string> of_functions_;  ///< variables that a function assigns
  std::map<std::string, std::vector<Giving>> given_;
  std::int64_t launches_ = 0;
  bool continues_ = false, in_command_ = false;
};

}  // namespace parsim::experiment
