#include "experiment/shell_statements.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace parsim::experiment {

namespace {

constexpr std::string_view operators = "();&|<>";
constexpr std::string_view name_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// From an opening bracket at `at` to the end behind the closing one; 0 if the line has none.
std::size_t end_of_brackets(std::string_view text, std::size_t at, char opens, char closes) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == opens) ++depth;
    if (text[at] == closes && --depth == 0) return at + 1;
  }
  return 0;
}

/// "$(…)", "$((…))", "${…}", "`…`", "<(…)", ">(…)": where it ends; 0 if none begins here.
std::size_t end_of_substitution(std::string_view text, std::size_t at) {
  const char next = at + 1 < text.size() ? text[at + 1] : '\0';
  if (text[at] == '`') {
    const std::size_t end = text.find('`', at + 1);
    return end == std::string_view::npos ? 0 : end + 1;
  }
  const bool dollar = text[at] == '$', file = text[at] == '<' || text[at] == '>';
  if (dollar && next == '{') return end_of_brackets(text, at + 1, '{', '}');
  if ((dollar || file) && next == '(') return end_of_brackets(text, at + 1, '(', ')');
  return 0;
}

/// Names in an arithmetic expression, if it assigns: "TP = TP * 2", "TP++".
std::vector<std::string> assigned_in(std::string_view expression) {
  bool assigns = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char before = i > 0 ? expression[i - 1] : ' ';
    const char after = i + 1 < expression.size() ? expression[i + 1] : ' ';
    const bool compares =
        after == '=' || before == '=' || before == '!' ||
        ((before == '<' || before == '>') && (i < 2 || expression[i - 2] != before));
    assigns = assigns || (expression[i] == '=' && !compares) ||
              ((expression[i] == '+' || expression[i] == '-') && after == expression[i]);
  }
  std::vector<std::string> names;
  if (!assigns) return names;
  std::string name;
  for (const char c : expression) {
    if (name_letters.find(c) != std::string_view::npos) {
      name += c;
    } else if (!name.empty()) {
      names.push_back(std::exchange(name, {}));
    }
  }
  if (!name.empty()) names.push_back(name);
  return names;
}

}  // namespace

ShellAssignment assignment_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return {};
  const bool appends = word[equals - 1] == '+';
  const std::string_view name = word.substr(0, equals - (appends ? 1 : 0));
  if (name.empty() || name.find_first_not_of(name_letters) != std::string_view::npos) return {};
  return {std::string(name), std::string(word.substr(equals + 1)), appends};
}

std::vector<ShellStatements::Token> ShellStatements::tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  Token word;
  bool inside = quote_ != 0, blank = true;
  word.quoted = inside;
  const auto end_word = [&] {
    if (inside) tokens.push_back(std::exchange(word, {}));
    inside = false;
  };
  const auto begin_word = [&] {
    if (!inside) word.glued = !blank;
    inside = true;
    blank = false;
  };
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (quote_ != '\'') {
      if (const std::size_t end = end_of_substitution(text, i);
          end > 0 && (quote_ == 0 || (c != '<' && c != '>'))) {
        begin_word();
        word.text += text.substr(i, end - i);
        i = end;
        continue;
      }
      if (c == '\\' && (next == '"' || next == '\'' || next == '\\' || next == '$')) {
        begin_word();
        word.text += next;
        i += 2;
        continue;
      }
    }
    if (quote_ != 0) {
      if (c == quote_) {
        quote_ = 0;
      } else if (c != '\\' || next != '\0') {
        word.text += c;
      }
      ++i;
    } else if (c == '"' || c == '\'') {
      begin_word();
      word.quoted = true;
      quote_ = c;
      ++i;
    } else if (c == '#' && !inside) {
      break;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\\') {
      end_word();
      blank = true;
      ++i;
    } else if (operators.find(c) != std::string_view::npos) {
      end_word();
      Token token{std::string(1, c), true, false, !blank};
      const std::size_t arithmetic = c == '(' && next == '(' ? text.find("))", i) : text.npos;
      if (arithmetic != text.npos) {
        token.text = text.substr(i, arithmetic + 2 - i);
      } else if (c != '(' && c != ')') {
        while (i + token.text.size() < text.size() &&
               std::string_view(";&|<>").find(text[i + token.text.size()]) != text.npos) {
          token.text += text[i + token.text.size()];
        }
      }
      i += token.text.size();
      blank = false;
      tokens.push_back(std::move(token));
    } else {
      begin_word();
      word.text += c;
      ++i;
    }
  }
  end_word();
  return tokens;
}

bool ShellStatements::is_in(Block block) const {
  return std::any_of(open_.begin(), open_.end(),
                     [&](const Open& open) { return open.block == block; });
}

std::string ShellStatements::place(bool assigns) const {
  const std::string condition = "within a condition or loop";
  for (const Open& open : open_) {
    if (open.block == Block::function) return "within a function";
    if (open.block == Block::subshell) return "within a subshell";
    if (open.block == Block::condition || open.chained) return condition;
  }
  return alternative_ || (assigns && chained_) ? condition : "";
}

void ShellStatements::begin_command() {
  begins_ = true;
  declares_ = false;
  pending_ = 0;
  command_.clear();
}

void ShellStatements::end_statement() {
  begin_command();
  chained_ = alternative_ = tests_ = false;
}

void ShellStatements::close(Block block, Block or_block) {
  if (!open_.empty() && (open_.back().block == block || open_.back().block == or_block)) {
    open_.pop_back();
  }
}

