// Files of foreign tools: their data are read as they are, and guesses become notes.
#include "topologies/import/import.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/routes.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topologies/imported.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/import/gpus.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

using testing::data, testing::imported, testing::text_of;

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

TEST_CASE("import nccl: a DGX-1V is the generated one") {
  const Cluster cluster = imported("nccl/dgx-1v.xml").cluster;
  CHECK(cluster.name == "dgx-1v");
  CHECK(cables(cluster) == cables(load_cluster("cube-mesh:8,device=v100-sxm2", "test")));
  CHECK(rates(cluster) == rates(load_cluster("cube-mesh:8,device=v100-sxm2", "test")));
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
  CHECK(file.notes ==
        std::vector<std::string>{"8 network cards not connected: a cluster file joins machines"});
}

TEST_CASE("import nccl: two sockets without NVLink by hand") {
  const Cluster cluster = imported("nccl/pcie-2-sockets.xml").cluster;
  // T4s on PCIe 3 x16 (12 GB/s), the last on x8 (6 GB/s), Skylake's UPI 10 GB/s between sockets.
  CHECK(rates(cluster) == std::vector<double>{12, 10, 6, 12, 10, 6, 10, 10, 6, 6, 6, 6});
  CHECK(cluster.switches.size() == 3);  // eth0 stands under both sockets and is one card
}

TEST_CASE("import nccl: a link of unknown width has 16 lanes, as in NCCL") {
  // 3/4 of 8 GT/s a lane: 0.75 GB/s, and twice that of 16 GT/s.
  for (const auto& [speed, width, expected] : {std::tuple{"8.0 GT/s PCIe", "0", 12.0},
                                               {"8.0 GT/s PCIe", "4", 3.0},
                                               {"16.0 GT/s PCIe", "0", 24.0},
                                               {"", "0", 12.0}}) {
    CAPTURE(speed);
    CAPTURE(width);
    const auto gpu = [&, speed = speed, width = width](int number) {
      return fmt::format(
          R"(<pci busid="0000:{0}0:00.0" link_speed="{1}" link_width="{2}">
<gpu dev="{0}" sm="80"/></pci>)",
          number, speed, width);
    };
    const auto file = import_cluster(
        R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">)" + gpu(0) +
            gpu(1) + "</cpu></system>",
        "two.xml", {});
    REQUIRE(file);
    CHECK(rates(file->cluster) == std::vector<double>{expected, expected});
  }
}

TEST_CASE("import nccl: bridges of one PCIe switch are joined once, from either side") {
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

TEST_CASE("import nccl: what a virtual machine hides is guessed, with a note") {
  const Imported file = imported("nccl/virtual-machine.xml");
  CHECK(file.notes ==
        std::vector<std::string>{
            "a100-pcie: type guessed from sm 80 and 0 NVLinks in nccl/virtual-machine.xml"});
  const DeviceModel& model = file.cluster.models.at(0);
  CHECK(model.provenance.back().label == Label::guessed);
  CHECK(file.cluster.provenances.at(0).label == Label::guessed);  // no PCIe speed
  // The user knows better.
  const Cluster given =
      load_cluster(data + "nccl/virtual-machine.xml,device=a100-sxm4-80", "--cluster");
  CHECK(given.models == std::vector{device_model("a100-sxm4-80", "test")});
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
        "a100-sxm4-40: type guessed from 12 NVLinks to every other GPU in smi/dgx-a100.txt "
        "(FILE,device=NAME for a100-sxm4-80)");
}

TEST_CASE("import: XML is found by its content, under any file name") {
  const auto file = import_cluster(testing::text_of("nccl/dgx-1v.xml"), "topology", {});
  REQUIRE(file);
  CHECK(file->cluster.devices.size() == 8);
}

