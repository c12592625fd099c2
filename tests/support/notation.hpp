// Small worlds in a line or two, so that a test shows its input where it checks the output.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/network.hpp"

namespace parsim::testing {

/// A DAG with names for its operations.
struct NotedDag {
  ExecDag dag;
  std::map<std::string, OpId, std::less<>> ids;

  /// Throws std::out_of_range for an unknown name.
  [[nodiscard]] OpId operator[](std::string_view name) const;
};

/// A DAG from statements separated by ';' or line breaks, in issue order:
///
///     a: compute d0 3us
///     b: transfer d0->d1 1MB after a
///     c: all-reduce d0,d1,d2 4MiB on tensor after a b
///
/// `compute` is a kernel of known duration (a Delay). Collectives: all-reduce, broadcast, and with
/// equal shares all-gather and reduce-scatter; the size is the payload as at Collective. Bytes are
/// fp32 elements of one large parameter, so they divide by 4. A transfer runs on stream pipeline
/// and a collective on gradient, unless `on` names another. Throws std::invalid_argument with the
/// statement that it does not understand.
[[nodiscard]] NotedDag dag_of(std::string_view text);

/// A network from statements separated by ';' or line breaks; an operand that is not named is the
/// layer before:
///
///     x: image 3x8x8; conv 4 k3 s1 p1; a: relu; b: conv 4 k1 (a); add (a b); flatten; dense 10;
///     loss
///
/// Kinds: image CxHxW, vector C, conv FILTERS kKERNEL [sSTRIDE] [pPADDING] [gGROUPS], dense UNITS,
/// relu, max-pool KERNEL [sSTRIDE] [pPADDING], average-pool …, norm, add, concat (first axis),
/// flatten, softmax (last axis), loss. Throws std::invalid_argument with the statement it does not
/// understand.
[[nodiscard]] Network network_of(std::string_view text);

/// A GPU that computes `rate` at every precision ("10 TFLOP/s"), with 16 GiB at 1 TB/s.
[[nodiscard]] DeviceModel test_device(std::string name, const std::string& rate);

/// Devices d0, d1, … of these models, each on its own node, around one switch.
[[nodiscard]] Cluster star_of(const std::vector<DeviceModel>& devices, const std::string& rate,
                              const std::string& latency);
/// The same with `devices` equal ones of 10 TFLOP/s.
[[nodiscard]] Cluster star_of(std::size_t devices, const std::string& rate,
                              const std::string& latency);

}  // namespace parsim::testing
