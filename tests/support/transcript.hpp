// Files that hold command lines, their exit codes and what they print, checked against the program.
#pragma once

#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::testing {

/// A command of a file, which holds one or several of the form
///
///     # name
///     $ compare --network lenet5 …
///     exit 0
///     everything printed
///
/// with a blank line between them. One that is alone in its file needs no name.
struct Transcript {
  std::string path, name, command;
  int exit_code = 0;
  std::string text;
};

/// All transcripts of a folder's files, by name of the file, in the file's order.
[[nodiscard]] std::vector<Transcript> transcripts(const std::string& folder);

/// The words of a command: between blanks, single quotes hold a word together.
[[nodiscard]] std::vector<std::string> words_of(const std::string& command);

/// True if PARSIM_REGENERATE is set: transcripts are to be written anew. Their diff is then read.
[[nodiscard]] bool regenerating();

/// Writes the files of the transcripts anew. All transcripts of a file must be given, in their
/// order.
void rewrite(const std::vector<Transcript>& transcripts);

}  // namespace parsim::testing
