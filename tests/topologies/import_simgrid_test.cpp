// SimGrid's platforms: where links end follows from routes, and what parsim writes comes back.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/routes.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topologies/imported.hpp"
#include "topologies/import/platform.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

using testing::imported, testing::text_of;

Cluster without_sources(Cluster cluster) {
  cluster.provenances.clear();
  for (Link& link : cluster.links) {
    link.provenance = -1;
    link.kind.reset();  // XML has rates as they are used
    link.kind_guessed = false;
    link.line_rate = {};
  }
  return cluster;
}
/// Every route of the file takes as long and is as wide in the cluster.
void check_routes(const std::string& name) {
  CAPTURE(name);
  const Platform platform = read_platform(parse_xml(text_of(name), name), name);
  const Cluster cluster = imported(name).cluster;
  Routes routes(cluster);
  std::map<std::string, DeviceId> device;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    device[cluster.devices[i].name] = DeviceId{i};
  }
  for (const PlatformRoute& route : platform.routes) {
    const PlatformPoint &from = platform.points[route.from], &to = platform.points[route.to];
    if (!from.is_host || !to.is_host) continue;
    double latency = 0, rate = 1e30;
    for (const PlatformHop& hop : route.hops) {
      latency += platform.links[hop.link].latency.count();
      rate = std::min(rate, platform.links[hop.link].rate.value);
    }
    const Route& way = routes.between(device.at(from.name), device.at(to.name));
    CHECK(way.latency.count() == testing::approx(latency));
    CHECK(way.rate.value == rate);
  }
}

TEST_CASE("import simgrid: links get their ends from routes") {
  check_routes("simgrid/five-hosts.xml");
  check_routes("simgrid/floyd.xml");
  const Imported file = imported("simgrid/five-hosts.xml");
  CHECK(file.cluster.devices.size() == 5);
  CHECK(file.cluster.links.size() == 6 + 1);  // and ada's port, because it forwards for ben
  CHECK(file.cluster.model(DeviceId{3}).peak_at(Precision::fp32).value == 2 * 48.492e6);
  CHECK(file.notes.back().starts_with("2 links are SHARED"));
}

TEST_CASE("import simgrid: two links, there and back, are one cable, and gaps become notes") {
  // Three hosts around a switch that no one names, with an up and a down link each.
  const auto read = [](const std::string& slow, const std::string& forgotten) {
    std::string text = "<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\">\n";
    const std::vector<std::string> names{"a", "b", "c"};
    for (const std::string& name : names) {
      text += "<host id=\"" + name + "\" speed=\"1Gf\"/>\n";
      for (const std::string way : {"-up", "-down"}) {
        text += "<link id=\"" + name + way + "\" bandwidth=\"" + (name + way == slow ? "5" : "10") +
                "GBps\" latency=\"1us\"/>\n";
      }
    }
    for (const std::string& from : names) {
      for (const std::string& to : names) {
        if (from == to || from + to == forgotten || to + from == forgotten) continue;
        text += "<route src=\"" + from + "\" dst=\"" + to +
                "\" symmetrical=\"NO\"><link_ctn id=\"" + from + "-up\"/><link_ctn id=\"" + to +
                "-down\"/></route>\n";
      }
    }
    auto file = import_cluster(text + "</zone></platform>\n", "three.xml", {});
    REQUIRE(file);
    return *std::move(file);
  };
  const Imported cables = read("", "");
  CHECK(cables.cluster.links.size() == 3);
  REQUIRE(cables.notes.size() == 1);
  CHECK(cables.notes[0].starts_with("host-1Gf"));
  const Imported uneven = read("a-down", "");
  CHECK(uneven.cluster.links.size() == 4);
  REQUIRE(uneven.notes.size() == 2);
  CHECK(uneven.notes[1] == "2 links are used in one direction only; parsim gives them both");
  const Imported gap = read("", "bc");
  REQUIRE(!gap.notes.empty());
  CHECK(gap.notes[0] ==
        "three.xml:1:zone: no route between 1 pair of hosts ('b' and 'c'); they use the shortest "
        "path");
}

TEST_CASE("import simgrid: numbers without a unit become one note") {
  const auto notes_with = [](const std::string& from, const std::string& to) {
    std::string text = testing::with(text_of("simgrid/floyd.xml"), from, to);
    const auto file = import_cluster(text, "f.xml", {});
    REQUIRE(file);
    return file->notes;
  };
  const std::vector<std::string> usual = imported("simgrid/floyd.xml").notes;
  std::vector<std::string> expected = usual;
  expected.insert(expected.begin(),
                  "f.xml:10:link.bandwidth: '12' is 12 B/s without a unit, as SimGrid reads it");
  CHECK(notes_with("bandwidth=\"1GBps\"", "bandwidth=\"12\"") == expected);
  expected.front() += " (1 more)";
  CHECK(notes_with("bandwidth=\"1GBps\" latency=\"10us\"", "bandwidth=\"12\" latency=\"1e-5\"") ==
        expected);
  CHECK(notes_with("latency=\"10us\"", "latency=\"0.0\"") == usual);
  expected.front() =
      "f.xml:5:host.speed: '1e10' is 1e10 FLOP/s without a unit, as SimGrid reads it";
  CHECK(notes_with("speed=\"10Gf\"", "speed=\"1e10\"") == expected);
}

