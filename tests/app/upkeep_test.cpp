// The energy of a step as SimGrid's host energy plugin sees it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* two_unequal = R"(switches = ["network"]
[[nodes]]
name = "n"
devices = [{ model = "v100-sxm2", count = 1, idle_power = "50 W" }, { model = "t4", count = 1 }]
[[links]]
a = "n.*"
b = "network"
rate = "10 GB/s"
latency = "2 us"
)";

/// "Total energy consumption: 0.153025 Joules" of smpirun.
double energy_by_simgrid(const std::string& folder) {
  const testing::Finished run = testing::run_program(
      "/usr/bin/env",
      {"smpirun", "-platform", "platform.xml", "-hostfile", "hostfile", "-replay", "traces.txt",
       "--cfg=plugin:host_energy", "--log=root.fmt:%m%n"},
      folder);
  const std::string all = run.out + run.err, words = "Total energy consumption: ";
  const std::size_t at = all.find(words);
  REQUIRE_MESSAGE((run.exit_code == 0 && at != std::string::npos), all);
  return std::stod(all.substr(at + words.size()));
}

}  // namespace

TEST_CASE("upkeep: SimGrid's host energy plugin sees the energy of the closed form") {
  const testing::TemporaryFolder folder;
  const std::string cluster = folder.write("two.toml", two_unequal);
  for (const char* strategy : {"data", "pipeline", "model"}) {
    CAPTURE(strategy);
    const Words question = {"--network",  "alexnet", "--cluster",     cluster,
                            "--strategy", strategy,  "--batch",       "64",
                            "--fidelity", "p2p",     "--collectives", "ideal"};
    const std::string traces = folder.path(fmt::format("traces-{}", strategy));
    Words plan = {"plan", "--smpi", traces}, simulate = {"simulate", "--json"};
    plan.insert(plan.end(), question.begin(), question.end());
    simulate.insert(simulate.end(), question.begin(), question.end());
    REQUIRE(testing::run_program(PARSIM_PROGRAM, plan, folder.folder()).exit_code == 0);
    const testing::Finished step = testing::run_program(PARSIM_PROGRAM, simulate, folder.folder());
    REQUIRE(step.exit_code == 0);
    const double ours = json::parse(step.out)["energy_per_step_j"].get<double>();
    CHECK(energy_by_simgrid(traces) == testing::approx(ours).epsilon(0.01));
  }
}

}  // namespace parsim::app
