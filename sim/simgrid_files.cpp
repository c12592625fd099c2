#include "sim/simgrid_files.hpp"

#include <cstddef>

asm(R"(.pushsection .rodata
.global parsim_simgrid_begin
.hidden parsim_simgrid_begin
.global parsim_simgrid_end
.hidden parsim_simgrid_end
parsim_simgrid_begin: .incbin ")" PARSIM_SIMGRID_LIBRARY R"("
parsim_simgrid_end:
.global parsim_simgrid_program_begin
.hidden parsim_simgrid_program_begin
.global parsim_simgrid_program_end
.hidden parsim_simgrid_program_end
parsim_simgrid_program_begin: .incbin ")" PARSIM_SIMGRID_PROGRAM R"("
parsim_simgrid_program_end:
.popsection)");
extern "C" const char parsim_simgrid_begin[];
extern "C" const char parsim_simgrid_end[];
extern "C" const char parsim_simgrid_program_begin[];
extern "C" const char parsim_simgrid_program_end[];

namespace parsim::sim {

namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::string_view simgrid_library_file() {
  return between(parsim_simgrid_begin, parsim_simgrid_end);
}
std::string_view simgrid_program_file() {
  return between(parsim_simgrid_program_begin, parsim_simgrid_program_end);
}

}  // namespace parsim::sim
