// Where the words of a shell script stand: which of them assign variables, and which the script may
// leave out. Used by trainer_shell alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parsim::experiment {

enum class ShellRole {
  plain,
  assignment,  ///< of a variable, by a statement of its own
  environment  ///< "TP=4 torchrun …": of that command alone, whose words do not see it
};

struct PlacedWord {
  std::string text;  ///< without its quotes
  ShellRole role = ShellRole::plain;
  /// Why the script may leave it out, as in "within a condition or loop"; empty: it does not.
  std::string unsure{};
  bool in_function = false;
};

/// "NAME=value" or "NAME+=value" of a shell; without a name if the word is neither.
struct ShellAssignment {
  std::string name, value;
  bool appends = false;
};
[[nodiscard]] ShellAssignment assignment_of(std::string_view word);

/// Follows the statements of a script line by line: conditions, loops, functions, subshells,
/// groups, arrays, here-documents, and quotes and commands that go on in the next line. Where it
/// mistakes a word for the begin of a condition, more is unsure.
class ShellStatements {
 public:
  struct Line {
    std::vector<PlacedWord> words;
    /// Variables that something else than an assignment may change, and by what: "'read'".
    std::vector<std::pair<std::string, std::string>> changed;
  };
  [[nodiscard]] Line read(std::string_view text);
  /// Whether the next line is one of a here-document.
  [[nodiscard]] bool in_document() const { return !ends_document_.empty(); }

 private:
  struct Token {
    std::string text;
    bool operates = false;  ///< ( ) ; & | < > and their combinations
    bool quoted = false;    ///< in any part
    bool glued = false;     ///< to the token before
  };
  enum class Block { condition, group, function, subshell, array };
  struct Open {
    Block block = Block::group;
    bool chained = false;  ///< behind && or ||
  };

  std::vector<Token> tokens_of(std::string_view text);
  void take_operator(const std::vector<Token>& tokens, std::size_t at, Line& line);
  /// A word where a command begins; false if the language has no such word.
  bool take_keyword(const std::string& word);
  void take_word(const Token& token, Line& line);
  /// An argument of a command that changes variables.
  void take_argument(const std::string& word, Line& line) const;
  void begin_command();
  void end_statement();
  void close(Block block, Block or_block);
  [[nodiscard]] bool is_in(Block block) const;
  [[nodiscard]] std::string place(bool assigns) const;

  std::vector<Open> open_;
  std::string ends_document_;  ///< the line that ends a here-document; empty outside
  char quote_ = 0;             ///< that goes on in the next line
  bool begins_ = true;         ///< a command begins with the next word
  bool chained_ = false;       ///< the command is behind && or ||
  bool alternative_ = false;   ///< it is behind || or a test
  bool tests_ = false;         ///< a command of the statement is [, [[ or test
  bool declares_ = false;      ///< the command is export, declare and the like
  bool names_function_ = false, awaits_body_ = false;
  bool assigns_ = false;     ///< the last word was an assignment
  std::size_t pending_ = 0;  ///< assignments of the command so far, before its first other word
  std::string command_;
};

}  // namespace parsim::experiment
