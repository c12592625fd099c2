#include "sim/nccl_tables.hpp"

#include <limits>

namespace parsim::sim {

namespace {

constexpr double by_channel = std::numeric_limits<double>::infinity();

// Tags: 2.5.6 (and 2.6.4, but for its cap of trees), 2.7.8, 2.8.4, 2.18.6, 2.28.9 (whose
// latencies came with 2.23). By protocol: LL, LL128, Simple. After the first, what changed.
constexpr std::array<NcclTables, 6> tables = [] {
  std::array<NcclTables, 6> all{};
  NcclTables now{.since = {2, 0},
                 .tree_base = {4.4, 4.4, 0},
                 .ring_base = {3.6, 3.6, 8.4},
                 .tree_nvlink = {0.5, 1.9, 28},
                 .ring_nvlink = {0.4, 2.5, 5.7},
                 .tree_pcie = {1.0, 1.9, 28},
                 .ring_pcie = {1.0, 2.5, 5.7},
                 .tree_net = {5.0, 7.5, 50},
                 .ring_net = {0.9, 2.5, 6.6},
                 .tree_part = 0.9,
                 .tree_most = {90, 70, 70},
                 .all_steps_outside = true};
  all[0] = now;
  now.since = {2, 6};
  now.tree_most = {110, 110, 80};
  all[1] = now;
  now.since = {2, 7};
  now.ring_base = {3.6, 10.0, 8.4};
  now.tree_nvlink = {0.52, 1.2, 28};
  now.ring_nvlink = {0.47, 1.9, 3.4};
  now.tree_net = {5.0, 8.5, 50};
  now.ring_net = {2.7, 4.0, 9.6};
  now.all_steps_outside = false;
  all[2] = now;
  now.since = {2, 8};
  now.tree_nvlink = {0.52, 1.25, 28};
  now.tree_net = {5.0, 8.5, 28};
  now.tree_part = 0.92;
  now.tree_most = {by_channel, by_channel, by_channel};
  all[3] = now;
  now.since = {2, 18};
  now.tree_base = {6.8, 14.0, 0};
  now.ring_base = {6.6, 14.0, 8.4};
  now.tree_nvlink = {0.6, 1.25, 28};
  now.ring_nvlink = {0.6, 1.9, 3.4};
  now.ring_net = {2.7, 4.0, 14.0};
  all[4] = now;
  now.since = {2, 23};
  now.tree_base = {6.8, 14.0, 8.4};
  now.tree_nvlink = {0.6, 1.25, 4.0};
  now.tree_pcie = {1.0, 1.9, 4.0};
  now.tree_net = {5.0, 8.5, 14.0};
  all[5] = now;
  return all;
}();

}  // namespace

const NcclTables& nccl_tables(NcclVersion version) {
  const NcclTables* found = tables.data();
  for (const NcclTables& one : tables) {
    if (one.since <= version) found = &one;
  }
  return *found;
}

NcclVersion first_with(NcclAlgorithm algorithm, bool one_node) {
  switch (algorithm) {
    case NcclAlgorithm::ring:
      return {2, 0};
    case NcclAlgorithm::tree:
      return {2, one_node ? 5 : 4};
    case NcclAlgorithm::nvls:
      return {2, 17};
    case NcclAlgorithm::nvls_tree:
      return {2, 18};
    case NcclAlgorithm::pat:
      return {2, 23};
  }
  return {2, 0};
}

NcclVersion first_with(NcclProtocol protocol) {
  return {2, protocol == NcclProtocol::ll128 ? 5 : 0};
}

}  // namespace parsim::sim
