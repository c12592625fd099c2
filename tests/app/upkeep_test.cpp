// The energy of a step as SimGrid's host and link energy plugins see it.
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

/// Two machines whose GPUs share an uplink, and a link between machines that carries nothing.
constexpr const char* links_with_power = R"(switches = ["network", "spare"]
[[nodes]]
name = "n"
count = 2
switches = ["pcie"]
devices = [{ model = "v100-sxm2", count = 2 }]
[[nodes.links]]
a = "gpu*"
b = "pcie"
rate = "10 GB/s"
latency = "500 ns"
power = "40 W"
[[links]]
a = "n*.pcie"
b = "network"
rate = "5 GB/s"
latency = "2 us"
power = "900 W"
idle_power = "20 W"
[[links]]
a = "network"
b = "spare"
rate = "5 GB/s"
latency = "2 us"
power = "300 W"
idle_power = "70 W"
)";

/// "Total energy consumption: 0.153025 Joules" of smpirun; `words`: those before the number.
double energy_by_simgrid(const std::string& folder, const std::string& plugin,
                         const std::string& words) {
  const testing::Finished run = testing::run_program(
      "/usr/bin/env",
      {"smpirun", "-platform", "platform.xml", "-hostfile", "hostfile", "-replay", "traces.txt",
       "--cfg=plugin:" + plugin, "--log=root.fmt:%m%n"},
      folder);
  const std::string all = run.out + run.err;
  const std::size_t at = all.find(words);
  REQUIRE_MESSAGE((run.exit_code == 0 && at != std::string::npos), all);
  return std::stod(all.substr(at + words.size()));
}

/// What parsim says of a step, and what SimGrid's plugins say of its replay.
struct Energies {
  double all = 0, links = 0, hosts_by_simgrid = 0, links_by_simgrid = 0;
};
Energies energies(const testing::TemporaryFolder& folder, const char* file, const char* strategy) {
  const Words question = {"--network",  "alexnet", "--cluster",     folder.path(file),
                          "--strategy", strategy,  "--batch",       "64",
                          "--fidelity", "p2p",     "--collectives", "ideal"};
  const std::string traces = folder.path(fmt::format("traces-{}", strategy));
  Words plan = {"plan", "--smpi", traces}, simulate = {"simulate", "--json"};
  plan.insert(plan.end(), question.begin(), question.end());
  simulate.insert(simulate.end(), question.begin(), question.end());
  REQUIRE(testing::run_program(PARSIM_PROGRAM, plan, folder.folder()).exit_code == 0);
  const testing::Finished step = testing::run_program(PARSIM_PROGRAM, simulate, folder.folder());
  REQUIRE(step.exit_code == 0);
  const json result = json::parse(step.out);
  Energies found{result["energy_per_step_j"].get<double>(),
                 result.value("links_energy_per_step_j", 0.0)};
  found.hosts_by_simgrid = energy_by_simgrid(traces, "host_energy", "Total energy consumption: ");
  if (found.links > 0) {
    found.links_by_simgrid =
        energy_by_simgrid(traces, "link_energy", "Total energy over all links: ");
  }
  return found;
}

}  // namespace

TEST_CASE("upkeep: SimGrid's host energy plugin sees the energy of the closed form") {
  const testing::TemporaryFolder folder;
  folder.write("two.toml", two_unequal);
  for (const char* strategy : {"data", "pipeline", "model"}) {
    CAPTURE(strategy);
    const Energies step = energies(folder, "two.toml", strategy);
    CHECK(step.hosts_by_simgrid == testing::approx(step.all).epsilon(0.01));
    CHECK(step.links == 0);
  }
}

TEST_CASE("upkeep: SimGrid's link energy plugin sees the energy of the closed form") {
  const testing::TemporaryFolder folder;
  folder.write("four.toml", links_with_power);
  for (const char* strategy : {"data", "model"}) {
    CAPTURE(strategy);
    const Energies step = energies(folder, "four.toml", strategy);
    CHECK(step.links > 0.1 * step.all);
    CHECK(step.links_by_simgrid == testing::approx(step.links).epsilon(0.01));
    CHECK(step.hosts_by_simgrid + step.links_by_simgrid == testing::approx(step.all).epsilon(0.01));
  }
}

TEST_CASE("upkeep: a folded simulation counts the energy of all links") {
  const auto step = [](const Words& more) {
    Words words = {"simulate",   "--json",
                   "--network",  "gpt:layers=2,hidden=64,heads=2",
                   "--cluster",  "nodes:4x2,device=v100-sxm2,intra=100GB/s,inter=10GB/s",
                   "--strategy", "tensor",
                   "--tp",       "2",
                   "--batch",    "8",
                   "--override", "links.*.power=30W",
                   "--override", "links.*.idle_power=3W"};
    words.insert(words.end(), more.begin(), more.end());
    const testing::Finished run = testing::run_program(PARSIM_PROGRAM, words, ".");
    REQUIRE_MESSAGE(run.exit_code == 0, run.err);
    return json::parse(run.out);
  };
  const json folded = step({}), all = step({"--no-symmetry"});
  CHECK(folded["simulated_operations"] < all["simulated_operations"]);
  CHECK(folded["step_time_s"] == all["step_time_s"]);
  CHECK(folded["links_energy_per_step_j"].get<double>() ==
        testing::approx(all["links_energy_per_step_j"].get<double>()).epsilon(1e-12));
  // Twelve links idle at least.
  CHECK(folded["links_energy_per_step_j"].get<double>() >
        12 * 3 * folded["step_time_s"].get<double>());
}

}  // namespace parsim::app
