#include "sim/network_costs.hpp"

namespace parsim::sim {

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
