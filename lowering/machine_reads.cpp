#include "lowering/machine_reads.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace parsim::lowering {

namespace {

struct Machine {
  std::set<DeviceId> devices;
  std::vector<Interval> samples;  ///< of a micro-batch
};

/// Samples in at least one of the intervals.
std::int64_t together(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::int64_t count = 0, end = 0;
  for (const Interval& one : all) {
    const std::int64_t begin = std::max<std::int64_t>(end, one.begin);
    count += std::max<std::int64_t>(0, one.end - begin);
    end = std::max<std::int64_t>(end, one.end);
  }
  return count;
}

}  // namespace

std::vector<MachineReads> machine_reads(const Network& network, const Cluster& cluster,
                                        const Plan& plan) {
  std::map<NodeId, Machine> machines;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::vector<LayerId>& operands = network.layers[l].inputs;
    const bool reads = std::any_of(operands.begin(), operands.end(), [&](LayerId operand) {
      return network[operand].kind.as<Input>() != nullptr;
    });
    if (!reads) continue;
    for (const Cell& cell :
         cells(network, LayerId{l}, plan.layers[l], plan.batch / plan.schedule.micro_batches)) {
      Machine& machine = machines[cluster[cell.device].node];
      machine.devices.insert(cell.device);
      machine.samples.push_back(cell.part.out[0]);
    }
  }
  std::set<MachineReads> found;
  for (auto& [node, machine] : machines) {
    found.insert({static_cast<std::int64_t>(machine.devices.size()),
                  together(std::move(machine.samples)) * plan.schedule.micro_batches});
  }
  return {found.begin(), found.end()};
}

}  // namespace parsim::lowering
