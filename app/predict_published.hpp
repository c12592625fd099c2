// What published measurements would be if the simulator were right.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// A column that a row is given when it is to be predicted without what was fitted.
inline constexpr std::string_view uncalibrated = "uncalibrated";

/// Predicts rows of published tables (validation/measurements.hpp). What may be fitted is fitted on
/// the rows marked so, here once:
///
///     throughput        one factor of all kernels per series (same network, batch per GPU,
///     machine,
///                       framework, precision, way to exchange gradients), so that its one-device
///                       row comes out; a series without one takes the median factor of its
///                       framework and precision, else 1
///     step-time         one factor of 3x3 convolutions of stride 1 (Winograd's) per GPU and cuDNN
///                       version; without a row for it the median of the GPU's, else 1
///     collective-time   offset and square-root term (sim/sim.hpp, LibraryTerms) per table:
///     machine,
///                       library version and collective; without one, or in a row whose column
///                       `uncalibrated` is not empty, those of no system in particular
///
/// A row's `settings` are obeyed: "NCCL_ALGO=RING NCCL_PROTO=Simple" leaves NCCL no other choice.
/// Everything else is simulated from scratch.
class PublishedPredictor {
 public:
  explicit PublishedPredictor(const std::vector<Claim>& claims);

  /// The value, the naive prediction beside it, or why there is none.
  [[nodiscard]] Prediction operator()(const Claim& claim) const;

 private:
  [[nodiscard]] Prediction throughput(const Claim& claim) const;
  [[nodiscard]] Prediction step_time(const Claim& claim) const;
  [[nodiscard]] Prediction collective_time(const Claim& claim) const;
  void fit_kernels(const std::vector<Claim>& claims);
  void fit_terms(const std::vector<Claim>& claims);

  /// What one calibrating row says.
  struct Fit {
    double factor = 1;      ///< of kernel times
    double one_device = 0;  ///< published: rate of one device, or FLOP/s of a step
  };
  std::map<std::string, std::vector<Fit>> fits_;            ///< by key, the finest and coarser ones
  std::map<std::string, std::pair<double, double>> terms_;  ///< by key; see LibraryTerms
};

/// Why a prediction is off, as far as we suspect; "" if nobody knows. `error` as a fraction.
[[nodiscard]] std::string suspected_reason(const Claim& claim, double error,
                                           std::optional<double> baseline);

}  // namespace parsim
