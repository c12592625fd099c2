// Steps of one DAG on CUDA devices, by the type of its numbers. Defined in run_f32.cu, run_bf16.cu.
#pragma once

#include <string>
#include <vector>

#include "hw/cuda/devices.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

/// The questions of Hardware.
struct CudaRuns {
  std::vector<Spread> (*alone)(const CudaDevices&, const ExecDag&, const std::vector<OpId>&, int);
  std::vector<std::vector<Beside>> (*together)(const CudaDevices&, const ExecDag&,
                                               const std::vector<std::vector<Neighbour>>&, int);
  Spread (*launch)(const CudaDevices&, int);
  Measurement (*step)(const CudaDevices&, const ExecDag&, int);
  std::string (*check)(const CudaDevices&, const ExecDag&, double);
};
[[nodiscard]] CudaRuns f32_runs();
[[nodiscard]] CudaRuns bf16_runs();

}  // namespace parsim::hw
