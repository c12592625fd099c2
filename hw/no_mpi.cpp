// Stands in for mpi.cpp where the program is built without MPI: every process is one of its own.
#include <cstdlib>
#include <utility>

#include "core/errors.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

struct Processes::Transport {};

std::unique_ptr<Processes> Processes::launched() {
  check_alone();
  return nullptr;
}
Processes::Processes(int rank, int size, int local_rank, std::unique_ptr<Transport> transport)
    : rank_(rank), size_(size), local_rank_(local_rank), transport_(std::move(transport)) {
  ensure(false, "without MPI there are no processes");
}
Processes::~Processes() = default;
void Processes::send(int, std::size_t, const std::string&) {}
std::string Processes::receive(int, std::size_t) { return {}; }
void Processes::abort(int exit_code) { std::_Exit(exit_code); }

}  // namespace parsim::hw
