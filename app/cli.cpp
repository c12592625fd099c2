#include "app/cli.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <map>
#include <span>

#include "core/files.hpp"
#include "experiment/read_files.hpp"
#include "report/runs.hpp"

namespace parsim::app {

namespace {

constexpr std::string_view command_line = "command line";  ///< the place of messages

/// What works on one plan refuses a second strategy in its own words.
bool repeats(const Verb& verb, const experiment::Option& option) {
  const bool one_plan = verb.name == "simulate" || verb.name == "plan" || verb.name == "explain" ||
                        verb.name == "import";
  return option.rules.repeats && !(one_plan && option.flag == "--strategy");
}

/// The CLI11 side of one verb. Values are taken as plain text and read by our own functions, whose
/// messages say what is accepted.
struct VerbParser {
  const Verb* verb = nullptr;
  CLI::App* app = nullptr;
  std::vector<std::string> words;  ///< empty: not given
  std::vector<std::string> more;   ///< of a word that repeats, all of them
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::map<std::string, bool, std::less<>> flags;
};

/// CLI11 would write "..." behind every option, because all are collected as lists.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }
};

/// The first verb among the words: CLI11 takes no second one, so no other options are asked for.
std::optional<std::string_view> first_verb(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    for (const Verb& verb : verbs()) {
      if (verb.name == word) return verb.name;
    }
  }
  return std::nullopt;
}

/// True if one of the words may be meant for the option, or asks for the help, which lists all.
bool is_asked_for(const experiment::Option& option, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    if (word.starts_with("-h") || word.starts_with("--help")) return true;
    if (!word.starts_with("--")) return !option.flag.starts_with("--") && word.starts_with("-");
    const std::string_view name = word.substr(0, word.find('='));
    return name == option.flag || name == option.rules.long_name;
  });
}

/// Without words, without what the verb takes. CLI11 compares each option with all before, so only
/// those are declared that the words may be meant for.
void declare(CLI::App& program, VerbParser& parser, const std::vector<std::string>* words) {
  const Verb& verb = *parser.verb;
  parser.app = program.add_subcommand(std::string(verb.name), std::string(verb.summary));
  if (words == nullptr) return;
  parser.app->allow_extras();
  parser.app->footer(fmt::format("Example: {}", verb.example));
  parser.words.resize(verb.words.size());
  for (std::size_t i = 0; i < verb.words.size(); ++i) {
    const std::string name(verb.words[i].name), help(verb.words[i].help);
    CLI::Option* word = verb.words[i].repeats ? parser.app->add_option(name, parser.more, help)
                                              : parser.app->add_option(name, parser.words[i], help);
    word->type_name("");
  }
  parser.app->set_help_flag();
  for (const experiment::Option& option : experiment::options()) {
    if (!is_asked_for(option, *words) || !option.is_for(verb.name)) continue;
    const std::string flag(option.flag), group(to_text(option.group));
    const std::string names =
        option.rules.long_name.empty() ? flag : fmt::format("{},{}", flag, option.rules.long_name);
    const std::string help =
        option.explanation() + (repeats(verb, option) ? "; may be repeated" : "");
    const std::string placeholder = option.placeholder();
    if (placeholder.empty()) {
      parser.app->add_flag(names, parser.flags[flag], help)->type_name("")->group(group);
      continue;
    }
    // All values are collected here, so that a second one is refused in our words.
    parser.app->add_option(names, parser.values[flag], help)
        ->allow_extra_args(false)
        ->type_name(placeholder)
        ->group(group);
  }
  parser.app->set_help_flag("-h,--help", "print this help and exit")
      ->group(std::string(to_text(experiment::OptionGroup::output)));
}

