// Whole reports, byte for byte. After a change that moves predictions on purpose:
//
//     PARSIM_REGENERATE=1 build/dev/tests/app_tests -tc="golden:*"
//
// then read the diff, and say in CHANGELOG.md why the numbers moved.
#include <doctest/doctest.h>

#include "tests/support/transcript.hpp"

namespace parsim {
namespace {

TEST_CASE("golden: every report is what it was") {
  const auto goldens = testing::transcripts(PARSIM_SOURCE_DIR "/tests/golden");
  REQUIRE(goldens.size() >= 10);
  for (const testing::Transcript& golden : goldens) {
    CAPTURE(golden.path);
    const testing::Finished finished =
        testing::run_program(PARSIM_PROGRAM, testing::words_of(golden.command));
    if (testing::regenerating()) testing::rewrite(golden, finished.exit_code, finished.out);
    CHECK(finished.exit_code == golden.exit_code);
    CHECK(finished.out == golden.text);
    CHECK(finished.err.empty());
  }
}

}  // namespace
}  // namespace parsim
