// Files that the program writes for other programs, and reads of them, through the command line.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/dot.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

testing::Finished command(const std::vector<std::string>& words) {
  return testing::run_program(PARSIM_PROGRAM, words);
}

TEST_CASE("round trip: a cluster that went out to SimGrid's XML and in again costs the same time") {
  const testing::TemporaryFolder folder;
  for (const std::string cluster : {"dgx-v100", "mixed-p100-v100"}) {
    CAPTURE(cluster);
    const testing::Finished xml = command({"show", "cluster", cluster, "--format", "simgrid"});
    REQUIRE(xml.exit_code == 0);
    const auto simulated = [](const std::string& name) {
      const testing::Finished run = command({"simulate", "--network", "alexnet", "--cluster", name,
                                             "--strategy", "data", "--no-timings", "--json"});
      REQUIRE(run.exit_code == 0);
      nlohmann::json result = nlohmann::json::parse(run.out);
      result.erase("inputs");
      return result;
    };
    CHECK(simulated(folder.write("back.xml", xml.out)) == simulated(cluster));
  }
}

TEST_CASE("round trip: --dag writes DOT if the name says so") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("dag.dot");
  REQUIRE(command({"plan", "--network", "lenet5", "--cluster", "star:2,device=t4,rate=1GB/s",
                   "--strategy", "data", "--dag", path})
              .exit_code == 0);
  const testing::DotText graph = testing::parse_dot(testing::read_text(path));
  CHECK(graph.error == "");
  CHECK(graph.name == "data");
  CHECK(graph.boxes > 50);
}

TEST_CASE("round trip: what a foreign file leaves open is said, and not twice") {
  const std::string smi = PARSIM_SOURCE_DIR "/tests/topologies/data/smi/dgx-a100.txt";
  const testing::Finished run =
      command({"simulate", "--network", "lenet5", "--cluster", smi, "--strategy", "data"});
  CHECK(run.exit_code == 0);
  const std::string guess = "type guessed from 12 NVLinks to every other GPU";
  const std::size_t at = run.err.find(guess);
  CHECK(at != std::string::npos);
  CHECK(run.err.find(guess, at + 1) == std::string::npos);
}

}  // namespace
}  // namespace parsim::app
