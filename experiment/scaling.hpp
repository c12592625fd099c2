// How strategies gain from more GPUs: the same question asked of the first 1, 2, 4, … GPUs of a
// cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// One strategy on the first `gpus` GPUs. Without a plan there are only the names and why.
struct ScalingPoint {
  std::int64_t gpus = 0, batch = 0;
  std::string strategy;
  std::optional<double> samples_per_second;
  bool fits = false;
  std::optional<double> speedup;  ///< over `reference`
  std::string reason;             ///< why there is no plan; "" if there is one
};

struct Scaling {
  std::vector<ScalingPoint> points;  ///< by number of GPUs, then in the order of the strategies
  /// Samples/s for each GPU of the fastest plan on the fewest GPUs on which one fits in memory; if
  /// none ever does, on which there is one.
  double reference = 0.0;
  std::int64_t reference_gpus = 0;
  bool reference_fits = false;
};

/// "1,2,4,8" as ascending numbers. Throws InputError for anything else or more than the cluster
/// has.
[[nodiscard]] std::vector<std::int64_t> parse_scaling(const std::string& text, std::size_t gpus);

/// Weak scaling: every GPU has as many samples as in the experiment itself, so that a count is
/// refused if that is no whole number. Each count is searched anew.
[[nodiscard]] Scaling scale(const Experiment& experiment,
                            const std::vector<const strategies::Strategy*>& strategies,
                            const std::vector<std::int64_t>& counts, bool quiet);

}  // namespace parsim::experiment
