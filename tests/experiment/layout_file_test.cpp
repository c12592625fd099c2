// Files of --layout: what they say, how wrong ones are refused, and that every verb obeys them.
#include "experiment/layout_file.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "networks/networks.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

using nlohmann::json;
using testing::with;
using Words = std::vector<std::string>;

const std::string network = "gpt:layers=6,hidden=64,heads=4,seq_length=32,vocab_size=128";
const std::string cluster = "nodes:2x4,device=v100-sxm2*4+p100-sxm2*4,intra=50GB/s,inter=10GB/s";
const std::string good = R"(micro_batches = 4
schedule = "gpipe"
zero = 1

[[stages]]
blocks = "0-3"
groups = [["n0.gpu0", "n0.gpu1"], ["n0.gpu2"]]
samples = [3, 1]

[[stages]]
blocks = "4-5"
groups = [["n1.gpu3"]]
)";

LayoutFile read(const std::string& text) {
  return read_layout(text, "l.toml", networks::load_network(network, {}, "test"),
                     topologies::load_cluster(cluster, "test"));
}
std::string refusal(const std::string& from, const std::string& to) {
  return testing::refusal_of([&] { return read(with(good, from, to)); });
}

testing::Finished run(const testing::TemporaryFolder& folder, Words words, const Words& more) {
  words.insert(words.end(), {"--network", network, "--cluster", cluster, "--layout", "l.toml"});
  words.insert(words.end(), more.begin(), more.end());
  return testing::run_program(PARSIM_PROGRAM, words, folder.folder());
}

}  // namespace

TEST_CASE("layout file: stages, groups, samples and what else it decides") {
  const LayoutFile file = read(good);
  CHECK(file.micro_batches == 4);
  CHECK(file.schedule == strategies::PipelineSchedule::gpipe);
  CHECK(file.zero_stage == 1);
  CHECK(!file.zero_group);
  CHECK(!file.sends);
  CHECK(read(with(good, "zero = 1", "sends = \"blocking\"")).sends ==
        strategies::PipelineSends::blocking);
  CHECK(read(with(good, "zero = 1", "zero = 1\nzero_group = 2")).zero_group == ZeroGroup{2, false});
  CHECK(read(with(good, "zero = 1", "zero = 1\nzero_group = \"node\"")).zero_group ==
        ZeroGroup{0, true});
  CHECK_FALSE(file.context.has_value());
  const LayoutFile parts = read(with(good, "zero = 1", "cp = 2\ncp_comm = \"a2a\""));
  CHECK(parts.context == 2);
  CHECK(parts.context_exchange == strategies::ContextExchange::a2a);
  CHECK_FALSE(file.recompute.has_value());
  CHECK(file.samples == 4);
  REQUIRE(file.layout.stages.size() == 2);
  const strategies::LayoutStage& first = file.layout.stages[0];
  CHECK(first.first == 0);
  CHECK(first.groups ==
        std::vector<std::vector<DeviceId>>{{DeviceId{0}, DeviceId{1}}, {DeviceId{2}}});
  CHECK(first.samples == std::vector<std::int64_t>{3, 1});
  CHECK(networks::load_network(network, {}, "test")
            .layers[file.layout.stages[1].first]
            .name.starts_with("block4."));
}

TEST_CASE("layout file: networks without blocks are cut by the names of layers") {
  const Network lenet = networks::load_network("lenet5", {}, "test");
  const Cluster star = topologies::load_cluster("star:2,device=t4,rate=10GB/s,latency=1us", "test");
  const std::string last = lenet.layers[lenet.layers.size() - 2].name;
  std::size_t middle = 3;
  const std::string text =
      "[[stages]]\nlayers = \"" + lenet.layers[1].name + "-" + lenet.layers[middle].name +
      "\"\ngroups = [[\"gpu0\"]]\n[[stages]]\nlayers = \"" + lenet.layers[middle + 1].name + "-" +
      last + "\"\ngroups = [[\"gpu1\"]]\n";
  const LayoutFile file = read_layout(text, "l.toml", lenet, star);
  CHECK(file.layout.stages[0].first == 0);
  CHECK(file.layout.stages[1].first == middle + 1);
  CHECK(
      testing::refusal_of([&] {
        return read_layout("[[stages]]\nblocks = \"0\"\ngroups = [[\"gpu0\"]]\n", "l.toml", lenet,
                           star);
      })
          .starts_with("l.toml:2:stages.blocks: network 'lenet5' is not made of blocks; accepted: "
                       "layers by name"));
}

