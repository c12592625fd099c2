// Cluster files that are right: what they say is what one gets.
#include "topologies/cluster_file.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "core/errors.hpp"
#include "core/routes.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/document.hpp"
#include "topologies/pattern.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

std::vector<std::string> device_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  return names;
}

std::vector<std::string> link_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Link& link : cluster.links) names.push_back(link.name);
  return names;
}

using Names = std::vector<std::string>;

constexpr std::string_view two_boxes = R"(
[[nodes]]
name = "box"
count = 2
devices = [{ model = "v100-sxm2", count = 2 }, { model = "xeon-e5-2600" }]
switches = ["pcie"]
links = [
  { a = "gpu0", b = "gpu1", rate = "25 GB/s", latency = "1 us", count = 2 },
  { a = "*pu*", b = "pcie", rate = "12 GB/s", latency = "500 ns", label = "measured", source = "me" },
]
[[links]]
a = "box0.pcie"
b = "box1.pcie"
rate = "100 Gbit/s"
latency = "2 us"
)";

TEST_CASE("cluster files: two boxes by hand") {
  const Cluster cluster = parse_cluster(two_boxes, "dir/boxes.toml");
  CHECK(cluster.name == "boxes");
  CHECK(device_names(cluster) ==
        Names{"box0.gpu0", "box0.gpu1", "box0.cpu0", "box1.gpu0", "box1.gpu1", "box1.cpu0"});
  CHECK(link_names(cluster) ==
        Names{"box0.gpu0-box0.gpu1", "box0.gpu0-box0.gpu1#2", "box0.gpu0-box0.pcie",
              "box0.gpu1-box0.pcie", "box0.cpu0-box0.pcie", "box1.gpu0-box1.gpu1",
              "box1.gpu0-box1.gpu1#2", "box1.gpu0-box1.pcie", "box1.gpu1-box1.pcie",
              "box1.cpu0-box1.pcie", "box0.pcie-box1.pcie"});
  const Link& pcie = cluster.links[2];
  CHECK(pcie.a == Port::of(DeviceId{0}));
  CHECK(pcie.b == Port::of(SwitchId{0}));
  CHECK(pcie.rate == BytesPerSecond{12e9});
  CHECK(pcie.latency.count() == testing::approx(500e-9));
  CHECK(cluster.provenances.at(static_cast<std::size_t>(pcie.provenance)) ==
        Provenance{"*", Label::measured, "me"});
  CHECK(cluster.provenances.at(static_cast<std::size_t>(cluster.links[0].provenance)) ==
        Provenance{"*", Label::guessed, "given in dir/boxes.toml"});
  CHECK(cluster.links[10].rate == BytesPerSecond{12.5e9});
}

TEST_CASE("cluster files: JSON says the same as TOML") {
  const std::string json = R"({"nodes": [{
    "name": "box", "count": 2,
    "devices": [{"model": "v100-sxm2", "count": 2}, {"model": "xeon-e5-2600"}],
    "switches": ["pcie"],
    "links": [
      {"a": "gpu0", "b": "gpu1", "rate": "25 GB/s", "latency": "1 us", "count": 2},
      {"a": "*pu*", "b": "pcie", "rate": "12 GB/s", "latency": "500 ns", "label": "measured", "source": "me"}]}],
   "links": [{"a": "box0.pcie", "b": "box1.pcie", "rate": "100 Gbit/s", "latency": "2 us"}]})";
  // Named alike, because the name of the file is the source of its numbers.
  CHECK(parse_cluster(json, "boxes") == parse_cluster(two_boxes, "boxes"));
}

TEST_CASE("cluster files: the example of the README") {
  std::ifstream stream(std::string(PARSIM_SOURCE_DIR) + "/topologies/README.md");
  std::stringstream all;
  all << stream.rdbuf();
  const std::string text = all.str();
  const std::size_t begin = text.find("```toml\n") + 8;
  REQUIRE(begin != std::string::npos + 8);
  const Cluster cluster =
      parse_cluster(text.substr(begin, text.find("```\n", begin) - begin), "README.md");
  CHECK(cluster.name == "two-boxes");
  CHECK(cluster.devices.size() == 8);
  CHECK(cluster.links.size() == 2 * (6 + 4) + 2);  // meshes of 4, PCIe, network
}

