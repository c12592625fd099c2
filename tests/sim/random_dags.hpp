// Random clusters and DAGs whose messages compete, for properties (call them within rc::check).
#pragma once

#include <rapidcheck.h>

#include <string>

#include "tests/sim/small_dags.hpp"

namespace parsim::testing {

/// Up to seven devices on up to three switches, which are attached to one more; rates that make
/// each link a bottleneck of some flow. Neighbours by number may be far apart: rings cross a link
/// several times.
inline Cluster two_levels() {
  const auto rate = [] { return BytesPerSecond{1e9 * *rc::gen::inRange(1, 40)}; };
  const auto latency = [] { return Seconds{1e-6} * *rc::gen::inRange(0, 30); };
  Cluster cluster = star({}, Seconds{0});
  const int nodes = *rc::gen::inRange(1, 4);
  for (int node = 0; node < nodes; ++node) {
    const SwitchId inside{cluster.switches.size()};
    cluster.switches.push_back({"inside" + std::to_string(node), NodeId{0}});
    cluster.links.push_back({"up" + std::to_string(node), Port::of(inside), Port::of(SwitchId{0}),
                             rate(), latency(), -1});
  }
  for (int i = *rc::gen::inRange(1, 8); i > 0; --i) {
    const DeviceId device{cluster.devices.size()};
    const std::string name = std::to_string(device.value);
    cluster.devices.push_back({"gpu" + name, 0, NodeId{0}, cluster.models.front().memory});
    cluster.links.push_back({"link" + name, Port::of(device),
                             Port::of(SwitchId{*rc::gen::inRange(0, nodes) + 1}), rate(), latency(),
                             -1});
  }
  return cluster;
}

/// Kernels, transfers and collectives on all streams, hardly ordered: flows compete. A payload has
/// at least 2 · `least` bytes.
inline ExecDag contended_dag(int count, int least = 0) {
  ExecDag dag = bare_dag();
  const int size = *rc::gen::inRange(2, 40);
  for (int i = 0; i < size; ++i) {
    std::vector<OpId> after;
    if (i > 0 && *rc::gen::inRange(0, 3) == 0) after.emplace_back(*rc::gen::inRange(0, i));
    const auto bytes = std::int64_t{2} * *rc::gen::inRange(least, 20'000'000);
    const int a = *rc::gen::inRange(0, count), b = *rc::gen::inRange(0, count);
    switch (*rc::gen::inRange(0, 6)) {
      case 0: {
        const int members = *rc::gen::inRange(1, count - a + 1);
        const auto kind =
            *rc::gen::element(CollectiveKind::all_reduce, CollectiveKind::all_gather,
                              CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
        add_collective(dag, kind, devices(a, members),
                       std::vector<std::int64_t>(static_cast<std::size_t>(members), bytes), after,
                       *rc::gen::element(Stream::gradient, Stream::tensor));
        break;
      }
      case 1:
        add_delay(dag, a, *rc::gen::inRange(0, 3000) * Seconds{1e-6}, after);
        break;
      default:
        add_transfer(dag, a, b, bytes, after,
                     *rc::gen::element(Stream::gradient, Stream::tensor, Stream::pipeline,
                                       Stream::pipeline_back));
    }
  }
  return dag;
}

}  // namespace parsim::testing
