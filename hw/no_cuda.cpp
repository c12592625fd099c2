// Stands in for hw/cuda where the program is built without CUDA: there is no CudaExecutor to ask.
#include "hw/cuda_executor.hpp"

namespace parsim::hw {

namespace {

[[noreturn]] void refuse() {
  throw HardwareError(
      "this parsim-hw was built without CUDA; where nvcc, cuDNN and NCCL are: cmake --preset hw && "
      "cmake --build --preset hw");
}

}  // namespace

CudaExecutor::CudaExecutor(const std::vector<int>&, const std::optional<LinkThrottle>&,
                           Processes*) {
  refuse();
}
Timeline CudaExecutor::run(const ExecDag&) { refuse(); }
std::vector<Spread> CudaExecutor::alone(const ExecDag&, const std::vector<OpId>&, int) { refuse(); }
std::vector<std::vector<Beside>> CudaExecutor::together(const ExecDag&,
                                                        const std::vector<std::vector<Neighbour>>&,
                                                        int) {
  refuse();
}
Spread CudaExecutor::launch(int) { refuse(); }
Measurement CudaExecutor::step(const ExecDag&, int) { refuse(); }
std::string CudaExecutor::check(const ExecDag&) { refuse(); }

}  // namespace parsim::hw