TEST_CASE("cluster files: own device types, and built-in ones changed") {
  const Cluster cluster = parse_cluster(R"(
[[device_types]]
name = "big-t4"
base = "t4"
memory = "32 GiB"
sources.memory = "guessed: wishful thinking"

[[device_types]]
name = "mine"
multiprocessors = 10
fp32 = "2 TFLOP/s"
bf16 = "8 TFLOP/s"
memory = "4 GiB"
memory_rate = "100 GB/s"
label = "measured"
source = "my bench"

[[nodes]]
name = "box"
devices = [{ model = "big-t4" }, { model = "mine", name = "odd", memory = "1 GiB" }]
links = [{ a = "gpu0", b = "odd", rate = "1 GB/s", latency = "1 us" }]
)",
                                        "own.toml");
  REQUIRE(cluster.models.size() == 2);
  DeviceModel big = device_model("t4", "here");
  big.name = "big-t4";
  big.base = "t4";
  big.memory = Bytes{std::int64_t{32} << 30};
  big.provenance.push_back({"memory", Label::guessed, "wishful thinking"});
  CHECK(cluster.models[0] == big);
  CHECK(cluster.models[1].peak == std::array{FlopsPerSecond{2e12}, FlopsPerSecond{2e12},
                                             FlopsPerSecond{2e12}, FlopsPerSecond{8e12}});
  CHECK(cluster.models[1].provenance == std::vector{Provenance{"*", Label::measured, "my bench"}});
  CHECK(device_names(cluster) == Names{"box.gpu0", "box.odd"});
  CHECK(cluster.devices[1].memory == Bytes{std::int64_t{1} << 30});
}

TEST_CASE("cluster files: a limit of a card's power lowers its clock, by hand") {
  const auto types = [](const std::string& more) {
    return parse_cluster("[[device_types]]\nname = \"capped\"\nbase = \"h100-sxm5\"\n" + more +
                             "\n[[device_types]]\nname = \"more\"\nbase = \"capped\"\n"
                             "[[nodes]]\nname = \"box\"\ndevices = [{ model = \"more\" }]\n",
                         "own.toml")
        .models.at(0);
  };
  const DeviceModel whole = device_model("h100-sxm5", "here");
  REQUIRE(whole.upkeep.power == Watts{700});
  // Without kernels it draws a fifth, 140 W: 360 of 560 W are left for the clock's cube.
  const double clock = std::cbrt(360.0 / 560);
  const DeviceModel capped = types("power_limit = \"500 W\"");
  CHECK(capped.peak_at(Precision::bf16).value ==
        testing::approx(clock * whole.peak_at(Precision::bf16).value));
  CHECK(capped.fp8_peak.value == testing::approx(clock * whole.fp8_peak.value));
  CHECK(capped.memory_rate == whole.memory_rate);
  CHECK(capped.upkeep.power == Watts{500});
  CHECK(capped.upkeep.idle() == Watts{140});
  CHECK(capped.measured_type() == "h100-sxm5");
  CHECK(types("power_limit = \"700 W\"").peak == whole.peak);
  // Generators know the file's types, too.
  const Cluster two = parse_cluster(
      "generator = \"star:2,device=mine*1+t4*1\"\n"
      "[[device_types]]\nname = \"mine\"\nbase = \"t4\"\nmemory = \"8 GiB\"\n",
      "own.toml");
  CHECK(two.model(DeviceId{0}).name == "mine");
  CHECK(two.devices[0].memory == Bytes{std::int64_t{8} << 30});
  CHECK(
      testing::refusal_of([&] { types("power_limit = \"800 W\""); }) ==
      "own.toml:4:device_types.power_limit: 800 W; accepted: up to the card's 700 W, and more than "
      "the 140 W that it draws without kernels");
  CHECK(testing::refusal_of([&] { types("power_limit = \"140 W\""); }).find("140 W; accepted") !=
        std::string::npos);
}

TEST_CASE("cluster files: an overridden rate is of the data sheet where the link's was") {
  const std::string base =
      "name = \"o\"\ngenerator = \"nodes:1x2,device=b200-sxm,intra=900GB/s,intra-kind=nvlink5\"\n";
  const auto link = [&](const std::string& more) {
    return parse_cluster(base + more, "o.toml").links.front();
  };
  const std::string change = "[[overrides]]\nlinks = \"*\"\n";
  const Link before = link("");
  CHECK(before.line_rate == BytesPerSecond{900e9});
  CHECK(before.rate < before.line_rate);
  const Link same = link(change + "rate = \"900 GB/s\"\n");
  CHECK(same.rate == before.rate);
  CHECK(same.line_rate == before.line_rate);
  const Link effective = link(change + "effective_rate = \"900 GB/s\"\n");
  CHECK(effective.rate == BytesPerSecond{900e9});
  CHECK(effective.line_rate == BytesPerSecond{});
  CHECK(testing::refusal_of(
            [&] { (void)link(change + "rate = \"1 GB/s\"\neffective_rate = \"1 GB/s\"\n"); }) ==
        "o.toml:6:overrides.effective_rate: given together with 'rate'; accepted: rate (with a "
        "kind that of the data sheet), or effective_rate");
}

