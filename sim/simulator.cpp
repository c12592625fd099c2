// The executor that simulates: prepares a DAG here, runs it with SimGrid in a child (of a process
// with threads: with SimGrid's part in a child) or with our own engine here.
#include <algorithm>
#include <array>

#include "core/errors.hpp"
#include "core/processes.hpp"
#include "sim/blocked.hpp"
#include "sim/child.hpp"
#include "sim/dag_run.hpp"
#include "sim/folded_rings.hpp"
#include "sim/merge.hpp"
#include "sim/sim.hpp"
#include "sim/simgrid_library.hpp"

namespace parsim::sim {

namespace {

/// About what SimGrid 3.32 takes on one core: it searches a list of all flows whenever one ends.
/// Measured on steps of 200 to 33,000 flows; only the choice of the engine depends on it.
Seconds time_of_simgrid(const FlowWork& work) {
  return Seconds{5e-6 * work.flows + 5e-8 * work.live + 2e-7 * work.reached};
}
constexpr Seconds most_simgrid_time{2};

/// Whether collectives of other ranks alone ended when the kept one's did.
bool images_alike(const ExecDag& dag, const Timeline& timeline, Engine engine) {
  return std::all_of(dag.fold.images.begin(), dag.fold.images.end(), [&](const auto& image) {
    return one_date(timeline.spans[image.first.index()].end,
                    timeline.spans[image.second.index()].end, engine);
  });
}

class Simulator final : public Executor {
 public:
  Simulator(const Cluster& cluster, const CostModel& cost, const SimOptions& options)
      : cluster_(cluster), cost_(cost), options_(options), paths_(cluster) {}

  [[nodiscard]] Timeline run(const ExecDag& dag) override {
    ensure(!dag.fold, "a folded DAG runs as such");
    return *run(dag, Folded::no);
  }
  [[nodiscard]] std::optional<Timeline> run_folded(const ExecDag& dag, FoldedLinks links) override {
    return run(dag, links == FoldedLinks::any ? Folded::any : Folded::alike);
  }

 private:
  enum class Folded : std::uint8_t { no, alike, any };
  /// Nothing if equal operations must be merged and cannot be.
  [[nodiscard]] std::optional<Timeline> run(const ExecDag& dag, Folded folded) {
    const bool must_merge = folded != Folded::no;
    PreparedDag prepared = prepare(dag, cost_, paths_, options_);
    // What was measured of the first unit's messages is not known of the others'.
    // Hosts launch the messages between ranks one after another.
    const bool one_by_one = options_.launch_interval > Seconds{0} && !dag.fold.receivers.empty();
    if (must_merge && (prepared.measured_messages || one_by_one || !ways_alike(dag, paths_)))
      return std::nullopt;
    Timeline timeline;
    timeline.spans.resize(dag.size());
    timeline.hop_bytes.resize(2 * cluster_.links.size());
    std::vector<double> reduced_in_network(1), apart(1);
    const SimulationOutput output{timeline.spans, timeline.hop_bytes, reduced_in_network.front(),
                                  &apart.front()};
    const bool merged = merge_equals(dag, cluster_, options_, output, prepared);
    const bool trusting =
        !merged && folded == Folded::any &&
        merge_equals(dag, cluster_, options_, output, prepared, FoldedFlows::of_all);
    if (!merged && must_merge && !trusting) return std::nullopt;
    SimOptions options = options_;
    const auto work = [&] { return simulate(dag, prepared, cluster_, options, output); };
    const bool flows = options.fidelity != Fidelity::analytic;
    if (flows && options.engine == Engine::automatic) {
      // The fast engine says how long SimGrid would take; what both add to begins as it was.
      const std::vector<double> hop_bytes = timeline.hop_bytes, reduced = reduced_in_network;
      options.engine = Engine::fast;
      timeline.chose_fast_engine = time_of_simgrid(work()) > most_simgrid_time;
      if (!timeline.chose_fast_engine) {
        options.engine = Engine::simgrid;
        std::copy(hop_bytes.begin(), hop_bytes.end(), timeline.hop_bytes.begin());
        std::copy(reduced.begin(), reduced.end(), reduced_in_network.begin());
      }
    } else if (!flows || options.engine == Engine::fast) {
      work();
    }
    if (apart.front() > 0) return std::nullopt;
    if (flows && options.engine == Engine::simgrid) {
      static_cast<void>(simgrid_library());  // loaded once here, not in every child
      if (has_one_thread()) {
        run_in_child([&] { work(); },
                     std::array{bytes_of(timeline.spans), bytes_of(timeline.hop_bytes),
                                bytes_of(reduced_in_network), bytes_of(apart)});
      } else {
        simulate(dag, prepared, cluster_, options, output, SimgridIn::own_process);
      }
    }
    timeline.merged_operations = unmerge(prepared, timeline.spans);
    if (apart.front() > 0 || (trusting && !images_alike(dag, timeline, options.engine)))
      return std::nullopt;
    timeline.bytes_reduced_in_network = reduced_in_network.front();
    if (prepared.measured_messages) timeline.hop_bytes.clear();
    const std::string blocked = blocked_operations(dag, cluster_, timeline);
    if (!blocked.empty()) throw SimulationError(blocked);
    wait_for_hosts(dag.reads, timeline);
    return timeline;
  }

  void wait_for_hosts(const std::vector<MachineReads>& reads, Timeline& timeline) const {
    const HostDelay& hosts = options_.host_delay;
    Seconds delay{}, input{};
    for (const MachineReads& machine : reads) {
      const auto samples = static_cast<double>(machine.samples);
      const auto devices = static_cast<double>(machine.devices);
      delay = std::max(
          delay, std::max(0.0, devices - hosts.devices) * samples / devices * hosts.per_sample);
      if (options_.input_rate > 0) {
        input = std::max(input, Seconds{samples / options_.input_rate});
      }
    }
    const Seconds wait = std::max(hosts.step + delay, input - makespan(timeline));
    if (wait <= Seconds{0}) return;
    for (Span& span : timeline.spans) {
      span.start += wait;
      span.end += wait;
    }
  }

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
  return "simulated by SimGrid " + find_simgrid().version;
}

}  // namespace parsim::sim
