// Predictions of published measurements.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "experiment/calibration.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Predicts rows of published tables (validation/measurements.hpp). Rows marked `calibrate` fit,
/// once:
///
///     throughput        one factor of all kernels per series (same network, batch per GPU,
///                       machine, framework, precision and gradient exchange), from its row on
///                       one machine; a series without such a row takes the factor of its network,
///                       then the median of its framework and precision on that card, then, for
///                       transformers, of any framework there, else 1. The fit is that of runs of
///                       the user's own (published_calibration.hpp), with the same terms of links
///                       and hosts
///     step-time         one factor of 3x3 convolutions of stride 1 (Winograd's) per GPU and cuDNN
///                       version; without a row for it the median of the GPU's, else 1
///     collective-time   offset and square-root term (sim/sim.hpp, LibraryTerms) per table
///                       (machine, library version and collective); without a table, or in a row
///                       whose column `uncalibrated` is not empty, the defaults
///
/// A row's `settings` ("NCCL_ALGO=RING NCCL_PROTO=Simple") hold for its simulation.
class PublishedPredictor {
 public:
  /// others         rows that calibrate what `claims` has no row for, such as the built-in ones
  /// from_scratch   neither fits anything
  /// own            rows that come before both, also from scratch
  explicit PublishedPredictor(const std::vector<Claim>& claims,
                              const std::vector<Claim>& others = {}, bool from_scratch = false,
                              const std::vector<Claim>& own = {});

  /// The value and the naive prediction, or the reason why there is none. Of a run that failed for
  /// lack of memory only the memory.
  [[nodiscard]] Prediction operator()(const Claim& claim) const;

  /// Whether a row that calibrates counts for a row to be predicted: of the same GPU, precision and
  /// framework, or, of transformers, the same card and precision; of collectives of the same
  /// machine, size apart. Kernels calibrate nothing.
  [[nodiscard]] bool counts(const Claim& calibrating) const;

  /// The reason why a row cannot be predicted, whether or not it is to be scored; "" if it can.
  /// Does not simulate.
  [[nodiscard]] static std::string not_expressible(const Claim& claim);

 private:
  /// What one calibrating row fits, alone or with others of its job.
  struct Fit {
    experiment::FittedStep step;
    double one_device = 0;  ///< published: rate of one device, or FLOP/s of a step
    Calibration row;
  };
  /// What the calibrating rows of one source fit.
  struct Fits {
    std::map<std::string, std::vector<Fit>> kernels;  ///< by key, finest and coarser
    std::map<std::string, std::vector<double>> links;
    std::map<std::string, std::vector<Fit>> hosts;
    std::map<std::string, sim::LibraryTerms> terms;
    std::map<std::string, std::vector<Calibration>> rows_of_terms;
  };
  /// The fits of the finest key that has any, of the claims' rows, else of the others'.
  struct Found {
    std::string key;
    std::vector<Fit> fits;  ///< empty: nothing calibrates
    [[nodiscard]] std::vector<Calibration> rows() const;
  };

  [[nodiscard]] Prediction throughput(const Claim& claim) const;
  [[nodiscard]] Prediction step_time(const Claim& claim) const;
  [[nodiscard]] Prediction collective_time(const Claim& claim) const;
  [[nodiscard]] Found found(const Claim& claim) const;
  /// Those of experiment::rows_of_kernels().
  [[nodiscard]] static std::vector<Fit> of_kernels(const std::vector<Fit>& fits);
  /// Median of kernels' factors; 1 if there is none.
  [[nodiscard]] static double factor_of(const std::vector<Fit>& fits);
  [[nodiscard]] double links_of(const Claim& claim) const;
  /// The rows that say what the hosts of its series add; none where they add nothing.
  [[nodiscard]] std::vector<Fit> hosts_of(const Claim& claim) const;
  static void fit_steps(const std::vector<const Claim*>& claims, Fits& fits);
  static void fit_terms(const std::vector<const Claim*>& claims, Fits& fits);

  std::set<std::string> keys_;  ///< of rows to be predicted
  std::vector<Fits> sources_;   ///< the claims', then the others'
};

/// Why a prediction may be off: what the row's column `reason` says, else what is not modelled of
/// such rows, else "".
[[nodiscard]] std::string suspected_reason(const ValidationRow& row);

}  // namespace parsim::validation
