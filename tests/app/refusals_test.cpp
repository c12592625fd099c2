// The files of tests/bad_inputs/cli hold wrong command lines, their exit codes and exact messages.
// After a change of words:
//
//     PARSIM_REGENERATE=1 build/dev/tests/app_tests -tc="cli refusals*"
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/program.hpp"
#include "tests/support/transcript.hpp"

namespace parsim::app {
namespace {

TEST_CASE("cli refusals: every bad command line gets its exit code and its exact message") {
  auto refusals = testing::transcripts(PARSIM_SOURCE_DIR "/tests/bad_inputs/cli");
  REQUIRE(refusals.size() > 100);
  for (testing::Transcript& refusal : refusals) {
    CAPTURE(refusal.path);
    CAPTURE(refusal.name);
    const testing::TemporaryFolder folder;
    const testing::Finished finished =
        testing::run_program(PARSIM_PROGRAM, testing::words_of(refusal.command), folder.folder());
    CHECK(finished.exit_code == refusal.exit_code);
    CHECK(finished.err == refusal.text);
    CHECK(finished.out.empty());
    CHECK(folder.names().empty());  // nothing half-written stays
    refusal.exit_code = finished.exit_code;
    refusal.text = finished.err;
  }
  if (testing::regenerating()) testing::rewrite(refusals);
}

TEST_CASE("cli refusals: a hostile name cannot command the terminal") {
  const testing::Finished finished =
      testing::run_program(PARSIM_PROGRAM, {"show", "network", "\x1b[31mred\x07"});
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find('\x1b') == std::string::npos);
  CHECK(finished.err.find("?[31mred?") != std::string::npos);
}

TEST_CASE("cli refusals: a table of measured steps without a step calibrates nothing") {
  const testing::TemporaryFolder folder;
  folder.write("steps.csv", "network,gpu,batch,total_ms\n");
  const testing::Finished finished =
      testing::run_program(PARSIM_PROGRAM,
                           {"simulate", "--network", "lenet5", "--cluster", "star:1,device=t4",
                            "--strategy", "data", "--calibrate-with", "steps.csv"},
                           folder.folder());
  CHECK(finished.exit_code == 2);
  CHECK(finished.err ==
        "parsim: steps.csv: no rows; accepted: a table with a row for each measured step\n");
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
        "parsim: standard output: cannot be written; accepted: a disk with free space\n");
}

}  // namespace
}  // namespace parsim::app
