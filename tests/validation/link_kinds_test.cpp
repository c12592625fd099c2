// Which links between machines take the share of their rate that measured rows fit.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/text.hpp"
#include "experiment/calibration.hpp"
#include "networks/networks.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"
#include "validation/interconnect_column.hpp"
#include "validation/measurements.hpp"
#include "validation/published_calibration.hpp"

namespace parsim::validation {
namespace {

experiment::FittedStep on(std::optional<LinkKind> kind, double links) {
  experiment::FittedStep step;
  step.set = "w";
  step.device = "t4";
  step.network = "alexnet";
  step.kernels = 1.5;
  step.links = links;
  step.kind = kind;
  return step;
}

experiment::RunCalibration run(const std::vector<experiment::FittedStep>& rows,
                               const std::string& kind) {
  const Network network = networks::load_network("alexnet", {}, "test");
  const Cluster cluster = topologies::load_cluster(
      "nodes:2x2,device=t4,intra=10GB/s,inter=3GB/s,nics=1" + kind, "test");
  return experiment::calibration_of(rows, network, Precision::fp32, cluster);
}

/// Of the links between machines.
double share(const experiment::RunCalibration& calibration) {
  return *std::min_element(calibration.links.begin(), calibration.links.end());
}

}  // namespace

TEST_CASE("link kinds: a fitted share counts for links of its kind alone") {
  const auto infiniband = on(LinkKind::infiniband, 0.25), unnamed = on({}, 0.5);
  const experiment::RunCalibration same = run({infiniband}, ",inter-kind=infiniband");
  CHECK(share(same) == 0.25);
  CHECK(std::count(same.links.begin(), same.links.end(), 0.25) == 2);  // a port each
  CHECK(same.notes.empty());

  const experiment::RunCalibration other = run({infiniband}, ",inter-kind=tcp");
  CHECK(share(other) == 1);
  CHECK(other.kernels[0] == 1.5);
  CHECK_FALSE(other.by.at(0).links);
  CHECK(join(other.notes) ==
        "rows across machines were measured on infiniband, and their share of its rate is not used "
        "for tcp of the run");

  // Rows that name no kind count for any, and any row for links whose kind is guessed.
  CHECK(share(run({unnamed}, ",inter-kind=tcp")) == 0.5);
  CHECK(share(run({infiniband, unnamed}, ",inter-kind=tcp")) == 0.5);
  CHECK(run({infiniband, unnamed}, ",inter-kind=tcp").notes.empty());
  CHECK(share(run({on(LinkKind::roce, 0.25)}, "")) == 0.25);
}

TEST_CASE("link kinds: each kind of a run takes the share of its own rows") {
  Cluster cluster = topologies::load_cluster(
      "nodes:2x2,device=t4,intra=10GB/s,inter=3GB/s,inter-kind=tcp,nics=1", "test");
  std::vector<std::size_t> between;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    if (cluster.links[l].kind == LinkKind::tcp) between.push_back(l);
  }
  REQUIRE(between.size() == 2);
  cluster.links[between[1]].kind = LinkKind::infiniband;
  const Network network = networks::load_network("alexnet", {}, "test");
  const auto calibration = experiment::calibration_of(
      {on(LinkKind::infiniband, 0.25), on(LinkKind::tcp, 0.75)}, network, Precision::fp32, cluster);
  CHECK(calibration.links[between[0]] == 0.75);
  CHECK(calibration.links[between[1]] == 0.25);
  const Cluster slower = experiment::with_link_shares(cluster, calibration.links);
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    CHECK(slower.links[l].rate.value == cluster.links[l].rate.value * calibration.links[l]);
  }
}

TEST_CASE("link kinds: those that the column interconnect names") {
  const auto kind = [](const std::string& text, const std::string& machine = "") {
    return named_network_kind(text, machine);
  };
  for (const char* text : {"NVLink4 + 8x NDR", "InfiniBand 100 Gb/s", "1x IB EDR 100Gb/s per node",
                           "8x200 Gb/s (HDR) per node", "4x100 Gb/s OmniPath per node"}) {
    CAPTURE(text);
    CHECK(kind(text) == LinkKind::infiniband);
  }
  CHECK(kind("4x100 Gb/s RoCE per node") == LinkKind::roce);
  CHECK(kind("EFA 4x100 Gb/s") == LinkKind::efa);
  CHECK(kind("25 GbE") == LinkKind::tcp);
  CHECK(kind("25 Gb/s", "AWS g4dn") == LinkKind::tcp);
  CHECK_FALSE(kind("NVLink4 + 8x400 Gb/s"));
  CHECK_FALSE(kind("NVLink4 + 400 Gb/s, no InfiniBand"));
}

TEST_CASE("link kinds: rows on links of unlike kinds are fitted apart") {
  const auto row = [](int nodes, const std::string& interconnect, double milliseconds) {
    return read_measurements(
               fmt::format(
                   "model,batch_per_gpu,gpu,nodes,n_gpus,interconnect,precision,value,unit\n"
                   "alexnet,64,v100-pcie,{},{},\"{}\",FP32,{},ms\n",
                   nodes, 2 * nodes, interconnect, milliseconds),
               "f.csv", "f")
        .at(0);
  };
  const auto step = [&](const std::string& interconnect, double links) {
    return 1e3 * Training(row(2, interconnect, 1)).step(1, links);
  };
  const std::string infiniband = "PCIe gen3 + InfiniBand 25 Gb/s", tcp = "PCIe gen3 + 25 GbE",
                    unnamed = "PCIe gen3 + 25 Gb/s";
  const auto fitted =
      fitted_steps({row(1, "PCIe gen3", 1e3 * Training(row(1, "PCIe gen3", 1)).step(1)),
                    row(2, infiniband, step(infiniband, 0.4)), row(2, tcp, step(tcp, 0.8)),
                    row(2, unnamed, step(unnamed, 0.6))});
  CHECK_FALSE(fitted[0].kind);
  CHECK(fitted[1].kind == LinkKind::infiniband);
  CHECK(fitted[1].links.value() == testing::approx(0.4).epsilon(0.02));
  CHECK(fitted[2].kind == LinkKind::tcp);
  CHECK(fitted[2].links.value() == testing::approx(0.8).epsilon(0.02));
  CHECK_FALSE(fitted[3].kind);
  CHECK(fitted[3].links.value() == testing::approx(0.6).epsilon(0.02));
}

}  // namespace parsim::validation
