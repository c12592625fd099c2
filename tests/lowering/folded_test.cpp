// A DAG of one of several equal replicas, unfolded, is that of all of them, operation by operation.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/random_replicas.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// What a device sees of an operation.
struct SeenOp {
  OpKind kind{};
  Stream stream{};
  std::uint8_t sub = 0;
  Bytes payload;
  std::vector<DeviceId> devices;  ///< of the unit
  Span span;
};

std::vector<DeviceId> devices_of(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  if (dag.kind(id) == OpKind::collective) return dag.group(GroupId{record.device});
  if (dag.kind(id) == OpKind::transfer) return {DeviceId{record.device}, DeviceId{record.to}};
  return {DeviceId{record.device}};
}

/// The operations of a unit's devices, which are named as those of the first unit.
std::vector<SeenOp> seen_by(const ExecDag& dag, const Timeline& timeline, const AlikeUnits& units,
                            std::int32_t unit) {
  std::vector<SeenOp> all;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    SeenOp seen{dag.kind(id), dag.stream(id),   dag.record(id).sub, dag.payload(id),
                {},           timeline.spans[i]};
    for (const DeviceId device : devices_of(dag, id)) {
      if (units.unit_of[device.index()] != unit) continue;
      const auto position = static_cast<std::size_t>(units.position_of[device.index()]);
      seen.devices.push_back(units.devices[0][position]);
    }
    if (!seen.devices.empty()) all.push_back(std::move(seen));
  }
  return all;
}

bool equal(const std::vector<SeenOp>& a, const std::vector<SeenOp>& b, Seconds step) {
  const auto near = [&](Seconds x, Seconds y) {
    return std::abs((x - y).count()) <= 1e-9 * step.count();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const SeenOp& x, const SeenOp& y) {
    return x.kind == y.kind && x.stream == y.stream && x.sub == y.sub && x.payload == y.payload &&
           x.devices == y.devices && near(x.span.start, y.span.start) &&
           near(x.span.end, y.span.end);
  });
}

bool equal(const std::vector<DeviceUse>& a, const std::vector<DeviceUse>& b, Seconds step) {
  const auto near = [&](Seconds x, Seconds y) {
    return std::abs((x - y).count()) <= 1e-9 * step.count();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const DeviceUse& x, const DeviceUse& y) {
                      return near(x.compute, y.compute) && near(x.idle, y.idle) &&
                             near(x.exposed_communication, y.exposed_communication);
                    });
}

struct FoldedCounts {
  std::size_t plans = 0, folded = 0, run = 0;
};

void compare_folded(const World& world, std::uint64_t seed, std::size_t count,
                    FoldedCounts& counts) {
  ReplicatedPlans plans(world, seed);
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  if (seed % 2 == 0) options.collectives = sim::CollectiveCost::nccl;
  const auto simulator = sim::make_simulator(world.cluster, *world.cost, options);
  for (std::size_t i = 0; i < count; ++i) {
    const Plan plan = plans.next();
    CAPTURE(world.network.name);
    CAPTURE(world.cluster.name);
    CAPTURE(seed);
    CAPTURE(i);
    ++counts.plans;
    const lowering::Lowered folded =
        lowering::lower_folded(world.network, world.cluster, *world.cost, plan);
    if (folded.dag.units == nullptr) continue;
    ++counts.folded;
    const AlikeUnits& units = *folded.dag.units;
    const ExecDag whole = lowering::lower(world.network, world.cluster, plan);
    CHECK(bytes_moved(folded.dag) == bytes_moved(whole));
    CHECK(messages(folded.dag) == messages(whole));
    std::int64_t operations = 0;
    for (std::size_t op = 0; op < folded.dag.size(); ++op) operations += folded.dag.count(OpId{op});
    CHECK(operations == static_cast<std::int64_t>(whole.size()));
    const std::optional<Timeline> found = simulator->run_folded(folded.dag);
    if (!found) continue;
    ++counts.run;
    const Timeline all = simulator->run(whole);
    const Seconds step = makespan(all);
    const std::vector<SeenOp> wanted = seen_by(folded.dag, *found, units, 0);
    for (std::size_t u = 0; u < units.count(); ++u)
      CHECK(equal(wanted, seen_by(whole, all, units, static_cast<std::int32_t>(u)), step));
    const std::size_t devices = world.cluster.devices.size();
    CHECK(equal(device_use(folded.dag, *found, devices), device_use(whole, all, devices), step));
    CHECK(found->hop_bytes == all.hop_bytes);
    CHECK(found->bytes_reduced_in_network == testing::approx(all.bytes_reduced_in_network));
  }
}

TEST_CASE("folded: the operations and times of one of several equal replicas, on random plans") {
  FoldedCounts counts;
  std::uint64_t seed = 1;
  const std::size_t more = long_tests() ? 10 : 1;
  for (const std::string& cluster : clusters_with_replicas()) {
    for (const Network& network : tiny_networks()) {
      const World world(network, topologies::load_cluster(cluster, "test"));
      compare_folded(world, seed++, 3 * more, counts);
    }
    const World world("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128", cluster);
    compare_folded(world, seed++, 20 * more, counts);
  }
  CHECK(counts.plans > 400 * more);
  CHECK(counts.folded > 75 * more);
  CHECK(counts.run > 50 * more);
  MESSAGE(counts.plans << " plans, " << counts.folded << " folded, " << counts.run << " run");
}

}  // namespace
}  // namespace parsim::testing
