// The generic suite: what must hold for every named machine and every generator.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/routes.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

/// One call at least of every generator; checked below.
const std::vector<std::string> calls{
    "star:8,device=p100-sxm2,rate=25GB/s,latency=1us",
    "star:2,device=t4*1+k80*1,cpu=xeon-e5-2600,cpu-rate=10GB/s",
    "star:1,device=t4",
    "nodes:4x8,device=v100-sxm2,intra=400GB/s,inter=25GB/s",
    "nodes:2x8,device=p100-sxm2*8+v100-sxm2*8,nics=4,cpu=xeon-e5-2600",
    "nodes:1x2,device=t4",
    "rail:4x2,device=a100-sxm4-80,unit=2,oversubscription=2,cpu=xeon-e5-2600",
    "rail:3x4,device=t4*1+k80*3,unit=2",
    "rail:1x4,device=t4",
    "nvl72:1",
    "nvl72:2,device=gb300,unit=1",
    "nvswitch:16,device=h100-sxm5,rate=370GB/s",
    "cube-mesh:8,device=p100-sxm2,links=4",
    "cube-mesh:8,device=v100-sxm2,cpu=xeon-e5-2600",
    "pcie-tree:7,device=k80,per-switch=2,cpu=xeon-e5-2600",
    "pcie-tree:2,device=k80,sockets=4",
    "ring:5,device=t4",
    "ring:2,device=t4",
    "ring:1,device=t4",
    "torus:4x4,device=t4",
    "torus:2x3x4,device=t4,cpu=xeon-e5-2600",
    "torus:1x2,device=t4",
    "fat-tree:16,device=t4",
    "fat-tree:5,device=t4,k=4",
    "fat-tree:10,device=t4,leaf=4,spines=2",
    "dragonfly:9x4x2,device=t4",
    "dragonfly:1x1x1,device=t4",
    "dragonfly:5x2x1,device=t4",
};

std::vector<std::string> everything() {
  std::vector<std::string> all = calls;
  for (const ClusterEntry& entry : clusters()) {
    const auto is_call = [&](const std::string& call) {
      return call.starts_with(entry.name + ":");
    };
    if (std::none_of(calls.begin(), calls.end(), is_call)) all.push_back(entry.name);
  }
  return all;
}

TEST_CASE("catalogue: the machines of the papers are there, and every generator is called here") {
  std::set<std::string> names;
  for (const ClusterEntry& entry : clusters()) {
    CHECK(names.insert(entry.name).second);
    CHECK_FALSE(entry.summary.empty());
  }
  for (const std::string name :
       {"p100-4x4",  "dgx-p100",  "dgx-v100",        "dgx-2",         "dgx-a100",  "dgx-h100",
        "dgx-h200",  "k80-cloud", "mixed-p100-v100", "mixed-v100-t4", "rtx-mix",   "star",
        "ring",      "fat-tree",  "torus",           "dragonfly",     "pcie-tree", "nvswitch",
        "cube-mesh", "nodes",     "k80-cloud-x2",    "v100-mesh-x2",  "aws-p4d",   "aws-p5",
        "gcp-a3",    "g4dn"}) {
    CAPTURE(name);
    CHECK(names.contains(name));
  }
}

TEST_CASE("catalogue: everything is sound, connected and the same every time") {
  for (const std::string& name : everything()) {
    CAPTURE(name);
    const Cluster cluster = load_cluster(name, "--cluster");
    CHECK_NOTHROW(validate(cluster, name));
    CHECK(cluster.name == name);
    CHECK(cluster == load_cluster(name, "--cluster"));
    Routes routes(cluster);
    for (std::size_t a = 0; a < cluster.devices.size(); ++a) {
      for (std::size_t b = 0; b < cluster.devices.size(); ++b) {
        if (a == b) continue;
        const Route& route = routes.between(DeviceId{a}, DeviceId{b});
        CHECK(route.rate.value > 0);
        CHECK(route.latency.count() > 0);
      }
    }
    for (const Link& link : cluster.links) CHECK(link.provenance >= 0);
  }
}

TEST_CASE("catalogue: a ring of the GPUs of everything") {
  for (const std::string& name : everything()) {
    CAPTURE(name);
    const Cluster cluster = load_cluster(name, "--cluster");
    Routes routes(cluster);
    const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
    const std::vector<Ring> rings = edge_disjoint_rings(cluster, routes, gpus);
    CHECK(rings.empty() == (gpus.size() == 1));
    for (const Ring& ring : rings) {
      std::vector<DeviceId> sorted = ring.devices;
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == gpus);
    }
  }
}

TEST_CASE("catalogue: every number of a named machine has a source") {
  for (const ClusterEntry& entry : clusters()) {
    if (entry.summary.starts_with(entry.name + ":")) continue;  // a generator
    CAPTURE(entry.name);
    for (const Provenance& provenance : load_cluster(entry.name, "--cluster").provenances) {
      CHECK(provenance.source.size() > 10);
      CHECK_FALSE(provenance.source.starts_with("given in"));
    }
  }
}

