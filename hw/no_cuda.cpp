// Stands in for hw/cuda where the program is built without CUDA.
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

[[noreturn]] void refuse() {
  throw HardwareError(
      "this parsim-hw was built without CUDA; where nvcc, cuDNN and NCCL are: cmake --preset hw && "
      "cmake --build --preset hw");
}

}  // namespace

Hardware cuda_hardware(const std::vector<int>&, const std::optional<LinkThrottle>&) { refuse(); }
Hardware cuda_hardware(const std::optional<LinkThrottle>&, Rendezvous&) { refuse(); }

}  // namespace parsim::hw
