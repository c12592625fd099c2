// What steps cost and draw, worked out by hand.
#include "experiment/upkeep.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "experiment/comparison.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "topologies/cluster_file.hpp"

namespace parsim::experiment {
namespace {

using namespace std::chrono_literals;

/// Two machines on a switch: `old` with two V100 of 300 W, `fresh` with one A100 of 400 W.
std::string two_machines(const std::string& old_keys, const std::string& fresh_keys,
                         const std::string& v100_keys = "", const std::string& a100_keys = "") {
  return "switches = [\"network\"]\n[[nodes]]\nname = \"old\"\n" + old_keys +
         "\ndevices = [{ model = \"v100-sxm2\", count = 2" + v100_keys +
         " }]\n[[nodes]]\nname = \"fresh\"\n" + fresh_keys +
         "\ndevices = [{ model = \"a100-sxm4-40\", count = 1" + a100_keys +
         " }]\n[[links]]\na = \"*.gpu*\"\nb = \"network\"\nrate = \"10 GB/s\"\nlatency = \"1 "
         "us\"\n";
}

Cluster cluster_of(const std::string& text) { return topologies::parse_cluster(text, "two.toml"); }

}  // namespace

TEST_CASE("upkeep: the energy of two devices by hand") {
  // Of a step of 10 s gpu0 computes 6 s, gpu1 nothing, fresh.gpu0 4 s:
  //   6 * 300 + 4 * 60 = 2040 J, 10 * 60 = 600 J (a fifth of 300 W), 4 * 400 + 6 * 50 = 1900 J.
  const Cluster cluster = cluster_of(two_machines("", "", "", ", idle_power = \"50 W\""));
  const StepUpkeep upkeep = step_upkeep(cluster, std::vector<Seconds>{6s, 0s, 4s}, 10s);
  REQUIRE(upkeep.energy);
  CHECK(upkeep.energy->value == testing::approx(2040 + 600 + 1900));
  CHECK_FALSE(upkeep.cost);
}

TEST_CASE("upkeep: a machine draws what its power leaves beyond its devices all the time") {
  // 1 kW - 2 * 300 W = 400 W for 10 s; less power than its devices' adds nothing.
  const std::vector<Seconds> busy{10s, 10s, 0s};
  const auto energy = [&](const std::string& power) {
    return step_upkeep(cluster_of(two_machines("power = \"" + power + "\"", "")), busy, 10s)
        .energy->value;
  };
  CHECK(energy("1 kW") == testing::approx(2 * 300 * 10 + 400 * 10));
  CHECK(energy("100 W") == testing::approx(2 * 300 * 10));
}

TEST_CASE("upkeep: cost by hand, of machines and of devices, bought and rented") {
  // old: 35040 over 4 years of 8760 h: 1 an hour. fresh's GPU: 7.2 an hour; half an hour of both.
  const Cluster cluster =
      cluster_of(two_machines("price = \"35.04k / 4 years\"", "", "", ", price = \"7.2 /h\""));
  const auto cost = [&](const std::vector<Seconds>& busy) {
    return step_upkeep(cluster, busy, 1800s).cost->value;
  };
  CHECK(cost({1s, 0s, 1s}) == testing::approx(0.5 * (1 + 7.2)));
  // Machines of which no device computes need not be there.
  CHECK(cost({1s, 0s, 0s}) == testing::approx(0.5));
  CHECK(cost({0s, 0s, 1s}) == testing::approx(3.6));
  CHECK(step_upkeep(cluster, std::vector<Seconds>{0s, 0s, 1s}, 1s).energy->value ==
        testing::approx(400));
  CHECK(machine_price(cluster, NodeId{0})->value == testing::approx(1));
  CHECK(machine_price(cluster, NodeId{1})->value == testing::approx(7.2));
  CHECK(machine_power(cluster, NodeId{0})->value == testing::approx(600));
}

TEST_CASE("upkeep: a cluster file with a machine's price, power of a type, and overrides") {
  const Cluster cluster = cluster_of(
      "[[device_types]]\nname = \"mine\"\nbase = \"t4\"\nprice = \"0.5 /h\"\npower = \"80 W\"\n"
      "[[nodes]]\nname = \"n\"\ndevices = [{ model = \"mine\", count = 2 }]\n"
      "links = [{ a = \"gpu0\", b = \"gpu1\", rate = \"1 GB/s\", latency = \"1 us\" }]\n"
      "[[overrides]]\ndevices = \"n.gpu1\"\npower = \"75 W\"\nidle_power = \"9 W\"\n");
  CHECK(cluster.devices[0].upkeep == Upkeep{MoneyPerHour{0.5}, Watts{80}, {}});
  CHECK(cluster.devices[1].upkeep == Upkeep{MoneyPerHour{0.5}, Watts{75}, Watts{9}});
  CHECK(cluster.devices[0].upkeep.idle() == Watts{16});
}

TEST_CASE("upkeep: prices and powers that cannot be read are refused with place and accepted") {
  const auto refusal = [](const std::string& keys) {
    try {
      (void)cluster_of(two_machines(keys, ""));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string forms = "accepted: '2.5 /h', or of a purchase '30k / 4 years'";
  CHECK(refusal("price = \"2.5\"") == "two.toml:4:nodes.price: '2.5' is no price; " + forms);
  CHECK(refusal("price = \"3k / 4 weeks\"") ==
        "two.toml:4:nodes.price: '3k / 4 weeks' is no price; " + forms);
  CHECK(refusal("price = \"0 /h\"") ==
        "two.toml:4:nodes.price: the number is 0; accepted: a positive number");
  CHECK(refusal("power = \"700\"") ==
        "two.toml:4:nodes.power: '700' has no unit; write for example '700 W' or '20 kW'");
  CHECK(refusal("power = \"700 w\"").find("did you mean 'W'?") != std::string::npos);
  CHECK_THROWS_WITH_AS(
      (void)cluster_of(two_machines("", "", ", idle_power = \"400 W\"")),
      "two.toml:5:nodes.devices.idle_power: 400 W, and power is 300 W; accepted: at most the power",
      InputError);
}

TEST_CASE("upkeep: the energy of links by hand, for one transfer and an idle link") {
  // 1 GB over two of three links of 10 GB/s in a step of 1 s: 0.1 s in one of two directions.
  // Each link 2 W, and (10 W - 2 W) / 2 more while a direction carries: 2 * (2 + 0.4) + 2.
  const std::string links = "power = \"10 W\"\nidle_power = \"2 W\"\n";
  const Cluster cluster = cluster_of(two_machines("", "") + links);
  const std::vector<Seconds> busy{1s, 1s, 1s};
  const std::vector<double> bytes{1e9, 0, 0, 1e9, 0, 0};
  const StepUpkeep upkeep = step_upkeep(cluster, busy, 1s, bytes);
  REQUIRE(upkeep.links);
  CHECK(upkeep.links->value == testing::approx(6.8));
  CHECK(upkeep.energy->value == testing::approx(2 * 300 + 400 + 6.8));
  // The third one's machine does not compute and is off.
  const StepUpkeep two = step_upkeep(cluster, std::vector<Seconds>{1s, 1s, 0s}, 1s, bytes);
  CHECK(two.links->value == testing::approx(4.8));
  // Of links that draw the same when idle, the bytes need not be known.
  CHECK_FALSE(step_upkeep(cluster, busy, 1s).energy);
  const Cluster steady = cluster_of(two_machines("", "") + "power = \"10 W\"\n");
  CHECK(step_upkeep(steady, busy, 2s).links->value == testing::approx(3 * 10 * 2));
  CHECK_FALSE(step_upkeep(cluster_of(two_machines("", "")), busy, 1s).links);
}

TEST_CASE("upkeep: a machine's power includes its inner links, which draw their own share of it") {
  const std::string inner =
      "links = [{ a = \"gpu0\", b = \"gpu1\", rate = \"10 GB/s\", latency = \"1 us\", "
      "power = \"50 W\", idle_power = \"30 W\" }]\n";
  const std::vector<Seconds> busy{1s, 1s, 0s};
  const std::vector<double> none(8);
  const auto energy = [&](const std::string& machine) {
    return step_upkeep(cluster_of(two_machines(machine + inner, "")), busy, 1s, none).energy->value;
  };
  CHECK(energy("") == testing::approx(600 + 30));
  CHECK(energy("power = \"1 kW\"\n") == testing::approx(1000 - 50 + 30));
  CHECK(machine_power(cluster_of(two_machines(inner, "")), NodeId{0}) == Watts{650});
}

TEST_CASE("upkeep: powers of links that cannot be are refused with place and accepted") {
  const auto refusal = [](const std::string& keys) {
    try {
      (void)cluster_of(two_machines("", "") + keys);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal("power = \"10 W\"\nidle_power = \"0 W\"\n") == "accepted");
  CHECK(refusal("power = \"10 W\"\nidle_power = \"12 W\"\n") ==
        "two.toml:16:links.idle_power: 12.0 W, and power is 10.0 W; accepted: at most the power");
  CHECK(refusal("idle_power = \"12 W\"\n") ==
        "two.toml:15:links.idle_power: a link without 'power'; accepted: together with power");
  CHECK(refusal("power = \"0 W\"\n") ==
        "two.toml:15:links.power: the number is 0; accepted: a positive number");
  CHECK(refusal("power = \"-3 W\"\n") ==
        "two.toml:15:links.power: '-3 W' is negative; write for example '700 W' or '20 kW'");
  CHECK(refusal("powr = \"3 W\"\n").find("did you mean 'power'?") != std::string::npos);
}

TEST_CASE("upkeep: overrides of links give them power and leave their rate's source") {
  const Cluster cluster = cluster_of(
      "generator = \"star:2,device=t4,rate=1GB/s,latency=1us\"\n[[overrides]]\nlinks = \"*\"\n"
      "power = \"8 W\"\n[[overrides]]\nlinks = \"gpu0*\"\nidle_power = \"3 W\"\n");
  const Cluster plain = cluster_of("generator = \"star:2,device=t4,rate=1GB/s,latency=1us\"\n");
  CHECK(cluster.links[0].power == LinkPower{Watts{8}, Watts{3}});
  CHECK(cluster.links[1].power == LinkPower{Watts{8}, {}});
  CHECK(cluster.links[0].provenance == plain.links[0].provenance);
}

TEST_CASE("upkeep: where GPUs differ it is said among which plans cost is the least") {
  const auto note = [](strategies::Objective objective, const std::string& devices) {
    return objective_note(
        objective, topologies::load_cluster("star:4,device=" + devices + ",rate=10GB/s", "test"));
  };
  CHECK_FALSE(note(strategies::Objective::time, "t4*2+v100-sxm2*2"));
  CHECK_FALSE(note(strategies::Objective::cost, "t4"));
  CHECK(note(strategies::Objective::cost, "t4*2+v100-sxm2*2")
            .value()
            .ends_with("ask about a cluster of these alone, or use parsim buy"));
}

TEST_CASE(
    "upkeep: with an objective 'best' is not dearer than a strategy whose plan is much slower") {
  const testing::TemporaryFolder folder;
  const std::string priced = folder.write("priced.toml", R"(
switches = ["between"]
[[nodes]]
name = "old"
price = "12 /h"
devices = [{ model = "v100-sxm2", count = 4 }]
switches = ["s"]
links = [{ a = "gpu*", b = "s", rate = "20 GB/s", latency = "1 us" }]
[[nodes]]
name = "new"
price = "3 /h"
devices = [{ model = "h100-pcie", count = 1 }]
switches = ["s"]
links = [{ a = "gpu*", b = "s", rate = "20 GB/s", latency = "1 us" }]
[[links]]
pairs = [["old.s", "between"], ["new.s", "between"]]
rate = "1 GB/s"
latency = "5 us"
)");
  const auto cost_of = [&](const std::string& strategy) {
    const Arguments arguments{.verb = "compare",
                              .words = {},
                              .values = {{"--network", {"alexnet"}},
                                         {"--cluster", {priced}},
                                         {"--batch", {"96"}},
                                         {"--strategy", {strategy}},
                                         {"--objective", {"cost"}}}};
    return compare(Experiment(make_request(arguments))).front().upkeep.cost.value().value;
  };
  CHECK(cost_of("best") <= cost_of("layer-wise") * (1 + 1e-9));
}

TEST_CASE("upkeep: --objective orders rows by what it names and needs its numbers") {
  const testing::TemporaryFolder folder;
  const std::string priced =
      folder.write("priced.toml", two_machines("price = \"1 /h\"", "price = \"3 /h\""));
  const auto rows = [&](const std::string& objective) {
    const Arguments arguments{.verb = "compare",
                              .words = {},
                              .values = {{"--network", {"lenet5"}},
                                         {"--cluster", {priced}},
                                         {"--batch", {"24"}},
                                         {"--strategy", {"data", "model", "pipeline", "best"}},
                                         {"--objective", {objective}}}};
    return compare(Experiment(make_request(arguments)));
  };
  for (const auto objective :
       {strategies::Objective::time, strategies::Objective::cost, strategies::Objective::energy}) {
    const std::string name(to_text(objective));
    CAPTURE(name);
    const std::vector<RunResult> sorted = rows(name);
    const auto goal = [&](const RunResult& row) {
      return goal_of(objective, row.step_time, row.upkeep);
    };
    for (std::size_t i = 1; i < sorted.size(); ++i) CHECK(goal(sorted[i - 1]) <= goal(sorted[i]));
    // It has the plans of the others among its finalists.
    const auto at = std::find_if(sorted.begin(), sorted.end(),
                                 [](const RunResult& row) { return row.strategy == "best"; });
    REQUIRE(at != sorted.end());
    CHECK(goal(*at) == testing::approx(goal(sorted.front())));
    const RunResult& best = *at;
    CHECK(*best.cost_per_million_samples() == testing::approx(best.upkeep.cost->value * 1e6 / 24));
    CHECK(*best.energy_per_million_samples() ==
          testing::approx(best.upkeep.energy->value * 1e6 / 24));
  }
  CHECK_THROWS_WITH_AS(
      check_objective(strategies::Objective::cost, cluster_of(two_machines("", ""))),
      doctest::Contains("--objective: 'cost', and 'old.gpu0' of cluster 'two' has "
                        "no price; accepted: price = \"2.5 /h\""),
      InputError);
  CHECK_NOTHROW(check_objective(strategies::Objective::energy, cluster_of(two_machines("", ""))));
}

}  // namespace parsim::experiment
