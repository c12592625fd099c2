#include "experiment/trainer_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/trainer_shell.hpp"
#include "topologies/document.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::string without_quotes(std::string_view text) {
  text = trimmed(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

/// "--Tensor_x" is "tensor-x" for Megatron-LM's YAML and command line.
std::string name_of(std::string_view text) {
  std::string name(text.substr(std::min(text.find_first_not_of('-'), text.size())));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// "[1, 2]", or "a b", or one value.
std::vector<std::string> yaml_values(std::string_view text) {
  text = trimmed(text);
  std::vector<std::string> values;
  if (text.starts_with('[')) {
    text = text.substr(1, std::min(text.find(']'), text.size()) - 1);
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      if (const std::string value = without_quotes(text.substr(0, comma)); !value.empty()) {
        values.push_back(value);
      }
      text = text.substr(std::min(comma + 1, text.size()));
    }
  } else if (!text.empty()) {
    values.push_back(without_quotes(text));
  }
  return values;
}

std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || blanks.find(line[at - 1]) != std::string_view::npos) return line.substr(0, at);
  }
  return line;
}

/// "name: value" of YAML; nothing for another line.
/// YAML's words for "not given".
bool is_null(std::string_view text) {
  return text == "null" || text == "Null" || text == "NULL" || text == "~";
}

std::optional<std::pair<std::string, std::string_view>> yaml_pair(std::string_view line) {
  line = trimmed(line);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  if (colon + 1 < line.size() && blanks.find(line[colon + 1]) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string name = without_quotes(line.substr(0, colon));
  if (name.find_first_of(" \t$(){}") != std::string::npos) return std::nullopt;
  return std::pair{name_of(name), line.substr(colon + 1)};
}

void flatten(const topologies::Value& value, const std::string& name,
             std::map<std::string, TrainerWord>& words) {
  using Kind = topologies::Value::Kind;
  const auto text_of = [](const topologies::Value& one) {
    if (one.kind == Kind::integer) return std::to_string(one.integer);
    if (one.kind == Kind::boolean) return std::string(one.integer != 0 ? "true" : "false");
    return one.text;
  };
  if (value.kind == Kind::table) {
    for (std::size_t i = 0; i < value.keys.size(); ++i) {
      flatten(value.items[i], name.empty() ? value.keys[i] : name + "." + value.keys[i], words);
    }
    return;
  }
  TrainerWord word{{}, value.line};
  if (value.kind != Kind::list) word.values.push_back(text_of(value));
  for (const topologies::Value& item :
       value.kind == Kind::list ? value.items : std::vector<topologies::Value>{}) {
    std::string text = text_of(item);
    // A list in a list: its items, with commas.
    for (const topologies::Value& inner : item.items) {
      text += (text.empty() ? "" : ",") + text_of(inner);
    }
    word.values.push_back(std::move(text));
  }
  words[name] = std::move(word);
}

/// "|", ">-": of YAML, a text of several lines follows.
bool is_block_text(std::string_view value) {
  value = trimmed(value);
  return (value.starts_with('|') || value.starts_with('>')) &&
         value.find_first_not_of("|>+-0123456789") == std::string_view::npos;
}

}  // namespace

const TrainerWord* TrainerWords::find(std::string_view name) const {
  asked_.emplace(name);
  const auto found = words_.find(std::string(name));
  return found == words_.end() ? nullptr : &found->second;
}

void TrainerWords::check_spelling() const {
  constexpr std::size_t shortest = 8, most_letters = 2;
  const auto is_slip_of = [](std::string_view name, std::string_view meant) {
    const auto begins = std::mismatch(name.begin(), name.end(), meant.begin(), meant.end());
    if (begins.first == name.begin()) return false;  // decoder-num-layers, encoder-num-layers
    name.remove_prefix(static_cast<std::size_t>(begins.first - name.begin()));
    meant.remove_prefix(static_cast<std::size_t>(begins.second - meant.begin()));
    const auto ends = std::mismatch(name.rbegin(), name.rend(), meant.rbegin(), meant.rend());
    name.remove_suffix(static_cast<std::size_t>(ends.first - name.rbegin()));
    meant.remove_suffix(static_cast<std::size_t>(ends.second - meant.rbegin()));
    const bool numbers = name.find_first_of("0123456789") != name.npos;  // fp4-recipe, fp8-recipe
    return !numbers && name.size() <= most_letters && meant.size() <= most_letters;
  };
  for (const auto& [name, word] : words_) {
    if (name.size() < shortest || asked_.contains(name)) continue;
    for (const std::string& meant : asked_) {
      if (!is_slip_of(name, meant)) continue;
      throw InputError(where(name), "unknown", fmt::format("accepted: '{}'", meant));
    }
  }
}

