// From argv to a verb's arguments, with a message for every mistake.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "app/verbs.hpp"
#include "core/files.hpp"
#include "experiment/options.hpp"

namespace parsim::app {

/// What the command line asks for: a verb to run, or a text (help, version) to print.
struct CommandLine {
  const Verb* verb = nullptr;
  experiment::Arguments arguments;
  std::string text;  ///< to print if there is no verb
};

/// Throws InputError for an unknown verb or option (with a "did you mean"), a missing or surplus
/// argument, an option given twice. Everything that CLI11 itself refuses is turned into one.
[[nodiscard]] CommandLine parse_command_line(const std::vector<std::string>& words);

/// The options that the verb takes, in the order of the table.
[[nodiscard]] std::vector<const experiment::Option*> options_of(const Verb& verb);

/// "compare, simulate", or "every verb".
[[nodiscard]] std::string verbs_of(const experiment::Option& option);

/// The report's form: --format, --json, table. Throws InputError if they contradict each other.
[[nodiscard]] const report::Format& chosen_format(const experiment::Arguments& arguments);

/// Throws InputError if a file to write is one that an option or the verb reads, were it only
/// because another file names it, or that another option writes.
void keep_inputs(const experiment::Arguments& arguments);
/// The same of files in folders, whose names the verb chooses.
void keep_inputs(const experiment::Arguments& arguments, std::span<const FileContent> written);

/// True if one of the files to write is "-", standard output, which then holds nothing else. Throws
/// InputError if two are.
[[nodiscard]] bool writes_to_standard_output(const experiment::Arguments& arguments);

/// Whether to colour: --color; if that is auto, `is_terminal` and neither NO_COLOR nor TERM=dumb.
/// Source of NO_COLOR: no-color.org.
[[nodiscard]] bool use_color(const experiment::Arguments& arguments, bool is_terminal);

/// What `stream` shows: colours as asked for, and the columns of the terminal that it is; else
/// those of COLUMNS; else 80.
[[nodiscard]] report::Terminal terminal_of(const experiment::Arguments& arguments,
                                           std::FILE* stream);

}  // namespace parsim::app
