#include "tests/support/dropping.hpp"

#include <utility>

namespace parsim::testing {

Dropping::Dropping(const ExecDag& dag, Memory& memory) : dag_(dag), memory_(memory) {
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* compute = std::get_if<Compute>(&op);
    if (compute == nullptr || compute->pass != Pass::recompute) continue;
    Dropped& output = outputs_[output_of(*compute)];
    if (output.regions.empty()) output.again = OpId{i};
    output.regions.push_back(dag.part(compute->work).out);
  }
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const StoreKey& key : touched(OpId{i})) ++outputs_.at(key).users_left;
  }
}

void Dropping::before(OpId id) {
  for (auto& [key, output] : outputs_) output.is_back = output.is_back || output.again == id;
}

void Dropping::after(OpId id) {
  for (const StoreKey& key : touched(id)) {
    Dropped& output = outputs_.at(key);
    if (--output.users_left > 0 || output.is_back) continue;
    for (const Region& region : output.regions) memory_.forget(key, region);
  }
}

StoreKey Dropping::output_of(const Compute& op) const {
  const Tensor tensor{Tensor::Kind::output, dag_.work(op.work).layer.value, -1};
  return {op.device, tensor, Role::activation, op.micro_batch};
}

std::vector<StoreKey> Dropping::touched(OpId id) const {
  std::vector<StoreKey> keys;
  const auto touch = [&](DeviceId device, const Slice& slice) {
    keys.push_back({device, dag_.tensor(slice.tensor), slice.role, slice.micro_batch});
  };
  const Op op = dag_.op(id);
  if (const auto* compute = std::get_if<Compute>(&op)) {
    keys.push_back(output_of(*compute));
    for (const LayerId producer : dag_.network[dag_.work(compute->work).layer].inputs) {
      keys.push_back(keys[0]);
      keys.back().tensor.index = producer.value;
    }
  } else if (const auto* transfer = std::get_if<Transfer>(&op)) {
    touch(transfer->from, transfer->slice);
    touch(transfer->to, transfer->target);
  } else if (const auto* collective = std::get_if<Collective>(&op)) {
    for (const DeviceId device : dag_.group(collective->group)) {
      touch(device, collective->slice);
      if (collective->slice.role == Role::partial_sum) touch(device, collective->target);
    }
  } else if (const auto* local = std::get_if<Local>(&op)) {
    if (local->from.role == Role::partial_sum) touch(local->device, local->to);
  }
  std::erase_if(keys, [&](const StoreKey& key) {
    const auto found = outputs_.find(key);
    return found == outputs_.end() || id >= found->second.again;
  });
  return keys;
}

}  // namespace parsim::testing
