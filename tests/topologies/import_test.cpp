// Files of foreign tools: what they say is what one gets, and what they do not say is said.
#include "topologies/import/import.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "core/routes.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/import/platform.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

const std::string data = std::string(PARSIM_SOURCE_DIR) + "/tests/topologies/data/";

std::string text_of(const std::string& name) {
  std::ifstream stream(data + name);
  REQUIRE_MESSAGE(stream, "no file ", name);
  std::stringstream all;
  all << stream.rdbuf();
  return all.str();
}

Imported imported(const std::string& name) {
  const auto found = import_cluster(text_of(name), name, {});
  REQUIRE(found);
  return *found;
}

/// Cables between GPUs: "0-3" -> how many, and each one's rate.
std::map<std::string, std::pair<int, double>> cables(const Cluster& cluster) {
  std::map<std::string, std::pair<int, double>> found;
  for (const Link& link : cluster.links) {
    if (link.a.kind != Port::Kind::device || link.b.kind != Port::Kind::device) continue;
    auto& [count, rate] = found[std::to_string(std::min(link.a.index, link.b.index)) + "-" +
                                std::to_string(std::max(link.a.index, link.b.index))];
    ++count;
    rate = link.rate.value;
  }
  return found;
}

/// Rates of the ways between all GPUs, row by row, in GB/s.
std::vector<double> rates(const Cluster& cluster) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  Routes routes(cluster);
  std::vector<double> found;
  for (const DeviceId a : gpus) {
    for (const DeviceId b : gpus) {
      if (a != b) found.push_back(routes.between(a, b).rate.value / 1e9);
    }
  }
  return found;
}

Cluster without_sources(Cluster cluster) {
  cluster.provenances.clear();
  for (Link& link : cluster.links) link.provenance = -1;
  return cluster;
}

TEST_CASE("import nccl: a DGX-1V is the built-in one") {
  const Cluster cluster = imported("nccl/dgx-1v.xml").cluster;
  CHECK(cluster.name == "dgx-1v");
  CHECK(cables(cluster) == cables(load_cluster("dgx-v100", "test")));
  CHECK(rates(cluster) == rates(load_cluster("dgx-v100", "test")));
  REQUIRE(cluster.models.size() == 1);
  CHECK(cluster.models[0] == device_model("v100-sxm2", "test"));
}

TEST_CASE("import nccl: GPUs go by their number, NVSwitches are one switch") {
  const Imported file = imported("nccl/dgx-a100.xml");
  REQUIRE(file.cluster.devices.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(file.cluster.devices[i].name == "gpu" + std::to_string(i));
  }
  CHECK(file.cluster.models[0].name == "a100-sxm4-40");
  // 6 NVSwitches x 2 links x 20 GB/s
  CHECK(rates(file.cluster) == std::vector<double>(8 * 7, 240));
  CHECK(file.notes == std::vector<std::string>{
                          "8 network cards without a network: join machines in a cluster file"});
}

TEST_CASE("import nccl: two sockets without NVLink by hand") {
  const Cluster cluster = imported("nccl/pcie-2-sockets.xml").cluster;
  // T4s on PCIe 3 x16 (12 GB/s), the last on x8 (6 GB/s), Skylake's UPI 10 GB/s between sockets.
  CHECK(rates(cluster) == std::vector<double>{12, 10, 6, 12, 10, 6, 10, 10, 6, 6, 6, 6});
  CHECK(cluster.switches.size() == 3);  // eth0 stands under both sockets and is one card
}