[[noreturn]] void refuse_extra(const Verb& verb, const std::string& extra) {
  if (!extra.starts_with("-") || extra == "-") {
    throw InputError(verb.name, fmt::format("unexpected argument '{}'", extra),
                     fmt::format("accepted: options, see 'parsim {} --help'", verb.name));
  }
  const std::string flag = extra.substr(0, extra.find('='));
  for (const experiment::Option& option : experiment::options()) {
    if (!option.rules.old_name.empty() && option.rules.old_name == flag) {
      throw InputError(flag, "renamed", fmt::format("use {}", option.flag));
    }
  }
  for (const std::string_view word : {"--seq", "--seq-len", "--seq-length", "--sequence-length"}) {
    if (flag != word) continue;
    throw InputError(verb.name, fmt::format("unknown option '{}'", flag),
                     "accepted: the length of sequences as --dim seq_length=N");
  }
  std::vector<std::string> known, elsewhere;
  for (const experiment::Option* option : options_of(verb)) known.emplace_back(option->flag);
  for (const Verb& other : verbs()) {
    const std::span<const experiment::Option> all = experiment::options();
    if (std::any_of(all.begin(), all.end(), [&](const experiment::Option& option) {
          return (option.flag == flag || option.rules.long_name == flag) &&
                 option.is_for(other.name);
        }))
      elsewhere.emplace_back(other.name);
  }
  if (!elsewhere.empty()) {
    throw InputError(verb.name, fmt::format("option {} is not used by '{}'", flag, verb.name),
                     fmt::format("accepted: with {}", join(elsewhere)));
  }
  throw InputError(
      verb.name, fmt::format("unknown option '{}'", flag),
      fmt::format("accepted: see 'parsim {} --help'{}", verb.name, did_you_mean(flag, known)));
}

[[noreturn]] void refuse_verb(const std::string& word) {
  std::vector<std::string> known;
  for (const Verb& verb : verbs()) known.emplace_back(verb.name);
  std::string hint = did_you_mean(word, known);
  for (const Verb& verb : verbs()) {  // "networks" is what 'list' takes
    if (verb.words.empty() || !hint.empty()) continue;
    for (const std::string& choice : verb.words.front().choices) {
      if (choice == word) hint = fmt::format("; did you mean '{} {}'?", verb.name, choice);
    }
  }
  throw InputError(command_line,
                   word.starts_with("-") ? fmt::format("option '{}' before the verb", word)
                                         : fmt::format("unknown verb '{}'", word),
                   fmt::format("accepted: {}{}", join(known), hint));
}

experiment::Arguments arguments_of(const VerbParser& parser) {
  const Verb& verb = *parser.verb;
  const std::vector<std::string> extras = parser.app->remaining();
  // An unknown option explains the word behind it, so it is named first.
  const auto unknown = std::find_if(extras.begin(), extras.end(),
                                    [](const std::string& word) { return word.starts_with("-"); });
  if (!extras.empty()) refuse_extra(verb, unknown != extras.end() ? *unknown : extras.front());
  experiment::Arguments arguments{std::string(verb.name), {}, {}};
  for (std::size_t i = 0; i < verb.words.size(); ++i) {
    const std::vector<std::string> one(parser.words[i].empty() ? 0 : 1, parser.words[i]);
    const std::vector<std::string>& given = verb.words[i].repeats ? parser.more : one;
    if (given.empty()) {
      throw InputError(verb.name, fmt::format("{} is missing", verb.words[i].name),
                       fmt::format("accepted: {}", verb.words[i].help));
    }
    arguments.words.insert(arguments.words.end(), given.begin(), given.end());
  }
  const std::span<const experiment::Option> all = experiment::options();
  for (const auto& [flag, texts] : parser.values) {
    if (texts.empty()) continue;
    const auto option = std::find_if(all.begin(), all.end(), [&](const experiment::Option& one) {
      return one.flag == flag && one.is_for(verb.name);
    });
    if (texts.size() > 1 && !option->rules.repeats) {
      throw InputError(flag, fmt::format("given {} times", texts.size()), "accepted: once");
    }
    arguments.values[flag] = texts;
  }
  for (const auto& [flag, given] : parser.flags) {
    if (given) arguments.values[flag] = {""};
  }
  return arguments;
}

}  // namespace

