// Clusters and options that tests of NCCL's model share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/collectives.hpp"
#include "sim/nccl.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {

inline constexpr CollectiveKind all_reduce = CollectiveKind::all_reduce;

inline sim::SimOptions nccl(std::optional<sim::NcclAlgorithm> algorithm = {},
                            std::optional<sim::NcclProtocol> protocol = {}) {
  sim::SimOptions options;
  options.collectives = sim::CollectiveCost::nccl;
  options.algorithm = algorithm;
  options.protocol = protocol;
  options.terms = {Seconds{0}, Seconds{0}, {}};
  return options;
}

inline std::vector<DeviceId> gpus_of(const Cluster& cluster) {
  return devices_of(cluster, DeviceKind::gpu);
}

inline sim::CollectiveChoice chosen(const std::string& call, CollectiveKind kind,
                                    std::int64_t bytes, const sim::SimOptions& options = nccl()) {
  const Cluster cluster = topologies::load_cluster(call, "test");
  sim::PathCache paths(cluster);
  return sim::choose(kind, gpus_of(cluster), Bytes{bytes}, paths, options);
}

inline std::string spelled(const sim::CollectiveChoice& choice) {
  return std::string(choice.algorithm) + " " + std::string(choice.protocol);
}

inline constexpr const char* a100x8 = "nvswitch:8,device=a100-sxm4-40,rate=240GB/s";
inline constexpr const char* h100x8 = "nvswitch:8,device=h100-sxm5,rate=370.8GB/s";
inline constexpr const char* h100x16 =
    "nodes:2x8,device=h100-sxm5,intra=370.8GB/s,inter=50GB/s,nics=8,latency=1us";
inline constexpr std::int64_t mega = 1 << 20, giga = 1 << 30;

/// Nodes of one A100 each, 12.5 GB/s a direction.
inline std::string lone_gpus(int nodes) {
  return "nodes:" + std::to_string(nodes) +
         "x1,device=a100-pcie,intra=100GB/s,inter=12.5GB/s,latency=1us";
}

}  // namespace parsim::testing
