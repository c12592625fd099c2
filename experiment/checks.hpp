// What every simulation is checked against: bounds that follow from the DAG and the cluster without
// any simulation. A result that breaks one is our bug.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "core/timeline.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::experiment {

/// Time of every operation on idle hardware, by OpId, with the origin of device times.
struct Durations {
  std::vector<Seconds> times;
  std::vector<Origin> origins;
};
/// Kernels: the cost model's. Transfers: the cost model's. Collectives: the cost model's where all
/// members send alike; with unequal shares the least that any algorithm needs, see
/// least_collective.
[[nodiscard]] Durations durations(const ExecDag& dag, const Cluster& cluster,
                                  const CostModel& cost);

/// A time no algorithm can beat: every member's missing bytes must come through its own links, and
/// what others miss of it must leave through them.
[[nodiscard]] Seconds least_collective(const ExecDag& dag, OpId id,
                                       const std::vector<BytesPerSecond>& device_rates);
/// By device: the sum over its links of the rate of one direction.
[[nodiscard]] std::vector<BytesPerSecond> device_rates(const Cluster& cluster);

/// Lower bounds of the makespan, and the bytes that links delivered against those asked for.
struct Bounds {
  Seconds critical_path{};   ///< longest chain of dependencies on idle hardware
  Seconds busiest_device{};  ///< most kernel time on one device
  /// Largest bytes / rate of a directed link, longer if it was slow; 0 if the engine tells none.
  Seconds busiest_link{};
  /// Dates on the critical path: one an operation, of a collective one for each of its messages in
  /// turn, at most twice as many as it has ranks.
  std::size_t chain = 0;
  Bytes asked{};       ///< bytes_moved without what a device sends to itself
  Bytes kept{};        ///< what a device sends to itself: a server's own share of a 2·G·P
  double rounded = 0;  ///< of `asked`, what flows of whole bytes may differ from it
  double delivered =
      -1;  ///< bytes that links carried into devices or switches reduced; negative: unknown
};
[[nodiscard]] Bounds bounds_of(const ExecDag& dag, const Cluster& cluster,
                               const std::vector<Seconds>& times, const Timeline& timeline,
                               const sim::Slowdowns& slowdowns = {});

/// Throws BrokenInvariant, naming both numbers, if the makespan is below a bound or bytes got lost.
/// Tolerance: 1 ns for every date on the longest chain (the simulator merges events closer
/// than that) and 1e-9 of the makespan. Returns one line on what held. Without contention a link
/// may be asked for more than it carries; then the busiest link is no bound, and the line says so.
[[nodiscard]] std::string check_bounds(const Bounds& bounds, Seconds makespan,
                                       bool contention = true);

}  // namespace parsim::experiment
