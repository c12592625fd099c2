// Estimates of plans that are of use only if they are faster than what is known. In price.cpp.
#pragma once

#include "lowering/estimate.hpp"

namespace parsim::strategies {

/// estimated_step() if it is less than `limit`, the same to the bit; else some time from the limit
/// on. Of a plan with many micro-batches most of the slower ones are known from an extract of three
/// rounds: the walk through that of four ends as soon as what it adds is too much, where
/// estimated_step compares the extract itself with the limit, which is several times as long.
[[nodiscard]] Seconds estimated_below(lowering::Estimator& estimator, const Plan& plan,
                                      Seconds limit);

}  // namespace parsim::strategies
