// The network ports that the column `interconnect` names.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"
#include "validation/interconnect_column.hpp"

namespace parsim::validation {
namespace {

constexpr LinkKind infiniband = LinkKind::infiniband;

struct Form {
  std::string text;
  std::int64_t count;
  double gigabits;
  bool each_gpu = false;
  std::optional<LinkKind> kind{};
};

/// Of published tables, and of users'.
const std::vector<Form>& accepted() {
  static const std::vector<Form> forms = {
      {"NVLink in node; Slingshot 200 Gb/s per GPU (from memory)", 1, 200, true,
       LinkKind::slingshot},
      {"NVLink2 (4 GPUs, all to all), 4x100 Gb/s OmniPath per node (number of ports assumed)", 4,
       100, false, infiniband},
      {"NVLink2 hybrid cube mesh + 1x IB EDR 100Gb/s per node (RDMA)", 1, 100, false, infiniband},
      {"NVLink3/NVSwitch (assumed), 4x200 Gb/s per node (800 in vTrain's configs; four cards "
       "assumed)",
       4, 200},
      {"NVLink3/NVSwitch, 400 Gb/s per node", 1, 400},
      {"NVLink3/NVSwitch, 4x100 Gb/s RoCE per node", 4, 100, false, LinkKind::roce},
      {"NVLink3/NVSwitch, 8x200 Gb/s (HDR) per node", 8, 200, false, infiniband},
      {"NVLink3/NVSwitch, 8x200 Gb/s per node (1.6 Tb/s; from memory of the paper)", 8, 200},
      {"NVLink3/NVSwitch, RoCE 1600 Gb/s per node", 8, 200, false, LinkKind::roce},
      {"NVLink4/NVSwitch, 16x200 Gb/s (RoCE; assumed) per node", 16, 200, false, LinkKind::roce},
      {"NVLink4/NVSwitch, 8x400 Gb/s (ConnectX-7 NDR) per node", 8, 400, false, infiniband},
      {"NVLink4/NVSwitch, 8x400 Gb/s per node (assumed)", 8, 400},
      {"NVSwitch(NVLink3) + 8x HDR 200 Gb/s InfiniBand (SR-IOV)", 8, 200, false, infiniband},
      {"NVSwitch(NVLink3) + EFA 4x100 Gb/s GPUDirect RDMA", 4, 100, false, LinkKind::efa},
      {"NVSwitch(NVLink4) + EFA 3200 Gb/s", 8, 400, false, LinkKind::efa},
      {"NVSwitch(NVLink4) + EFA 32x100 Gb/s (3200 Gb/s)", 32, 100, false, LinkKind::efa},
      {"NVSwitch(NVLink4) + GPUDirect-TCPX 4x200 Gb/s", 4, 200, false, LinkKind::tcp},
      {"NVSwitch(NVLink4) + GPUDirect-TCPXO 8x200 Gb/s", 8, 200, false, LinkKind::roce},
      {"PCIe gen3 + EC2 p2.8xlarge Ethernet (10 Gb/s class per AWS docs of the time: from memory), "
       "gRPC",
       1, 10, false, LinkKind::tcp},
      {"PCIe gen3 x16 via PLX, single root + InfiniBand FDR (56 Gb/s) between nodes", 1, 56, false,
       infiniband},
      {"PCIe gen4, 2x400 Gb/s (BlueField-3) per node", 2, 400},
      {"NVLink4; Slingshot 4x200 Gb/s", 4, 200, false, LinkKind::slingshot},
      {"PCIe gen4 + HDR", 1, 200, false, infiniband},
      {"PCIe 4 + 100GbE", 1, 100, false, LinkKind::tcp},
      {"PCIe 4.0 x16 + 100 GbE", 1, 100, false, LinkKind::tcp},
      {"PCIe gen4x8 + 2x200 Gb/s", 2, 200},
      {"PCIe gen 4 x16 with HDR", 1, 200, false, infiniband},
      {"PCIe gen4 x16 / HDR 200 Gb/s", 1, 200, false, infiniband},
      {"PCIe gen4 32 GB/s + 200 Gb/s", 1, 200},
      {"PCIe gen4 (64 GB/s) + HDR 200 Gb/s", 1, 200, false, infiniband},
      {"Infinity Fabric 400 GB/s + NDR", 1, 400, false, infiniband},
      {"NVLink 900 GB/s, 200 Gb/s", 1, 200},
      {"NVLink 4 + 50 GB/s", 1, 400},
      {"NVLink4 + 8xNDR", 8, 400, false, infiniband},
      {"NVLink4 + 8x CX7 NDR 400 Gb/s", 8, 400, false, infiniband},
      {"NVLink4 + 8 x 400Gbps", 8, 400},
      {"NVLink4 + 8\u00d7400 Gb/s", 8, 400},
      {"NVLink4 + 8x50 GB/s", 8, 400},
      {"NVLink4 + NDR 3200 Gb/s", 8, 400, false, infiniband},
      {"NVLink4 + InfiniBand (8x400 Gb/s)", 8, 400, false, infiniband},
      {"NVLink4 + IB (rail-optimized, 8x400 Gb/s)", 8, 400, false, infiniband},
      {"NVLink4 + 8x400 Gb/s NICs", 8, 400},
      {"NVLink4 + 8x400 Gb/s, 8 NICs per node", 8, 400},
      {"NVLink4 + 8x400 Gb/s per port", 8, 400},
      {"NVLink4 + 8x Slingshot 11, 400 Gb/s", 8, 400, false, LinkKind::slingshot},
      {"NVLink4 + 8x400 GbE RoCEv2, ConnectX-7", 8, 400, false, LinkKind::roce},
      {"NVLink4 + 400 Gb/s per GPU", 1, 400, true},
      {"NVLink4 + 400 Gb/s/GPU", 1, 400, true},
      {"NVLink4 + NDR (400 Gb/s per GPU)", 1, 400, true, infiniband},
      {"NVLink4 + 2x200 Gb/s per GPU", 2, 200, true},
      {"NVLink5 + 800 Gb/s per GPU", 1, 800, true},
      {"4x HDR100", 4, 100, false, infiniband},
      {"XDR 800 Gb/s", 1, 800, false, infiniband}};
  return forms;
}

std::string refusal(const std::string& text) {
  const ReadPorts read = read_ports(text);
  CHECK(!read.ports);
  return read.refusal;
}

std::string unknown(const std::string& token) {
  return "the meaning of '" + token + "' is not known";
}

}  // namespace

TEST_CASE("network ports: accepted forms, by hand") {
  for (const Form& form : accepted()) {
    CAPTURE(form.text);
    const ReadPorts read = read_ports(form.text);
    CHECK(read.refusal.empty());
    CHECK(read.ports == NetworkPorts{form.count, form.gigabits, form.each_gpu, form.kind});
  }
}

TEST_CASE("network ports: everything else is refused by what is not understood") {
  const std::string without = "a number of ports without their rate", rates = "several rates",
                    numbers = "several numbers of ports",
                    other = "a number of ports, and a rate of something else",
                    apart = "a number of ports that is not before their rate, as in 8x400 Gb/s",
                    beyond = "a rate beyond that of its generation",
                    unnumbered = "ports without their number",
                    none = "such a number of ports, or a rate of 0";
  for (const auto& [text, expected] : {std::pair<std::string, std::string>{"4X NDR", unknown("4")},
                                       {"NDR InfiniBand 4X", unknown("4")},
                                       {"NDR InfiniBand 4x", without},
                                       {"4x NVLink4 + 100 Gb/s", without},
                                       {"100 GbE storage + 8x400 Gb/s", unknown("storage")},
                                       {"8x400 Gb/s InfiniBand + 100 GbE", rates},
                                       {"8x400 Gb/s + 8x400 Gb/s", numbers},
                                       {"100 Gb/s, 100 Gb/s", rates},
                                       {"8x NDR (400 Gb/s per GPU)", other},
                                       {"8x RoCE 400 Gb/s per GPU", other},
                                       {"8 NICs, 400 Gb/s per GPU", apart},
                                       {"400 Gb/s per GPU per node", other},
                                       {"400 Gb/s per node (4 NICs)", apart},
                                       {"400 Gb/s in 4 ports", apart},
                                       {"3200 Gb/s, 8 NICs", apart},
                                       {"4 NICs, 400 Gb/s per node", apart},
                                       {"8 NICs of 400 Gb/s", apart},
                                       {"8 ports, 400 Gb/s per port", apart},
                                       {"400 Gb/s, 8 NICs per node", apart},
                                       {"NDR InfiniBand, 8 ports", apart},
                                       {"8-port NDR", apart},
                                       {"eight cards, NDR", apart},
                                       {"8 GPUs, 400 Gb/s", unknown("8")},
                                       {"400 Gb/s, 2:1 oversubscribed", unknown("oversubscribed")},
                                       {"400 Gb/s, 2:1", unknown("2")},
                                       {"400 Gb/s of two GPUs", unknown("two")},
                                       {"400 Gb/s GPU", unknown("gpu")},
                                       {"400 Gb/s per rack", unknown("rack")},
                                       {"400 Gb/s NICs", unnumbered},
                                       {"400 Gb/s per port", unnumbered},
                                       {"400 Gb/s each", unknown("each")},
                                       {"400 Gb/s in total", unknown("total")},
                                       {"multi-rail 400 Gb/s", unknown("multi")},
                                       {"dual 100 GbE", unknown("dual")},
                                       {"dual-port 400 Gb/s", unknown("dual")},
                                       {"eight 400 Gb/s", unknown("eight")},
                                       {"400 Gb/s x 8", unknown("x")},
                                       {"400 Gb/s bidirectional", unknown("bidirectional")},
                                       {"400 Gb/s, no InfiniBand", unknown("no")},
                                       {"8x HDR 400 Gb/s", beyond},
                                       {"HDR 300 Gb/s", beyond},
                                       {"8x400 Gb/s, 4 ports", apart},
                                       {"2x 8x400 Gb/s", numbers},
                                       {"0x400 Gb/s", none},
                                       {"1.5x400 Gb/s", none},
                                       {"0 Gb/s", none},
                                       {"8 NDR 400", unknown("8")},
                                       {"NDR 400", unknown("400")},
                                       {"Infinity Fabric 400 37 GB/s, NDR", unknown("400")},
                                       {"NVLink4, InfiniBand", ""},
                                       {"InfiniBand 200", unknown("200")},
                                       {"HDR, NDR", "several generations"},
                                       {"InfiniBand and RoCE 100 Gb/s", "several kinds of network"},
                                       {"HGX H100 80 GB, 400 Gb/s", unknown("hgx")},
                                       {"x8 400 Gb/s", unknown("x8")},
                                       {"DDR5, 100 Gb/s", unknown("ddr5")},
                                       {"gen4abc99, 100 Gb/s", unknown("gen4abc99")},
                                       {"100 Gb/s \u00b5", unknown("\u00b5")},
                                       {"400 GB", unknown("400")},
                                       {"something", unknown("something")}}) {
    CAPTURE(text);
    CHECK(refusal(text) == expected);
  }
  CHECK(refusal("NVLink4 8 400 Gb/s") == unknown("8"));
}

TEST_CASE("network ports: a number that the grammar does not use is a refusal, wherever it is") {
  std::size_t tried = 0;
  for (const Form& form : accepted()) {
    for (std::size_t at = 0; at <= form.text.size(); ++at) {
      if (at < form.text.size() && form.text[at] != ' ') continue;
      for (const std::string number : {" 37", " 3.7e2", " (37)", ", 37;", " 37 times", " v37"}) {
        std::string text = form.text;
        text.insert(at, number);
        CAPTURE(text);
        CHECK(!read_ports(text).ports);
        ++tried;
      }
    }
  }
  CHECK(tried > 1000);
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
