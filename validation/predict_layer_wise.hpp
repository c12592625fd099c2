// Figures and tables of the layer-wise paper (Jia, Lin, Qi, Aiken 2018).
#pragma once

#include <optional>

#include "validation/validation.hpp"

namespace parsim::validation {

/// Nothing if the claim's quantity is none of this paper's.
[[nodiscard]] std::optional<Prediction> predict_layer_wise(const Claim& claim);

}  // namespace parsim::validation
