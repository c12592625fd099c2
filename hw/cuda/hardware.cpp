#include <algorithm>
#include <memory>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "hw/cuda/devices.hpp"
#include "hw/cuda/run.hpp"

namespace parsim::hw {

namespace {

CudaRuns runs_for(const ExecDag& dag) {
  if (dag.precision == Precision::fp16) {
    throw InputError("--precision", "fp16", "accepted on CUDA: fp32, tf32, bf16");
  }
  // Its kernels and collectives add up in the type that stores the weights.
  if (dag.reduce_precision != storage_of(dag.precision)) {
    throw InputError(
        "--reduce-precision",
        std::string(to_text(dag.reduce_precision)).append(" with ").append(to_text(dag.precision)),
        std::string("accepted on CUDA: ").append(to_text(storage_of(dag.precision))));
  }
  return dag.precision == Precision::bf16 ? bf16_runs() : f32_runs();
}

void answer_steps(Hardware& hardware, const std::shared_ptr<CudaDevices>& devices) {
  hardware.step = [devices](const ExecDag& dag, int steps) {
    return runs_for(dag).step(*devices, dag, steps);
  };
  hardware.check = [devices](const ExecDag& dag, double tolerance) {
    return runs_for(dag).check(*devices, dag, tolerance);
  };
}

}  // namespace

Hardware cuda_hardware(const std::vector<int>& partition, const std::optional<LinkThrottle>& link) {
  const auto devices = std::make_shared<CudaDevices>(partition, link);
  Hardware hardware;
  hardware.machine = devices->machine();
  hardware.alone = [devices](const ExecDag& dag, const std::vector<OpId>& ops, int samples) {
    return runs_for(dag).alone(*devices, dag, ops, samples);
  };
  hardware.together = [devices](const ExecDag& dag,
                                const std::vector<std::vector<Neighbour>>& groups, int samples) {
    return runs_for(dag).together(*devices, dag, groups, samples);
  };
  hardware.launch = [devices](int samples) { return f32_runs().launch(*devices, samples); };
  // Two of them lie on every device.
  hardware.largest_message = Bytes{std::int64_t{256} << 20};
  for (const Device& device : hardware.machine.cluster.devices) {
    hardware.largest_message = {std::min(hardware.largest_message.value, device.memory.value / 4)};
  }
  if (devices->partitioned()) {
    std::vector<DeviceId>& all = hardware.common_memory.emplace_back();
    for (std::size_t d = 0; d < devices->all().size(); ++d) all.emplace_back(d);
    hardware.walk = hardware.largest_message;
  }
  if (link) {  // a message takes 20 ms at most
    hardware.largest_message = {std::min(hardware.largest_message.value,
                                         static_cast<std::int64_t>(link->rate.value * 20e-3))};
  }
  answer_steps(hardware, devices);
  return hardware;
}

Hardware cuda_hardware(const std::optional<LinkThrottle>& link, Rendezvous& rendezvous) {
  const auto devices = std::make_shared<CudaDevices>(link, rendezvous);
  Hardware hardware;
  hardware.machine = devices->machine();
  answer_steps(hardware, devices);
  return hardware;
}

}  // namespace parsim::hw