TEST_CASE("import nccl: bridges of one PCIe switch are joined once, whoever says so") {
  const auto text = [](const std::string& second) {
    return R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">
<pci busid="0000:10:00.0" link_speed="16.0 GT/s PCIe" link_width="16">
<pcilink target="0000:20:00.0"/>
<pci busid="0000:11:00.0" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="80"/></pci></pci>
<pci busid="0000:20:00.0" link_speed="16.0 GT/s PCIe" link_width="16">
<pcilink target=")" +
           second + R"("/>
<pci busid="0000:21:00.0" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="1" sm="80"/></pci></pci></cpu></system>)";
  };
  const auto read = [&](const std::string& second) {
    auto file = import_cluster(text(second), "flat.xml", {});
    REQUIRE(file);
    return *std::move(file);
  };
  const Imported both = read("0000:10:00.0");
  CHECK(both.notes.size() == 1);  // the GPUs' type is a guess
  const auto shortcuts = [](const Cluster& cluster) {
    return std::count_if(cluster.links.begin(), cluster.links.end(),
                         [](const Link& link) { return link.rate == BytesPerSecond{5000e9}; });
  };
  CHECK(both.cluster.links.size() == 5);  // two GPUs, two bridges, and the switch's inside
  CHECK(shortcuts(both.cluster) == 1);
  const Imported one = read("0000:30:00.0");
  CHECK(shortcuts(one.cluster) == 1);
  CHECK(one.notes.size() == 2);
  CHECK_THROWS_AS(read("0000:20:00.0"), InputError);
}

TEST_CASE("import nccl: what a virtual machine hides is guessed and said") {
  const Imported file = imported("nccl/virtual-machine.xml");
  CHECK(file.notes == std::vector<std::string>{"a100-pcie: type guessed from sm 80 and 0 NVLinks "
                                               "in nccl/virtual-machine.xml"});
  const DeviceModel& model = file.cluster.models.at(0);
  CHECK(model.provenance.back().label == Label::guessed);
  CHECK(file.cluster.provenances.at(0).label == Label::guessed);  // no PCIe speed
  // The user knows better.
  const Cluster told =
      load_cluster(data + "nccl/virtual-machine.xml,device=a100-sxm4-80", "--cluster");
  CHECK(told.models == std::vector{device_model("a100-sxm4-80", "test")});
}

TEST_CASE("import nvidia-smi: the same machine as NCCL's file says") {
  const Imported file = imported("smi/dgx-1v.txt");
  const Cluster nccl = imported("nccl/dgx-1v.xml").cluster;
  CHECK(cables(file.cluster) == cables(nccl));
  CHECK(file.cluster.models == nccl.models);
  // Two GPUs and a card on each of four PCIe switches, two of these on each of two sockets.
  CHECK(file.cluster.switches.size() == 4 + 4 + 2);
  Routes routes(file.cluster);
  CHECK(routes.between(DeviceId{0}, DeviceId{5}).hops.size() == 5);
}

TEST_CASE("import nvidia-smi: NV12 between eight GPUs is an NVSwitch") {
  const Imported file = imported("smi/dgx-a100.txt");
  CHECK(rates(file.cluster) == std::vector<double>(8 * 7, 240));
  CHECK(file.cluster.models.at(0).name == "a100-sxm4-40");
  CHECK(file.notes.at(0) ==
        "a100-sxm4-40: type guessed from 12 NVLinks to every other GPU in smi/dgx-a100.txt; "
        "a100-sxm4-80 would be FILE,device=NAME");
}

TEST_CASE("import nvidia-smi: PCIe trees without NVLink") {
  const Imported file = imported("smi/pcie-2-sockets.txt");
  Routes routes(file.cluster);
  const auto hops = [&](std::size_t a, std::size_t b) {
    return routes.between(DeviceId{a}, DeviceId{b}).hops.size();
  };
  CHECK(hops(0, 1) == 2);  // one PCIe switch
  CHECK(hops(0, 2) == 4);  // two switches of a socket
  CHECK(hops(0, 4) == 5);  // across the sockets
  CHECK(routes.between(DeviceId{0}, DeviceId{4}).rate.value == 10e9);
  CHECK(file.cluster.models.at(0) == device_model("rtx-3090", "test"));
}

