// DAGs of kernels with given times, for the tests of concurrent operations.
#pragma once

#include <memory>
#include <vector>

#include "core/layers.hpp"
#include "core/profile.hpp"
#include "tests/sim/small_dags.hpp"

namespace parsim::testing {

/// Every kernel has a layer of its own, a convolution or an activation.
struct KernelSketch {
  KernelSketch()
      : image(add_input(dag.network, "in", image_shape(1, 2, 2))), times(1), launches(1) {}

  OpId kernel(int device, Activity activity, Seconds time, const std::vector<OpId>& after = {},
              double launch = 1) {
    const bool tensor = activity == Activity::tensor;
    const LayerKind kind = tensor ? LayerKind{Conv{1, {{1}, {1}}}} : LayerKind{Activation{}};
    const std::string name = "layer" + std::to_string(times.size());
    const LayerId layer = add_layer(dag.network, name, kind, std::vector{image});
    times.push_back(time);
    launches.push_back(launch);
    const Region out = whole(dag.network[layer].out, 1);
    const WorkId work = dag.intern(Work{layer, dag.intern(out), 0, 0, 0});
    return dag.add(Compute{work, Pass::forward, DeviceId{device}, 0}, after);
  }

  ExecDag dag = bare_dag();
  LayerId image;
  std::vector<Seconds> times;    ///< by layer
  std::vector<double> launches;  ///< by layer
};

/// The sketch's kernels; the rest as SimpleCost's.
class SketchCost final : public CostModel {
 public:
  SketchCost(const KernelSketch& sketch, const Cluster& cluster)
      : times_(sketch.times), launches_(sketch.launches), rest_(cluster) {}

  [[nodiscard]] Cost compute(const Network&, LayerId layer, const Part&, Pass, DeviceId,
                             Precision) const override {
    return {times_.at(layer.index()), Origin::guessed, launches_.at(layer.index())};
  }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return rest_.memory(device, touched);
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return rest_.transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return rest_.collective(kind, group, payload);
  }
  [[nodiscard]] std::string summary() const override { return "as sketched"; }

 private:
  std::vector<Seconds> times_;
  std::vector<double> launches_;
  SimpleCost rest_;
};

inline Timeline run_sketch(const KernelSketch& sketch, const Cluster& cluster,
                           const sim::Slowdowns& slowdowns, sim::Engine engine = sim::Engine::fast,
                           sim::Fidelity fidelity = sim::Fidelity::hops,
                           Seconds launch_interval = {}, bool steps_follow = false) {
  const SketchCost cost(sketch, cluster);
  sim::SimOptions options{fidelity, sim::CollectiveCost::ideal};
  options.engine = engine;
  options.slowdowns = slowdowns;
  options.launch_interval = launch_interval;
  options.steps_follow = steps_follow;
  return sim::make_simulator(cluster, cost, options)->run(sketch.dag);
}

}  // namespace parsim::testing