void ShellStatements::take_operator(const std::vector<Token>& tokens, std::size_t at, Line& line) {
  const std::string& text = tokens[at].text;
  const bool empty =
      at + 1 < tokens.size() && tokens[at + 1].operates && tokens[at + 1].text == ")";
  if (text.starts_with("((")) {
    for (std::string& name : assigned_in(text)) line.changed.emplace_back(std::move(name), "((…))");
    begins_ = false;
  } else if (text == "(") {
    if (assigns_ && tokens[at].glued) {
      open_.push_back({Block::array, chained_});
    } else if (empty && !is_in(Block::array)) {
      awaits_body_ = true;  // "name()"
    } else if (begins_) {
      open_.push_back({awaits_body_ ? Block::function : Block::subshell, chained_});
      awaits_body_ = false;
    }
  } else if (text == ")") {
    // Behind a pattern of "case", too, a command begins.
    if (!awaits_body_) close(Block::subshell, Block::array);
    begins_ = true;
  } else if (text == "&&" || text == "||") {
    begin_command();
    chained_ = true;
    alternative_ = alternative_ || tests_ || text == "||";
  } else if (text.starts_with('|')) {
    begin_command();
  } else if (text.starts_with(';') || text == "&") {
    end_statement();
  } else if (text.starts_with("<<") && !text.starts_with("<<<")) {
    for (std::size_t next = at + 1; next < tokens.size() && ends_document_.empty(); ++next) {
      const std::string& word = tokens[next].text;
      ends_document_ = word.substr(word.starts_with('-') ? 1 : 0);
    }
  }
  assigns_ = false;
}

bool ShellStatements::take_keyword(const std::string& word) {
  using Words = std::array<std::string_view, 6>;
  if (is_one_of(word, Words{"if", "while", "until", "for", "case", "select"})) {
    open_.push_back({Block::condition, false});
    begins_ = word == "if" || word == "while" || word == "until";
    command_ = word;
  } else if (is_one_of(word, Words{"fi", "done", "esac"})) {
    close(Block::condition, Block::condition);
    begins_ = false;
  } else if (word == "{") {
    open_.push_back({awaits_body_ ? Block::function : Block::group, chained_});
    awaits_body_ = false;
  } else if (word == "}") {
    close(Block::group, Block::function);
    begins_ = false;
  } else if (word == "function") {
    names_function_ = true;
  } else {
    return is_one_of(word, Words{"then", "do", "else", "elif", "!", "time"});
  }
  return true;
}

void ShellStatements::take_argument(const std::string& word, Line& line) const {
  using Words = std::array<std::string_view, 8>;
  const bool named = word.find_first_not_of(name_letters) == std::string::npos;
  if (command_ == "let") {
    for (std::string& name : assigned_in(word))
      line.changed.emplace_back(std::move(name), command_);
  } else if (named && is_one_of(command_, Words{"read", "mapfile", "readarray", "printf", "unset",
                                                "getopts", "for", "select"})) {
    line.changed.emplace_back(word, command_);
  }
}

void ShellStatements::take_word(const Token& token, Line& line) {
  PlacedWord placed{token.text, ShellRole::plain, {}, is_in(Block::function)};
  const bool in_array = !open_.empty() && open_.back().block == Block::array;
  assigns_ = false;
  if (in_array) {
    placed.unsure = place(true);
  } else if (names_function_) {
    names_function_ = false;
    awaits_body_ = begins_ = true;
  } else if (begins_ && !token.quoted && take_keyword(token.text)) {
    placed.unsure = place(false);
  } else if ((begins_ || declares_) && !assignment_of(token.text).name.empty()) {
    assigns_ = true;
    if (!declares_) ++pending_;
    placed.role = ShellRole::assignment;
    placed.unsure = place(true);
  } else {
    using Words = std::array<std::string_view, 5>;
    if (begins_) {
      // What was assigned before it in this command is its environment.
      for (auto word = line.words.rbegin();
           word != line.words.rend() && word->role == ShellRole::assignment && pending_ > 0;
           ++word, --pending_) {
        word->role = ShellRole::environment;
      }
      command_ = token.text;
      declares_ = is_one_of(command_, Words{"export", "declare", "local", "readonly", "typeset"});
      tests_ = tests_ || command_ == "[" || command_ == "[[" || command_ == "test";
      begins_ = false;
    } else {
      take_argument(token.text, line);
    }
    placed.unsure = place(false);
  }
  line.words.push_back(std::move(placed));
}

ShellStatements::Line ShellStatements::read(std::string_view text) {
  Line line;
  if (in_document()) {
    const char outside = std::exchange(quote_, '\0');
    for (const Token& token : tokens_of(text)) {
      if (!token.operates)
        line.words.push_back({token.text, ShellRole::plain, "within a here-document"});
    }
    quote_ = outside;
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (text == ends_document_) ends_document_.clear();
    return line;
  }
  const bool quoted = quote_ != 0;
  const std::vector<Token> tokens = tokens_of(text);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0 && quoted) {  // of the quotes that began in a line before
      line.words.push_back({tokens[0].text, ShellRole::plain, place(assigns_)});
    } else if (tokens[i].operates) {
      take_operator(tokens, i, line);
    } else {
      take_word(tokens[i], line);
    }
  }
  const bool operates = !tokens.empty() && tokens.back().operates;
  const bool chains =
      operates && (tokens.back().text == "&&" || tokens.back().text.starts_with('|'));
  const bool goes_on = text.ends_with('\\');
  if (goes_on && quote_ == 0 && assigns_ && !declares_ && !is_in(Block::array)) {
    for (PlacedWord& word : line.words) {
      if (word.role == ShellRole::assignment && word.unsure.empty()) {
        word.unsure = "in a command that goes on in the next line";
      }
    }
  }
  if (quote_ == 0 && !goes_on && !chains && !is_in(Block::array)) end_statement();
  return line;
}

}  // namespace parsim::experiment
