// Predictions of the claims of papers: one function per quantity.
#pragma once

#include "validation/validation.hpp"

namespace parsim::validation {

/// Predicts a claim with parsim's networks, clusters, strategies and simulator. An unknown
/// quantity, or a case that cannot be planned, gives a reason instead of a value.
[[nodiscard]] Prediction predict_claim(const Claim& claim);

}  // namespace parsim::validation