TEST_CASE("import nvidia-smi: without a product or NVLinks the type must be said") {
  CHECK(testing::refusal_of([] { return imported("smi/two-cards.txt"); }) ==
        "smi/two-cards.txt:2:GPU0: 0 NVLinks: that does not tell the type of the GPU; the lines of "
        "'nvidia-smi -L' before the matrix, or FILE,device=NAME");
  const Cluster told = load_cluster(data + "smi/two-cards.txt,device=t4", "--cluster");
  CHECK(rates(told) == std::vector<double>{12, 12});
  CHECK(imported("smi/nvlink-bridge.txt").cluster.models.at(0).name == "rtx-3090");
}

/// A matrix of GPUs only, without products: NVLinks of each to each other, half on either socket.
Imported imported_matrix(const std::vector<std::vector<int>>& nvlinks) {
  std::string text = "GPU0";
  for (std::size_t i = 1; i < nvlinks.size(); ++i) text += " GPU" + std::to_string(i);
  for (std::size_t i = 0; i < nvlinks.size(); ++i) {
    text += "\nGPU" + std::to_string(i);
    for (std::size_t j = 0; j < nvlinks.size(); ++j) {
      const int links = nvlinks[i][j];
      text += i == j ? " X" : links == 0 ? " SYS" : " NV" + std::to_string(links);
    }
    text += 2 * i < nvlinks.size() ? " 0-19" : " 20-39";
  }
  const auto found = import_cluster(text + "\n", "m.txt", {});
  REQUIRE(found);
  return *found;
}

TEST_CASE("import nvidia-smi: NVLinks tell the type where all that have so many are of a kind") {
  // Before, bridges in pairs of four cards were P100s, and so were four GPUs of a DGX-1V.
  const Imported bridges =
      imported_matrix({{0, 4, 0, 0}, {4, 0, 0, 0}, {0, 0, 0, 4}, {0, 0, 4, 0}});
  CHECK(bridges.cluster.models.at(0).name == "rtx-3090");
  CHECK(bridges.cluster.models.at(0).provenance.back().label == Label::guessed);
  CHECK(bridges.notes.at(0) ==
        "rtx-3090: type guessed from 4 NVLinks to 1 other in m.txt; a40 would be "
        "FILE,device=NAME");
  // NVIDIA's DGX-1 with P100s: one link each to the three others of a half and to one beyond.
  std::vector<std::vector<int>> dgx_1(8, std::vector<int>(8, 0));
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) dgx_1[i][j] = i / 4 == j / 4 || i % 4 == j % 4 ? 1 : 0;
  }
  CHECK(imported_matrix(dgx_1).cluster.models.at(0).name == "p100-sxm2");
  // Four A100s without switches, all twelve links used; sixteen V100s with them, six used.
  CHECK(imported_matrix(std::vector(4, std::vector(4, 4))).cluster.models.at(0).name ==
        "a100-sxm4-40");
  CHECK(imported_matrix(std::vector(16, std::vector(16, 6))).cluster.models.at(0).name ==
        "v100-sxm3");
}

