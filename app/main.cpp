// The program: runs a verb, prints its report, and turns every failure into a message and an exit
// code. The only place that catches.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "app/cli.hpp"
#include "app/interrupt.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "report/document.hpp"

namespace {

using parsim::ExitCode;

void complain(std::string_view kind, std::string_view message) {
  std::string text;
  // SimGrid's messages may have several lines, but nothing else that a terminal would obey.
  for (const char c : message)
    text += c == '\n' ? std::string("\n") : parsim::report::printable({&c, 1});
  // There is no other place to say that this cannot be written; the exit code stays.
  static_cast<void>(parsim::write_text(stderr, fmt::format("parsim: {}{}\n", kind, text)));
}

int fail(int exit_code, std::string_view kind, std::string_view message) {
  complain(kind, message);
  return exit_code;
}

/// Allocates nothing.
int lack_memory() noexcept {
  constexpr std::string_view message =
      "parsim: out of memory; try fewer devices or a smaller network\n";
  static_cast<void>(parsim::write_text(stderr, message));
  return ExitCode::unfinished;
}

int run(const std::vector<std::string>& words) {
  const parsim::app::CommandLine command = parsim::app::parse_command_line(words);
  if (command.verb == nullptr) {
    parsim::print_text(stdout, command.text);
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
    for (const std::string& warning : outcome.document.warnings) {
      complain("warning: ", parsim::report::printable(warning));
    }
  }
  const parsim::report::Format& form = outcome.format == nullptr ? format : *outcome.format;
  parsim::print_text(stream, form.render(outcome.document, terminal));
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  parsim::protect_standard_streams();
  std::set_terminate([] {
    if (parsim::ended_by_lack_of_memory()) ::_exit(lack_memory());
    std::abort();
  });
  try {
    return run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const parsim::InputError& error) {
    // One line: what a file or an option says could pass for a message of its own.
    return fail(ExitCode::usage, "", parsim::report::printable(error.what()));
  } catch (const parsim::SimulationError& error) {
    return fail(ExitCode::unfinished, "simulation did not finish: ", error.what());
  } catch (const std::bad_alloc&) {
    return lack_memory();
  } catch (const std::system_error& error) {
    return fail(ExitCode::unfinished, "the system refused: ", error.what());
  } catch (const std::exception& error) {
    return fail(ExitCode::bug, "bug: ", error.what());
  }
}
