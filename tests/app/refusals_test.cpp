// Every file of tests/bad_inputs/cli is a wrong command line, the exit code and the exact message.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim {
namespace {

/// Words between blanks; single quotes hold a word together.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  bool any = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}

TEST_CASE("cli refusals: every bad command line gets its exit code and its exact message") {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(PARSIM_SOURCE_DIR "/tests/bad_inputs/cli")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() > 40);
  for (const fs::path& file : files) {
    CAPTURE(file.filename().string());
    std::istringstream lines(testing::read_text(file.string()));
    std::string command;
    std::string exit_line;
    std::getline(lines, command);
    std::getline(lines, exit_line);
    std::ostringstream message;
    message << lines.rdbuf();

    REQUIRE(command.starts_with("$"));
    const testing::TemporaryFolder folder;
    const testing::Finished finished =
        testing::run_program(PARSIM_PROGRAM, words_of(command.substr(1)), folder.folder());
    CHECK("exit " + std::to_string(finished.exit_code) == exit_line);
    CHECK(finished.err == message.str());
    CHECK(finished.out.empty());
    CHECK(folder.names().empty());  // nothing half-written stays
  }
}

TEST_CASE("cli refusals: a hostile name cannot command the terminal") {
  const testing::Finished finished =
      testing::run_program(PARSIM_PROGRAM, {"show", "network", "\x1b[31mred\x07"});
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find('\x1b') == std::string::npos);
  CHECK(finished.err.find("?[31mred?") != std::string::npos);
}

TEST_CASE("cli refusals: a very long name is refused in reasonable time") {
  const std::string name(100'000, 'x');
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{name},
        {"show", "network", name},
        {"list", name},
        {"compare", "--" + name},
        {"compare", "--network", "lenet5", "--cluster", name}}) {
    CHECK(testing::run_program(PARSIM_PROGRAM, words).exit_code == 2);
  }
}

TEST_CASE("cli refusals: a full disk under standard output is told") {
  const testing::Finished finished = testing::run_program(
      "/bin/sh", {"-c", "exec \"$0\" list strategies > /dev/full", PARSIM_PROGRAM});
  CHECK(finished.exit_code == 2);
  CHECK(finished.err ==
        "parsim: standard output: cannot be written; accepted: a place with room\n");
}

}  // namespace
}  // namespace parsim
