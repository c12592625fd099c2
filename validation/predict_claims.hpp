// What we predict for the cases of the papers' claims: one function per kind of quantity.
#pragma once

#include "validation/validation.hpp"

namespace parsim {

/// Predicts a claim's number with our own networks, clusters, strategies and simulator. A quantity
/// that nobody predicts, or a case that cannot be planned, gives no value but a reason.
[[nodiscard]] Prediction predict_claim(const Claim& claim);

}  // namespace parsim
