// What is wrong in a file of another tool is reported with its place.
#include <doctest/doctest.h>

#include <string>

#include "tests/support/refusal.hpp"
#include "tests/topologies/imported.hpp"

namespace parsim::topologies {
namespace {

using testing::imported, testing::text_of;

struct Slip {
  std::string file, from, to, message;
};

TEST_CASE("import: every mistake gets its place, what was found and what is accepted") {
  const Slip slips[] = {
      {"nccl/dgx-1v.xml", "</system>", "",
       ":98: Start-end tags mismatch; accepted: well-formed XML"},
      {"nccl/dgx-1v.xml", "<system version=\"1\">", "<sytem>",
       ":98: Start-end tags mismatch; accepted: well-formed XML"},
      {"nccl/pcie-2-sockets.xml", "<cpu numaid=\"0\"", "<cpu numaid=\"1\"",
       ":13:cpu.numaid: a second <cpu> with numaid 1; accepted: each number once"},
      {"nccl/pcie-2-sockets.xml", "<gpu dev=\"0\"", "<gup dev=\"0\"",
       ":4:gup: <gup> inside <pci>; accepted: pci, gpu, nic, pcilink; did you mean 'gpu'?"},
      {"nccl/pcie-2-sockets.xml", "dev=\"3\"", "dev=\"2\"",
       ":18:gpu.dev: a second GPU with dev 2; accepted: each number once"},
      {"nccl/pcie-2-sockets.xml", "dev=\"3\"", "dev=\"-3\"",
       ":18:gpu.dev: '-3'; accepted: a whole number from 0 to 1000000"},
      {"nccl/pcie-2-sockets.xml", "gpu dev=\"3\" ", "gpu dve=\"3\" ",
       ":18:gpu.dev: <gpu> has no 'dev'; its attributes: dve, sm, rank, gdr"},
      {"nccl/pcie-2-sockets.xml", "0000:af:00.0", "0000:d8:00.0",
       ":17:pci.busid: the bus id '0000:d8:00.0' occurs twice; accepted: each device once"},
      {"nccl/pcie-2-sockets.xml", "link_width=\"8\"", "link_width=\"-8\"",
       ":17:pci.link_width: '-8'; accepted: a whole number from 0 to 64"},
      {"nccl/pcie-2-sockets.xml", "link_speed=\"8.0 GT/s PCIe\"", "link_speed=\"16 GB/s\"",
       ":3:pci.link_speed: '16 GB/s'; accepted: transfers per lane, as in \"16.0 GT/s PCIe\", or "
       "\"\" if unknown"},
      {"nccl/pcie-2-sockets.xml", "speed=\"10000\"", "speed=\"0\"",
       ":10:net.speed: a network card with neither a PCIe device nor a speed; accepted: a speed in "
       "Mbit/s"},
      {"nccl/virtual-machine.xml", "sm=\"80\"", "sm=\"99\"",
       ":6:gpu.sm: PCI device '0xffff' with compute capability 99 is not in the device table; "
       "accepted: FILE,device=NAME with a similar GPU (see 'parsim list devices')"},
      {"nccl/dgx-1v.xml", "count=\"2\"", "count=\"1\"",
       ":8:nvlink.count: 1 NVLinks from gpu0 to gpu3, but 2 back; accepted: as many in both "
       "directions"},
      {"nccl/dgx-1v.xml", "target=\"0000:07:00.0\"", "target=\"0000:06:00.0\"",
       ":6:nvlink.target: an NVLink from a GPU to itself; accepted: another GPU"},
      {"nccl/dgx-1v.xml", "tclass=\"0x030200\"", "tclass=\"0x040000\"",
       ":6:nvlink.tclass: '0x040000'; accepted: 0x03… (GPU), 0x068000 (NVSwitch), 0x068001 (CPU)"},
      {"nccl/dgx-a100.xml", "host_hash=\"0x1f2e3d4c5b6a7988\"", "host_hash=\"0x1\"",
       ":36:cpu.host_hash: '0x1f2e3d4c5b6a7988', but '0x1' before; accepted: one machine per file; "
       "a cluster file joins several"},
      {"smi/dgx-1v.txt", "\nGPU7", "\n\nGPU7",
       ":17:matrix: 7 rows for 12 columns; accepted: the whole output of 'nvidia-smi topo -m'"},
      {"smi/dgx-1v.txt", "NV1", "NVX",
       ":10:GPU0.GPU1: 'NVX'; accepted: X, NV# (1 to 1024), PIX, PXB, PHB, NODE, SYS; did you mean "
       "'NV1'?"},
      {"smi/dgx-1v.txt", "NV1", "NV-1",
       ":10:GPU0.GPU1: 'NV-1'; accepted: X, NV# (1 to 1024), PIX, PXB, PHB, NODE, SYS; did you "
       "mean 'NV1'?"},
      {"smi/dgx-1v.txt", "NV1", "NV2",
       ":10:GPU0.GPU1: the rows of GPU0 and GPU1 disagree; accepted: a symmetric matrix"},
      {"smi/dgx-1v.txt", "\nGPU3\t", "\nGPU4\t",
       ":13:GPU4: expected the row of GPU3, found that of GPU4; accepted: rows in the order of the "
       "columns"},
      {"smi/dgx-1v.txt", "Tesla V100-SXM2-16GB", "Tesla V200",
       ":GPU0: 'Tesla V200' is not in the device table; accepted: FILE,device=NAME with a similar "
       "GPU (see 'parsim list devices')"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU5: Tesla V100",
       ":15:GPU5: in the matrix, but not among the 7 GPUs listed by 'nvidia-smi -L'; accepted: the "
       "whole output of both commands on one machine, or the matrix alone with FILE,device=NAME"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU 8: Tesla V100",
       ":6:GPU8: listed by 'nvidia-smi -L', but not in the matrix; accepted: the whole output of "
       "both commands on one machine, or the matrix alone with FILE,device=NAME"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100", "GPU 4: Tesla V100",
       ":6:GPU4: listed twice by 'nvidia-smi -L'; accepted: the whole output of both commands on "
       "one machine, or the matrix alone with FILE,device=NAME"},
      {"smi/dgx-1v.txt", "GPU 5: Tesla V100",
       "  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4)\nGPU 5: Tesla V100",
       ":6:GPU4: divided into MIG instances (3g.20gb); accepted: whole GPUs; instances as "
       "[[device_types]] of a cluster file, each with its own multiprocessors, peaks, memory and "
       "memory_rate"},
      {"smi/two-cards.txt", "PHB      X      0-15", "PHB     PHB     0-15",
       ":3:GPU1.GPU1: no X on the diagonal; accepted: X on the diagonal only"},
      {"smi/two-cards.txt", "GPU1    PHB      X      0-15            N/A", "GPU1    PHB",
       ":3:GPU1: 1 entries for 2 columns; accepted: one entry per column"},
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
       ":14:route.dst: no host or router 'midle'; accepted: one defined before; did you mean "
       "'middle'?"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l1\"/>", "<link_ctn id=\"l9\"/>",
       ":14:link_ctn.id: no link 'l9'; accepted: one defined before; did you mean 'l1'?"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l1\"/>", "",
       ":14:route: a route without links; accepted: at least one <link_ctn>"},
      {"simgrid/floyd.xml", "<link_ctn id=\"l3\"/>", "<link_ctn id=\"l2\"/>",
       ":8:router: its routes put 'middle' and 'far' at the same end of a link; accepted: routes "
       "over links with two ends"},
      {"simgrid/floyd.xml", "id=\"l2\" ", "id=\"l1\" ",
       ":11:link: the name 'l1' occurs twice; accepted: unique names"},
      {"simgrid/floyd.xml", "<router id=\"far\"/>", "<peer id=\"far\"/>",
       ":8:peer: <peer> inside <zone>; accepted: prop, host, router, link, route, zone, AS, "
       "cluster, zoneRoute, ASroute"},
      {"simgrid/floyd.xml", "version=\"4\"", "version=\"3\"",
       ":3:platform.version: '3'; accepted: 4 or 4.1 (simgrid_update_xml converts older files)"},
      {"simgrid/floyd.xml", "speed=\"10Gf\"/>", "speed=\"10Gf\" speed_file=\"a.txt\"/>",
       ":5:host.speed_file: profiles over time are not supported; accepted: a platform whose "
       "resources do not change"},
      {"simgrid/five-hosts.xml", "536.941us\" sharing_policy=\"SPLITDUPLEX\"",
       "536.941us\" sharing_policy=\"FATPIPE\"",
       ":21:route: link 'a' has the sharing policy FATPIPE; accepted: SPLITDUPLEX or SHARED, whose "
       "rate is shared by flows"},
      {"simgrid/flat-cluster.xml", "bb_bw=\"100GBps\"", "bb_bw=\"20GBps\"",
       ":4:cluster.bb_bw: a backbone of 20.0 GB/s that 5 hosts of 12.5 GB/s share is not "
       "supported; accepted: no bb_bw, or at least 62.5 GB/s"},
      {"simgrid/flat-cluster.xml", "radical=\"0-3,8\"", "radical=\"3-0\"",
       ":4:cluster.radical: '3-0'; accepted: numbers and rising ranges such as \"0-7,12\", at most "
       "131072 hosts"},
      {"simgrid/flat-cluster.xml", "bw=\"12.5GBps\"", "bw=\"12.5GBps\" topology=\"TORUS\"",
       ":4:cluster.topology: 'TORUS'; accepted: FLAT; for others use the generators fat-tree, "
       "torus and dragonfly"},
      {"simgrid/two-clusters.xml", "value=\"p100-pcie\"", "value=\"p100-pci\"",
       ":6:cluster: unknown device 'p100-pci'"},
      {"simgrid/two-clusters.xml", "<platform version=\"4.1\">", "<plattform>",
       ":15: Start-end tags mismatch; accepted: well-formed XML"},
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
        "f.xml:4:link: routes enter and leave the link 'bus' at the same end: it is a bus; "
        "accepted: links with two ends; replace a bus by a <router> with a link to each host");
  CHECK(refused("<sytem/>") ==
        "f.xml:1:sytem: the root tag is <sytem>; accepted: system (NCCL's topology), platform "
        "(SimGrid's); did you mean 'system'?");
  CHECK(refused("") == "f.xml:1: No document element found; accepted: well-formed XML");
  CHECK(refused("<system/><system/>") ==
        "f.xml:1: <system> after the end of <system>; accepted: one root tag");
  CHECK(refused("<system>words</system>") ==
        "f.xml:1: the text 'words' inside <system>; accepted: tags only");
  CHECK(refused("<system a='1' a='2'/>") ==
        "f.xml:1:system: the attribute 'a' occurs twice; accepted: each attribute once");
  CHECK(refused("<system><cpu numaid='x'/></system>") ==
        "f.xml:1:cpu.numaid: 'x'; accepted: a whole number from -1 to 1000000");
  // Found by fuzzing: the header was recognised by its beginning only.
  CHECK(testing::refusal_of([] { return import_cluster("GPU00 GPU1\nGPU1 X\n", "f.txt", {}); }) ==
        "f.txt:1:matrix: no header line that begins with GPU0; accepted: the whole output of "
        "'nvidia-smi topo -m'");
  CHECK(refused("<system/>") == "f.xml: cluster 'f' has no devices; at least one device");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<cpu>";
  for (int i = 0; i < 100'000; ++i) deep += "</cpu>";
  CHECK(refused(deep) == "f.xml:1: more than 64 levels of nesting; accepted: a cluster");
}

}  // namespace
}  // namespace parsim::topologies
