#include "sim/network_costs.hpp"

#include "sim/optimizer_step.hpp"

namespace parsim::sim {

Cost NetworkCosts::update(DeviceId device, const OptimizerStep& step) const {
  const OptimizerKernels kernels = optimizer_kernels(step, fusion());
  Cost cost = moved(device, kernels.touched, kernels.op);
  cost.time += static_cast<double>(kernels.launches - 1) * memory(device, {}).time;
  cost.launches = static_cast<double>(kernels.launches);
  if (step.cast > 0) {
    // How many tensors they are is not known here: without launches.
    const CastWork cast = cast_work(device, step.precision, static_cast<double>(step.cast));
    cost.time += memory(device, cast.touched).time - memory(device, {}).time;
  }
  return cost;
}

Seconds NetworkCosts::transfer(DeviceId from, DeviceId to, Bytes payload) const {
  if (from == to) return memory(from, 2 * payload).time;
  const Route& route = paths_.between(from, to);
  return transfer_wait(from, to, payload, paths_, options_) + payload / route.rate;
}

Seconds NetworkCosts::collective(CollectiveKind kind, std::span<const DeviceId> group,
                                 Bytes payload) const {
  return group.size() < 2 ? Seconds{0} : collective_time(kind, group, payload, paths_, options_);
}

}  // namespace parsim::sim
