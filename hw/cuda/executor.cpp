#include <cublasLt.h>

#include <algorithm>
#include <memory>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "hw/cuda/devices.hpp"
#include "hw/cuda/run.hpp"
#include "hw/cuda_executor.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

namespace {

/// Asks the engine for the DAG's precision.
template <class Question>
auto ask(const ExecDag& dag, const Question& question) {
  // Its kernels and collectives add up in the type that stores the weights.
  if (dag.reduce_precision != storage_of(dag.precision) && stores(dag).devices > 1) {
    throw InputError(
        "--reduce-precision",
        std::string(to_text(dag.reduce_precision)).append(" with ").append(to_text(dag.precision)),
        std::string("accepted on CUDA: ").append(to_text(storage_of(dag.precision))));
  }
  constexpr std::size_t first = 120900;
  if (dag.precision == Precision::fp8_blockwise && cublasLtGetVersion() < first) {
    throw HardwareError("--precision: fp8-blockwise needs cuBLASLt 12.9 or newer");
  }
  if (without_fp8(dag.precision) == Precision::bf16) return question(CudaRuns<__nv_bfloat16>());
  if (dag.precision == Precision::fp16) return question(CudaRuns<__half>());
  return question(CudaRuns<float>());
}

}  // namespace

CudaExecutor::CudaExecutor(const std::vector<int>& partition,
                           const std::optional<LinkThrottle>& link, Processes* others)
    : devices_(others == nullptr ? std::make_shared<CudaDevices>(partition, link)
                                 : std::make_shared<CudaDevices>(link, *others)) {
  hardware_.machine = devices_->machine();
  // Two of them lie on every device.
  hardware_.largest_message = Bytes{std::int64_t{256} << 20};
  for (const Device& device : hardware_.machine.cluster.devices) {
    hardware_.largest_message = {
        std::min(hardware_.largest_message.value, device.memory.value / 4)};
  }
  if (devices_->partitioned()) {
    std::vector<DeviceId>& all = hardware_.common_memory.emplace_back();
    for (std::size_t d = 0; d < devices_->all().size(); ++d) all.emplace_back(d);
    hardware_.walk = hardware_.largest_message;
  }
  if (link) {  // a message takes 20 ms at most
    hardware_.largest_message = {std::min(hardware_.largest_message.value,
                                          static_cast<std::int64_t>(link->rate.value * 20e-3))};
  }
}

Timeline CudaExecutor::run(const ExecDag& dag) {
  check_fits(dag, hardware_.machine);
  return ask(dag, [&](auto runs) { return runs.run(*devices_, dag); });
}

std::vector<Spread> CudaExecutor::alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                        int samples) {
  return ask(dag, [&](auto runs) { return runs.alone(*devices_, dag, ops, samples); });
}

std::vector<std::vector<Beside>> CudaExecutor::together(
    const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples) {
  return ask(dag, [&](auto runs) { return runs.together(*devices_, dag, groups, samples); });
}

Spread CudaExecutor::launch(int samples) { return CudaRuns<float>::launch(*devices_, samples); }

Measurement CudaExecutor::step(const ExecDag& dag, int steps) {
  return ask(dag, [&](auto runs) { return runs.step(*devices_, dag, steps); });
}

std::string CudaExecutor::check(const ExecDag& dag) {
  check_fits(dag, hardware_.machine);
  return ask(dag, [&](auto runs) { return runs.check(*devices_, dag); });
}

}  // namespace parsim::hw
