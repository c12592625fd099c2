// Folded DAGs against whole ones, operation by operation.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {

/// What a device sees of an operation.
struct SeenOp {
  OpKind kind{};
  Stream stream{};
  std::uint8_t sub = 0;
  Bytes payload;
  std::vector<DeviceId> devices;  ///< of the unit
  Span span;
};

/// Of a message from one rank to another the sender alone, which sees the message itself in both
/// DAGs; that each rank receives one is checked by bytes.
inline std::vector<DeviceId> devices_of(const ExecDag& dag, OpId id, const Fold& fold) {
  const OpRecord& record = dag.record(id);
  if (dag.kind(id) == OpKind::collective) return dag.group(GroupId{record.device});
  const DeviceId device{record.device};
  if (dag.kind(id) != OpKind::transfer) return {device};
  const DeviceId to{record.to};
  const auto rank = [&](DeviceId end) {
    if (fold.units != nullptr) end = fold.units->kept(end);
    return fold.ranks == nullptr ? 0 : fold.ranks->unit_of[end.index()];
  };
  const bool between = rank(device) != rank(to);
  return between ? std::vector{device} : std::vector{device, to};
}

/// The operations of the devices of a rank in a unit, which are named as those of the kept ones.
inline std::vector<SeenOp> seen_by(const ExecDag& dag, const Timeline& timeline, const Fold& fold,
                                   std::size_t unit, std::size_t rank) {
  const auto number = [](const AlikeDevices& all, DeviceId device) {
    return static_cast<std::size_t>(all.unit_of[device.index()]);
  };
  std::vector<SeenOp> all;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    SeenOp seen{dag.kind(id), dag.stream(id),   dag.record(id).sub, dag.payload(id),
                {},           timeline.spans[i]};
    for (DeviceId device : devices_of(dag, id, fold)) {
      if (fold.units != nullptr) {
        if (number(*fold.units, device) != unit) continue;
        device = fold.units->kept(device);
      }
      if (fold.ranks != nullptr) {
        if (number(*fold.ranks, device) != rank) continue;
        device = fold.ranks->kept(device);
      }
      seen.devices.push_back(device);
    }
    if (!seen.devices.empty()) all.push_back(std::move(seen));
  }
  return all;
}

inline bool equal(const std::vector<SeenOp>& a, const std::vector<SeenOp>& b, Seconds step) {
  const auto near = [&](Seconds x, Seconds y) {
    return std::abs((x - y).count()) <= 1e-9 * step.count();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const SeenOp& x, const SeenOp& y) {
    return x.kind == y.kind && x.stream == y.stream && x.sub == y.sub && x.payload == y.payload &&
           x.devices == y.devices && near(x.span.start, y.span.start) &&
           near(x.span.end, y.span.end);
  });
}

inline bool equal(const std::vector<DeviceUse>& a, const std::vector<DeviceUse>& b, Seconds step) {
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
  std::size_t plans = 0, folded = 0, odd = 0, run = 0, coarser = 0, ranks = 0;
  std::size_t several_classes = 0, any_links = 0, apart = 0, between_ranks = 0;
};

/// The plan folded, without ranks and in fewer units if need be, against all of it on `reference`.
inline void compare_folded(const World& world, const CostModel& cost, const Plan& plan,
                           Executor& simulator, Executor& reference, FoldedCounts& counts) {
  ++counts.plans;
  std::optional<lowering::Lowered> folded =
      lowering::lower_folded(world.network, world.cluster, cost, plan);
  if (!folded->dag.fold) return;
  ++counts.folded;
  const ExecDag whole = lowering::lower(world.network, world.cluster, plan);
  CHECK(bytes_moved(folded->dag) == bytes_moved(whole));
  CHECK(messages(folded->dag) == messages(whole));
  std::int64_t operations = 0;
  for (std::size_t op = 0; op < folded->dag.size(); ++op) operations += folded->dag.count(OpId{op});
  CHECK(operations == static_cast<std::int64_t>(whole.size()));
  const auto several = [](const auto& all) { return all != nullptr && all->classes.size() > 1; };
  counts.odd += several(folded->dag.fold.units) || several(folded->dag.fold.ranks) ? 1 : 0;
  const lowering::PlanRun run =
      lowering::run_folded(world.network, world.cluster, cost, plan, simulator);
  if (!run.lowered.dag.fold) {
    if (several(folded->dag.fold.units)) ++counts.apart;
    return;
  }
  if (run.lowered.dag.fold.units != nullptr && folded->dag.fold.units != nullptr &&
      run.lowered.dag.fold.units->count() < folded->dag.fold.units->count()) {
    ++counts.coarser;
  }
  if (!simulator.run_folded(run.lowered.dag, FoldedLinks::alike)) ++counts.any_links;
  *folded = run.lowered;
  const Timeline* const found = &run.timeline;
  ++counts.run;
  const Fold& fold = folded->dag.fold;
  if (fold.ranks != nullptr) ++counts.ranks;
  if (!fold.receivers.empty()) ++counts.between_ranks;
  const Timeline all = reference.run(whole);
  const Seconds step = makespan(all);
  if (several(fold.units) || several(fold.ranks)) ++counts.several_classes;
  const std::size_t units = fold.units == nullptr ? 1 : fold.units->count();
  const std::size_t ranks = fold.ranks == nullptr ? 1 : fold.ranks->count();
  for (std::size_t u = 0; u < units; ++u) {
    const std::size_t kept = fold.units == nullptr ? 0 : fold.units->kept_of(u);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t rank = fold.ranks == nullptr ? 0 : fold.ranks->kept_of(r);
      CHECK(equal(seen_by(folded->dag, *found, fold, kept, rank), seen_by(whole, all, fold, u, r),
                  step));
    }
  }
  const std::size_t devices = world.cluster.devices.size();
  CHECK(equal(device_use(folded->dag, *found, devices), device_use(whole, all, devices), step));
  CHECK(found->hop_bytes == all.hop_bytes);
  CHECK(found->bytes_reduced_in_network == testing::approx(all.bytes_reduced_in_network));
}

/// Against the whole DAG, of which nothing is merged.
inline void compare_with_whole(const World& world, const CostModel& cost, const Plan& plan,
                               bool nccl, FoldedCounts& counts, Seconds launch_interval = {},
                               sim::Fidelity fidelity = sim::Fidelity::hops) {
  sim::SimOptions options;
  options.fidelity = fidelity;
  options.engine = sim::Engine::fast;
  options.launch_interval = launch_interval;
  if (nccl) options.collectives = sim::CollectiveCost::nccl;
  const auto simulator = sim::make_simulator(world.cluster, cost, options);
  options.merge = false;
  const auto reference = sim::make_simulator(world.cluster, cost, options);
  compare_folded(world, cost, plan, *simulator, *reference, counts);
}

}  // namespace parsim::testing
