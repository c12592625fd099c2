// What every executor's step of a DAG has in common, whether it is simulated or runs.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/dag_algorithms.hpp"
#include "core/dag_traffic.hpp"
#include "core/executor.hpp"
#include "hw/tensor_slices.hpp"
#include "lowering/lower.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {

/// Kernels, updates, transfers and collectives on two devices, which every executor runs, or on
/// four.
[[nodiscard]] inline ExecDag step_for_executors(std::size_t devices) {
  const Network network = tiny_network("residual");
  for (std::uint64_t seed = 5;; ++seed) {
    ExecDag dag = lowering::lower(network, star_of(4, "10 GB/s", "1us"),
                                  random_plan(network, std::min<std::size_t>(devices, 3), 8, seed));
    if (static_cast<std::size_t>(hw::stores(dag).devices) <= devices) return dag;
  }
}

/// Runs the DAG: every operation has a span, begins after its predecessors and what comes before it
/// in its queues, and takes at least `least` of it, so the step at least the longest chain of that.
/// Returns the spans.
inline std::vector<Span> expect_step(Executor& executor, const ExecDag& dag,
                                     const std::vector<Seconds>& least) {
  const Timeline timeline = executor.run(dag);
  REQUIRE(timeline.spans.size() == dag.size());
  const Seconds whole = makespan(timeline);
  const Seconds rounding = 1e-6 * whole;  // CUDA's events tell milliseconds in single precision
  std::map<Queue, Seconds> free_at;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Span& span = timeline.spans[i];
    CAPTURE(i);
    CHECK(span.start >= Seconds{});
    CHECK(span.end - span.start >= least[i] - rounding);
    for (const OpId before : dag.predecessors(OpId{i})) {
      CHECK(span.start >= timeline.spans[before.index()].end - rounding);
    }
    occupied.clear();
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) {
      CHECK(span.start >= free_at[queue] - rounding);
      free_at[queue] = span.end;
    }
  }
  const Seconds chain = critical_path(dag, least).length;
  CHECK(chain > Seconds{});
  CHECK(whole >= chain - rounding);
  return timeline.spans;
}

}  // namespace parsim::testing
