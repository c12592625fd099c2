// The network ports that the column `interconnect` names.
#include <doctest/doctest.h>

#include <string>

#include "topologies/topologies.hpp"
#include "validation/interconnect_column.hpp"

namespace parsim::validation {

TEST_CASE("network ports: texts, by hand") {
  CHECK(network_ports("NVSwitch(NVLink4) + EFA 32x100 Gb/s (3200 Gb/s)") == NetworkPorts{32, 100});
  CHECK(network_ports("NVSwitch(NVLink3) + 8x HDR 200 Gb/s InfiniBand") == NetworkPorts{8, 200});
  CHECK(network_ports("GPUDirect-TCPX 4x200 Gb/s") == NetworkPorts{4, 200});
  CHECK(network_ports("NVSwitch(NVLink4) + EFA 3200 Gb/s") == NetworkPorts{8, 400});
  CHECK(network_ports("PCIe gen3 x16 via PLX + InfiniBand FDR (56 Gb/s)") == NetworkPorts{1, 56});
  CHECK(network_ports("25 GbE") == NetworkPorts{1, 25});
  CHECK(network_ports("InfiniBand HDR") == NetworkPorts{1, 200});
  CHECK(!network_ports("something"));
  for (const char* text : {"8x400 Gb/s", "8xNDR", "8x NDR", "8x NDR InfiniBand 400 Gb/s",
                           "8x CX7 NDR 400 Gb/s", "8\u00d7400 Gb/s", "8*400 Gb/s", "400 Gb/s x 8",
                           "8x50 GB/s", "8 x 400Gbps", "8x NDR (400 Gb/s)", "NDR 3200 Gb/s"}) {
    CAPTURE(text);
    CHECK(network_ports(std::string("NVLink4 + ") + text) == NetworkPorts{8, 400});
  }
  CHECK(network_ports("NVLink4 + 50 GB/s") == NetworkPorts{1, 400});
  CHECK(network_ports("NVLink4 + 4x HDR100") == NetworkPorts{4, 100});
  CHECK(network_ports("XDR 800 Gb/s") == NetworkPorts{1, 800});
  CHECK(network_ports("NVLink in node; Slingshot 200 Gb/s per GPU") == NetworkPorts{1, 200, true});
  CHECK(network_ports("PCIe gen4 32 GB/s + 200 Gb/s") == NetworkPorts{1, 200});
  CHECK(network_ports("PCIe gen4 (64 GB/s) + HDR 200 Gb/s") == NetworkPorts{1, 200});
  CHECK(network_ports("PCIe gen3 + EC2 p2.8xlarge Ethernet (10 Gb/s)") == NetworkPorts{1, 10});
  for (const char* text : {"8 NDR 400", "InfiniBand 200", "2x 8x400 Gb/s", "0x400 Gb/s"}) {
    CAPTURE(text);
    CHECK(!network_ports(text));
  }
}

TEST_CASE("network ports: NVLink of cards is that of their bridges") {
  const auto rate = [](const std::string& gpu) {
    return inside_links({}, "NVLink", topologies::device_model(gpu, "test"), 2).rate;
  };
  CHECK(rate("a30") == 100);
  CHECK(rate("h100-nvl") == 300);
  CHECK(rate("h100-pcie") == 300);
  CHECK(rate("h100-sxm5") == 450);
  CHECK(rate("a100-sxm4-80") == 300);
  CHECK(rate("rtx-3090") == 56.25);
}

}  // namespace parsim::validation
