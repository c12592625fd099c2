#include "core/kernel_times.hpp"

#include "core/hash.hpp"

namespace parsim {

std::size_t KernelTimes::Hash::operator()(const Key& key) const { return hash_of(key); }

const Cost* KernelTimes::find(LayerId layer, const Part& part, std::int64_t pass, DeviceId device) {
  key_.assign({layer.value, pass, cost_.alike(device), part.contraction.begin, part.contraction.end,
               part.zigzag});
  for (std::size_t axis = 0; axis < part.out.rank(); ++axis) {
    // Samples are alike; at other borders of a layer there is padding.
    const Interval range = part.out[axis];
    key_.push_back(axis == 0 ? 0 : range.begin);
    key_.push_back(axis == 0 ? range.size() : range.end);
  }
  const auto known = known_.find(key_);
  return known == known_.end() ? nullptr : &known->second;
}

Cost KernelTimes::of(LayerId layer, const Part& part, Pass pass, DeviceId device) {
  if (const Cost* known = find(layer, part, static_cast<std::int64_t>(pass), device)) return *known;
  const Cost cost = kernel_time(cost_, network_, layer, part, pass, device, precision_, reduce_);
  known_.emplace(key_, cost);
  return cost;
}

Seconds KernelTimes::of_all(LayerId layer, const Part& part, std::span<const Pass> passes,
                            DeviceId device) {
  if (const Cost* known = find(layer, part, all_passes, device)) return known->time;
  Seconds time{0};
  for (const Pass pass : passes) {
    time += kernel_time(cost_, network_, layer, part, pass, device, precision_, reduce_).time;
  }
  known_.emplace(key_, Cost{time});
  return time;
}

Cost DeviceTimes::of(OpId id) {
  if (dag_.kind(id) != OpKind::compute) return device_time(dag_, id, cost_, weights_);
  const OpRecord& record = dag_.record(id);
  const DeviceId device{record.device};
  constexpr std::uint64_t passes = 8, devices = std::uint64_t{1} << 28U;
  const auto alike = static_cast<std::uint64_t>(cost_.alike(device));
  const std::uint64_t key =
      (static_cast<std::uint64_t>(record.what) * passes + record.sub) * devices + alike;
  const auto [entry, fresh] = known_.try_emplace(key);
  if (fresh) {
    const WorkId work{record.what};
    entry->second =
        kernels_.of(dag_.work(work).layer, dag_.part(work), static_cast<Pass>(record.sub), device);
  }
  return entry->second;
}

}  // namespace parsim