TEST_CASE("layout file: parts of a layer for the devices of a group") {
  const std::string parts = "samples = [3, 1]\nparts = ";
  CHECK(read(with(good, "samples = [3, 1]", parts + "[[3, 1], [1]]")).layout.stages[0].parts ==
        std::vector<std::vector<std::int64_t>>{{3, 1}, {1}});
  const auto refused = [&](const std::string& list) {
    return refusal("samples = [3, 1]", parts + list);
  };
  CHECK(refused("[[3, 1]]").starts_with("l.toml:9:stages.parts: parts of 1 groups for 2;"));
  CHECK(refused("[[3], [1]]").starts_with("l.toml:9:stages.parts: 1 parts for 2 devices;"));
  CHECK(refused("[[3, 0], [1]]").starts_with("l.toml:9:stages.parts: the number 0; accepted: w"));
  CHECK(refused("[3, 1]").starts_with("l.toml:9:stages.parts: the number 3 instead of a list;"));
}

TEST_CASE("layout file: a wrong file is refused with its line, key and what is accepted") {
  CHECK(refusal("micro_batches", "micro_batch") ==
        "l.toml:1:micro_batch: unknown key 'micro_batch'; accepted: micro_batches, schedule, vp, "
        "cp, cp_comm, zero, zero_group, recompute, shares, sends, stages; did you mean "
        "'micro_batches'?");
  CHECK(refusal("gpipe", "gpip").starts_with("l.toml:2:schedule: 'gpip'; accepted: gpipe"));
  CHECK(refusal("zero = 1", "sends = \"block\"") ==
        "l.toml:3:sends: 'block'; accepted: overlapped, blocking; did you mean 'blocking'?");
  CHECK(refusal("zero = 1", "zero = 4") ==
        "l.toml:3:zero: 4 is out of range; accepted: a whole number from 0 to 3");
  CHECK(refusal("zero = 1", "zero = 1\nzero_group = 0") ==
        "l.toml:4:zero_group: the number 0; accepted: a whole number of 1 or more, or \"node\"");
  CHECK(
      refusal("zero = 1", "zero = 1\nzero_group = \"all\"") ==
      "l.toml:4:zero_group: the string 'all'; accepted: a whole number of 1 or more, or \"node\"");
  CHECK(refusal("0-3", "0-4") ==
        "l.toml:11:stages.blocks: begins with block 4; accepted: stages that follow one another: "
        "block 5 comes next");
  CHECK(refusal("4-5", "4") ==
        "l.toml:11:stages.blocks: the last stage ends before block 5; accepted: stages that have "
        "all of the network");
  CHECK(refusal("4-5", "4-6") ==
        "l.toml:11:stages.blocks: '4-6'; accepted: \"FIRST-LAST\" or one block, of 0 to 5");
  CHECK(refusal("n0.gpu2", "n0.gpu22")
            .starts_with("l.toml:7:stages.groups: no device 'n0.gpu22' in cluster"));
  CHECK(refusal("n0.gpu2", "n0.gpu1") ==
        "l.toml:7:stages.groups: device 'n0.gpu1' is in two groups; accepted: each device in one "
        "group");
  CHECK(refusal("[3, 1]", "[4]") ==
        "l.toml:8:stages.samples: 1 samples for 2 groups; accepted: one for each group");
  CHECK(refusal("[3, 1]", "[3, -1]").starts_with("l.toml:8:stages.samples: the number -1"));
  CHECK(refusal("[[\"n1.gpu3\"]]", "[]").starts_with("l.toml:12:stages.groups: no groups"));
  CHECK(refusal("blocks = \"0-3\"", "").starts_with("l.toml:5:stages.blocks: neither blocks nor"));
}

