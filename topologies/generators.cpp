#include "topologies/generator.hpp"

namespace parsim::topologies {

namespace {

constexpr std::string_view kind_meaning =
    "as nvlink4 or infiniband: the rate is its data sheet's, and its measured share counts";

std::vector<Option> rail_options(std::string_view intra, std::string_view inter,
                                 std::string_view unit, std::string_view within,
                                 std::string_view between) {
  return {
      {"intra", intra,
       intra.empty() ? "each GPU's port into its machine's switch; default its NVLink or PCIe's by "
                       "data sheet, 120GB/s where none is known"
                     : "each GPU's port into its machine's switch"},
      {"inter", inter, "each network card"},
      {"unit", unit, "machines on the same leaf switches, at most"},
      {"oversubscription", "1", "of a leaf: what its cards send over what goes up to its spine"},
      {"latency", "1us", "of each link"},
      {"intra-latency", "", "inside, if it differs"},
      {"inter-latency", "", "outside, if it differs"},
      {"intra-kind", within, kind_meaning},
      {"inter-kind", between, kind_meaning}};
}

}  // namespace

const std::vector<Generator>& generators() {
  static const std::vector<Generator> table{
      {"star", "N", "N devices on one switch",
       with_common_options({{"rate", "25GB/s", "each device's cable"},
                            {"latency", "1us", "of each cable"},
                            {"kind", "", kind_meaning}}),
       build_star},
      {"nodes", "NxM", "N machines of M devices; a mix covers one machine or all of them",
       with_common_options({{"intra", "",
                             "each device's port into its machine's switch; default its NVLink or "
                             "PCIe's by data sheet, 120GB/s where none is known"},
                            {"inter", "12GB/s", "each network port of a machine"},
                            {"nics", "1", "network ports per machine: device i uses port i*nics/M"},
                            {"placement", "", "devices of each machine that take part, as 1+1+4+3"},
                            {"latency", "1us", "of each link"},
                            {"intra-latency", "", "inside, if it differs"},
                            {"inter-latency", "", "outside, if it differs"},
                            {"intra-kind", "", kind_meaning},
                            {"inter-kind", "", kind_meaning}}),
       build_nodes},
      {"rail", "NxM",
       "N machines of M GPUs with a network card each: card i is linked to leaf switch i of its "
       "unit, the leaves i of all units to spine i (rail-optimised)",
       with_common_options(rail_options("", "12GB/s", "32", "", "")), build_rail},
      {"nvl72", "N",
       "N racks of 72 GPUs on NVLink switches, with a network card each, on rails as with 'rail'",
       [] {
         std::vector<Option> options =
             rail_options("900GB/s", "50GB/s", "32", "nvlink5", "infiniband");
         options.insert(options.begin(), {"device", "gb200", "one type, or a mix"});
         options.push_back({"cpu", "", "adds a CPU of that type"});
         options.push_back({"cpu-rate", "12GB/s", "its link"});
         return options;
       }(),
       build_nvl72},
      {"nvswitch", "N", "one machine of N devices on an NVSwitch",
       with_common_options({{"rate", "",
                             "each device's NVLinks together; default those of its data sheet, "
                             "120GB/s where none are known"},
                            {"latency", "1us", "of each cable"},
                            {"kind", "", kind_meaning}}),
       build_star},
      {"cube-mesh", "8", "one machine wired as a DGX-1: NVLinks and PCIe",
       with_common_options(
           {{"links", "6", "NVLinks per device: 4 as with P100, 6 with V100"},
            {"rate", "20GB/s", "each NVLink"},
            {"pcie-rate", "12GB/s", "each PCIe link"},
            {"socket-rate", "6GB/s", "between the two CPU sockets"},
            {"latency", "1us", "of each link"},
            {"kind", "", "of the NVLinks, as nvlink2: the rate is its data sheet's"}}),
       build_cube_mesh},
      {"pcie-tree", "N", "one machine of N devices on PCIe switches",
       with_common_options({{"per-switch", "2", "devices on each PCIe switch"},
                            {"sockets", "2", "CPU sockets, all joined"},
                            {"rate", "12GB/s", "each PCIe link"},
                            {"socket-rate", "6GB/s", "between CPU sockets"},
                            {"latency", "1us", "of each link"},
                            {"kind", "", kind_meaning}}),
       build_pcie_tree},
      {"ring", "N", "N machines of one device, their routers in a ring",
       with_common_options({{"rate", "12GB/s", "each cable between routers"},
                            {"latency", "1us", "of each link"},
                            {"device-rate", "", "device to its router; default 2 x rate"},
                            {"device-latency", "", "device to its router, if it differs"}}),
       build_torus},
      {"torus", "AxB[xC]", "machines of one device, their routers in a 2-D or 3-D torus",
       with_common_options(
           {{"rate", "12GB/s", "each cable between routers"},
            {"latency", "1us", "of each link"},
            {"device-rate", "", "device to its router; default 2 x dimensions x rate"},
            {"device-latency", "", "device to its router, if it differs"}}),
       build_torus},
      {"fat-tree", "N",
       "N machines of one device in a fat tree: three levels of k-port switches, or two levels if "
       "leaf is given",
       with_common_options({{"k", "", "ports per switch, even; default the least that suffices"},
                            {"leaf", "", "devices per leaf switch"},
                            {"spines", "", "spine switches; default as many as leaf"},
                            {"rate", "12GB/s", "each device's cable"},
                            {"uplink-rate", "", "each cable between switches; default rate"},
                            {"latency", "1us", "of each link"}}),
       build_fat_tree},
      {"dragonfly", "GxRxD",
       "G groups of R routers with D machines of one device each; routers of a group all joined, "
       "one cable between any two groups",
       with_common_options({{"rate", "12GB/s", "each device's cable"},
                            {"local-rate", "", "within a group; default rate"},
                            {"global-rate", "", "between groups; default rate"},
                            {"latency", "1us", "of each link"},
                            {"global-latency", "", "between groups, if it differs"}}),
       build_dragonfly},
  };
  return table;
}

}  // namespace parsim::topologies
