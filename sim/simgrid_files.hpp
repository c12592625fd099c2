// Two files that are built into the program, so that a copy of it elsewhere has them, too.
#pragma once

#include <string_view>

namespace parsim::sim {

/// libparsim_simgrid.so, see sim/simgrid_library.hpp.
[[nodiscard]] std::string_view simgrid_library_file();
/// parsim-simgrid, see sim/simgrid_process.hpp.
[[nodiscard]] std::string_view simgrid_program_file();

}  // namespace parsim::sim
