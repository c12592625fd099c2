// What is fitted on measured training steps: how fast a card's kernels are, and which part of its
// line rate the network between machines reaches.
#pragma once

#include <optional>
#include <span>

#include "validation/published_training.hpp"

namespace parsim {

/// What a step is calibrated with.
struct StepTerms {
  double kernels = 1;  ///< factor of kernel times
  double links = 1;    ///< part of their rate that links between machines reach
};

/// A simulated step and the seconds that it took in reality.
struct MeasuredStep {
  const Training* training = nullptr;
  double seconds = 0;
};

/// How much of a step its kernels decide: the part of it by which the step becomes longer when they
/// do, d ln step / d ln kernels. 1: it hardly communicates; 0: it waits for links all the time.
[[nodiscard]] double kernel_share(const Training& training, const StepTerms& at);

/// The terms of steps that cross machines, where kernels and links are not told apart by a row on
/// one machine. Least squares of relative errors, with both terms held near 1:
///
///     sum over steps of (ln(step / seconds) / 0.03)² + (ln kernels)² + (ln links / 0.72)²
///
/// where 0.72 = 0.18 / 0.25 is the spread of links relative to that of kernels in built-in rows.
///
/// One step alone leaves open what is to blame: both terms give way in proportion to what each
/// decides of the step, so that a step that hardly communicates says little of the links, and one
/// that only communicates little of the kernels. Several steps tell them apart. Neither term passes
/// largest_factor, and no link is faster than its line rate.
///
/// kernels   if a row that hardly communicates has fitted them: only the links are fitted
[[nodiscard]] StepTerms fitted_step_terms(std::span<const MeasuredStep> steps,
                                          std::optional<double> kernels);

}  // namespace parsim
