// The files that are built into the program: spreads of prices.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::experiment {

[[nodiscard]] std::span<const EmbeddedFile> experiment_files();

}  // namespace parsim::experiment
