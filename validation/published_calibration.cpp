#include "validation/published_calibration.hpp"

#include <algorithm>
#include <cmath>

namespace parsim::validation {

namespace {

// Repeated runs differ by up to 2.5 % (validation/measurements/README.md).
constexpr double noise = 0.03;
// Prior widths of the terms, in the ratio of built-in rows: the root mean square of the factors
// that one-device rows fit to kernels is 0.25 (29 jobs, in logarithms), that of the errors of
// uncalibrated collectives between machines (set collectives_uncalibrated) 0.18. Wide, so that the
// row itself is matched.
constexpr double width_of_kernels = 1, width_of_links = 0.18 / 0.25;

constexpr double nudge = 0.02;  // of logarithms, for slopes

/// Downwards: at line rate, other links on the path are often as fast, so that more rate changes
/// nothing.
double link_share(const Training& training, const StepTerms& at, double step) {
  return -std::log(training.step(at.kernels, at.links * std::exp(-nudge)) / step) / nudge;
}

double share_of_kernels(const Training& training, const StepTerms& at, double step) {
  return std::log(training.step(at.kernels * std::exp(nudge), at.links) / step) / nudge;
}

}  // namespace

double kernel_share(const Training& training, const StepTerms& at) {
  return share_of_kernels(training, at, training.step(at.kernels, at.links));
}

StepTerms fitted_step_terms(std::span<const MeasuredStep> steps, std::optional<double> kernels) {
  const double most = std::log(largest_factor);
  StepTerms terms{kernels.value_or(1), 1};
  // Gauss-Newton in logarithms. Steps are nearly sums of powers: few iterations suffice.
  for (int iteration = 0; iteration < 10; ++iteration) {
    const double x = std::log(terms.kernels), y = std::log(terms.links);
    // The prior, which holds both near 1.
    double xx = 1 / (width_of_kernels * width_of_kernels), xy = 0;
    double yy = 1 / (width_of_links * width_of_links), x0 = -x * xx, y0 = -y * yy;
    for (const MeasuredStep& measured : steps) {
      const double step = measured.training->step(terms.kernels, terms.links);
      const double slope[] = {kernels ? 0 : share_of_kernels(*measured.training, terms, step),
                              link_share(*measured.training, terms, step)};
      const double weight = 1 / (noise * noise), rest = std::log(measured.seconds / step);
      xx += weight * slope[0] * slope[0];
      xy += weight * slope[0] * slope[1];
      yy += weight * slope[1] * slope[1];
      x0 += weight * slope[0] * rest;
      y0 += weight * slope[1] * rest;
    }
    const double free_dy = kernels ? y0 / yy : (y0 * xx - x0 * xy) / (xx * yy - xy * xy);
    const double dy = std::clamp(y + free_dy, -most, 0.0) - y;
    // The best for this `dy`, which may be at its bound.
    const double dx = kernels ? 0 : std::clamp(x + (x0 - xy * dy) / xx, -most, most) - x;
    terms.kernels *= std::exp(dx);
    terms.links *= std::exp(dy);
    if (std::abs(dx) + std::abs(dy) < 1e-4) break;
  }
  return terms;
}

}  // namespace parsim::validation