std::vector<std::string> TrainerWords::names_below(std::string_view prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, word] : words_) {
    if (!name.starts_with(prefix)) continue;
    asked_.insert(name);
    names.push_back(name);
  }
  return names;
}

const TrainerWord* TrainerWords::find_sure(std::string_view name) const {
  const TrainerWord* word = find(name);
  if (word == nullptr || word->unsure.empty()) return word;
  throw InputError(where(name), word->unsure + ", which parsim does not follow",
                   "accepted: a script with the arguments of one launch, or that launch as it is "
                   "printed by 'bash -x'");
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool TrainerWords::has(std::string_view name) const { return find_sure(name) != nullptr; }

bool TrainerWords::is_on(std::string_view name) const {
  const TrainerWord* word = find_sure(name);
  if (word == nullptr) return false;
  if (word->values.empty()) return true;
  const std::string value = lower_case(word->values.front());
  constexpr std::string_view off[] = {"false", "0", "no", "n", "off", "null", "none", "~"};
  return std::find(std::begin(off), std::end(off), value) == std::end(off);
}

std::optional<std::string> TrainerWords::text(std::string_view name) const {
  const TrainerWord* word = find_sure(name);
  if (word == nullptr) return std::nullopt;
  if (word->values.empty()) throw InputError(where(name), "no value", "accepted: a value");
  return word->values.front();
}

std::optional<std::int64_t> TrainerWords::integer(std::string_view name, std::int64_t least) const {
  const std::optional<std::string> found = text(name);
  if (!found) return std::nullopt;
  const auto number = to_number<std::int64_t>(*found);
  constexpr std::int64_t most = 1'000'000'000;
  if (!number || *number < least || *number > most) {
    throw InputError(where(name), fmt::format("'{}'", *found),
                     fmt::format("accepted: a whole number of {} or more", least));
  }
  return number;
}

std::vector<std::int64_t> TrainerWords::integers(std::string_view name) const {
  std::vector<std::int64_t> numbers;
  for (const std::string& found : texts(name)) {
    const auto number = to_number<std::int64_t>(found);
    if (!number || *number < 0) {
      throw InputError(where(name), fmt::format("'{}'", found), "accepted: whole numbers");
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> TrainerWords::texts(std::string_view name) const {
  const TrainerWord* word = find_sure(name);
  return word == nullptr ? std::vector<std::string>{} : word->values;
}

std::string TrainerWords::where(std::string_view name) const {
  const TrainerWord* word = find(name);
  if (word == nullptr) return fmt::format("{}:{}", file_, name);
  return fmt::format("{}:{}:{}", word->file.empty() ? file_ : word->file, word->line, name);
}

void TrainerWords::rename(const std::string& old, const std::string& now) {
  if (words_.contains(now) || !names_below(now + ".").empty()) return;
  std::vector<std::string> names = names_below(old + ".");
  if (words_.contains(old)) names.push_back(old);
  for (const std::string& name : names) {
    auto word = words_.extract(name);
    word.key() = now + name.substr(old.size());
    words_.insert(std::move(word));
  }
}

void TrainerWords::add(const TrainerWords& later) {
  for (const auto& [name, word] : later.words_) {
    TrainerWord& added = words_[name] = word;
    if (added.file.empty()) added.file = later.file_;
  }
  // The hosts and the messages are those of the file that decides.
  if (!later.words_.contains("defaults")) file_ = later.file_;
}

void TrainerWords::refuse(std::string_view name, const std::string& accepted) const {
  const TrainerWord* word = find(name);
  const bool empty = word == nullptr || word->values.empty();
  throw InputError(where(name),
                   empty ? std::string("a setting that parsim does not know")
                         : fmt::format("'{}'", fmt::join(word->values, " ")),
                   "accepted: " + accepted);
}

TrainerWords read_words(std::string_view text, const std::string& file) {
  std::map<std::string, TrainerWord> words;
  ShellReader shell;
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::string>> values;
  std::set<std::string> unassigned;
  const std::string_view whole = text;
  bool more = false;  // arguments that the text may not have
  std::string last;   // of which values may follow in later lines
  std::string table;  // the pair before, if it has no value
  // A table's name, or one without a value, which is null.
  const auto drop_table = [&] {
    if (!table.empty() && words[table].values.empty()) words.erase(table);
    table.clear();
  };
  std::optional<std::size_t> text_of;  // indent of the YAML name whose text deeper lines are
  std::int64_t number = 0;
  if (text.find('\0') != std::string_view::npos) {
    throw InputError(file, "a zero byte", "accepted: text in UTF-8");
  }
  text = without_byte_order_mark(text);
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text = text.substr(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool goes_on = line.size() > 1 && line.ends_with('\\') && !text.empty() &&
                         blanks.find(line[line.size() - 2]) == std::string_view::npos &&
                         blanks.find(text.front()) == std::string_view::npos;
    if (goes_on && text.front() != '\n' && without_comment(line) == line) {
      throw InputError(fmt::format("{}:{}", file, number), "a word that goes on in the next line",
                       "accepted: a blank before the backslash, or at the beginning of that line");
    }
    const std::size_t begins = line.find_first_not_of(blanks);
    if (text_of && (begins == std::string_view::npos || begins > *text_of)) continue;
    text_of.reset();
    const bool in_document = shell.in_document();
    if (const auto pair = yaml_pair(without_comment(line)); pair && !in_document) {
      last = pair->first;
      drop_table();
      if (trimmed(pair->second).starts_with('{')) {
        throw InputError(fmt::format("{}:{}:{}", file, number, last), "a table in one line",
                         "accepted: a line for each setting");
      }
      words[last] = {yaml_values(pair->second), number};
      table = words[last].values.empty() ? last : "";
      if (is_null(trimmed(pair->second))) words.erase(last);
      if (is_block_text(pair->second)) text_of = begins;
      continue;
    }
    const std::string_view content = trimmed(without_comment(line));
    if (content.starts_with("- ") && !last.empty() && !in_document) {  // an item of a list
      for (std::string& value : yaml_values(content.substr(2))) {
        words[last].values.push_back(std::move(value));
      }
      continue;
    }
    for (const auto& [word, unsure] : shell.read(line)) {
      const std::size_t equals = word.find('=');
      const std::string name = name_of(word.substr(0, equals));
      if (word.starts_with("--") && !name.empty()) {
        last = name;
        words[last] = {{}, number, unsure};
        if (equals != std::string::npos) words[last].values.push_back(word.substr(equals + 1));
        shell.give(last, number);
      } else if (!last.empty()) {
        words[last].values.push_back(word);
        if (words[last].unsure.empty()) words[last].unsure = unsure;
      }
      if (!last.empty()) values[{last, words[last].line}] = words[last].values;
      if (names_unknown_arguments(word, whole)) unassigned.insert(word);
      const bool second = !last.empty() && words[last].values.size() > 1;
      more |= word == "$@" || word == "$*" || (second && word.starts_with('$'));
    }
    if (!line.ends_with('\\')) last.clear();
  }
  drop_table();
  shell.mark(words, values);
  if (!unassigned.empty()) words["$"] = {{unassigned.begin(), unassigned.end()}, 0};
  if (more) words["$more"] = {{}, 0};
  return {file, std::move(words)};
}

TrainerWords read_tables(std::string_view text, const std::string& file) {
  std::map<std::string, TrainerWord> words;
  flatten(topologies::parse_document(text, file), "", words);
  return {file, std::move(words)};
}

}  // namespace parsim::experiment
