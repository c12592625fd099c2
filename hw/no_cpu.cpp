// Stands in for hw/cpu where the program is built without oneDNN: there is no CpuExecutor to ask.
#include "hw/cpu_executor.hpp"

namespace parsim::hw {

namespace {

[[noreturn]] void refuse() {
  throw HardwareError(
      "this parsim-hw was built without oneDNN, by which CPUs compute; install libdnnl-dev and "
      "build "
      "it anew");
}

}  // namespace

CpuExecutor::CpuExecutor(const std::vector<int>&) { refuse(); }
Timeline CpuExecutor::run(const ExecDag&) { refuse(); }
std::vector<Spread> CpuExecutor::alone(const ExecDag&, const std::vector<OpId>&, int) { refuse(); }
std::vector<std::vector<Beside>> CpuExecutor::together(const ExecDag&,
                                                       const std::vector<std::vector<Neighbour>>&,
                                                       int) {
  refuse();
}
Measurement CpuExecutor::step(const ExecDag&, int) { refuse(); }
std::string CpuExecutor::check(const ExecDag&) { refuse(); }

}  // namespace parsim::hw