std::vector<const experiment::Option*> options_of(const Verb& verb) {
  std::vector<const experiment::Option*> taken;
  for (const experiment::Option& option : experiment::options()) {
    if (option.is_for(verb.name)) taken.push_back(&option);
  }
  return taken;
}

std::string verbs_of(const experiment::Option& option) {
  if (option.verbs.empty()) return "every verb";
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    if (option.is_for(verb.name)) names.emplace_back(verb.name);
  }
  return join(names);
}

CommandLine parse_command_line(const std::vector<std::string>& given) {
  std::vector<std::string> words = given;
  if (!words.empty() && words.front() == "help") {  // "help compare" is "compare --help"
    words.erase(words.begin());
    words.resize(std::min<std::size_t>(words.size(), 1));
    words.emplace_back("--help");
  }
  CLI::App program("How to train a neural network on a cluster, and how long a step takes.",
                   "parsim");
  program.formatter(std::make_shared<HelpFormatter>());
  program.footer("Example: parsim compare --network resnet50 --cluster mixed-p100-v100");
  program.allow_extras();
  program.require_subcommand(0, 1);
  program.set_version_flag("--version", report::build_version());
  std::list<VerbParser> parsers;  // a list: CLI11 keeps addresses
  const std::optional<std::string_view> first = first_verb(words);
  for (const Verb& verb : verbs()) {
    if (first && *first == words.front() && *first != verb.name) continue;
    VerbParser& parser = parsers.emplace_back();
    parser.verb = &verb;
    declare(program, parser, first == verb.name ? &words : nullptr);
  }
  try {
    program.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // it wants them reversed
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> chosen = program.get_subcommands();
    if (chosen.empty() && !words.front().starts_with("-")) refuse_verb(words.front());
    return {nullptr, {}, chosen.empty() ? program.help() : chosen.front()->help("parsim")};
  } catch (const CLI::CallForVersion&) {
    return {nullptr, {}, fmt::format("parsim {}\n", report::build_version())};
  } catch (const CLI::ParseError& error) {
    throw InputError(command_line, error.what(), "accepted: see 'parsim --help'");
  }
  if (!program.remaining().empty()) refuse_verb(program.remaining().front());
  for (const VerbParser& parser : parsers) {
    if (!parser.app->parsed()) continue;
    CommandLine line{parser.verb, arguments_of(parser), {}};
    line.arguments.command = words;
    keep_inputs(line.arguments);
    return line;
  }
  throw InputError(command_line, "no verb", "accepted: see 'parsim --help'");
}

const report::Format& chosen_format(const experiment::Arguments& arguments) {
  std::vector<std::string> known;
  const std::optional<std::string> name = arguments.text("--format");
  if (name && arguments.has("--json") && *name != "json") {
    throw InputError("--json", fmt::format("given together with --format {}", *name),
                     "accepted: one of the two");
  }
  const std::string wanted = name.value_or(arguments.has("--json") ? "json" : "table");
  for (const report::Format& format : report::formats()) {
    const bool here = !format.is_drawing || arguments.verb == "show";
    if (format.name == wanted && here) return format;
    if (format.name == wanted) {
      throw InputError("--format", fmt::format("'{}' with '{}'", wanted, arguments.verb),
                       "accepted: with show");
    }
    if (here) known.emplace_back(format.name);
  }
  experiment::refuse_word(wanted, "--format", known);
}