TEST_CASE("import nvidia-smi: NVLinks of several generations' number need the type") {
  const auto refused = [](const std::vector<std::vector<int>>& nvlinks) {
    return testing::refusal_of([&] { return imported_matrix(nvlinks); });
  };
  const std::string accepted =
      ": that does not tell the type of the GPU; the lines of 'nvidia-smi -L' before the matrix, "
      "or FILE,device=NAME";
  CHECK(refused({{0, 1, 1, 2}, {1, 0, 2, 1}, {1, 2, 0, 1}, {2, 1, 1, 0}}) ==
        "m.txt:2:GPU0: 4 NVLinks to 3 others" + accepted + ", as p100-sxm2 or v100-sxm2");
  CHECK(refused({{0, 12}, {12, 0}}) == "m.txt:2:GPU0: 12 NVLinks to 1 other" + accepted +
                                           ", as a100-pcie or a100-sxm4-40 or h100-pcie");
  CHECK(refused(std::vector(8, std::vector(8, 18))) ==
        "m.txt:2:GPU0: 18 NVLinks to every other GPU" + accepted +
            ", as h100-sxm5 or h200-sxm or b200-sxm");
  CHECK(refused({{0, 1, 0}, {1, 0, 0}, {0, 0, 0}}) == "m.txt:4:GPU2: 0 NVLinks" + accepted);
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
    CHECK(way.latency.count() == doctest::Approx(latency));
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

TEST_CASE("import simgrid: two links, there and back, are one cable, and gaps are told") {
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
  CHECK(uneven.notes[1] == "2 links are used in one direction only; here they have both");
  const Imported gap = read("", "bc");
  REQUIRE(!gap.notes.empty());
  CHECK(gap.notes[0] ==
        "three.xml:1:zone: no route between 1 pair of hosts ('b' and 'c'); they take the shortest "
        "way over the links");
}

TEST_CASE("import simgrid: what a number without a unit was read as is told once") {
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

TEST_CASE("import simgrid: cluster tags are stars") {
  const Cluster flat = imported("simgrid/flat-cluster.xml").cluster;
  REQUIRE(flat.devices.size() == 5);
  CHECK(flat.devices[4].name == "node-8.acme.org");
  Routes routes(flat);
  // 5 us up, 2 us of a backbone that limits nobody, 5 us down
  CHECK(routes.between(DeviceId{0}, DeviceId{4}).latency.count() == doctest::Approx(12e-6));
  const Cluster two = imported("simgrid/two-clusters.xml").cluster;
  Routes between(two);
  const Route& way = between.between(DeviceId{0}, DeviceId{5});
  CHECK(way.rate.value == 1.25e9);
  CHECK(way.latency.count() == doctest::Approx(140e-6));
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

struct Slip {
  std::string file, from, to, message;
};

TEST_CASE("import: every slip gets its place, what was found and what is accepted") {
  const Slip slips[] = {
      {"nccl/dgx-1v.xml", "</system>", "", ":98: Start-end tags mismatch; well-formed XML"},
      {"nccl/dgx-1v.xml", "<system version=\"1\">", "<sytem>",
       ":98: Start-end tags mismatch; well-formed XML"},
      {"nccl/pcie-2-sockets.xml", "<cpu numaid=\"0\"", "<cpu numaid=\"1\"",
       ":13:cpu.numaid: a second <cpu> with numaid 1; each number once"},
      {"nccl/pcie-2-sockets.xml", "<gpu dev=\"0\"", "<gup dev=\"0\"",
       ":4:gup: <gup> inside <pci>; accepted: pci, gpu, nic, pcilink; did you mean 'gpu'?"},
      {"nccl/pcie-2-sockets.xml", "dev=\"3\"", "dev=\"2\"",
       ":18:gpu.dev: a second GPU with dev 2; each number once"},
      {"nccl/pcie-2-sockets.xml", "dev=\"3\"", "dev=\"-3\"",
       ":18:gpu.dev: '-3'; a whole number of 0 to 1000000"},
      {"nccl/pcie-2-sockets.xml", "gpu dev=\"3\" ", "gpu dve=\"3\" ",
       ":18:gpu.dev: <gpu> has no 'dev'; it must be given; given: dve, sm, rank, gdr"},
      {"nccl/pcie-2-sockets.xml", "0000:af:00.0", "0000:d8:00.0",
       ":17:pci.busid: the bus id '0000:d8:00.0' occurs twice; each device once"},
      {"nccl/pcie-2-sockets.xml", "link_width=\"8\"", "link_width=\"-8\"",
       ":17:pci.link_width: '-8'; a whole number of 0 to 64"},
      {"nccl/pcie-2-sockets.xml", "link_speed=\"8.0 GT/s PCIe\"", "link_speed=\"16 GB/s\"",
       ":3:pci.link_speed: '16 GB/s'; transfers of a lane, as in \"16.0 GT/s PCIe\", or \"\" where "
       "nothing is known; the rate follows from link_width"},
      {"nccl/pcie-2-sockets.xml", "speed=\"10000\"", "speed=\"0\"",
       ":10:net.speed: neither a PCIe device nor a speed; a speed in Mbit/s"},
      {"nccl/virtual-machine.xml", "sm=\"80\"", "sm=\"99\"",
       ":6:gpu.sm: PCI device '0xffff' and capability 99 are no GPU that the device table knows; "
       "say which it is like: FILE,device=NAME (see 'parsim list devices')"},
      {"nccl/dgx-1v.xml", "count=\"2\"", "count=\"1\"",
       ":8:nvlink.count: 1 links from gpu0 to gpu3, but 2 back; as many in both directions"},
      {"nccl/dgx-1v.xml", "target=\"0000:07:00.0\"", "target=\"0000:06:00.0\"",
       ":6:nvlink.target: the GPU itself; another GPU"},
      {"nccl/dgx-1v.xml", "tclass=\"0x030200\"", "tclass=\"0x040000\"",
       ":6:nvlink.tclass: '0x040000'; accepted: 0x03… (GPU), 0x068000 (NVSwitch), 0x068001 (CPU)"},
      {"nccl/dgx-a100.xml", "host_hash=\"0x1f2e3d4c5b6a7988\"", "host_hash=\"0x1\"",
       ":36:cpu.host_hash: '0x1f2e3d4c5b6a7988' after '0x1'; one machine a file; join several in a "
       "cluster file"},
      {"smi/dgx-1v.txt", "\nGPU7", "\n\nGPU7",
       ":17:matrix: 7 rows for 12 columns; all that 'nvidia-smi topo -m' prints"},
      {"smi/dgx-1v.txt", "NV1", "NVX",
       ":10:GPU0.GPU1: 'NVX'; accepted: X, NV# (1 to 1024), PIX, PXB, PHB, NODE, SYS; did you mean "
       "'NV1'?"},
      {"smi/dgx-1v.txt", "NV1", "NV-1",
       ":10:GPU0.GPU1: 'NV-1'; accepted: X, NV# (1 to 1024), PIX, PXB, PHB, NODE, SYS; did you "
       "mean 'NV1'?"},
      {"smi/dgx-1v.txt", "NV1", "NV2",
       ":10:GPU0.GPU1: GPU0 and GPU1 say different things of each other; the same in both rows"},
      {"smi/dgx-1v.txt", "\nGPU3\t", "\nGPU4\t",
       ":13:GPU4: a row 'GPU4'; the row 'GPU3', as the columns are"},
      {"smi/dgx-1v.txt", "Tesla V100-SXM2-16GB", "Tesla V200",
       ":GPU0: 'Tesla V200' is no GPU that the device table knows; say which it is like: "
       "FILE,device=NAME (see 'parsim list devices')"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU5: Tesla V100",
       ":15:GPU5: in the matrix, but not among the 7 GPUs that 'nvidia-smi -L' lists; all that "
       "both "
       "commands print on one machine, or the matrix alone with FILE,device=NAME"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU 8: Tesla V100",
       ":6:GPU8: listed by 'nvidia-smi -L', but not in the matrix; all that both commands print on "
       "one machine, or the matrix alone with FILE,device=NAME"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU 4: Tesla V100",
       ":6:GPU4: listed twice; all that both commands print on one machine, or the matrix alone "
       "with FILE,device=NAME"},
      {"smi/two-cards.txt", "PHB      X      0-15", "PHB     PHB     0-15",
       ":3:GPU1.GPU1: no X; X where a device meets itself, only there"},
      {"smi/two-cards.txt", "GPU1    PHB      X      0-15            N/A", "GPU1    PHB",
       ":3:GPU1: 1 entries for 2 columns; one entry for each column"},
      {"simgrid/floyd.xml", "routing=\"Floyd\"", "routing=\"Flyod\"",
       ":4:zone.routing: 'Flyod'; accepted: Full, Floyd, Dijkstra, DijkstraCache, None; did you "
       "mean 'Floyd'?"},
      {"simgrid/floyd.xml", "routing=\"Floyd\"", "routing=\"Vivaldi\"",
       ":4:zone.routing: 'Vivaldi'; accepted: Full, Floyd, Dijkstra, DijkstraCache, None"},
      {"simgrid/floyd.xml", "bandwidth=\"1GBps\"", "bandwidth=\"-1GBps\"",
       ":10:link.bandwidth: '-1GBps'; accepted: a positive number with one of Bps, kBps, MBps, "
       "GBps, TBps, KiBps, MiBps, GiBps, TiBps, bps, kbps, Mbps, Gbps, Tbps"},
      {"simgrid/floyd.xml", "latency=\"10us\"", "latency=\"10uss\"",
       ":10:link.latency: '10uss'; accepted: a non-negative number with one of s, ms, us, ns, ps, "
       "m, h, d, w; did you mean 'us'?"},
      {"simgrid/floyd.xml", "speed=\"10Gf\"", "speed=\"fast\"",
       ":5:host.speed: 'fast'; accepted: a positive number with one of f, kf, Mf, Gf, Tf, Pf, Ef, "
       "Kif, Mif, Gif, Tif, flops, kiloflops, megaflops, gigaflops, teraflops"},
      {"simgrid/floyd.xml", "dst=\"middle\"", "dst=\"midle\"",
       ":14:route.dst: no host or router 'midle'; one that stands before; did you mean 'middle'?"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l1\"/>", "<link_ctn id=\"l9\"/>",
       ":14:link_ctn.id: no link 'l9'; one that stands before; did you mean 'l1'?"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l1\"/>", "",
       ":14:route: a route without links; at least one <link_ctn>"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l3\"/>", "<link_ctn id=\"l2\"/>",
       ":8:router: its routes make 'middle' and 'far' one place; routes over links with two ends "
       "each"},
      {"simgrid/floyd.xml", "id=\"l2\" ", "id=\"l1\" ",
       ":11:link: the name 'l1' occurs twice; names must be unique"},
      {"simgrid/floyd.xml", "<router id=\"far\"/>", "<peer id=\"far\"/>",
       ":8:peer: <peer> inside <zone>; accepted: prop, host, router, link, route, zone, AS, "
       "cluster, zoneRoute, ASroute"},
      {"simgrid/floyd.xml", "version=\"4\"", "version=\"3\"",
       ":3:platform.version: '3'; accepted: 4 or 4.1 (simgrid_update_xml converts older files)"},
      {"simgrid/floyd.xml", "speed=\"10Gf\"/>", "speed=\"10Gf\" speed_file=\"a.txt\"/>",
       ":5:host.speed_file: a profile over time; a cluster that does not change"},
      {"simgrid/five-hosts.xml", "536.941us\" sharing_policy=\"SPLITDUPLEX\"",
       "536.941us\" sharing_policy=\"FATPIPE\"",
       ":21:route: the link 'a', whose rate each flow has for itself (FATPIPE); links that flows "
       "share: SPLITDUPLEX or SHARED"},
      {"simgrid/flat-cluster.xml", "bb_bw=\"100GBps\"", "bb_bw=\"20GBps\"",
       ":4:cluster.bb_bw: a backbone of 20.0 GB/s, shared by 5 hosts of 12.5 GB/s each; one that "
       "limits nobody, or none: links here have two ends"},
      {"simgrid/flat-cluster.xml", "radical=\"0-3,8\"", "radical=\"3-0\"",
       ":4:cluster.radical: '3-0'; accepted: numbers and rising ranges, as \"0-7,12\", of at most "
       "65536 hosts"},
      {"simgrid/flat-cluster.xml", "bw=\"12.5GBps\"", "bw=\"12.5GBps\" topology=\"TORUS\"",
       ":4:cluster.topology: 'TORUS'; accepted: FLAT; the generators fat-tree, torus and dragonfly "
       "make others"},
      {"simgrid/two-clusters.xml", "value=\"p100-pcie\"", "value=\"p100-pci\"",
       ":6:cluster: unknown device 'p100-pci'"},
      {"simgrid/two-clusters.xml", "<platform version=\"4.1\">", "<plattform>",
       ":15: Start-end tags mismatch; well-formed XML"},
  };
  for (const Slip& slip : slips) {
    CAPTURE(slip.file);
    CAPTURE(slip.to);
    const std::string text = testing::with(text_of(slip.file), slip.from, slip.to);
    const std::string message =
        testing::refusal_of([&] { return import_cluster(text, slip.file, {}); });
    CHECK(message.substr(0, slip.file.size() + slip.message.size()) == slip.file + slip.message);
  }
}

TEST_CASE("import: a bus, a wrong root and bottomless nesting are refused by name") {
  const auto refused = [](const std::string& text) {
    return testing::refusal_of([&] { return import_cluster(text, "f.xml", {}); });
  };
  CHECK(refused(R"(<platform version="4.1"><zone id="z" routing="Full">
<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/><host id="c" speed="1Gf"/>
<link id="la" bandwidth="1GBps"/><link id="lb" bandwidth="1GBps"/><link id="lc" bandwidth="1GBps"/>
<link id="bus" bandwidth="1GBps"/>
<route src="a" dst="b"><link_ctn id="la"/><link_ctn id="bus"/><link_ctn id="lb"/></route>
<route src="a" dst="c"><link_ctn id="la"/><link_ctn id="bus"/><link_ctn id="lc"/></route>
<route src="b" dst="c"><link_ctn id="lb"/><link_ctn id="bus"/><link_ctn id="lc"/></route>
</zone></platform>)") ==
        "f.xml:4:link: the routes use the link 'bus' as a bus: they enter and leave it at one "
        "place; links with two ends; a bus becomes a switch (<router>) with a link to each");
  CHECK(refused("<sytem/>") ==
        "f.xml:1:sytem: <sytem> around everything; accepted: system (NCCL's topology), platform "
        "(SimGrid's); did you mean 'system'?");
  CHECK(refused("") == "f.xml:1: No document element found; well-formed XML");
  CHECK(refused("<system/><system/>") ==
        "f.xml:1: <system> after the end of <system>; one tag around everything");
  CHECK(refused("<system>words</system>") ==
        "f.xml:1: the text 'words' inside <system>; tags only");
  CHECK(refused("<system a='1' a='2'/>") ==
        "f.xml:1:system: the attribute 'a' occurs twice; each once");
  CHECK(refused("<system><cpu numaid='x'/></system>") ==
        "f.xml:1:cpu.numaid: 'x'; a whole number of -1 to 1000000");
  // Found by fuzzing: the header was recognised by its beginning only.
  CHECK(testing::refusal_of([] { return import_cluster("GPU00 GPU1\nGPU1 X\n", "f.txt", {}); }) ==
        "f.txt:1:matrix: no line that begins with GPU0 as a word; all that 'nvidia-smi topo -m' "
        "prints");
  CHECK(refused("<system/>") == "f.xml: cluster 'f' has no devices; at least one device");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<cpu>";
  for (int i = 0; i < 100'000; ++i) deep += "</cpu>";
  CHECK(refused(deep) == "f.xml:1: nested deeper than 64 tags; a cluster");
}

TEST_CASE("import: what is guessed of a node in a cluster file is told with its name") {
  std::vector<std::string> notes;
  const auto read = [&](const std::string& import) {
    return parse_cluster("[[nodes]]\nname = \"box\"\nimport = \"" + import + "\"\n",
                         data + "mine.toml", &notes);
  };
  CHECK(read("nccl/virtual-machine.xml").models.at(0).name == "a100-pcie");
  const std::string file = data + "nccl/virtual-machine.xml";
  std::vector<std::string> expected =
      import_cluster(text_of("nccl/virtual-machine.xml"), file, {})->notes;
  REQUIRE(!expected.empty());
  for (std::string& note : expected) note = "box: " + note;
  CHECK(notes == expected);
  // As on the command line; nothing is guessed then.
  CHECK(read("nccl/virtual-machine.xml,device=a100-sxm4-80").models.at(0).name == "a100-sxm4-80");
  CHECK(notes.empty());
}

TEST_CASE("import: machines of a cluster file may come from files of other tools") {
  const auto parsed = [](const std::string& node) {
    return parse_cluster(R"(switches = ["network"]
[[nodes]]
name = "box"
count = 2
)" + node + R"(
[[links]]
a = "box*.mlx5_0"
b = "network"
rate = "100 Gbit/s"
latency = "2 us"
)",
                         data + "mine.toml");
  };
  const Cluster cluster = parsed("import = \"nccl/dgx-1v.xml\"");
  const Cluster one = imported("nccl/dgx-1v.xml").cluster;
  CHECK(cluster.devices.size() == 2 * one.devices.size());
  CHECK(cluster.links.size() == 2 * one.links.size() + 2);
  CHECK(cluster.devices[8].name == "box1.gpu0");
  CHECK(cluster.devices[8].node == NodeId{1});
  Routes routes(cluster);
  CHECK(routes.between(DeviceId{0}, DeviceId{8}).rate == BytesPerSecond{12e9});
  CHECK(parsed("import = \"smi/dgx-1v.txt\"\nmodel = \"p100-sxm2\"").models.at(0).name ==
        "p100-sxm2");
  CHECK(testing::refusal_of([&] { return parsed("model = \"t4\""); }) ==
        data +
            "mine.toml:5:nodes.model: a model for a node that imports nothing; accepted: beside "
            "import; else devices = [{ model = \"…\" }]");
  CHECK(testing::refusal_of([&] { return parsed("import = \"nothing.xml\""); })
            .starts_with(data + "mine.toml:5:nodes.import: cannot read the file '" + data +
                         "nothing.xml'"));
  CHECK(testing::refusal_of([&] { return parsed("import = \"../refusals_test.cpp\""); })
            .starts_with(data + "mine.toml:5:nodes.import: '../refusals_test.cpp' is no file of "
                                "another tool; accepted:"));
  CHECK(testing::refusal_of([&] {
          return parsed(
              "import = \"nccl/dgx-1v.xml\"\ndevices = [{ model = \"t4\", name = "
              "\"gpu0\" }]");
        }).find("the name 'box0.gpu0' occurs twice") != std::string::npos);
}

TEST_CASE("import: a misspelt key behind a file is refused as that") {
  for (const std::string& path : {data + "smi/two-cards.txt", std::string("nowhere.txt")}) {
    CHECK(testing::refusal_of([&] { return load_cluster(path + ",devic=t4", "--cluster"); }) ==
          "--cluster: unknown key 'devic' behind the file '" + path +
              "'; accepted: device; did you mean 'device'?");
  }
  // Behind the right key, too, and where a cluster file imports.
  CHECK(testing::refusal_of([&] {
          return load_cluster(data + "smi/two-cards.txt,memory=8GiB,device=t4", "--cluster");
        }) == "--cluster: unknown key 'memory' behind the file '" + data +
                  "smi/two-cards.txt'; accepted: device");
  CHECK(testing::refusal_of([&] {
          return parse_cluster(
              "[[nodes]]\nname = \"box\"\nimport = \"smi/two-cards.txt,devices=t4\"\n",
              data + "mine.toml");
        }) == data + "mine.toml:3:nodes.import: unknown key 'devices' behind the file '" + data +
                  "smi/two-cards.txt'; accepted: device; did you mean 'device'?");
}

TEST_CASE("import: a device type behind a file of ours is refused") {
  CHECK(testing::refusal_of([] {
          return load_cluster(
              std::string(PARSIM_SOURCE_DIR) + "/topologies/clusters/dgx-v100.toml,device=t4",
              "--cluster");
        }) ==
        "--cluster: ',device=' behind a file that names its devices; accepted: behind the files of "
        "NCCL, nvidia-smi and SimGrid; here [[overrides]] in the file");
}

}  // namespace
}  // namespace parsim
