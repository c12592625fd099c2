#include "experiment/trainer_shell.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view separators = " \t\r\\();&|<>";

/// The words of a line of a script: between blanks, quotes keep them together; none after a #.
std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      inside = true;
    } else if (c == '#' && !inside) {
      break;
    } else if (separators.find(c) != std::string_view::npos) {
      if (inside) words.push_back(std::exchange(word, {}));
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (inside) words.push_back(word);
  return words;
}

struct Assignment {
  std::string name, value;
  bool appends = false;
};
/// "NAME=value" or "NAME+=value" of a shell, or nothing.
std::optional<Assignment> assignment(const std::string& word) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const bool appends = word[equals - 1] == '+';
  const std::string name = word.substr(0, equals - (appends ? 1 : 0));
  if (name.find_first_not_of(letters) != std::string::npos) return std::nullopt;
  return Assignment{name, word.substr(equals + 1), appends};
}

/// How many assignments stand before a command in its line ("TP=4 torchrun …"): its environment
/// alone, which the shell does not look at for the words of that line.
std::size_t assignments_of_command(std::string_view line) {
  std::size_t count = 0, at = 0;
  while ((at = line.find_first_not_of(" \t", at)) < line.size()) {
    const std::size_t begin = at;
    char quote = 0;
    for (; at < line.size(); ++at) {
      if (quote != 0) {
        if (line[at] == quote) quote = 0;
      } else if (line[at] == '"' || line[at] == '\'') {
        quote = line[at];
      } else if (separators.find(line[at]) != std::string_view::npos) {
        break;
      }
    }
    if (at == begin || line[begin] == '#') return 0;
    if (!assignment(std::string(line.substr(begin, at - begin)))) return count;
    if (at < line.size() && line[at] != ' ' && line[at] != '\t') return 0;
    ++count;
  }
  return 0;
}

/// Variables that a builtin of the shell sets to what is not in the script.
std::vector<std::string> variables_read(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  std::vector<std::string> names;
  if (words[0] == "read" || words[0] == "mapfile" || words[0] == "readarray") {
    for (std::size_t w = 1; w < words.size(); ++w) {
      if (!words[w].starts_with('-')) names.push_back(words[w]);
    }
  } else if (words.size() > 2 && words[0] == "printf" && words[1] == "-v") {
    names.push_back(words[2]);
  }
  return names;
}

/// "$NAME", "${NAME}" and "${NAME:-default}" replaced by what was assigned to NAME, or the default.
ShellWord substituted(const std::string& word, const std::map<std::string, ShellWord>& variables) {
  const std::size_t at = word.find('$');
  if (at == std::string::npos) return {word, ""};
  const bool braces = word.compare(at, 2, "${") == 0;
  const std::size_t begin = at + (braces ? 2 : 1);
  const std::size_t end =
      braces ? word.find('}', begin) : std::min(word.find_first_of("/.,:$\"'", begin), word.size());
  if (end == std::string::npos) return {word, ""};
  const std::string inside = word.substr(begin, end - begin);
  const std::size_t colon = inside.find(":-");
  const auto found = variables.find(inside.substr(0, colon));
  if (found == variables.end() && colon == std::string::npos) return {word, ""};
  const ShellWord value =
      found == variables.end() ? ShellWord{inside.substr(colon + 2), ""} : found->second;
  return {word.substr(0, at) + value.text + word.substr(end + (braces ? 1 : 0)), value.unsure};
}

/// Whether the line starts a training: torchrun, and what is like it.
bool launches(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool first = i == 0 || (i == 1 && words[0] == "exec");
    if (word == "torchrun" || word.ends_with("/torchrun") || word == "torch.distributed.run" ||
        word == "torch.distributed.launch" || (first && word == "deepspeed") ||
        (first && word == "accelerate" && i + 1 < words.size() && words[i + 1] == "launch")) {
      return true;
    }
  }
  return false;
}

}  // namespace

/// "$MODEL_ARGS", "${MODEL_ARGS[@]}": arguments, if nothing in the text assigns them.
bool names_unknown_arguments(const std::string& word, std::string_view text) {
  if (!word.starts_with('$')) return false;
  const std::size_t begin = word.find_first_not_of("${");
  if (begin == std::string::npos) return false;
  const std::string name = word.substr(begin, word.find_first_of("}[", begin) - begin);
  return name.find("ARG") != std::string::npos && text.find(name + "=") == std::string_view::npos;
}