TEST_CASE("cluster files: a generator as a base, extended and overridden") {
  const Cluster cluster = parse_cluster(R"(
name = "grown"
generator = "nodes:2x2,device=t4,inter=10GB/s"

[[nodes]]
name = "new"
devices = [{ model = "l4" }]

[[links]]
a = "new.gpu0"
b = "network"
rate = "5 GB/s"
latency = "1 us"

[[overrides]]
devices = "n1.*"
model = "k80"

[[overrides]]
devices = "n0.gpu0"
memory = "1 GiB"

[[overrides]]
links = "n1.switch-network"
rate = "1 GB/s"
label = "measured"
source = "a bad cable"
)",
                                        "grown.toml");
  CHECK(cluster.name == "grown");
  CHECK(device_names(cluster) == Names{"n0.gpu0", "n0.gpu1", "n1.gpu0", "n1.gpu1", "new.gpu0"});
  CHECK(cluster.model(DeviceId{2}).name == "k80");
  CHECK(cluster.devices[2].memory == device_model("k80", "here").memory);
  CHECK(cluster.model(DeviceId{0}).name == "t4");
  CHECK(cluster.devices[0].memory == Bytes{std::int64_t{1} << 30});
  Routes routes(cluster);
  CHECK(routes.between(DeviceId{0}, DeviceId{2}).rate == BytesPerSecond{1e9});
  CHECK(routes.between(DeviceId{0}, DeviceId{4}).rate == BytesPerSecond{5e9});
}

TEST_CASE("cluster files: names may hold odd characters") {
  const Cluster cluster = parse_cluster(R"(
[[nodes]]
name = "Büro \"3\""
devices = [{ model = "t4", name = "a-b" }, { model = "t4", name = "*" }, { model = "t4", name = "a" }]
switches = ["c", "b-c"]
links = [
  { a = "a-b", b = "c", rate = "1 GB/s", latency = "1 us" },
  { a = "a", b = "b-c", rate = "1 GB/s", latency = "1 us" },
  { a = "*", b = "c", rate = "1 GB/s", latency = "1 us" },
  { a = "c", b = "b-c", rate = "1 GB/s", latency = "1 us" },
]
)",
                                        "odd.toml");
  CHECK(device_names(cluster) == Names{"Büro \"3\".a-b", "Büro \"3\".*", "Büro \"3\".a"});
  CHECK(cluster.links.size() == 4);  // "*" names the device of that name, not all
}

TEST_CASE("patterns: a star stands for any characters or none") {
  CHECK(matches("gpu*", "gpu12"));
  CHECK(matches("gpu*", "gpu"));
  CHECK(matches("*.gpu*", "n0.gpu1"));
  CHECK(matches("a*b*c", "aXbYbZc"));
  CHECK(matches("**", ""));
  CHECK_FALSE(matches("gpu*", "cpu0"));
  CHECK_FALSE(matches("a*b", "abc"));
  CHECK_FALSE(matches("", "a"));
  // Takes a product of lengths, not an exponential.
  CHECK_FALSE(matches(std::string(200, '*') + "b", std::string(20000, 'a')));
}

TEST_CASE("documents: JSON keeps lines and order") {
  const Value root = parse_json("{\"b\": 1,\n \"a\": [true,\n  {\"x\":\n \"text\"}]}", "f.json");
  CHECK(root.keys == Names{"b", "a"});
  CHECK(root.items[0].integer == 1);
  CHECK(root.items[0].line == 1);
  CHECK(root.items[1].line == 2);
  CHECK(root.items[1].items[0].described() == "a boolean");
  CHECK(root.items[1].items[1].line == 3);
  CHECK(root.items[1].items[1].items[0].text == "text");
}

TEST_CASE("documents: TOML keeps lines and order") {
  const Value root = parse_toml("b = 1\na = [true,\n  {x = \"text\"}]\n[[c]]\n", "f.toml");
  CHECK(root.keys == Names{"b", "a", "c"});
  CHECK(root.items[1].line == 2);
  CHECK(root.items[1].items[0].described() == "a boolean");
  CHECK(root.items[1].items[1].line == 3);
  CHECK(root.items[2].line == 4);
  CHECK(root.items[2].kind == Value::Kind::list);
}

}  // namespace
TEST_CASE(
    "cluster file: a link of a kind has its share of the rate, unless the rate is effective") {
  const auto read = [](const std::string& keys) {
    const std::string text =
        "[[nodes]]\nname = \"box\"\ndevices = [{ model = \"t4\", count = 2 }]\n"
        "links = [{ a = \"gpu0\", b = \"gpu1\", latency = \"1 us\", " +
        keys + " }]\n";
    return parse_cluster(text, "box.toml").links.at(0);
  };
  const Link line = read("kind = \"pcie3\", rate = \"10 GB/s\"");
  CHECK(line.rate.value == 10e9 * link_numbers(LinkKind::pcie3).efficiency);
  const Link effective = read("kind = \"pcie3\", effective_rate = \"10 GB/s\"");
  CHECK(effective.rate.value == 10e9);
  CHECK(effective.kind == LinkKind::pcie3);
  CHECK(effective.line_rate.value == 0);
  CHECK(read("rate = \"10 GB/s\"").rate.value == 10e9);
  CHECK_THROWS_WITH(read("kind = \"pcie33\", rate = \"10 GB/s\""),
                    doctest::Contains("did you mean 'pcie3'?"));
  CHECK_THROWS_WITH(read("rate = \"1 GB/s\", effective_rate = \"1 GB/s\""),
                    doctest::Contains("given together with 'rate'"));
}

}  // namespace parsim::topologies
