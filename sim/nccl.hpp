// NCCL's choice for a collective: algorithm and protocol, their latency, and the least time that
// they take on any links.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/exec_dag.hpp"
#include "core/link_kind.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

using parsim::to_text;  // which the overload below would hide

/// A group of devices as NCCL sees it.
struct CommShape {
  std::int32_t ranks = 1, nodes = 1;
  std::int32_t fewest_nodes = 1;  ///< on which the cluster has room for so many ranks
  double architecture = 8;        ///< least compute capability of the group
  bool gpus = true;               ///< nothing else in it
  bool nvlink = false;            ///< inside a node; else PCIe
  bool one_kind = true;           ///< one compute capability
  double rate = 0;                ///< of all rings together, bytes/s
  double inside_rate = 0;         ///< the same within one node; `rate` if there is only one
  double search_rate = 0;  ///< what NCCL's graph search takes `inside_rate` to be; 0: the same
  std::int32_t channels = 2;
  Seconds network_latency{};       ///< of the slowest hop between nodes
  Seconds inside_latency{};        ///< of the slowest hop within a node
  bool switched = false;           ///< every hop within a node goes over a switch
  double memory_rate = 0;          ///< least of the group's devices, bytes/s; 0: not counted
  std::optional<LinkKind> kind{};  ///< of links between nodes, or inside the only one
};

/// How a library runs a collective.
struct CollectiveChoice {
  std::string_view algorithm = "ring", protocol = "ideal";
  Seconds wait{};      ///< before bytes flow: launch, latency of all steps
  Seconds least{};     ///< what bytes take at least, however fast the links are
  double traffic = 1;  ///< part of the bytes that links carry: of a ring's, or of the pairs'
  Seconds covered{};   ///< of an all-to-all's paths: latency that `wait` has in it already

  /// From a table, not from a model.
  [[nodiscard]] bool measured() const { return algorithm == "measured"; }
};

/// The fastest of NCCL's algorithms and protocols by its own model (or of those that the options
/// leave), with the offset and square-root terms of the options on top. Not for all_to_all.
///
///     time = latency(algorithm, protocol) + payload / rate(algorithm, protocol)
///
/// Formulas and constants: NCCL 2.28.9, src/graph/tuning.cc, for machines with Intel's CPUs; of an
/// older version that the options name, those of sim/nccl_tables.hpp. Differences:
///   - rates of rings and multicasts come from our links instead of NCCL's graph search;
///   - a tree over nodes is limited by the network cards of a node, payload · 2(nodes−1)/nodes per
///     direction, where NCCL takes two nodes to be as fast as NVLink inside them;
///   - a broadcast's hops inside a node have intra-node latency, where NCCL takes network latency
///   for
///     all hops, or counts one hop for all;
///   - of the steps of a ring, the last one only takes from a buffer what has arrived: with Simple,
///     this share of the payload is read and written once more while links wait;
///   - latencies are NCCL's, for NVLink and InfiniBand; a network's latency beyond 6 us, and that
///   of
///     a path inside a machine beyond 2.5 us, is added to each hop.
/// PAT runs wherever it can: NCCL's default from 2.23 on (NCCL_PAT_ENABLE=2). Each rank sends every
/// share once, as in a ring, but to ranks at distance 1, 2, 4, …; its flows are modelled along the
/// ring's hops. Not modelled: CollNet. Checked: tests/sim/nccl_test.cpp.
[[nodiscard]] CollectiveChoice choose_nccl(CollectiveKind kind, const CommShape& shape,
                                           Bytes payload, const SimOptions& options);

/// That what the options ask for does not run, and what does: choose_nccl would leave the choice to
/// the library, as NCCL does.
struct NcclRefusal {
  std::string_view flag;  ///< "--algorithm" or "--protocol"
  std::string reason, accepted;
};
/// Nothing if it runs, or if the options leave all open.
[[nodiscard]] std::optional<NcclRefusal> nccl_refusal(CollectiveKind kind, const CommShape& shape,
                                                      const SimOptions& options);

/// How NCCL sees a message from one GPU to another.
struct MessagePath {
  bool inside = true;   ///< within one node
  bool nvlink = false;  ///< else PCIe, inside
  Seconds latency{};    ///< of the links
  std::optional<LinkKind> kind{};
};
/// LL up to 16 KiB (NCCL_P2P_LL_THRESHOLD, src/enqueue.cc), Simple above.
[[nodiscard]] NcclProtocol message_protocol(Bytes payload);
/// How long a send/receive waits before bytes flow. NCCL has no model of it (tuning.cc knows only
/// collectives), so this is guessed: a ring of one hop,
///
///     base(protocol) + hop(protocol), and what the path has beyond what that covers,
///
/// with offset and square root as a collective has them. A network's hop is that of a node with one
/// GPU.
///
/// Messages that a program could start together (ncclGroupStart) each wait for themselves, as they
/// do where our own engines run them: pieces of one tensor for 0.8 % of a step in the plans that
/// we looked at, a pipeline's several tensors per boundary for 2 to 6 %.
[[nodiscard]] Seconds message_wait(const MessagePath& path, Bytes payload,
                                   const LibraryTerms& terms);

/// How long a GPU takes to read these bytes and write them again with a collective's few blocks.
[[nodiscard]] Seconds copy_time(double bytes, double memory_rate);

/// The latency of a path that NCCL's constants have in them.
[[nodiscard]] Seconds covered_latency(bool inside);

/// The terms of the options, or of the kind of links.
struct FixedCosts {
  Seconds offset{}, per_root_byte{};
  bool fitted = false;  ///< the root is of the options, and counts for all protocols
};
[[nodiscard]] FixedCosts fixed_costs(const LibraryTerms& terms, std::optional<LinkKind> kind);
/// Offset and square-root term for a payload.
[[nodiscard]] Seconds launch_time(Bytes payload, const FixedCosts& costs, NcclProtocol protocol);

/// "2.28".
[[nodiscard]] std::string to_text(NcclVersion version);

}  // namespace parsim::sim