TEST_CASE("layout file: further model chunks are on the devices of the first") {
  const std::string interleaved = R"(micro_batches = 4
vp = 2
[[stages]]
blocks = "0-1"
groups = [["n0.gpu0", "n0.gpu1"]]
[[stages]]
blocks = "2"
groups = [["n0.gpu2", "n0.gpu3"]]
[[stages]]
blocks = "3-4"
[[stages]]
blocks = "5"
)";
  const LayoutFile file = read(interleaved);
  CHECK(file.layout.chunks == 2);
  REQUIRE(file.layout.stages.size() == 4);
  for (const std::size_t stage : {0U, 1U}) {
    CHECK(file.layout.stages[stage + 2].groups == file.layout.stages[stage].groups);
  }
  const auto refused = [&](const std::string& from, const std::string& to) {
    return testing::refusal_of([&] { return read(with(interleaved, from, to)); });
  };
  CHECK(refused("vp = 2", "vp = 3") ==
        "l.toml:2:vp: 3 for 4 stages; accepted: a divisor of the number of stages");
  CHECK(refused("vp = 2", "vp = 5") ==
        "l.toml:2:vp: 5 is out of range; accepted: a whole number from 1 to 4");
  CHECK(refused("blocks = \"3-4\"", "blocks = \"3-4\"\ngroups = [[\"n0.gpu0\"]]") ==
        "l.toml:11:stages.groups: groups of a further model chunk; accepted: none, the devices are "
        "those of stage 0");
  const testing::TemporaryFolder folder;
  folder.write("l.toml", interleaved);
  const Words report{"--batch", "8", "--json", "--no-timings"};
  const testing::Finished simulated = run(folder, {"simulate"}, report);
  REQUIRE(simulated.exit_code == 0);
  CHECK(run(folder, {"explain"}, {"--batch", "8", "--top", "3"}).exit_code == 0);
  REQUIRE(run(folder, {"plan"}, {"--batch", "8", "-o", "p.json"}).exit_code == 0);
  const testing::Finished again =
      testing::run_program(PARSIM_PROGRAM,
                           {"simulate", "--plan", "p.json", "--network", network, "--cluster",
                            cluster, "--json", "--no-timings"},
                           folder.folder());
  CHECK(json::parse(again.out)["step_time_s"] == json::parse(simulated.out)["step_time_s"]);
  folder.write("l.toml", with(interleaved, "micro_batches = 4", "micro_batches = 3"));
  CHECK(run(folder, {"simulate"}, {"--batch", "12"}).err ==
        "parsim: layout: 2 model chunks a device with 2 pipeline stages and 3 micro-batches; "
        "accepted: micro-batches in a multiple of the pipeline stages\n");
  folder.write("l.toml", interleaved);
  CHECK(run(folder, {"simulate"}, {"--batch", "8", "--schedule", "gpipe"}).err ==
        "parsim: layout: 2 model chunks a device with schedule gpipe; accepted: schedule 1f1b, "
        "zero-bubble or zero-bubble-h2\n");
  CHECK(run(folder, {"simulate"}, {"--vp", "2"}).err ==
        "parsim: --vp: given together with --layout; accepted: one of the two, the layout decides "
        "it already\n");
}

TEST_CASE("layout file: simulate, compare, plan and explain run what it says") {
  const testing::TemporaryFolder folder;
  folder.write("l.toml", good);
  const testing::Finished simulated = run(folder, {"simulate"}, {"--json", "--no-timings"});
  CAPTURE(simulated.err);
  REQUIRE(simulated.exit_code == 0);
  const json result = json::parse(simulated.out);
  CHECK(result["strategy"] == "layout");
  CHECK(result["inputs"]["batch"] == 16);  // four samples in each of four micro-batches
  CHECK(result["inputs"]["layout"]["name"] == "l.toml");
  CHECK(result["inputs"]["layout"]["fnv1a64"].is_string());
  for (const json& device : result["devices"]) {
    const std::string name = device["name"];
    const bool named =
        name == "n0.gpu0" || name == "n0.gpu1" || name == "n0.gpu2" || name == "n1.gpu3";
    CHECK((device["compute_s"] > 0) == named);
  }
  const testing::Finished compared =
      run(folder, {"compare"}, {"--strategy", "data", "--batch", "16", "--json", "--no-timings"});
  REQUIRE(compared.exit_code == 0);
  bool found = false;
  const json comparison = json::parse(compared.out);
  for (const json& row : comparison["results"]) {
    if (row["strategy"] != "layout") continue;
    found = true;
    CHECK(row["step_time_s"] == result["step_time_s"]);
  }
  CHECK(found);
  REQUIRE(run(folder, {"plan"}, {"-o", "p.json"}).exit_code == 0);
  const testing::Finished again =
      testing::run_program(PARSIM_PROGRAM,
                           {"simulate", "--plan", "p.json", "--network", network, "--cluster",
                            cluster, "--json", "--no-timings"},
                           folder.folder());
  CHECK(json::parse(again.out)["step_time_s"] == result["step_time_s"]);
  CHECK(run(folder, {"explain"}, {"--top", "2"}).exit_code == 0);
}

