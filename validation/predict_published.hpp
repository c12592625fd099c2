// What published measurements would be if the simulator were right.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// A column that a row is given when it is to be predicted without what was fitted.
inline constexpr std::string_view uncalibrated = "uncalibrated";

/// Predicts rows of published tables (validation/measurements.hpp). What may be fitted is fitted on
/// the rows marked so, here once:
///
///     throughput        one factor of all kernels per series (same network, batch per GPU,
///                       machine, framework, precision and gradient exchange), from its row on
///                       one machine; a series without such a row takes the factor of its network,
///                       then the median of its framework and precision on that card, then, for
///                       transformers, of any framework there, else 1. Of several rows those count
///                       that hardly communicate (published_calibration.hpp). Rows across machines
///                       also fit the share of its rate that their network reaches
///     step-time         one factor of 3x3 convolutions of stride 1 (Winograd's) per GPU and cuDNN
///                       version; without a row for it the median of the GPU's, else 1
///     collective-time   offset and square-root term (sim/sim.hpp, LibraryTerms) per table
///                       (machine, library version and collective); without a table, or in a row
///                       whose column `uncalibrated` is not empty, the defaults
///
/// A row's `settings` are obeyed: "NCCL_ALGO=RING NCCL_PROTO=Simple" leaves NCCL no other choice.
/// Everything else is simulated from scratch.
class PublishedPredictor {
 public:
  /// others   rows that calibrate what `claims` has no row for, such as those that are built in
  explicit PublishedPredictor(const std::vector<Claim>& claims,
                              const std::vector<Claim>& others = {});

  /// The value, the naive prediction, or why there is none. Of a run that failed for want
  /// of memory only whether it fits.
  [[nodiscard]] Prediction operator()(const Claim& claim) const;

  /// Why a row cannot be predicted, whether or not it is to be scored; "" if it can. Looks at what
  /// the row says only, and does not simulate.
  [[nodiscard]] static std::string not_expressible(const Claim& claim);

 private:
  /// What one calibrating row says, or several together.
  struct Fit {
    double factor = 1;        ///< of kernel times
    double one_device = 0;    ///< published: rate of one device, or FLOP/s of a step
    double kernel_share = 1;  ///< of the step as modelled, see published_calibration.hpp
    std::vector<Calibration> rows;
  };
  /// What the calibrating rows of one source say.
  struct Fits {
    std::map<std::string, std::vector<Fit>> kernels;  ///< by key, the finest and coarser ones
    std::map<std::string, std::vector<double>> links;
    std::map<std::string, LibraryTerms> terms;
    std::map<std::string, std::vector<Calibration>> rows_of_terms;
  };
  /// Fits under the finest key that has any, of the claims' own rows, else of the others'.
  struct Found {
    std::string key;
    std::vector<Fit> fits;  ///< empty: nothing calibrates
    [[nodiscard]] std::vector<Calibration> rows() const;
  };

  [[nodiscard]] Prediction throughput(const Claim& claim) const;
  [[nodiscard]] Prediction step_time(const Claim& claim) const;
  [[nodiscard]] Prediction collective_time(const Claim& claim) const;
  [[nodiscard]] Found found(const Claim& claim) const;
  /// Those whose steps kernels decide most: the others blame kernels for what links do.
  [[nodiscard]] static std::vector<Fit> quietest(std::vector<Fit> fits);
  /// Median of kernels' factors; 1 if there is none.
  [[nodiscard]] static double factor_of(const std::vector<Fit>& fits);
  [[nodiscard]] double links_of(const Claim& claim) const;
  static void fit_kernels(const std::vector<const Claim*>& claims, Fits& fits);
  static void fit_across(const std::vector<const Claim*>& claims, Fits& fits,
                         std::vector<std::pair<std::string, Fit>>& learned);
  static void fit_terms(const std::vector<const Claim*>& claims, Fits& fits);

  std::vector<Fits> sources_;  ///< the claims', then the others'
};

/// Why a prediction is off, as far as is known: what the row's column `reason` says, else what its
/// other columns suggest, else "". `error` as a fraction.
[[nodiscard]] std::string suspected_reason(const Claim& claim, double error,
                                           std::optional<double> baseline);

}  // namespace parsim
