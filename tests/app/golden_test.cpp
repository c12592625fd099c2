// Whole reports, byte for byte. After a change that moves predictions on purpose:
//
//     PARSIM_REGENERATE=1 build/dev/tests/app_tests -tc="golden:*"
//
// then read the diff, and say in CHANGELOG.md why the numbers moved.
#include <doctest/doctest.h>

#include <fstream>

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

TEST_CASE("golden: the LaTeX table of --report is what it was") {
  const std::string golden = PARSIM_SOURCE_DIR "/tests/golden/compare-report.tex";
  const testing::TemporaryFolder folder;
  const std::vector<std::string> asked = {
      "compare",
      "--network",
      "lenet5",
      "--cluster",
      "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=25GB/s,latency=1us",
      "--no-timings",
      "--report",
      "table.tex"};
  const testing::Finished finished = testing::run_program(PARSIM_PROGRAM, asked, folder.folder());
  CHECK(finished.exit_code == 0);
  CHECK(finished.out.ends_with("report written to table.tex\n"));
  const std::string table = testing::read_text(folder.path("table.tex"));
  if (testing::regenerating()) std::ofstream(golden) << table;
  CHECK(table == testing::read_text(golden));
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
