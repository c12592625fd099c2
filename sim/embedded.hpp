// The files that are built into the program: coefficients of the cost models of kernels.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::sim {

[[nodiscard]] std::span<const EmbeddedFile> sim_files();

}  // namespace parsim::sim
