// Kinds of links: their numbers from measured systems, and guesses where no kind is given.
#include "core/link_kind.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

std::vector<std::string> kinds_of(const std::string& call) {
  std::vector<std::string> kinds;
  for (const Link& link : topologies::load_cluster(call, "test").links) {
    const std::string kind = link.kind ? std::string(to_text(*link.kind)) : "-";
    if (kinds.empty() || kinds.back() != kind) kinds.push_back(kind);
  }
  return kinds;
}

using Kinds = std::vector<std::string>;

}  // namespace

TEST_CASE("link kinds: a number is the smaller median over the systems of its kind, one left out") {
  for (std::size_t k = 0; k < spellings(LinkKind{}).size(); ++k) {
    const auto kind = static_cast<LinkKind>(k);
    for (const MeasuredLinks& left_out : measured_links()) {
      std::vector<double> own, family;
      for (const MeasuredLinks& row : measured_links()) {
        if (row.efficiency < 0 || row.system == left_out.system) continue;
        if (row.kind == kind) own.push_back(row.efficiency);
        if (family_of(row.kind) == family_of(kind)) family.push_back(row.efficiency);
      }
      const LinkNumbers numbers = link_numbers(kind, left_out.system);
      CHECK(numbers.systems == static_cast<std::int32_t>(own.size()));
      std::vector<double>& counts = own.empty() ? family : own;
      REQUIRE_FALSE(counts.empty());
      std::sort(counts.begin(), counts.end());
      CHECK(numbers.efficiency == counts[(counts.size() - 1) / 2]);
    }
  }
}

TEST_CASE("link kinds: every measured share is one, and every row has a source") {
  for (const MeasuredLinks& row : measured_links()) {
    CHECK(row.efficiency <= 1);
    CHECK((row.efficiency > 0.25 || row.efficiency == -1));
    CHECK_FALSE(row.source.empty());
  }
}

TEST_CASE("link kinds: guessed by what a link joins, its rate and latency") {
  CHECK(kinds_of("star:2,device=t4") == Kinds{"pcie4"});  // 25 GB/s
  CHECK(kinds_of("star:2,device=t4,rate=12GB/s") == Kinds{"pcie3"});
  CHECK(kinds_of("nvswitch:2,device=a100-sxm4-40") == Kinds{"nvlink3"});
  CHECK(kinds_of("nvswitch:2,device=b200-sxm") == Kinds{"nvlink5"});
  CHECK(kinds_of("nodes:2x1,device=t4,intra=12GB/s") ==
        Kinds{"infiniband", "pcie3", "infiniband", "pcie3"});
  CHECK(kinds_of("nodes:2x1,device=t4,intra=12GB/s,inter-latency=25us") ==
        Kinds{"tcp", "pcie3", "tcp", "pcie3"});
  CHECK(kinds_of("star:1,device=t4,rate=12GB/s,cpu=xeon-e5-2600") == Kinds{"pcie3", "-"});
}

TEST_CASE("link kinds: a guess leaves the rate, a given kind takes its share of it") {
  const Link guessed = topologies::load_cluster("star:2,device=t4,rate=10GB/s", "test").links[0];
  CHECK(guessed.kind_guessed);
  CHECK(guessed.rate.value == 10e9);
  Cluster cluster = topologies::load_cluster("star:2,device=t4,rate=10GB/s,kind=pcie3", "test");
  const Link given = cluster.links[0];
  CHECK_FALSE(given.kind_guessed);
  CHECK(given.line_rate.value == 10e9);
  CHECK(given.rate.value == 10e9 * link_numbers(LinkKind::pcie3).efficiency);
  const std::string_view system = measured_links()[6].system;
  leave_system_out(cluster, system);
  CHECK(cluster.links[0].rate.value == 10e9 * link_numbers(LinkKind::pcie3, system).efficiency);
}