TEST_CASE("import simgrid: a host's speed in any of SimGrid's units is the same") {
  const auto with_speed = [](const std::string& speed) {
    const auto file = import_cluster(
        testing::with(text_of("simgrid/floyd.xml"), "speed=\"10Gf\"", "speed=\"" + speed + "\""),
        "f.xml", {});
    REQUIRE(file);
    return file->cluster.models.at(0).peak;
  };
  const auto usual = with_speed("10Gf");
  for (const char* same : {"10000000000f", "10000000000flops", "10000000kiloflops",
                           "10000megaflops", "10gigaflops", "0.01Tf"}) {
    CAPTURE(same);
    CHECK(with_speed(same) == usual);
  }
}

TEST_CASE("import simgrid: cluster tags are stars") {
  const Cluster flat = imported("simgrid/flat-cluster.xml").cluster;
  REQUIRE(flat.devices.size() == 5);
  CHECK(flat.devices[4].name == "node-8.acme.org");
  Routes routes(flat);
  // 5 us up, 2 us of a backbone as fast as all hosts, 5 us down
  CHECK(routes.between(DeviceId{0}, DeviceId{4}).latency.count() == testing::approx(12e-6));
  const Cluster two = imported("simgrid/two-clusters.xml").cluster;
  Routes between(two);
  const Route& way = between.between(DeviceId{0}, DeviceId{5});
  CHECK(way.rate.value == 1.25e9);
  CHECK(way.latency.count() == testing::approx(140e-6));
  CHECK(two.model(DeviceId{5}) == device_model("v100-pcie", "test"));
}

TEST_CASE("import simgrid: what parsim writes is read back as the same cluster") {
  std::vector<std::string> calls{"star:3,device=t4*1+p100-pcie*2,rate=10GB/s,latency=0s",
                                 "nodes:2x4,device=v100-sxm2,intra=100GB/s,inter=12GB/s,nics=2",
                                 "torus:3x3,device=t4", "fat-tree:8,device=t4"};
  for (const ClusterEntry& entry : clusters()) {
    if (entry.summary.find("options:") == std::string::npos) calls.push_back(entry.name);
  }
  REQUIRE(calls.size() > 10);
  for (const std::string& call : calls) {
    CAPTURE(call);
    const Cluster cluster = load_cluster(call, "test");
    if (cluster.devices.size() > 64) continue;
    const auto back = import_cluster(simgrid_xml(cluster, "test"), "back.xml", {});
    REQUIRE(back);
    CHECK(without_sources(back->cluster) == without_sources(cluster));
    CHECK(back->notes.empty());
  }
}

TEST_CASE("import simgrid: powers of links are read back") {
  Cluster cluster = load_cluster("nodes:2x2,device=t4,intra=100GB/s,inter=12GB/s", "test");
  cluster.links[0].power = {Watts{9.5}, Watts{0.1}};
  cluster.links[1].power = {Watts{7}, Watts{7}};
  const std::string xml = simgrid_xml(cluster, "test");
  const auto back = import_cluster(xml, "back.xml", {});
  REQUIRE(back);
  CHECK(without_sources(back->cluster) == without_sources(cluster));
  CHECK(back->notes.empty());
  std::string broken = xml;
  broken.replace(broken.find("0.05:4.75"), 9, "4.75");
  CHECK_THROWS_WITH_AS((void)import_cluster(broken, "b.xml", {}),
                       doctest::Contains("'4.75' of wattage_range; accepted: 'idle:busy' in watts"),
                       InputError);
}

TEST_CASE("import simgrid: hostile names survive the way out and in") {
  Cluster cluster = load_cluster("star:3,device=t4,rate=1GB/s,latency=1us", "test");
  cluster.name = "<script>alert('1')</script>";
  cluster.devices[0].name = "a\"b&c<d>'e";
  cluster.devices[1].name = std::string(10'000, 'x');
  cluster.links[0].name = "]]>";
  cluster.switches[0].name = "Zürich";
  const auto back = import_cluster(simgrid_xml(cluster, "test"), "back.xml", {});
  REQUIRE(back);
  CHECK(without_sources(back->cluster) == without_sources(cluster));
}

}  // namespace
}  // namespace parsim::topologies
