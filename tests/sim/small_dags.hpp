// Small DAGs and clusters for the tests of sim/.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "sim/sim.hpp"

namespace parsim::testing {

inline ExecDag bare_dag() { return {Network{}, 1, Precision::fp16, Optimizer::sgd}; }

/// `bytes` (even) of a weight gradient that starts at byte `at`.
inline Slice slice_of(ExecDag& dag, std::int64_t bytes, std::int64_t at = 0) {
  const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  return {tensor, Role::weight_gradient, 0, dag.intern(Region{Interval{at / 2, (at + bytes) / 2}})};
}

inline OpId add_transfer(ExecDag& dag, int from, int to, std::int64_t bytes,
                         std::vector<OpId> after = {}, Stream stream = Stream::tensor) {
  const Slice slice = slice_of(dag, bytes);
  return dag.add(Transfer{DeviceId{from}, DeviceId{to}, slice, slice, false}, stream, after);
}

inline OpId add_delay(ExecDag& dag, int device, Seconds time, std::vector<OpId> after = {}) {
  return dag.add(Delay{DeviceId{device}, time}, after);
}

inline std::vector<DeviceId> devices(int first, int count) {
  std::vector<DeviceId> ids;
  for (int i = 0; i < count; ++i) ids.emplace_back(first + i);
  return ids;
}

/// shares   bytes of each member's region for kinds that have them; else only the sum counts
inline OpId add_collective(ExecDag& dag, CollectiveKind kind, const std::vector<DeviceId>& group,
                           const std::vector<std::int64_t>& shares, std::vector<OpId> after = {},
                           Stream stream = Stream::gradient) {
  Shares regions;
  std::int64_t at = 0;
  for (const std::int64_t bytes : shares) {
    regions.regions.push_back(slice_of(dag, bytes, at).region);
    at += bytes;
  }
  const Slice all = slice_of(dag, at);
  if (kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast) regions = {};
  return dag.add(Collective{kind, dag.intern(group), all, all}, regions, stream, after);
}

/// A star by hand: every device on one switch, link i with rates[i].
inline Cluster star(const std::vector<double>& rates, Seconds latency) {
  Cluster cluster;
  cluster.name = "star";
  DeviceModel model;
  model.name = "p100-sxm2";
  model.architecture = "6.0";
  model.peak.fill(FlopsPerSecond{10e12});
  model.memory_rate = BytesPerSecond{700e9};
  model.memory = Bytes{std::int64_t{16} << 30};
  cluster.models.push_back(model);
  cluster.nodes.push_back({"node"});
  cluster.switches.push_back({"switch", NodeId{}});
  for (std::size_t i = 0; i < rates.size(); ++i) {
    cluster.devices.push_back({"gpu" + std::to_string(i), 0, NodeId{0}, model.memory});
    cluster.links.push_back({"link" + std::to_string(i), Port::of(DeviceId{i}),
                             Port::of(SwitchId{0}), BytesPerSecond{rates[i]}, latency, -1});
  }
  return cluster;
}

/// Every kernel 1 us, memory at 1 TB/s; the network of the constant-efficiency model.
class SimpleCost final : public CostModel {
 public:
  explicit SimpleCost(const Cluster& cluster) : network_(sim::make_constant_efficiency(cluster)) {}

  [[nodiscard]] Cost compute(const Network&, LayerId, const Part&, Pass, DeviceId,
                             Precision) const override {
    return {Seconds{1e-6}, Origin::guessed};
  }
  [[nodiscard]] Cost memory(DeviceId, Bytes touched) const override {
    return {touched / BytesPerSecond{1e12}, Origin::guessed};
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return from == to ? memory(from, 2 * payload).time : network_->transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return network_->collective(kind, group, payload);
  }
  [[nodiscard]] std::string summary() const override { return "one microsecond"; }

 private:
  std::unique_ptr<CostModel> network_;
};

inline Timeline simulate(const Cluster& cluster, const ExecDag& dag,
                         sim::Fidelity fidelity = sim::Fidelity::hops) {
  const SimpleCost cost(cluster);
  return sim::make_simgrid_executor(cluster, cost, {fidelity, sim::CollectiveCost::ideal})
      ->run(dag);
}

inline Seconds length(const Timeline& timeline, OpId id) {
  const Span& span = timeline.spans[id.index()];
  return span.end - span.start;
}

/// |a − b| relative to b.
inline double difference(Seconds a, Seconds b) {
  return std::max(a - b, b - a).count() / b.count();
}

}  // namespace parsim::testing
