// What layouts and trainers' files are read for.
#pragma once

#include "networks/networks.hpp"
#include "topologies/topologies.hpp"

namespace parsim::fuzz {

inline const Network& network() {
  static const Network four_blocks = networks::load_network(
      "gpt:layers=4,hidden=64,heads=4,vocab_size=256,seq_length=32", {}, "fuzz");
  return four_blocks;
}

inline const Cluster& cluster() {
  static const Cluster four_gpus =
      topologies::load_cluster("nodes:2x2,device=t4,intra=10GB/s,inter=1GB/s", "fuzz");
  return four_gpus;
}

}  // namespace parsim::fuzz
