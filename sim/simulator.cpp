// The executor that simulates: prepares a DAG here, runs it with SimGrid in a child or with our own
// engine here.
#include <array>

#include "core/errors.hpp"
#include "sim/blocked.hpp"
#include "sim/child.hpp"
#include "sim/dag_run.hpp"
#include "sim/merge.hpp"
#include "sim/op_flows.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

namespace {

/// If all compete, SimGrid 3.32 takes some ten seconds.
constexpr std::size_t most_simgrid_flows = 30'000;

class Simulator final : public Executor {
 public:
  Simulator(const Cluster& cluster, const CostModel& cost, const SimOptions& options)
      : cluster_(cluster), cost_(cost), options_(options), paths_(cluster) {}

  [[nodiscard]] Timeline run(const ExecDag& dag) override {
    PreparedDag prepared = prepare(dag, cost_, paths_, options_);
    Timeline timeline;
    timeline.spans.resize(dag.size());
    timeline.hop_bytes.resize(2 * cluster_.links.size());
    std::vector<double> reduced_in_network(1);
    const SimulationOutput output{timeline.spans, timeline.hop_bytes, reduced_in_network.front()};
    merge_equals(dag, cluster_, options_, output, prepared);
    SimOptions options = options_;
    if (options.engine == Engine::automatic) {
      timeline.chose_fast_engine = flow_count(dag, prepared) > most_simgrid_flows;
      options.engine = timeline.chose_fast_engine ? Engine::fast : Engine::simgrid;
    }
    const auto work = [&] { simulate(dag, prepared, cluster_, options, output); };
    if (options.engine == Engine::fast || options.fidelity == Fidelity::analytic) {
      work();
    } else {
      run_in_child(work, std::array{bytes_of(timeline.spans), bytes_of(timeline.hop_bytes),
                                    bytes_of(reduced_in_network)});
    }
    timeline.merged_operations = unmerge(prepared, timeline.spans);
    timeline.bytes_reduced_in_network = reduced_in_network.front();
    if (prepared.measured_messages) timeline.hop_bytes.clear();
    const std::string blocked = blocked_operations(dag, cluster_, timeline);
    if (!blocked.empty()) throw SimulationError(blocked);
    return timeline;
  }

 private:
  const Cluster& cluster_;
  const CostModel& cost_;
  SimOptions options_;
  PathCache paths_;  ///< kept between runs
};

}  // namespace

std::unique_ptr<Executor> make_simulator(const Cluster& cluster, const CostModel& cost,
                                         const SimOptions& options) {
  return std::make_unique<Simulator>(cluster, cost, options);
}

std::unique_ptr<Executor> make_simgrid_executor(const Cluster& cluster, const CostModel& cost,
                                                const SimOptions& options) {
  SimOptions simgrid = options;
  simgrid.engine = Engine::simgrid;
  return make_simulator(cluster, cost, simgrid);
}

std::string simulated_by(const SimOptions& options) {
  if (options.fidelity == Fidelity::analytic) return "in closed form, without contention";
  if (options.engine == Engine::fast) return "simulated by the fast engine";
  return "simulated by SimGrid " + simgrid_version();
}

}  // namespace parsim::sim
