#include "experiment/trainer_shell.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

namespace {

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
  ShellWord value = found == variables.end() ? ShellWord{} : found->second;
  if (value.text.empty() && colon != std::string::npos) value.text = inside.substr(colon + 2);
  return {word.substr(0, at) + value.text + word.substr(end + (braces ? 1 : 0)), value.unsure};
}

/// Whether the line starts a training: torchrun, and what is like it.
bool launches(const std::vector<PlacedWord>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    const bool first = i == 0 || (i == 1 && words[0].text == "exec");
    if (word == "torchrun" || word.ends_with("/torchrun") || word == "torch.distributed.run" ||
        word == "torch.distributed.launch" || (first && word == "deepspeed") ||
        (first && word == "accelerate" && i + 1 < words.size() && words[i + 1].text == "launch")) {
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
  const ShellStatements::Line read = statements_.read(line);
  find_launch(line, read.words);
  for (const auto& [name, by] : read.changed) variables_[name] = {"", "from '" + by + "'"};
  std::vector<ShellWord> words;
  for (const PlacedWord& word : read.words) {
    ShellAssignment made = assignment_of(word.text);
    if (made.name.empty() || made.value.find("--") != std::string::npos) {
      if (word.role == ShellRole::environment) continue;
      for (const std::string_view one :
           split_at_blanks(made.name.empty() ? word.text : made.value)) {
        words.push_back(substituted(std::string(one), variables_));
        if (words.back().unsure.empty()) words.back().unsure = word.unsure;
      }
    } else if (word.role == ShellRole::assignment) {
      assign(made, word);
    }
  }
  return words;
}

void ShellReader::assign(const ShellAssignment& made, const PlacedWord& word) {
  ShellWord value = substituted(made.value, variables_);
  if (value.unsure.empty()) value.unsure = word.unsure;
  ShellWord& variable = variables_[made.name];
  if (made.appends) {
    value.text = variable.text + value.text;
    if (value.unsure.empty()) value.unsure = variable.unsure;
  }
  // A function may be called at any later time.
  if (word.in_function) of_functions_.insert(made.name);
  if (value.unsure.empty() && of_functions_.contains(made.name)) value.unsure = "within a function";
  variable = std::move(value);
}

void ShellReader::find_launch(std::string_view line, const std::vector<PlacedWord>& words) {
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
