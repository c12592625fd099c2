// Whole reports, byte for byte. After a change that moves predictions on purpose:
//
//     PARSIM_REGENERATE=1 build/dev/tests/app_tests -tc="golden:*"
//
// then read the diff, and say in CHANGELOG.md why the numbers moved.
#include <doctest/doctest.h>

#include "sim/sim.hpp"
#include "tests/support/transcript.hpp"

namespace parsim::app {
namespace {

TEST_CASE("golden: every report is what it was") {
  auto goldens = testing::transcripts(PARSIM_SOURCE_DIR "/tests/golden");
  REQUIRE(goldens.size() >= 10);
  for (testing::Transcript& golden : goldens) {
    CAPTURE(golden.path);
    const testing::Finished finished =
        testing::run_program(PARSIM_PROGRAM, testing::words_of(golden.command));
    CHECK(finished.exit_code == golden.exit_code);
    CHECK(finished.out == golden.text);
    CHECK(finished.err.empty());
    golden.exit_code = finished.exit_code;
    golden.text = finished.out;
  }
  if (testing::regenerating()) testing::rewrite(goldens);
}

TEST_CASE("golden: the fast engine makes the same tables") {
  std::size_t compared = 0;
  for (const testing::Transcript& golden :
       testing::transcripts(PARSIM_SOURCE_DIR "/tests/golden")) {
    const std::string simgrid = sim::simulated_by({});
    const std::size_t at = golden.text.find(simgrid);
    if (at == std::string::npos) continue;
    CAPTURE(golden.path);
    std::vector<std::string> words = testing::words_of(golden.command);
    words.insert(words.end(), {"--engine", "fast"});
    sim::SimOptions fast;
    fast.engine = sim::Engine::fast;
    std::string expected = golden.text;
    expected.replace(at, simgrid.size(), sim::simulated_by(fast));
    CHECK(testing::run_program(PARSIM_PROGRAM, words).out == expected);
    ++compared;
  }
  CHECK(compared >= 5);
}

}  // namespace
}  // namespace parsim::app
