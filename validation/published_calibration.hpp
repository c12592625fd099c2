// Fits on measured training steps: the factor of a card's kernels, and the share of its line rate
// that the network between machines reaches.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "experiment/calibration.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {

/// The terms that calibrate a step.
struct StepTerms {
  double kernels = 1;  ///< factor of kernel times
  double links = 1;    ///< share of their rate that links between machines reach
};

/// A simulated step and its measured seconds.
struct MeasuredStep {
  const Training* training = nullptr;
  double seconds = 0;
};

/// How much a step depends on its kernels: d ln step / d ln kernels. 1: it hardly communicates; 0:
/// it only waits for links.
[[nodiscard]] double kernel_share(const Training& training, const StepTerms& at);

/// The terms of steps across machines whose kernels no row on one machine has fitted. Least squares
/// of relative errors, with both terms held near 1:
///
///     sum over steps of (ln(step / seconds) / 0.03)² + (ln kernels)² + (ln links / 0.72)²
///
/// where 0.72 = 0.18 / 0.25 is the spread of links relative to that of kernels in built-in rows.
///
/// One step alone does not separate the terms: both change in proportion to their share of the
/// step, so that a step that hardly communicates changes the links little, and one that mostly
/// communicates the kernels. Several steps separate them. Both terms stay within largest_factor.
/// No link is faster than its line rate: of a step for which links would have to be, that part is
/// left out of the terms.
///
/// kernels   if already fitted by a row that hardly communicates; then only the links are fitted
[[nodiscard]] StepTerms fitted_step_terms(std::span<const MeasuredStep> steps,
                                          std::optional<double> kernels);

/// What each measured step fits, for runs of the user's own (experiment/calibration.hpp), in the
/// order of the rows, collectives last. Rows on one machine fit the kernels of their card, as far
/// as kernels rather than links bound the step; rows across machines of one card, network,
/// precision, framework, machine and kind of links fit the links together, and the kernels, too, if
/// no row on one machine has them. Under data parallelism all rows of such a job fit together what
/// a host adds for each further GPU of its machine. Rows of collectives of up to 64 KiB fit what a
/// collective takes beyond NCCL's model, as --collective-launch: measured less predicted without
/// it, not below 0; steps on the same card are fitted with it. Those of 64 MiB and more on several
/// machines fit the links; others nothing. Throws InputError for a row that cannot be predicted, is
/// a kernel or did not run.
[[nodiscard]] std::vector<experiment::FittedStep> fitted_steps(const std::vector<Claim>& all);

/// The same of training steps, each with its row; rows that cannot be expressed are left out.
[[nodiscard]] std::vector<std::pair<const Claim*, experiment::FittedStep>> expressible_steps(
    const std::vector<const Claim*>& claims);

}  // namespace parsim::validation
