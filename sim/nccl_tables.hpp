// NCCL's own tuning model by version: which algorithms exist, their latencies and bandwidth caps.
#pragma once

#include <array>

#include "sim/sim.hpp"

namespace parsim::sim {

/// Microseconds or GB/s by protocol: LL, LL128, Simple.
using ByProtocol = std::array<double, 3>;

/// Constants that changed between versions of NCCL; what did not is in nccl.cpp. All of
/// src/graph/tuning.cc of the version's tag, for Intel's CPUs. Left out is what later versions only
/// put right and machines always did: LL at half of a ring's rate was thought to be at a quarter
/// until 2.21, and four V100 with 2.8.3 reach the half.
struct NcclTables {
  NcclVersion since;
  // Microseconds: once, and by hop.
  ByProtocol tree_base, ring_base, tree_nvlink, ring_nvlink, tree_pcie, ring_pcie, tree_net,
      ring_net;
  double tree_part;  ///< part of the links' rate that trees reach
  /// GB/s of all channels of a tree, on one node, two and more; infinite where NCCL has a cap by
  /// channel and generation instead.
  std::array<double, 3> tree_most;
  bool all_steps_outside;  ///< all steps of a ring over nodes count as the network's
};

/// The newest tables that are not newer than the version. Before 2.5, which began to have such a
/// model, thresholds of size chose; those versions are given 2.5's tables.
[[nodiscard]] const NcclTables& nccl_tables(NcclVersion version);

/// The first version that has the algorithm: rings from 2.0, trees from 2.4 (between nodes only;
/// within one from 2.5), multicasts from 2.17, trees over multicasts from 2.18, PAT from 2.23; of
/// protocols LL128 from 2.5. Source: the messages of those releases, and 2.4's ncclTreeThreshold
/// (src/init.cc), which gives one node no tree.
[[nodiscard]] NcclVersion first_with(NcclAlgorithm algorithm, bool one_node);
[[nodiscard]] NcclVersion first_with(NcclProtocol protocol);

}  // namespace parsim::sim
