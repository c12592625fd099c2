#include "experiment/whole_dag.hpp"

#include <fmt/format.h>

#include <string>

#include "core/errors.hpp"
#include "lowering/lower.hpp"

namespace parsim::experiment {

namespace {

/// "16,736,776".
std::string grouped(std::int64_t number) {
  std::string text = fmt::format("{}", number);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

}  // namespace

std::int64_t whole_operations(const Network& network, const Cluster& cluster, const CostModel& cost,
                              const Plan& plan) {
  const ExecDag dag = lowering::lower_folded(network, cluster, cost, plan).dag;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) sum += dag.count(OpId{i});
  return sum;
}

void check_whole_dag(const Experiment& experiment, const Plan& plan, std::string_view flag,
                     std::int64_t most) {
  check_whole_dag(experiment.network, experiment.cluster, experiment.step_cost(), plan, flag, most);
}

void check_whole_dag(const Network& network, const Cluster& cluster, const CostModel& cost,
                     const Plan& plan, std::string_view where, std::int64_t most) {
  const std::int64_t operations = whole_operations(network, cluster, cost, plan);
  if (operations <= most) return;
  throw InputError(
      where,
      fmt::format("needs all {} operations of the step, of all {} devices", grouped(operations),
                  cluster.devices.size()),
      fmt::format("accepted: at most {}, with fewer devices or micro-batches; tables, CSV and JSON "
                  "of results need only one of equal operations",
                  grouped(most)));
}

}  // namespace parsim::experiment
