#include "experiment/request.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "experiment/experiment.hpp"
#include "experiment/largest_batch.hpp"
#include "networks/networks.hpp"
#include "strategies/layout.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::experiment {
namespace {

using testing::star_of;

Arguments given(std::map<std::string, std::vector<std::string>, std::less<>> values) {
  values.try_emplace("--network", std::vector<std::string>{"n"});
  values.try_emplace("--cluster", std::vector<std::string>{"c"});
  return {"compare", {}, std::move(values)};
}

TEST_CASE("request: every option lands in its value") {
  const Request request = make_request(given({{"--batch", {"64"}},
                                              {"--precision", {"bf16"}},
                                              {"--optimizer", {"adam"}},
                                              {"--sync", {"ps"}},
                                              {"--server", {"cpu0"}},
                                              {"--micro-batches", {"4"}},
                                              {"--schedule", {"gpipe"}},
                                              {"--bucket", {"1 MiB"}},
                                              {"--fidelity", {"p2p"}},
                                              {"--engine", {"fast"}},
                                              {"--collectives", {"ideal"}},
                                              {"--seed", {"7"}},
                                              {"--dim", {"batch=2", "time=3"}},
                                              {"--no-timings", {""}}}));
  CHECK(request.batch == 64);
  CHECK(request.precision == Precision::bf16);
  CHECK(request.optimizer == Optimizer::adam);
  CHECK(request.sync == Sync::Kind::server);
  CHECK(request.server == "cpu0");
  CHECK(request.micro_batches == 4);
  CHECK(request.schedule == strategies::PipelineSchedule::gpipe);
  CHECK(request.bucket == Bytes{1 << 20});
  CHECK(request.sim.fidelity == sim::Fidelity::p2p);
  CHECK(request.sim.engine == sim::Engine::fast);
  CHECK(request.seed == 7);
  CHECK(request.dims == std::map<std::string, std::int64_t>{{"batch", 2}, {"time", 3}});
  CHECK_FALSE(request.timings);
}

TEST_CASE("request: language models have the precision, optimizer and batch usual there") {
  const auto settings = [](const std::string& network, const std::string& device,
                           std::map<std::string, std::vector<std::string>, std::less<>> values) {
    values["--network"] = {network};
    values["--cluster"] = {"star:4,device=" + device + ",rate=10GB/s,latency=1us"};
    const Experiment experiment(make_request(given(std::move(values))));
    return fmt::format("{} {} {}", to_text(experiment.request.precision),
                       to_text(experiment.request.optimizer), experiment.batch);
  };
  const std::string gpt = "gpt:layers=1,hidden=32,heads=2,seq_length=16,vocab_size=64";
  CHECK(settings(gpt, "a100-sxm4-40", {}) == "bf16 adam 4");
  CHECK(settings("llama-3-8b:layers=1", "a100-sxm4-40", {}) == "bf16 adam 4");
  CHECK(settings(gpt, "v100-sxm2", {}) == "fp16 adam 4");  // has no bf16
  CHECK(settings(gpt, "m40", {}) == "fp32 adam 4");        // nor fp16
  CHECK(settings(gpt, "a100-sxm4-40",
                 {{"--precision", {"fp32"}}, {"--optimizer", {"sgd"}}, {"--batch", {"12"}}}) ==
        "fp32 sgd 12");
  CHECK(settings("alexnet", "a100-sxm4-40", {}) == "fp32 momentum 128");
  // A request that code fills has what the code says.
  Request request;
  request.network = gpt;
  request.cluster = "star:4,device=a100-sxm4-40,rate=10GB/s,latency=1us";
  CHECK(Experiment(request).request.precision == Precision::fp32);
}

TEST_CASE("request: names of other projects stand for strategies, and a note says so") {
  const Request fsdp = make_request(given({{"--strategy", {"fsdp", "3d"}}}));
  CHECK(fsdp.strategies == std::vector<std::string>{"data", "tensor"});
  CHECK(fsdp.zero_of_alias == std::map<std::string, std::int32_t>{{"data", 3}});
  CHECK(fsdp.notes == std::vector<std::string>{"fsdp is the strategy 'data' with --zero 3",
                                               "3d is the strategy 'tensor'"});
  const Request asked = make_request(given({{"--strategy", {"fsdp"}}, {"--zero", {"2"}}}));
  CHECK(asked.zero_of_alias.empty());
  CHECK(asked.zero_stage == 2);
  CHECK(asked.notes == std::vector<std::string>{"fsdp is the strategy 'data'"});
}

TEST_CASE("request: a plan file excludes what it decides") {
  CHECK_THROWS_WITH_AS(
      (void)make_request({"simulate", {}, {{"--plan", {"p.json"}}, {"--batch", {"8"}}}}),
      "--batch: given together with --plan; accepted: one of the two, the plan decides it already",
      InputError);
}

TEST_CASE("request: an override changes one device's memory, also with dots in its name") {
  Cluster cluster = star_of(2, "1 GB/s", "1 us");
  cluster.devices[1].name = "node.1.gpu";
  apply_override(cluster, "devices.node.1.gpu.memory=8GiB");
  CHECK(cluster.devices[0].memory == star_of(2, "1 GB/s", "1 us").devices[0].memory);
  CHECK(cluster.devices[1].memory == Bytes{8LL << 30});
}

TEST_CASE("request: an override changes the power of all links that its pattern matches") {
  Cluster cluster = star_of(3, "1 GB/s", "1 us");
  const std::string first = cluster.links[0].name;
  apply_override(cluster, "links.*.power=8W");
  apply_override(cluster, "links." + first + ".idle_power=0 W");
  CHECK(cluster.links[0].power == LinkPower{Watts{8}, Watts{0}});
  CHECK(cluster.links[1].power == LinkPower{Watts{8}, {}});
  CHECK(cluster.links[1].power.idle() == Watts{8});
}

TEST_CASE("request: overrides of devices and machines say what a cluster file may say") {
  Cluster cluster = star_of(3, "1 GB/s", "1 us");
  const Upkeep before = cluster.devices[0].upkeep;
  apply_override(cluster, "devices.*.price=30k / 4 years");
  apply_override(cluster, "devices.d1.price=2.5 /h");
  apply_override(cluster, "devices.d1.power=700 W");
  apply_override(cluster, "devices.d1.idle_power=70 W");
  apply_override(cluster, "devices.d1.mtbf=50000 h");
  apply_override(cluster, "devices.d*.memory=8GiB");
  Upkeep expected = before;
  expected.price = parse_price("30k / 4 years", "");
  CHECK(cluster.devices[2].upkeep == expected);
  CHECK(cluster.devices[1].upkeep ==
        Upkeep{parse_price("2.5 /h", ""), Watts{700}, Watts{70}, parse_seconds("50000 h", "")});
  CHECK(cluster.devices[0].memory == Bytes{8LL << 30});
  CHECK_THROWS_WITH_AS(apply_override(cluster, "devices.d1.idle_power=701 W"),
                       "--override devices.d1.idle_power: 701 W, and power is 700 W; accepted: at "
                       "most the power",
                       InputError);
  const std::string machine = cluster.nodes.front().name;
  apply_override(cluster, "nodes." + machine + ".price=20 /h");
  apply_override(cluster, "nodes.*.power=6kW");
  CHECK(cluster.nodes.front().upkeep.price == parse_price("20 /h", ""));
  CHECK(cluster.nodes.back().upkeep.power == Watts{6000});
  const std::string message = "--override devices.*.price: the price of machine '" + machine +
                              "' stands for its devices; accepted: nodes.NAME.price=PRICE";
  CHECK_THROWS_WITH_AS(apply_override(cluster, "devices.*.price=1 /h"), message.c_str(),
                       InputError);
}

TEST_CASE("request: wrong overrides are refused with what is accepted") {
  Cluster cluster = star_of(2, "1 GB/s", "1 us");
  const auto refused = [&](const char* text, const std::string& message) {
    CHECK_THROWS_WITH_AS(apply_override(cluster, text), message.c_str(), InputError);
  };
  const std::string of_devices =
      "devices.NAME.memory=SIZE, price=PRICE, power=WATTS, idle_power=WATTS, mtbf=TIME";
  const std::string of_nodes = "nodes.NAME.price=PRICE, power=WATTS, mtbf=TIME";
  const std::string of_links = "links.NAME.power=WATTS, idle_power=WATTS";
  const std::string all = of_devices + "; " + of_nodes + "; " + of_links;
  refused("d0.memory=8GiB", "--override: 'd0.memory=8GiB'; accepted: " + all);
  refused("devices.d0", "--override: 'devices.d0'; accepted: " + all);
  refused("devces.d0.price=1 /h",
          "--override: 'devces.d0.price=1 /h'; accepted: " + all + "; did you mean 'devices'?");
  refused("links.*.powr=8W", "--override: unknown key 'powr' of a link; accepted: " + of_links +
                                 "; did you mean 'power'?");
  refused("nodes.*.idle_power=8W",
          "--override: unknown key 'idle_power' of a machine; accepted: " + of_nodes);
  refused("links.*.power=-8W",
          "--override links.*.power: '-8W' is negative; write for example '700 W' or '20 kW'");
  refused("links.*.idle_power=8W",
          "--override links.*.idle_power: a link without 'power'; accepted: together with power");
  refused("devices.d0.memoy=8GiB", "--override: unknown key 'memoy' of a device; accepted: " +
                                       of_devices + "; did you mean 'memory'?");
  refused("devices.d*.price=2.5",
          "--override devices.d*.price: '2.5' is no price; accepted: '2.5 /h', or of a purchase "
          "'30k / 4 years'");
  refused("devices.e*.price=2.5 /h",
          "--override devices.e*.price: 'e*' matches no name; accepted: d0, d1, with * for any "
          "characters; did you mean 'd0'?");
  refused("devices.*.mtbf=0 h",
          "--override devices.*.mtbf: the number is 0; accepted: a positive number");
  refused("devices.d7.memory=8GiB",
          "--override: no device 'd7' in cluster 'star'; accepted: d0, d1; did you mean 'd0'?");
}

TEST_CASE("request: a batch whose bytes 64 bits could not count is refused") {
  const Network network = networks::load_network("llama-3-8b", {}, "test");
  const auto answer = [&](std::int64_t batch) {
    return testing::refusal_of([&] {
      check_batch(network, Precision::bf16, batch, "--batch");
      return true;
    });
  };
  const std::string refused = answer(1'000'000'000);
  CHECK(refused.starts_with("--batch: 1000000000 samples of "));
  const std::string accepted = "accepted: at most ";
  const std::size_t at = refused.find(accepted);
  REQUIRE(at != std::string::npos);
  const std::int64_t most = std::stoll(refused.substr(at + accepted.size()));
  CHECK(most > 100'000);
  CHECK(answer(most) == "accepted");
  CHECK(answer(most + 1).starts_with("--batch"));
}

TEST_CASE("request: an option that changes nothing is refused") {
  Request request;
  request.strategies = {"data"};
  request.micro_batches = 4;
  Plan plan;
  CHECK_THROWS_WITH_AS(
      check_used(request, {}, {&plan, 1}),
      "--micro-batches: unused by strategy 'data'; accepted: with a strategy that "
      "makes a pipeline, or hybrid --parts 1, which accumulates gradients over micro-batches",
      InputError);
  plan.schedule.micro_batches = 4;
  CHECK_NOTHROW(check_used(request, {}, {&plan, 1}));
  request = {};
  request.given = {"--bucket"};
  request.bucket = Bytes{1024};
  CHECK_THROWS_WITH_AS(check_used(request, {}, {&plan, 1}),
                       "--bucket: unused by every strategy asked for; accepted: with a strategy "
                       "that puts gradients in buckets",
                       InputError);
}

TEST_CASE("request: options of pipelines are refused before a search that makes none") {
  const auto answer = [](const std::string& flag, const std::string& value,
                         const std::vector<std::string>& strategies) {
    return testing::refusal_of([&] {
      return make_request(given({{flag, {value}}, {"--strategy", strategies}}));
    });
  };
  CHECK(answer("--micro-batches", "4", {"layer-wise"}) ==
        "--micro-batches: unused by strategy 'layer-wise'; accepted: with a strategy that makes a "
        "pipeline, or hybrid --parts 1, which accumulates gradients over micro-batches");
  CHECK(answer("--schedule", "gpipe", {"data", "owt"}).find("unused by every strategy") !=
        std::string::npos);
  CHECK(answer("--pipeline-sends", "blocking", {"model-even"}).find("unused by strategy") !=
        std::string::npos);
  CHECK(answer("--micro-batches", "1", {"data"}) == "accepted");
  CHECK(answer("--micro-batches", "4", {"data", "pipeline"}) == "accepted");
}

TEST_CASE("request: what context parallelism and pipelines do is refused without them") {
  const testing::World world("gpt:layers=2,hidden=16,heads=4,seq_length=32,vocab_size=64",
                             "star:2,device=v100-sxm2,rate=10GB/s");
  std::optional<std::int32_t> degrees = 1;
  const auto answer = [&](const char* flag, const Plan& plan) {
    Request request;
    request.strategies = {"tensor"};
    request.given = {flag};
    request.pipeline_parallel = degrees;
    return testing::refusal_of([&] {
      check_used(request, world.network, {&plan, 1});
      return true;
    });
  };
  strategies::StrategyInput input = world.input(4);
  input.tensor_parallel = input.pipeline_parallel = 1;
  const Plan replicas = strategies::plan_tensor(input);
  CHECK(answer("--cp-comm", replicas) ==
        "--cp-comm: unused by strategy 'tensor'; accepted: together with --cp 2 or more");
  CHECK(answer("--pipeline-sends", replicas) ==
        "--pipeline-sends: unused by strategy 'tensor'; accepted: with a strategy that makes a "
        "pipeline");
  CHECK(answer("--zero-group", replicas) == "accepted");
  // Of degrees that are searched the fastest have no pipeline.
  degrees = {};
  for (const char* flag : {"--pipeline-sends", "--schedule"})
    CHECK(answer(flag, replicas) == "accepted");
  degrees = 1;
  CHECK(answer("--schedule", replicas).find("unused by strategy 'tensor'") != std::string::npos);
  input.pipeline_parallel = 2;
  CHECK(answer("--zero-group", strategies::plan_tensor(input)) ==
        "--zero-group: unused by strategy 'tensor': no weight has replicas; accepted: node, or a "
        "number that divides the replicas of a plan");
  CHECK(answer("--pipeline-sends", strategies::plan_tensor(input)) == "accepted");
  input.pipeline_parallel = 1;
  input.context_parallel = 2;
  CHECK(answer("--cp-comm", strategies::plan_tensor(input)) == "accepted");
  // A search has found that it needs no pipeline.
  Plan found = strategies::plan_tensor(input);
  found.strategy = "best";
  CHECK(answer("--pipeline-sends", found) == "accepted");
  // Groups of different sizes have no degree in common.
  const testing::World four("gpt:layers=2,hidden=16,heads=4,seq_length=32,vocab_size=64",
                            "star:4,device=v100-sxm2,rate=10GB/s");
  strategies::StrategyInput mixed = four.input(4);
  mixed.micro_batches = 2;
  const strategies::Layout widths{{{0, {{DeviceId{0}, DeviceId{1}}, {DeviceId{2}}}, {}}}};
  CHECK(answer("--cp-comm", strategies::plan_layout(mixed, widths)).find("unused") !=
        std::string::npos);
}

TEST_CASE("request: --input-rate may be 0, as by default, and a part of a sample") {
  const auto rate = [](const std::string& text) {
    return make_request(given({{"--input-rate", {text}}})).input_rate;
  };
  CHECK(rate("0") == 0);
  CHECK(rate("0.5") == 0.5);
  for (const char* text : {"-1", "1e-300", "nan", "1e13"}) {
    CHECK(testing::refusal_of([&] { return rate(text); }) ==
          fmt::format("--input-rate: '{}'; accepted: a number from 0 to 1000000000000", text));
  }
}

}  // namespace
}  // namespace parsim::experiment