TEST_CASE("link kinds: without a rate a GPU has the port of its data sheet, as named machines do") {
  struct Row {
    const char *call, *machine;
  };
  for (const Row row :
       {Row{"nodes:1x8,device=h100-sxm5", "dgx-h100"},
        Row{"nodes:1x8,device=a100-sxm4-80", "dgx-a100"},
        Row{"nvswitch:8,device=h200-sxm", "dgx-h200"}, Row{"nvswitch:16,device=v100-sxm3", "dgx-2"},
        Row{"rail:1x4,device=t4,intra-kind=pcie3-host", "g4dn"},
        Row{"nodes:1x4,device=titan-rtx", "rtx-mix"},
        Row{"rail:1x8,device=h100-sxm5", "dgx-h100"}}) {
    CAPTURE(row.call);
    std::vector<std::string> notes;
    const Cluster generated = topologies::load_cluster(row.call, "test", &notes);
    const Cluster named = topologies::load_cluster(row.machine, "test");
    const auto port = [](const Cluster& cluster) {
      return *std::find_if(cluster.links.begin(), cluster.links.end(), [](const Link& link) {
        return link.kind && family_of(*link.kind) != LinkFamily::network;
      });
    };
    CHECK(port(generated).kind == port(named).kind);
    CHECK(port(generated).rate == port(named).rate);
    CHECK(port(generated).line_rate == port(named).line_rate);
    CHECK(notes.empty());
  }
  // A given kind has its own rate, and a given rate stands for itself.
  const auto first = [](const std::string& call) {
    return topologies::load_cluster(call, "test").links.front();
  };
  CHECK(first("nodes:1x2,device=h100-sxm5,intra-kind=pcie5").line_rate == BytesPerSecond{63e9});
  CHECK(first("nodes:1x2,device=h100-sxm5,intra=100GB/s").rate == BytesPerSecond{100e9});
  CHECK(first("nodes:1x2,device=mi300x").rate == BytesPerSecond{120e9});
}

TEST_CASE("link kinds: PCIe between cards that do not reach each other's memory gets a note") {
  const auto notes = [](const std::string& call) {
    std::vector<std::string> all;
    (void)topologies::load_cluster(call, "test", &all);
    return all;
  };
  CHECK(notes("star:2,device=rtx-3090,rate=31.5GB/s,kind=pcie4") ==
        std::vector<std::string>{
            "rtx-3090 do not reach each other's memory over PCIe, and copies through the host's "
            "are half as fast or slower: kind pcie4-host"});
  for (const std::string call :
       {"star:2,device=rtx-3090,rate=31.5GB/s,kind=pcie4-host", "nodes:1x2,device=rtx-3090",
        "star:2,device=rtx-3090,rate=9GB/s", "star:2,device=l40s,rate=31.5GB/s,kind=pcie4"}) {
    CHECK(notes(call).empty());
  }
}

TEST_CASE("link kinds: no card for the network is a way around a GPU's port") {
  for (const std::string call :
       {"nodes:2x4,device=a100-pcie,inter=100GB/s,nics=2",
        "nodes:2x4,device=t4,inter=100GB/s,nics=4",
        "nodes:2x4,device=h100-sxm5,inter=50GB/s,nics=4",
        "nodes:2x4,device=h100-sxm5,intra=63GB/s,intra-kind=pcie5,inter=50GB/s,nics=4"}) {
    CAPTURE(call);
    const Cluster cluster = topologies::load_cluster(call, "test");
    BytesPerSecond port{}, card{};
    for (const Link& link : cluster.links) {
      if (link.name == "n0.gpu0-n0.switch") port = link.rate;
      if (link.name == "n0.gpu0-n0.nic0") card = link.rate;
    }
    CHECK(card.value > 0);
    CHECK(card <= port);
  }
}

TEST_CASE("link kinds: rates that nothing but a default says are noted as guessed") {
  const auto notes_of = [](const std::string& call) {
    std::vector<std::string> notes;
    (void)topologies::load_cluster(call, "test", &notes);
    return notes;
  };
  CHECK(notes_of("nodes:2x2,device=mi300x") ==
        std::vector<std::string>{"link rates are guessed (default of nodes: inter=12GB/s, default "
                                 "of nodes: intra=120 GB/s)"});
  CHECK(notes_of("nodes:1x2,device=t4").empty());
  CHECK(notes_of("nodes:2x2,device=t4,inter=10GB/s").empty());
}

}  // namespace parsim
