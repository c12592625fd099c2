// Choices of a plan that its degrees of parallelism do not tell, for comparing two plans.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/plan.hpp"
#include "strategies/degrees.hpp"

namespace parsim::experiment {

struct Choice {
  std::string name, value;  ///< "ZeRO groups of", "8 replicas"
};

/// ZeRO's groups, those of the first stage; the number of gradient buckets; how stages send. Only
/// those that the plan has.
[[nodiscard]] std::vector<Choice> choices_of(const Cluster& cluster, const Plan& plan,
                                             const strategies::Degrees& degrees,
                                             const std::vector<strategies::StageSummary>& stages);

}  // namespace parsim::experiment
