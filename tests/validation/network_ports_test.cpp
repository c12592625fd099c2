// The network ports that the column `interconnect` names.
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"
#include "validation/interconnect_column.hpp"

namespace parsim::validation {
namespace {

std::optional<NetworkPorts> network_ports(const std::string& text) {
  const ReadPorts read = read_ports(text);
  CHECK((!read.ports || read.unread.empty()));
  return read.ports;
}

std::string unread(const std::string& text) { return read_ports(text).unread; }

}  // namespace

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

TEST_CASE("network ports: counts and shares count wherever they are in the text") {
  for (const char* text :
       {"InfiniBand (8x400 Gb/s)", "InfiniBand NDR (8x400 Gb/s)", "IB (rail-optimized, 8x400 Gb/s)",
        "InfiniBand, 8x400 Gb/s", "8 NICs, 400 Gb/s each", "8 NICs of 400 Gb/s", "8-port NDR",
        "NDR InfiniBand, 8 ports", "eight 400 Gb/s", "8 ports, 3200 Gb/s in total",
        "8x400 Gb/s per node (3.2 Tb/s; eight cards)", "8x400 Gb/s RoCEv2, ConnectX-7",
        "8x400 Gb/s (3200 in the configs)", "eight NDR adapters", "8x Slingshot 11, 400 Gb/s"}) {
    CAPTURE(text);
    CHECK(network_ports(std::string("NVLink4 + ") + text) == NetworkPorts{8, 400});
  }
  for (const char* text :
       {"NDR (400 Gb/s per GPU)", "400 Gb/s (per GPU)", "400 Gb/s each GPU", "NDR for each GPU",
        "400 Gb/s for each GPU", "400 Gb/s/GPU", "one 400 Gb/s NIC per GPU"}) {
    CAPTURE(text);
    CHECK(network_ports(std::string("NVLink4 + ") + text) == NetworkPorts{1, 400, true});
  }
  CHECK(network_ports("NVLink4 + 2x200 Gb/s per GPU") == NetworkPorts{2, 200, true});
  CHECK(network_ports("NVLink4 x8 NDR") == NetworkPorts{8, 400});
  CHECK(network_ports("PCIe gen4, dual 100 GbE") == NetworkPorts{2, 100});
  for (const char* text :
       {"PCIe gen4 x16 / HDR 200 Gb/s", "PCIe gen4 x16 with 200 Gb/s InfiniBand",
        "PCIe gen 4 x16 with HDR", "PCIe gen4 x 16, HDR", "PCIe gen4 32 GB/s with 200 Gb/s"}) {
    CAPTURE(text);
    CHECK(network_ports(text) == NetworkPorts{1, 200});
  }
}

TEST_CASE("network ports: what has an unknown meaning is shown, and no number is dropped") {
  for (const auto& [text, expected] :
       {std::pair{"4X NDR", "4X"},
        {"NDR InfiniBand 4X", "4X"},
        {"NDR InfiniBand 4x", "4x"},
        {"100 GbE storage + 8x400 Gb/s InfiniBand", "several rates"},
        {"8x400 Gb/s InfiniBand + 100 GbE storage", "several rates"},
        {"8x NDR (400 Gb/s per GPU)", "ports, and a rate of each GPU"},
        {"8 GPUs, 400 Gb/s", "gpus"},
        {"400 Gb/s, 2:1 oversubscribed", "2"},
        {"400 Gb/s of two GPUs", "two"},
        {"400 Gb/s GPU", "gpu"},
        {"400 Gb/s per rack", "per rack"},
        {"400 Gb/s NICs", "nics without their number"},
        {"400 Gb/s each", "'each' without the number of ports"},
        {"multi-rail 400 Gb/s", "multi-rail"},
        {"dual-port 400 Gb/s", "dual-port"},
        {"400 Gb/s bidirectional", "bidirectional"},
        {"8x HDR 400 Gb/s", "rate beyond that of its generation"},
        {"8x400 Gb/s, 4 ports", "several numbers of ports"},
        {"HGX H100 80 GB, 400 Gb/s", "h100"}}) {
    CAPTURE(text);
    CHECK(!network_ports(std::string("NVLink4 + ") + text));
    CHECK(unread(std::string("NVLink4 + ") + text) == expected);
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
  for (const char* gpu : {"rtx-3090", "a40", "rtx-a5000", "rtx-a6000"}) CHECK(rate(gpu) == 56.25);
  CHECK(rate("rtx-2080") == 25);
  for (const char* gpu : {"rtx-2080ti", "titan-rtx", "quadro-rtx-6000"}) CHECK(rate(gpu) == 50);
  CHECK(rate("a100-pcie") == 300);
  CHECK(rate("b200-sxm") == 900);
  for (const std::string gpu : {"rtx-4090", "l40s", "v100-pcie", "p100-pcie", "t4", "a10"}) {
    CHECK(testing::refusal_of([&] { static_cast<void>(rate(gpu)); })
              .ends_with("'NVLink', and " + gpu +
                         " has no NVLink; accepted: PCIe, as in 'PCIe gen4', or a GPU with NVLink "
                         "in column gpu"));
  }
}

}  // namespace parsim::validation
