// How many flows a communication has, before any of them is made.
#include <doctest/doctest.h>

#include <vector>

#include "sim/op_flows.hpp"
#include "tests/sim/small_dags.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

TEST_CASE("flow count: no fewer than are made, and every pair of an all-to-all") {
  for (const int members : {2, 3, 5}) {
    CAPTURE(members);
    const auto n = static_cast<std::size_t>(members);
    const Cluster cluster = star(std::vector<double>(n, 10e9), Seconds{1e-6});
    const SimpleCost cost(cluster);
    ExecDag dag = bare_dag();
    const std::vector<DeviceId> group = devices(0, members);
    const std::vector<std::int64_t> shares(n, 1000);
    add_transfer(dag, 0, 1, 1000);
    add_collective(dag, CollectiveKind::all_reduce, group, shares);
    add_collective(dag, CollectiveKind::broadcast, group, shares);
    // Every member has a part of what all others need.
    Shares exchanged;
    for (int i = 0; i < members; ++i) {
      exchanged.regions.push_back(slice_of(dag, 1000, 1000 * i).region);
      exchanged.needs.push_back(slice_of(dag, 1000 * members).region);
    }
    const Slice all = slice_of(dag, 1000 * members);
    const OpId last = dag.add(Collective{CollectiveKind::all_to_all, dag.intern(group), all, all},
                              exchanged, Stream::gradient, {});
    PathCache paths(cluster);
    const PreparedDag prepared = prepare(dag, cost, paths, {});
    std::vector<double> bytes(cluster.links.size() * 2, 0);
    double reduced = 0;
    std::vector<Span> spans(dag.size());
    for (std::size_t i = 0; i < dag.size(); ++i) {
      CAPTURE(i);
      OpFlows flows;
      flows_of(dag, prepared, OpId{i}, Fidelity::hops, {spans, bytes, reduced}, flows);
      CHECK(flow_count(dag, prepared, OpId{i}) >= flows.flows.size());
    }
    CHECK(flow_count(dag, prepared, last) == n * (n - 1));
  }
}

}  // namespace
}  // namespace parsim::sim
