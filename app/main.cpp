// The program: runs a verb, prints its report, and turns every failure into a message and an exit
// code. The only place that catches.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "app/cli.hpp"
#include "app/interrupt.hpp"
#include "core/errors.hpp"
#include "report/document.hpp"

namespace {

using parsim::ExitCode;

void complain(std::string_view kind, std::string_view message) {
  std::string text;
  // A message may have several lines, but nothing else that a terminal would obey.
  for (const char c : message)
    text += c == '\n' ? std::string("\n") : parsim::report::printable({&c, 1});
  fmt::print(stderr, "parsim: {}{}\n", kind, text);
}

int fail(int exit_code, std::string_view kind, std::string_view message) {
  complain(kind, message);
  return exit_code;
}

/// Throws InputError if the report cannot be written, for instance to a full disk.
void print(const std::string& text, std::FILE* stream = stdout) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (std::fflush(stream) != 0 || !written) {
    throw parsim::InputError("standard output", "cannot be written",
                             "accepted: a disk with free space");
  }
}

int run(const std::vector<std::string>& words) {
  const parsim::app::CommandLine command = parsim::app::parse_command_line(words);
  if (command.verb == nullptr) {
    print(command.text);
    return ExitCode::ok;
  }
  // Both are read before the work starts: a typo must not cost a long simulation.
  const parsim::report::Format& format = parsim::app::chosen_format(command.arguments);
  // Where a file goes to standard output, the report makes room.
  std::FILE* const stream =
      parsim::app::writes_to_standard_output(command.arguments) ? stderr : stdout;
  const parsim::report::Terminal terminal = parsim::app::terminal_of(command.arguments, stream);
  parsim::app::print_when_interrupted(format, terminal, stream);
  const parsim::app::Outcome outcome = command.verb->run(command.arguments);
  if (!command.arguments.has("--quiet")) {
    for (const std::string& warning : outcome.document.warnings) complain("warning: ", warning);
  }
  const parsim::report::Format& form = outcome.format == nullptr ? format : *outcome.format;
  print(form.render(outcome.document, terminal), stream);
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const parsim::InputError& error) {
    return fail(ExitCode::usage, "", error.what());
  } catch (const parsim::SimulationError& error) {
    return fail(ExitCode::unfinished, "simulation did not finish: ", error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::unfinished, "", "out of memory; try fewer devices or a smaller network");
  } catch (const std::exception& error) {
    return fail(ExitCode::bug, "bug: ", error.what());
  }
}