TEST_CASE("import nvidia-smi: more single NVLinks than a GPU has are an NVSwitch") {
  std::string text = testing::text_of("smi/dgx-a100.txt");
  for (std::size_t at = text.find("NV12"); at != text.npos; at = text.find("NV12", at)) {
    text.replace(at, 4, "NV1");
  }
  // A V100 has six, and no seven neighbours without a switch.
  const auto file = import_cluster(text, "one.txt", {&device_model("v100-sxm2", "test")});
  REQUIRE(file);
  CHECK(rates(file->cluster) == std::vector<double>(8 * 7, 20));
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
  CHECK(routes.between(DeviceId{0}, DeviceId{4}).rate.value ==
        link_numbers(LinkKind::pcie4_host).efficiency * 31.5e9);
  CHECK(file.cluster.models.at(0) == device_model("rtx-3090", "test"));
}

TEST_CASE("import nvidia-smi: without a product or NVLinks the type must be given") {
  CHECK(testing::refusal_of([] { return imported("smi/two-cards.txt"); }) ==
        "smi/two-cards.txt:2:GPU0: cannot tell the type of the GPU from 0 NVLinks; accepted: the "
        "output of 'nvidia-smi -L' before the matrix, or FILE,device=NAME");
  const Cluster given = load_cluster(data + "smi/two-cards.txt,device=t4", "--cluster");
  CHECK(rates(given) == std::vector<double>{12, 12});
  CHECK(imported("smi/nvlink-bridge.txt").cluster.models.at(0).name == "rtx-3090");
}

TEST_CASE("import nvidia-smi: the A100 of 40 GB has its own memory rate") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write(
      "smi.txt",
      "GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-0)\nGPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-1)\n"
      "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tSYS\t0-31\nGPU1\tSYS\tX\t0-31\n");
  const Cluster cluster = load_cluster(file, "--cluster");
  CHECK(cluster.models.at(0).name == "a100-pcie-40");
  CHECK(cluster.devices.at(0).memory == parse_bytes("40 GiB", "test"));
  CHECK(cluster.models.at(0).memory_rate < BytesPerSecond{1.6e12});
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

TEST_CASE("import: every NVIDIA type of the device table is known by its PCI id and product") {
  // A30, H20, H100 NVL, A10G and eight more were refused by name and guessed to be others by id.
  for (const DeviceModel& model : device_models()) {
    if (capability_of(model) == 0) continue;  // AMD's, and processors
    CAPTURE(model.name);
    CHECK(std::ranges::count(known_gpus(), model.name, &KnownGpu::model) > 0);
  }
  for (const KnownGpu& gpu : known_gpus()) {
    CAPTURE(gpu.product);
    CHECK(device_model(gpu.model, "table").name == gpu.model);
    CHECK(gpu_of_product(gpu.product)->model == gpu.model);
  }
  CHECK(gpu_of_pci("0x10de", "0x20b7")->model == "a30");
  CHECK(gpu_of_pci("0x10de", "0x2329")->model == "h20");
  CHECK(model_of_product("NVIDIA RTX 6000 Ada Generation") == "rtx-6000-ada");
  CHECK(model_of_product("NVIDIA A10G") == "a10g");
  // One id for Quadro RTX 6000 and 8000: the smaller memory, unless the product is known.
  CHECK(gpu_of_pci("0x10de", "0x1e30")->memory_gib == 0);
  CHECK(gpu_of_product("Quadro RTX 8000")->memory_gib == 48);
}

