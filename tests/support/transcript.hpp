// Files that hold a command line, its exit code and what it prints, checked against the program.
#pragma once

#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::testing {

/// A file of the form
///
///     $ compare --network lenet5 …
///     exit 0
///     everything printed
struct Transcript {
  std::string path, command;
  int exit_code = 0;
  std::string text;
};

/// All transcripts of a folder, by name.
[[nodiscard]] std::vector<Transcript> transcripts(const std::string& folder);

/// The words of a command: between blanks, single quotes hold a word together.
[[nodiscard]] std::vector<std::string> words_of(const std::string& command);

/// True if PARSIM_REGENERATE is set: transcripts are to be written anew. Their diff is then read.
[[nodiscard]] bool regenerating();

/// Writes the transcript with other results.
void rewrite(const Transcript& transcript, int exit_code, const std::string& text);

}  // namespace parsim::testing
