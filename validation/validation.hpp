// How far predictions can be trusted: published numbers and predictions of the same cases. The
// function that predicts is a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiment/step_parts.hpp"
#include "validation/groups.hpp"

namespace parsim::validation {

/// Who says what a claim expects: its publication, or this project by its own arithmetic or runs.
enum class ClaimOrigin : std::uint8_t { published, own };
constexpr std::array<std::string_view, 2> spellings(ClaimOrigin) { return {"published", "own"}; }

/// A number that a prediction is compared with, and the case it belongs to.
struct Claim {
  std::string set, name;  ///< name: unique in its set
  ClaimOrigin origin = ClaimOrigin::published;
  std::string source;    ///< publication, and figure or table
  std::string quantity;  ///< selects how it is predicted
  std::string unit;      ///< of `expected`; "" for a bare number
  /// Parameters of the quantity, as text: network, cluster, strategy, devices, …
  std::map<std::string, std::string, std::less<>> what;
  double expected = 0;
  bool ran = true;  ///< false: the run failed for lack of memory; `expected` has no meaning
  /// Largest error, as a fraction, that this project promises; absent: the error is only reported.
  std::optional<double> within;
  std::string reason;  ///< likely reason of a large error

  /// A value of `what`. Throws InputError naming the claim if it is missing.
  [[nodiscard]] const std::string& at(std::string_view key) const;
};

/// A column that is not empty in rows to be predicted without anything fitted on their own system;
/// `bare` in those of which not even other systems' links are known, from which they are fitted.
inline constexpr std::string_view uncalibrated = "uncalibrated", bare = "bare";

/// Claims of a TOML text: tables [[set]] with name, source, quantity, unit and [[set.claims]] with
/// case, expected, and optionally within, reason and parameters of the quantity; a set may say
/// `origin = "own"`. Where `expected`
/// is a list, every other list has one entry per claim, too; a shorter `within` leaves the rest
/// without one. `file` is the location in messages. Throws InputError with file:line.
[[nodiscard]] std::vector<Claim> read_claims(std::string_view toml, const std::string& file);

/// The claims of the papers that this project implements (validation/papers).
[[nodiscard]] std::vector<Claim> paper_claims();

/// A measured row that was used to fit, and the fitted terms.
struct Calibration {
  std::string set, name;     ///< the row, or what several rows have in common
  std::string machine, gpu;  ///< as its source calls them
  /// Factor of kernel times, and share of their rate that links between machines reach.
  std::optional<double> kernels{}, links{};
  std::optional<double> host{};  ///< seconds that hosts add for a sample and each further GPU
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

/// The prediction of a claim: a value, or the reason why there is none.
struct Prediction {
  std::optional<double> value;
  std::optional<double> baseline;  ///< the naive prediction, if any
  std::string reason;
  std::vector<Calibration> calibrated_by{};  ///< empty: nothing was fitted
  std::optional<double> peak_memory_gib{};   ///< of the fullest device
  std::string verdict{};  ///< "fits", "tight", "over"; "" if memory is not predicted
  /// The value without anything fitted to the row's system, where `value` has something fitted.
  std::optional<double> from_scratch{};
  /// Of a training step.
  std::optional<experiment::StepParts> parts{};
  bool baseline_measured = false;  ///< devices x the rate of one as a row has it
};
using Predict = std::function<Prediction(const Claim&)>;

struct ValidationRow {
  Claim claim;
  double predicted = 0;
  std::optional<double> baseline;
  std::optional<double> peak_memory_gib{};  ///< predicted
  std::string verdict{};
  std::optional<double> from_scratch{};
  std::optional<experiment::StepParts> parts{};
  bool calibrated = false;
  bool baseline_measured = false;

  /// (predicted − expected) / expected.
  [[nodiscard]] double error() const { return (predicted - claim.expected) / claim.expected; }
  [[nodiscard]] bool promise_broken() const;
  /// The same for memory, if the claim has a measured `peak_memory_gib`.
  [[nodiscard]] std::optional<double> peak_memory_error() const;
};

/// Errors of a set: magnitudes, as fractions.
struct ValidationSet {
  std::string name;
  ClaimOrigin origin = ClaimOrigin::published;
  std::size_t rows = 0;
  double mean_error = 0, median_error = 0, max_error = 0;
  /// The 5 % and 95 % quantiles: nine of ten rows are off by as much as lies between.
  double low_error = 0, high_error = 0;
  std::optional<double> baseline_mean_error;  ///< if every row has a baseline
  /// 1 - mean error / that of the baseline: 0 is as good as naive, below is worse.
  [[nodiscard]] std::optional<double> skill() const;
  std::optional<double> spearman;  ///< rank correlation; needs two different values
  /// Rows that can be predicted, scored or not, and all rows; set by the caller.
  std::size_t expressible = 0, all = 0;
  /// Calibrations of scored rows, each with its number of rows, in order of first use.
  std::vector<std::pair<Calibration, std::size_t>> calibrated_by{};
  std::size_t uncalibrated = 0;               ///< scored rows without a calibration
  std::optional<double> peak_memory_error{};  ///< mean over the rows that have one
};

/// Errors of the collectives of one machine, from 64 KiB on: from scratch, by what other systems
/// say of its links, and with offset and root fitted to other sizes of its own tables.
struct CollectiveSystem {
  std::string machine;
  std::size_t rows = 0;
  double median = 0, mean = 0;  ///< from scratch, magnitudes as fractions
  double fitted_median = 0, fitted_mean = 0;
};
/// Of the rows that have both predictions, in order of the machines' first row; the last entry is
/// of all rows. Empty if there are none.
[[nodiscard]] std::vector<CollectiveSystem> collective_systems(
    const std::vector<ValidationRow>& rows);

struct Unresolved {
  std::string set, name, reason;
  std::string verdict{};  ///< on memory, if predicted
};

struct Validation {
  std::vector<ValidationSet> sets;  ///< in the order of the claims
  std::vector<ValidationRow> rows;
  std::vector<Unresolved> unresolved;
  std::vector<PlanGroup> groups{};
};
[[nodiscard]] Validation validate_claims(const std::vector<Claim>& claims, const Predict& predict);

/// Middle value, or the mean of the two in the middle. `values` must not be empty.
[[nodiscard]] double median(std::vector<double> values);
/// Spearman's rank correlation, ties with their mean rank; nothing if one side is constant.
[[nodiscard]] std::optional<double> spearman(const std::vector<double>& a,
                                             const std::vector<double>& b);

/// Predicts a claim with parsim's networks, clusters, strategies and simulator. An unknown
/// quantity, or a case that cannot be planned, gives a reason instead of a value.
[[nodiscard]] Prediction predict_claim(const Claim& claim);

/// The row as a run of its job: a network and its sequence length, GPUs by type and number,
/// machine, global batch, precision and framework make a job; degrees, micro-batches, ZeRO stage,
/// recomputation, placement and the like make a plan. Nothing for rows that are no training runs,
/// and for rows without a prediction, unless they failed for lack of memory.
[[nodiscard]] std::optional<PlanRun> plan_run(const Claim& claim, const Prediction& prediction);

}  // namespace parsim::validation
