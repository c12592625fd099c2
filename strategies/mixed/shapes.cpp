// What may be chosen for a stage.
#include <functional>
#include <set>

#include "strategies/mixed/search.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies::mixed {

namespace {

constexpr std::size_t most_shapes = 4000;  // a dozen bits of a state

/// How many devices of a class a stage may have on a large cluster.
std::set<std::size_t> stage_sizes(const DeviceClass& of) {
  constexpr std::size_t fractions = 4;
  const std::size_t machine = of.of_machine(), all = of.machines.size();
  std::set<std::size_t> sizes;
  for (std::size_t size = machine; size > 0 && size * fractions >= machine; size /= 2) {
    sizes.insert(size);
    if (size % 2 != 0) break;
  }
  for (std::size_t count = 1; count <= all; ++count) {
    const bool small = count <= 4 || (count & (count - 1)) == 0;
    if (small || all % count == 0) sizes.insert(count * machine);
  }
  return sizes;
}

/// Members of one class without samples, of up to so many replicas.
std::vector<Member> members_of(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                               std::size_t of_class, std::int64_t most_replicas, bool few) {
  const DeviceClass& of = classes[of_class];
  constexpr std::size_t most_tensor = 8;
  std::size_t machine = 0;
  for (const auto& devices : of.machines) machine = std::max(machine, devices.size());
  // Machines of one device: groups across them are better than none.
  const std::size_t most = few ? std::max(most_tensor, machine) : machine;
  const std::set<std::size_t> sizes = stage_sizes(of);
  std::vector<Member> members;
  const auto asked = static_cast<std::size_t>(input.tensor_parallel.value_or(0));
  for (std::size_t tensor = 1; tensor <= most; few ? ++tensor : tensor *= 2) {
    if (asked > 0 && tensor != asked) continue;
    for (std::size_t count = 1; tensor * count <= of.size(); ++count) {
      if (static_cast<std::int64_t>(count) > most_replicas) break;
      if (few || sizes.contains(tensor * count)) members.push_back({of_class, tensor, count, {}});
    }
  }
  return members;
}

}  // namespace

bool share_samples(StageCosts& costs, std::int64_t samples, std::int64_t least, StageShape& shape) {
  std::vector<std::size_t> kinds;
  for (std::size_t m = 0; m < shape.members.size(); ++m) {
    kinds.insert(kinds.end(), shape.members[m].count, m);
  }
  const auto time = [&](std::size_t m, std::int64_t units) {
    const Member& member = shape.members[m];
    return Seconds{costs.whole_time(member.of_class, member.tensor, units)};
  };
  const std::vector<std::int64_t> shares = shape.members.size() == 1
                                               ? even_split(samples, kinds.size())
                                               : finish_together(samples, kinds, time, least);
  for (std::size_t g = 0; g < kinds.size(); ++g) {
    if (shares[g] == 0) return false;
    shape.members[kinds[g]].samples.push_back(shares[g]);
  }
  return true;
}

std::vector<StageShape> stage_shapes(const StrategyInput& input,
                                     const std::vector<DeviceClass>& classes, StageCosts& costs,
                                     std::int32_t micro_batches, Detail detail) {
  const std::int64_t samples = input.batch / micro_batches;
  const bool few = detail == Detail::all;
  std::vector<StageShape> shapes;
  std::vector<std::vector<Member>> by_class;
  const auto add = [&](StageShape shape) {
    const auto replicas = static_cast<std::int32_t>(shape.replicas());
    if (input.data_parallel.value_or(replicas) != replicas) return;
    if (shapes.size() < most_shapes && share_samples(costs, samples, least_samples(input), shape)) {
      shapes.push_back(std::move(shape));
    }
  };
  for (std::size_t c = 0; c < classes.size(); ++c) {
    by_class.push_back(members_of(input, classes, c, samples, few));
    for (const Member& member : by_class[c]) add({{member}});
  }
  const auto of_machines = [&](const Member& member) {
    const DeviceClass& of = classes[member.of_class];
    return member.devices() == of.of_machine() || member.devices() == of.size();
  };
  const std::function<void(std::size_t, const StageShape&)> extend = [&](std::size_t c,
                                                                         const StageShape& shape) {
    for (; c < classes.size(); ++c) {
      for (const Member& member : by_class[c]) {
        if (!few && !of_machines(member)) continue;
        StageShape more = shape;
        more.members.push_back(member);
        if (static_cast<std::int64_t>(more.replicas()) > samples) continue;
        if (more.members.size() > 1) add(more);
        extend(c + 1, more);
      }
    }
  };
  extend(0, {});
  return shapes;
}

}  // namespace parsim::strategies::mixed
