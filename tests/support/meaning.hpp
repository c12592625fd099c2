// The proof of meaning: what an execution DAG computes on many devices is what the unsplit network
// computes on one.
#pragma once

#include <cstdint>
#include <string>

#include "core/exec_dag.hpp"
#include "core/plan.hpp"

namespace parsim::testing {

/// Empty if the DAG of a plan computes, on every device that holds a part of it and in every order
/// that its dependencies allow, the activations, gradients and updated weights of the unsplit
/// network within 1e-9, and no two of its operations race; else a line on the first difference.
///
/// seed   of the random order that is tried besides the order of issue
[[nodiscard]] std::string difference(const Plan& plan, const ExecDag& dag, std::uint64_t seed);

}  // namespace parsim::testing