TEST_CASE("device table: the types of the contract, each number with label and source") {
  std::set<std::string> names;
  for (const DeviceModel& model : device_models()) {
    CAPTURE(model.name);
    CHECK(names.insert(model.name).second);
    REQUIRE_FALSE(model.provenance.empty());
    CHECK(model.provenance.front().key == "*");
    for (const Provenance& provenance : model.provenance) CHECK(provenance.source.size() > 10);
    CHECK(model.multiprocessors > 0);
    CHECK(model.memory.value > 0);
    CHECK(model.memory_rate.value > 0);
    // Tensor cores are never slower than what they replace.
    for (const FlopsPerSecond peak : model.peak) CHECK(peak >= model.peak[0]);
  }
  for (const std::string name : {"k80",
                                 "m40",
                                 "titanx-maxwell",
                                 "titanx-pascal",
                                 "titanxp",
                                 "gtx-1080",
                                 "gtx-1080ti",
                                 "rtx-2080",
                                 "rtx-2080ti",
                                 "titan-rtx",
                                 "rtx-3090",
                                 "rtx-4090",
                                 "p100-pcie",
                                 "p100-sxm2",
                                 "v100-pcie",
                                 "v100-sxm2",
                                 "v100-sxm2-32",
                                 "v100-sxm3",
                                 "t4",
                                 "a10",
                                 "a40",
                                 "l4",
                                 "l40",
                                 "l40s",
                                 "a100-pcie",
                                 "a100-sxm4-40",
                                 "a100-sxm4-80",
                                 "h100-pcie",
                                 "h100-sxm5",
                                 "h200-sxm",
                                 "b200-sxm",
                                 "mi250x",
                                 "mi300x",
                                 "a30",
                                 "a10g",
                                 "rtx-a5000",
                                 "rtx-a6000",
                                 "rtx-6000-ada",
                                 "quadro-rtx-6000",
                                 "a100-pcie-40",
                                 "h20",
                                 "h100-nvl",
                                 "gh200",
                                 "b300",
                                 "gb200",
                                 "gb300",
                                 "rtx-pro-6000",
                                 "mi100",
                                 "mi210",
                                 "mi250",
                                 "7900xtx",
                                 "xeon-e5-2600"}) {
    CAPTURE(name);
    CHECK(names.contains(name));
  }
}

TEST_CASE("device table: a device of a card with two chips is one of them, as its driver has it") {
  // A rank of a MI250X has 64 GiB; nodes:Nx8 of LUMI or Frontier had twice the speed and memory.
  for (const char* name : {"mi250", "mi250x"}) {
    CHECK(device_model(name, "test").memory == parse_bytes("64 GiB", "test"));
    CHECK(device_model(name, "test").memory_rate < BytesPerSecond{1.7e12});
  }
  CHECK(device_model("k80", "test").memory < parse_bytes("12 GiB", "test"));
}

TEST_CASE("device table: AMD's FP32 peak is that of matrix instructions, by hand") {
  // 256 FLOPs a clock and compute unit (gpuopen.com, AMD matrix cores), at 1.502 and 1.7 GHz. With
  // those of vector instructions, half as much, products took more than their measured time.
  const auto peak = [](const char* name) {
    return device_model(name, "test").peak_at(Precision::fp32).value;
  };
  CHECK(peak("mi100") == testing::approx(256 * 120 * 1.502e9).epsilon(0.005));
  CHECK(peak("mi210") == testing::approx(256 * 104 * 1.7e9).epsilon(0.005));
  CHECK(peak("mi250") == peak("mi210"));
  CHECK(peak("mi250x") == testing::approx(256 * 110 * 1.7e9).epsilon(0.005));
}

TEST_CASE("device table: TPUs, Gaudi and Apple are refused with the way to add a device") {
  for (const std::string name :
       {"tpu-v4", "TPUv5e", "gaudi2", "trainium2", "apple-m3", "m1", "m2-ultra", "M4 Max"}) {
    CHECK(testing::refusal_of([&] { static_cast<void>(device_model(name, "here")); }) ==
          "here: no model of the kernels of '" + name +
              "'; accepted: GPUs of 'parsim list "
              "devices'; to add a device, describe its rates as [[device_types]] of a cluster "
              "file, and its kernels are priced like those of the most similar GPU");
  }
  for (const std::string name : {"m60", "m2-nano", "m"}) {
    CHECK(testing::refusal_of([&] {
            static_cast<void>(device_model(name, "here"));
          }).find("unknown device") != std::string::npos);
  }
}

TEST_CASE("device table: a V100 and a P100 by hand") {
  const DeviceModel& v100 = device_model("v100-sxm2", "here");
  CHECK(v100.kind == DeviceKind::gpu);
  CHECK(v100.architecture == "7.0");
  CHECK(v100.multiprocessors == 80);
  CHECK(v100.peak_at(Precision::fp32) == FlopsPerSecond{15.7e12});
  CHECK(v100.peak_at(Precision::tf32) == FlopsPerSecond{15.7e12});
  CHECK(v100.peak_at(Precision::fp16) == FlopsPerSecond{125e12});
  CHECK(v100.memory_rate == BytesPerSecond{900e9});
  CHECK(v100.memory == Bytes{std::int64_t{16} << 30});
  CHECK(v100.provenance.front().label == Label::data_sheet);
  CHECK(device_model("p100-sxm2", "here").peak_at(Precision::fp16) == FlopsPerSecond{21.2e12});
  CHECK(device_model("xeon-e5-2600", "here").kind == DeviceKind::cpu);
}

}  // namespace
}  // namespace parsim::topologies
