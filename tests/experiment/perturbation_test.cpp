#include "experiment/perturbation.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/errors.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

using namespace testing;
using namespace std::chrono_literals;

TEST_CASE("perturbation: devices for a while, devices for good, and links") {
  const Cluster cluster = star_of(3, "1 GB/s", "1 us");
  const std::string device = cluster.devices[1].name, link = cluster.links[2].name;
  CHECK(parse_stragglers(cluster, {}).factors.empty());
  const Stragglers all = parse_stragglers(
      cluster,
      {cluster.devices[0].name + "=1.5", device + "=3@4ms", device + "=2@1e-3s-2ms", link + "=4"});
  CHECK(all.factors == std::vector<double>{1.5, 1, 1});
  CHECK(all.devices.at(0).empty());
  constexpr auto ever = Seconds{std::numeric_limits<double>::infinity()};
  CHECK(all.devices.at(1).periods() == std::vector<SlowPeriod>{{1ms, 2ms, 2}, {4ms, ever, 3}});
  CHECK(all.links.at(2).periods() == std::vector<SlowPeriod>{{0s, ever, 4}});
  CHECK(all.others ==
        std::vector<std::string>{device + "=3@4ms", device + "=2@1e-3s-2ms", link + "=4"});
}

TEST_CASE("perturbation: factors given by hand replace those of a profile, pair by pair") {
  Interference measured;
  measured.set(Activity::tensor, Activity::communication, 1.5);
  measured.set(Activity::communication, Activity::memory, 1.25);
  CHECK(parse_interference({}, measured) == measured);
  const Interference both = parse_interference({"tensor/communication=2"}, measured);
  CHECK(both.of(Activity::tensor, Activity::communication) == 2);
  CHECK(both.of(Activity::communication, Activity::memory) == 1.25);
  CHECK(interference_texts(both) ==
        std::vector<std::string>{"tensor/communication=2", "communication/memory=1.25"});
  CHECK_FALSE(parse_interference({"tensor/communication=1"}).any());
  CHECK_THROWS_AS((void)parse_interference({"tensor/communication"}), InputError);
  CHECK_THROWS_AS((void)parse_interference({"memory/tensor=2"}), InputError);
  CHECK_THROWS_AS((void)parse_interference({"tensor/communication=2", "tensor/communication=3"}),
                  InputError);
}

TEST_CASE("perturbation: a name that is a device and a link is refused") {
  Cluster cluster = star_of(2, "1 GB/s", "1 us");
  cluster.links[1].name = cluster.devices[0].name;
  CHECK_THROWS_AS((void)parse_stragglers(cluster, {cluster.devices[0].name + "=2"}), InputError);
}

using nlohmann::json;

const std::vector<std::string> quiet_step = {
    "simulate",   "--network", "lenet5",
    "--strategy", "data",      "--no-timings",
    "--json",     "--cluster", "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=25GB/s,latency=1us"};

std::vector<std::string> and_with(std::vector<std::string> words,
                                  const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json disturbed_result(const std::vector<std::string>& words) {
  const Finished finished = run_program(PARSIM_PROGRAM, words);
  CAPTURE(finished.err);
  REQUIRE(finished.exit_code == 0);
  return json::parse(finished.out);
}

TEST_CASE("perturbation: what is slow for a while costs less than what is slow throughout") {
  const auto with_slow = [](const std::string& text) {
    return disturbed_result(and_with(quiet_step, {"--straggler", text}));
  };
  const auto step = [](const json& result) { return result["step_time_s"].get<double>(); };
  const json plain = disturbed_result(quiet_step);
  const double whole = step(with_slow("gpu0=3")), part = step(with_slow("gpu0=3@0us-100us"));
  CHECK(step(plain) < part);
  CHECK(part < whole);
  CHECK(step(with_slow("gpu0=3@0s")) == testing::approx(whole).epsilon(1e-12));
  // From after the end on, or not slower at all: the same bits.
  CHECK(step(with_slow("gpu0=3@1s")) == step(plain));
  CHECK(step(with_slow("gpu0=1@10us-20us")) == step(plain));
  // The cable of gpu0 to the switch; its use is that of a link of a fifth of the rate.
  const json slow = with_slow("gpu0-switch=5");
  CHECK(step(slow) > step(plain));
  CHECK(slow["bounds"]["busiest_link_s"].get<double>() ==
        testing::approx(5 * plain["bounds"]["busiest_link_s"].get<double>()).epsilon(1e-9));
  CHECK(slow["bottleneck"]["utilisation"].get<double>() ==
        testing::approx(5 * plain["bottleneck"]["utilisation"].get<double>() * step(plain) /
                        step(slow))
            .epsilon(1e-9));
  CHECK(slow["inputs"]["straggler"] == json{"gpu0-switch=5"});
}

TEST_CASE("perturbation: kernels and messages that hold each other up") {
  // Gradients travel layer by layer, beside the backward pass.
  const std::vector<std::string> simulate = and_with(quiet_step, {"--bucket", "0B"});
  const json plain = disturbed_result(simulate);
  CHECK(plain["inputs"]["interference"] == json::array());
  CHECK(plain["inputs"]["launch_interval_s"] == 0);
  const auto step = [](const json& result) { return result["step_time_s"].get<double>(); };
  const json held =
      disturbed_result(and_with(simulate, {"--interference", "tensor/communication=2",
                                           "--interference", "communication/memory=3"}));
  CHECK(step(held) > step(plain));
  CHECK(held["inputs"]["interference"] == json{"tensor/communication=2", "communication/memory=3"});
  CHECK(held["cost_sources"]["summary"].get<std::string>().ends_with(
      "; interference: tensor/communication=2, communication/memory=3"));
  json none = disturbed_result(and_with(simulate, {"--interference", "tensor/communication=1"}));
  none["inputs"]["command"] = plain["inputs"]["command"];
  CHECK(none == plain);
  // All at once, and varied.
  const json all = disturbed_result(
      and_with(simulate, {"--interference", "memory/communication=2", "--straggler",
                          "gpu0=2@0us-50us", "--jitter", "5%", "--runs", "5"}));
  CHECK(step(all) > step(plain));
  CHECK(all["jittered"]["samples"] == 5);
}

}  // namespace
}  // namespace parsim::experiment