TEST_CASE("layout file: the option blocks sends where the file leaves them open") {
  const testing::TemporaryFolder folder;
  const auto step = [&](const std::string& text, const Words& more) {
    folder.write("l.toml", text);
    Words words{"--json", "--no-timings"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(run(folder, {"simulate"}, words).out).at("step_time_s").get<double>();
  };
  const std::string blocking = with(good, "zero = 1", "zero = 1\nsends = \"blocking\"");
  CHECK(step(blocking, {}) > step(good, {}));
  CHECK(step(good, {"--pipeline-sends", "blocking"}) == step(blocking, {}));
}

TEST_CASE("layout file: keys that change nothing are refused") {
  const testing::TemporaryFolder folder;
  const auto error = [&](const std::string& keys, const std::string& groups) {
    folder.write("l.toml", keys + "\n[[stages]]\nblocks = \"0-1\"\ngroups = " + groups + "\n");
    const testing::Finished finished = testing::run_program(
        PARSIM_PROGRAM,
        {"simulate", "--network",
         "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=64,attention=fused", "--cluster",
         "star:2,device=v100-sxm2,rate=10GB/s", "--batch", "16", "--layout", "l.toml", "--quiet"},
        folder.folder());
    return finished.exit_code == 2 ? finished.err : "";
  };
  const std::string group = R"([["gpu0", "gpu1"]])", replicas = R"([["gpu0"], ["gpu1"]])";
  CHECK(error("cp_comm = \"a2a\"", group) ==
        "parsim: l.toml:cp_comm: unused without cp; accepted: together with cp, or --cp, of 2 or "
        "more\n");
  CHECK(error("cp_comm = \"a2a\"\ncp = 2", group).empty());
  CHECK(error("sends = \"blocking\"", group) ==
        "parsim: l.toml:sends: unused by a single stage; accepted: with several stages\n");
  CHECK(error("schedule = \"gpipe\"", group) ==
        "parsim: l.toml:schedule: unused with one micro-batch; accepted: together with "
        "micro_batches of 2 or more\n");
  CHECK(error("schedule = \"gpipe\"\nmicro_batches = 2", group).empty());
  CHECK(error("shares = \"equal\"", group) ==
        "parsim: l.toml:shares: unused where no replicas without samples share any; accepted: "
        "with several replicas of a stage, without samples\n");
  CHECK(error("shares = \"equal\"", replicas).empty());
}

TEST_CASE("layout file: options that contradict it are refused") {
  const testing::TemporaryFolder folder;
  folder.write("l.toml", good);
  const auto error = [&](const Words& more) {
    const testing::Finished finished = run(folder, {"simulate"}, more);
    CHECK(finished.exit_code == 2);
    return finished.err;
  };
  CHECK(error({"--strategy", "data"}) ==
        "parsim: --strategy: given together with --layout; accepted: one of the two, the layout "
        "decides it already\n");
  CHECK(error({"--micro-batches", "8"}) ==
        "parsim: --micro-batches: l.toml decides it; accepted: one of the two\n");
  CHECK(error({"--zero", "0"}) == "parsim: --zero: l.toml decides it; accepted: one of the two\n");
  CHECK(error({"--zero-group", "3"}) ==
        "parsim: --zero-group: parameter 'block3.mlp.down.weights': groups of 3 among 2 devices "
        "that sum its gradient; accepted: no --zero-group\n");  // others are summed by 3
  folder.write("l.toml", with(good, "zero = 1", "zero = 1\nzero_group = \"node\""));
  CHECK(error({}) ==
        "parsim: l.toml:zero_group: parameter 'wte.table': machines with 1 and 2 of the 3 devices "
        "that sum its gradient; accepted: no --zero-group, or as many devices on every machine\n");
  CHECK(error({"--zero-group", "2"}) ==
        "parsim: --zero-group: l.toml decides it; accepted: one of the two\n");
  folder.write("l.toml", with(good, "zero = 1", "sends = \"blocking\""));
  CHECK(error({"--pipeline-sends", "overlapped"}) ==
        "parsim: --pipeline-sends: l.toml decides it; accepted: one of the two\n");
  folder.write("l.toml", with(good, "zero = 1", "zero_group = 2"));
  CHECK(error({}) ==
        "parsim: l.toml:zero_group: unused without ZeRO; accepted: together with zero = 1 to 3, or "
        "--zero\n");
  folder.write("l.toml", good);
  CHECK(error({"--plan", "p.json"}) ==
        "parsim: --layout: given together with --plan; accepted: one of the two\n");
  CHECK(error({"--batch", "20"}) ==
        "parsim: l.toml:8:stages.samples: 4 samples in each of 4 micro-batches, but a batch of 20; "
        "accepted: samples that add up to the batch, or --batch 16\n");
  folder.write("l.toml", with(good, "samples = [3, 1]", ""));
  CHECK(error({"--batch", "18"}) ==
        "parsim: l.toml:1:micro_batches: batch 18 in 4 micro-batches; accepted: a number of "
        "micro-batches that divides the batch\n");
}

}  // namespace parsim::experiment