std::vector<ShellWord> ShellReader::read(std::string_view line) {
  const std::vector<std::string> plain = shell_words(line);
  find_place(line, plain);
  find_launch(line, plain);
  for (const std::string& name : variables_read(plain)) {
    variables_[name] = {"", "from '" + plain[0] + "'"};
  }
  std::size_t of_command = assignments_of_command(line);
  std::vector<ShellWord> words;
  for (std::string text : plain) {
    if (auto made = assignment(text)) {
      if (of_command > 0) {
        --of_command;
        continue;
      }
      if (made->value.find("--") == std::string::npos) {
        ShellWord value = substituted(made->value, variables_);
        if (value.unsure.empty()) value.unsure = unsure_;
        ShellWord& variable = variables_[made->name];
        if (made->appends) {
          value.text = variable.text + value.text;
          if (value.unsure.empty()) value.unsure = variable.unsure;
        }
        variable = std::move(value);
        continue;
      }
      text = std::move(made->value);
    }
    for (const std::string_view word : split_at_blanks(text)) {
      words.push_back(substituted(std::string(word), variables_));
      if (words.back().unsure.empty()) words.back().unsure = unsure_;
    }
  }
  return words;
}

std::string_view ShellReader::find_body(std::string_view line,
                                        const std::vector<std::string>& words) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const std::size_t call = line.find("()");
  // "NAME=()" is an empty array.
  const bool names = !words.empty() && call != line.npos && line.starts_with(words[0]) &&
                     words[0].find('=') == words[0].npos &&
                     line.find_first_not_of(" \t", words[0].size()) == call;
  const bool function = names || (!words.empty() && words[0] == "function");
  const bool subshell = line.starts_with('(') && !line.starts_with("((");
  const bool inside = functions_ > 0 || subshells_ > 0;
  if (functions_ > 0 || function) {
    // "${NAME}" has both; a function whose brace opens in the next line has one there.
    const auto balance =
        std::count(line.begin(), line.end(), '{') - std::count(line.begin(), line.end(), '}');
    if (function && line.find('{') == line.npos) {
      functions_ = 1;
    } else {
      const bool waits = functions_ == 1 && !function && line.starts_with('{');
      functions_ = std::max<std::int64_t>(0, functions_ + balance - (waits ? 1 : 0));
    }
    return "within a function";
  }
  if (inside || subshell) {
    subshells_ = std::max<std::int64_t>(0, subshells_ + std::count(line.begin(), line.end(), '(') -
                                               std::count(line.begin(), line.end(), ')'));
    return "within a subshell";
  }
  return {};
}

/// Conditions and loops: keywords of bash that open a compound command where a line begins, and
/// those that close one anywhere.
void ShellReader::find_place(std::string_view line, const std::vector<std::string>& words) {
  unsure_.clear();
  if (!ends_document_.empty()) {
    unsure_ = "within a here-document";
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line == ends_document_) ends_document_.clear();
    return;
  }
  // "<<" is also a shift, within (( )).
  const std::size_t at = line.find("<<");
  if (at != line.npos && line.substr(at, 3) != "<<<" && line.find("((") == line.npos) {
    const std::vector<std::string> after = shell_words(line.substr(at + 2));
    if (!after.empty()) ends_document_ = after.front().substr(after.front().starts_with('-'));
  }
  constexpr std::string_view opens[] = {"if", "for", "while", "until", "case", "select"};
  constexpr std::string_view closes[] = {"fi", "done", "esac"};
  const std::string first = words.empty() ? "" : words.front();
  const bool opened = std::find(std::begin(opens), std::end(opens), first) != std::end(opens);
  const auto closed = std::count_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(std::begin(closes), std::end(closes), word) != std::end(closes);
  });
  const bool tests = first.starts_with('[') || first == "test";
  const bool chained = line.find("&&") != line.npos || line.find("||") != line.npos;
  if (depth_ > 0 || opened || (tests && chained)) unsure_ = "within a condition or loop";
  depth_ = std::max<std::int64_t>(0, depth_ + (opened ? 1 : 0) - closed);
  if (const std::string_view body = find_body(line, words); unsure_.empty()) unsure_ = body;
}

void ShellReader::find_launch(std::string_view line, const std::vector<std::string>& words) {
  in_command_ = continues_ || launches(words);
  if (in_command_ && !continues_) ++launches_;
  continues_ = in_command_ && line.ends_with('\\');
}

void ShellReader::give(const std::string& name, std::int64_t line) {
  // What stands before a launch is for that.
  given_[name].push_back({in_command_ ? launches_ : launches_ + 1, line, in_command_});
}

void ShellReader::mark(
    std::map<std::string, TrainerWord>& words,
    const std::map<std::pair<std::string, std::int64_t>, std::vector<std::string>>& values) const {
  for (const auto& [name, all] : given_) {
    const auto found = words.find(name);
    if (found == words.end()) continue;  // a table of YAML took its place
    TrainerWord& word = found->second;
    std::set<std::int64_t> in_commands;
    bool differ = false, shared = false;
    for (const Giving& one : all) {
      if (one.in_command) in_commands.insert(one.launch);
      shared = shared || !one.in_command;
      differ = differ || (one.launch != all.back().launch &&
                          values.at({name, one.line}) != values.at({name, all.back().line}));
    }
    const bool some = !shared && std::ssize(in_commands) < launches_;
    if ((differ || some) && word.unsure.empty()) word.unsure = "not the same for all launches";
  }
}

}  // namespace parsim::experiment