namespace {

/// The files that options and the verb read, by who names them.
std::vector<std::pair<std::string_view, std::string>> files_read_by(
    const experiment::Arguments& arguments) {
  std::vector<std::pair<std::string_view, std::string>> inputs;
  const auto add = [&](std::string_view where, const std::string& given) {
    std::error_code unknown;
    if (std::filesystem::exists(given, unknown)) inputs.emplace_back(where, given);
    for (std::string& file : experiment::files_read_for(given)) {
      inputs.emplace_back(where, std::move(file));
    }
  };
  for (const std::string& word : arguments.words) add(arguments.verb, word);
  for (const experiment::Option& option : experiment::options()) {
    if (option.writes_file() || option.value.find("FILE") == std::string_view::npos) continue;
    const bool has_prefix = option.value.find(":]FILE") != std::string_view::npos;
    for (const std::string& text : arguments.texts(option.flag)) {
      add(option.flag, text);
      if (has_prefix) add(option.flag, text.substr(text.find(':') + 1));
    }
  }
  return inputs;
}

void refuse_same_file(bool same, std::string_view flag, const std::string& output,
                      std::string_view where) {
  if (!same) return;
  throw InputError(flag, fmt::format("'{}' is also the file of {}", output, where),
                   "accepted: another name");
}

}  // namespace

void keep_inputs(const experiment::Arguments& arguments) {
  std::vector<const experiment::Option*> writers;
  for (const experiment::Option& option : experiment::options()) {
    if (option.writes_file() && arguments.has(option.flag)) writers.push_back(&option);
  }
  if (writers.empty()) return;  // and nothing more is read
  const auto inputs = files_read_by(arguments);
  std::vector<std::pair<std::string_view, std::string>> outputs;
  for (const experiment::Option* option : writers) {
    const std::string output = *arguments.text(option->flag);
    for (const auto& [where, input] : inputs) {
      refuse_same_file(same_file(input, output), option->flag, output, where);
    }
    // Two on standard output are refused by name, and an empty name is by who opens it.
    if (output.empty() || output == standard_output) continue;
    for (const auto& [where, other] : outputs) {
      refuse_same_file(same_file(other, output), option->flag, output, where);
    }
    const bool launch = option->flag == "-o" && arguments.has("--launch");
    outputs.emplace_back(option->flag, launch ? output + "/plan.json" : output);
  }
}

void keep_inputs(const experiment::Arguments& arguments, std::span<const FileContent> written) {
  const auto name_of = [](const std::string& path) {
    std::error_code unknown;
    return std::filesystem::weakly_canonical(path, unknown).string();
  };
  std::map<std::string, std::string> taken;  // by file, who reads or writes it
  for (const auto& [where, input] : files_read_by(arguments)) taken.emplace(name_of(input), where);
  for (const FileContent& one : written) {
    const std::string& path = one.file.path();
    std::error_code unknown;
    if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown))
      continue;  // written in place: a device, a pipe
    const auto [found, is_new] = taken.emplace(name_of(path), one.file.where());
    refuse_same_file(!is_new, one.file.where(), path, found->second);
  }
}

bool writes_to_standard_output(const experiment::Arguments& arguments) {
  std::string_view before;
  for (const experiment::Option& option : experiment::options()) {
    if (!option.writes_file() || arguments.text(option.flag) != standard_output) continue;
    if (!before.empty()) {
      throw InputError(option.flag, fmt::format("'-' is standard output, as with {}", before),
                       "accepted: the name of a file for one of them");
    }
    before = option.flag;
  }
  return !before.empty();
}

bool use_color(const experiment::Arguments& arguments, bool is_terminal) {
  enum class When : std::uint8_t { automatic, always, never };
  constexpr std::pair<std::string_view, When> words[] = {
      {"auto", When::automatic}, {"always", When::always}, {"never", When::never}};
  const When when =
      experiment::parse_word(arguments.text("--color").value_or("auto"), "--color", words);
  if (when != When::automatic) return when == When::always;
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return is_terminal && (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

report::Terminal terminal_of(const experiment::Arguments& arguments, std::FILE* stream) {
  report::Terminal terminal;
  const bool is_terminal = ::isatty(::fileno(stream)) == 1;
  terminal.color = use_color(arguments, is_terminal);
  winsize size{};
  const char* const columns = std::getenv("COLUMNS");
  terminal.wraps = is_terminal;
  if (is_terminal && ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  } else if (columns != nullptr) {
    terminal.columns = to_number<std::uint16_t>(columns).value_or(terminal.columns);
  }
  return terminal;
}

}  // namespace parsim::app