TEST_CASE("import nvidia-smi: NVLinks tell the type where all that have so many are of a kind") {
  // Before, bridges in pairs of four cards were P100s, and so were four GPUs of a DGX-1V.
  const Imported bridges =
      imported_matrix({{0, 4, 0, 0}, {4, 0, 0, 0}, {0, 0, 0, 4}, {0, 0, 4, 0}});
  CHECK(bridges.cluster.models.at(0).name == "rtx-3090");
  CHECK(bridges.cluster.models.at(0).provenance.back().label == Label::guessed);
  CHECK(bridges.notes.at(0) ==
        "rtx-3090: type guessed from 4 NVLinks to 1 other in m.txt (FILE,device=NAME for a40)");
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
      "; accepted: the output of 'nvidia-smi -L' before the matrix, or FILE,device=NAME";
  const std::string unknown = "m.txt:2:GPU0: cannot tell the type of the GPU from ";
  CHECK(refused({{0, 1, 1, 2}, {1, 0, 2, 1}, {1, 2, 0, 1}, {2, 1, 1, 0}}) ==
        unknown + "4 NVLinks to 3 others" + accepted + ", such as p100-sxm2 or v100-sxm2");
  CHECK(refused({{0, 2}, {2, 0}}) == unknown + "2 NVLinks to 1 other" + accepted +
                                         ", such as rtx-2080ti or titan-rtx or v100-sxm2");
  CHECK(refused({{0, 12}, {12, 0}}) == unknown + "12 NVLinks to 1 other" + accepted +
                                           ", such as a100-pcie or a100-sxm4-40 or h100-pcie");
  CHECK(refused(std::vector(8, std::vector(8, 18))) ==
        unknown + "18 NVLinks to every other GPU" + accepted +
            ", such as h100-sxm5 or h200-sxm or b200-sxm");
  CHECK(refused({{0, 4, 0}, {4, 0, 0}, {0, 0, 0}}) ==
        "m.txt:4:GPU2: cannot tell the type of the GPU from 0 NVLinks" + accepted);
}

TEST_CASE("import: what is guessed of a node in a cluster file is noted with its name") {
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
            "mine.toml:5:nodes.model: a model for a node without 'import'; accepted: with import; "
            "otherwise devices = [{ model = \"…\" }]");
  CHECK(testing::refusal_of([&] { return parsed("import = \"nothing.xml\""); })
            .starts_with(data + "mine.toml:5:nodes.import: cannot read the file '" + data +
                         "nothing.xml'"));
  CHECK(testing::refusal_of([&] { return parsed("import = \"../refusals_test.cpp\""); })
            .starts_with(data + "mine.toml:5:nodes.import: the format of '../refusals_test.cpp' is "
                                "not known; accepted:"));
  CHECK(testing::refusal_of([&] {
          return parsed(
              "import = \"nccl/dgx-1v.xml\"\ndevices = [{ model = \"t4\", name = \"gpu0\" }]");
        }).find("the name 'box0.gpu0' occurs twice") != std::string::npos);
}

TEST_CASE("import: a misspelt key after a file is refused as such") {
  for (const std::string& path : {data + "smi/two-cards.txt", std::string("nowhere.txt")}) {
    CHECK(testing::refusal_of([&] { return load_cluster(path + ",devic=t4", "--cluster"); }) ==
          "--cluster: unknown key 'devic' after the file '" + path +
              "'; accepted: device; did you mean 'device'?");
  }
  // Behind the right key, too, and where a cluster file imports.
  CHECK(testing::refusal_of([&] {
          return load_cluster(data + "smi/two-cards.txt,memory=8GiB,device=t4", "--cluster");
        }) == "--cluster: unknown key 'memory' after the file '" + data +
                  "smi/two-cards.txt'; accepted: device");
  CHECK(testing::refusal_of([&] {
          return parse_cluster(
              "[[nodes]]\nname = \"box\"\nimport = \"smi/two-cards.txt,devices=t4\"\n",
              data + "mine.toml");
        }) == data + "mine.toml:3:nodes.import: unknown key 'devices' after the file '" + data +
                  "smi/two-cards.txt'; accepted: device; did you mean 'device'?");
}

TEST_CASE("import: a device type after a cluster file is refused") {
  CHECK(testing::refusal_of([] {
          return load_cluster(
              std::string(PARSIM_SOURCE_DIR) + "/topologies/clusters/dgx-v100.toml,device=t4",
              "--cluster");
        }) ==
        "--cluster: ',device=' after a cluster file that names its devices; accepted: after files "
        "of NCCL, nvidia-smi and SimGrid; a cluster file has [[overrides]]");
}

}  // namespace
}  // namespace parsim::topologies
