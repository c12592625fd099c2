// Two jobs on one cluster at the same time: what each loses to the other on the links they share.
#pragma once

#include <string>

#include "core/exec_dag.hpp"
#include "experiment/experiment.hpp"

namespace parsim::experiment {

/// One of two jobs.
struct SharingJob {
  std::string network, strategy;
  std::size_t devices = 0;
  bool fits = true;
  Seconds alone{}, together{};  ///< a step; together: the mean of those while the other trains
  std::int64_t steps = 1;       ///< that the mean is of

  /// together / alone - 1.
  [[nodiscard]] double loss() const { return alone > Seconds{} ? together / alone - 1 : 0; }
};
struct TwoJobs {
  SharingJob first, second;

  /// That the shorter step was repeated for a part of the longer one only, and what then is
  /// assumed; "" if it was for all of it.
  [[nodiscard]] std::string assumed() const;
};

/// Steps of two jobs that start at the same time.
///
/// The job whose step is shorter repeats it until the other's first step ends, and its mean is of
/// the steps that end before. Where these are more than so many operations, the longer step is
/// taken to lose as much in its rest as before. Kernels take as long as alone. Links are shared as
/// between the flows of one job.
[[nodiscard]] TwoJobs simulate_together(const ExecDag& first, const ExecDag& second,
                                        const Cluster& cluster, const CostModel& cost,
                                        const sim::SimOptions& options,
                                        std::size_t most_operations = 8'000'000);

/// The plan of the run and one of a file, on the experiment's cluster. Throws InputError if the
/// file's plan is not for this cluster, shares devices with the first or adds up other numbers.
[[nodiscard]] TwoJobs run_with_job(const Experiment& experiment, const Plan& plan,
                                   const std::string& file);

}  // namespace parsim::experiment
