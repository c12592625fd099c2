#include "topologies/generator.hpp"

namespace parsim {

const std::vector<Generator>& generators() {
  static const std::vector<Generator> table{
      {"star", "N", "N devices on one switch",
       with_common_options(
           {{"rate", "25GB/s", "each device's cable"}, {"latency", "1us", "of each cable"}}),
       build_star},
      {"nvswitch", "N", "one machine of N devices on an NVSwitch",
       with_common_options({{"rate", "120GB/s", "each device's NVLinks together"},
                            {"latency", "1us", "of each cable"}}),
       build_star},
      {"nodes", "NxM", "N machines of M devices; a mix is of one machine or of all",
       with_common_options({{"intra", "120GB/s", "each device's port into its machine's switch"},
                            {"inter", "12GB/s", "each network port of a machine"},
                            {"nics", "1", "network ports per machine: device i uses port i*nics/M"},
                            {"latency", "1us", "of each link"},
                            {"intra-latency", "", "inside, if it differs"},
                            {"inter-latency", "", "outside, if it differs"}}),
       build_nodes},
  };
  return table;
}

}  // namespace parsim
