// The host engine's step against the float64 interpreter's.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "hw/host.hpp"
#include "tests/support/interpreter.hpp"
#include "tests/support/reference.hpp"

namespace parsim::testing {

[[nodiscard]] inline hw::StoreKey key_of(const StoreKey& key) {
  return {key.device, key.tensor, key.role, key.micro_batch};
}

/// The first store in which threads and the float64 interpreter differ, or "". Both know the DAG
/// file only.
[[nodiscard]] inline std::string host_difference(const ExecDag& made) {
  const ExecDag dag = dag_from_json(to_json(made), "test");
  Memory expected = interpret(dag, issue_order(dag));
  hw::HostNumbers numbers(dag);
  const Timeline timeline = numbers.run(hw::dispatch(dag));
  ensure(timeline.spans.size() == dag.size(), "every operation has a span");
  std::size_t compared = 0;
  for (const auto& [key, accesses] : expected.log()) {
    std::set<Region> regions;
    for (const Access& access : accesses) {
      if (access.kind != Access::Kind::read) regions.insert(access.region);
    }
    for (const Region& region : regions) {
      const Block block = expected.read(key, region);
      const std::vector<double> found = numbers.values(key_of(key), region);
      Block computed(region);
      computed.values() = found;
      const double error = relative_error(computed, block);
      ++compared;
      if (!(error < 1e-9)) {
        return describe(dag, key) + " over " + to_text(region) + " is off by " +
               std::to_string(error);
      }
    }
  }
  return compared > 3 ? "" : "nothing was compared";
}

}  // namespace parsim::testing
