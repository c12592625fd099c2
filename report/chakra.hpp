// A step as execution traces of MLCommons Chakra: what ASTRA-sim and other simulators read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim::report {

struct ChakraTraces {
  std::vector<std::string> ranks;  ///< by rank, bytes of "parsim.RANK.et"
  std::string groups;              ///< JSON: by name of a group its ranks
  /// Nodes of all ranks together.
  std::size_t computes = 0, sends = 0, receives = 0, collectives = 0;
};

/// One trace for each device that has operations, which are the ranks, in order of their ids. A
/// file is a sequence of messages, each after its length as a varint: GlobalMetadata, then Nodes.
///
///     compute, update, local, delay    COMP_NODE; num_ops are the FLOPs of products, convolutions
///                                      and attention, tensor_size the bytes of the others
///     transfer                         COMM_SEND_NODE and COMM_RECV_NODE, comm_tag its number;
///                                      from a device to itself a COMP_NODE
///     collective                       COMM_COLL_NODE on each member, in the group pg_name;
///                                      comm_size its payload (core/op.hpp)
///
/// A node has the id of its operation; start_time_micros and duration_micros are those of
/// `timeline`. Predecessors on the same rank are data_deps, what heads the same queue before
/// (core/dag_traffic.hpp) are ctrl_deps. An operation that waits for one of another rank without a
/// message gets an empty one, from `dag.size()` on.
///
/// Source: mlcommons/chakra at 21585d8, schema/protobuf/et_def.proto; names of attributes:
/// src/feeder/et_feeder_node.cpp.
[[nodiscard]] ChakraTraces chakra_traces(const ExecDag& dag, const Cluster& cluster,
                                         const Timeline& timeline);

}  // namespace parsim::report
