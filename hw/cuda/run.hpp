// What CudaExecutor does with one DAG, by the type of its numbers. Defined in measure.cuh, compiled
// in run_f32.cu, run_bf16.cu and run_f16.cu.
#pragma once

#include <string>
#include <vector>

#include "hw/cuda/devices.hpp"
#include "hw/hardware.hpp"

struct __half;
struct __nv_bfloat16;

namespace parsim::hw {

template <class T>
struct CudaRuns {
  static Timeline run(const CudaDevices& devices, const ExecDag& dag);
  static std::vector<Spread> alone(const CudaDevices& devices, const ExecDag& dag,
                                   const std::vector<OpId>& ops, int samples);
  static std::vector<std::vector<Beside>> together(
      const CudaDevices& devices, const ExecDag& dag,
      const std::vector<std::vector<Neighbour>>& groups, int samples);
  static Spread launch(const CudaDevices& devices, int samples);
  static Measurement step(const CudaDevices& devices, const ExecDag& dag, int steps);
  static std::string check(const CudaDevices& devices, const ExecDag& dag);
};
extern template struct CudaRuns<float>;
extern template struct CudaRuns<__nv_bfloat16>;
extern template struct CudaRuns<__half>;

}  // namespace parsim::hw
