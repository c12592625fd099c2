// What is wrong in a file of another tool is said with its place.
#include <doctest/doctest.h>

#include <string>

#include "tests/support/refusal.hpp"
#include "tests/topologies/imported.hpp"

namespace parsim {
namespace {

using testing::imported, testing::text_of;

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

}  // namespace
}  // namespace parsim
