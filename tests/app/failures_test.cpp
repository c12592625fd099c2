// What failures cost, in the reports of the program.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

const Words asked = {"--mtbf", "50h", "--checkpoint-write", "2s", "--restart", "1min"};

std::string printed(Words words, const Words& more, const std::string& format) {
  for (const char* word : {"--network", "lenet5", "--cluster", "star:2,device=t4", "--strategy",
                           "data", "--no-timings", "--format"}) {
    words.emplace_back(word);
  }
  words.push_back(format);
  words.insert(words.end(), more.begin(), more.end());
  return testing::run_program(PARSIM_PROGRAM, words).out;
}

}  // namespace

TEST_CASE("failures: simulate, compare and explain show them where they are asked for") {
  for (const std::string verb : {"simulate", "compare", "explain"}) {
    CAPTURE(verb);
    const auto row_of = [&](const Words& more) {
      const json all = json::parse(printed({verb}, more, "json"));
      return all.contains("results") ? all["results"][0] : all;
    };
    CHECK_FALSE(row_of({}).contains("goodput"));
    CHECK(printed({verb}, {}, "table").find("goodput") == std::string::npos);
    CHECK(printed({verb}, asked, "table").find("goodput") != std::string::npos);
    const json row = row_of(asked);
    const json goodput = row["goodput"];
    // Two GPUs that compute fail twice as often as one; sqrt(2 * 2 s * 90000 s) = 600 s.
    CHECK(goodput["mtbf_s"] == testing::approx(25 * 3600));
    CHECK(goodput["young_interval_s"] == testing::approx(600));
    CHECK(goodput["restart_s"] == 60);
    CHECK(goodput["checkpoint_interval_s"].get<double>() ==
          testing::approx(goodput["steps_between_checkpoints"].get<double>() *
                          row["step_time_s"].get<double>()));
    // 2 / 600 for checkpoints, half of 600 and 60 s of every 90000 for failures.
    CHECK(goodput["share"] == testing::approx(1 - 2.0 / 600 - 360.0 / 90000).epsilon(1e-4));
    CHECK(row["inputs"]["mtbf"] == 180000);
  }
  CHECK(printed({"compare"}, asked, "csv").find(",goodput_samples_per_s,") != std::string::npos);
  CHECK(printed({"compare"}, {}, "csv").find(",goodput") == std::string::npos);
}

}  // namespace parsim::app
