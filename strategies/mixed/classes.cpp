#include "strategies/mixed/classes.hpp"

#include <cmath>
#include <map>
#include <utility>

#include "strategies/plan_support.hpp"

namespace parsim::strategies::mixed {

namespace {

using Key = std::vector<std::int64_t>;

/// Three digits of a time: links that differ by less are alike.
std::int64_t rounded(Seconds time) {
  constexpr double digits = 230;  // steps for a factor of e^1
  return std::llround(std::log(std::max(time.count(), 1e-12)) * digits);
}

/// Times of a large message to a neighbour and to the nearest device elsewhere.
void add_links(const StrategyInput& input, const std::vector<DeviceId>& devices,
               const std::vector<DeviceId>& machine, Key& key) {
  constexpr Bytes large{16'000'000};
  const DeviceId from = machine[0];
  key.push_back(machine.size() > 1 ? rounded(input.cost.transfer(from, machine[1], large)) : 0);
  std::optional<Seconds> nearest;
  for (const DeviceId to : devices) {
    if (input.cluster[to].node == input.cluster[from].node) continue;
    const Seconds time = input.cost.transfer(from, to, large);
    if (!nearest || time < *nearest) nearest = time;
  }
  key.push_back(nearest ? rounded(*nearest) : 0);
}

}  // namespace

std::vector<DeviceClass> device_classes(const StrategyInput& input, std::size_t most) {
  const std::vector<DeviceId> devices = workers(input);
  std::map<std::pair<NodeId, Key>, std::vector<DeviceId>> machines;
  for (const DeviceId id : devices) {
    const Device& device = input.cluster[id];
    machines[{device.node, {device.model, device.memory.value}}].push_back(id);
  }
  for (const bool with_links : {true, false}) {
    std::map<Key, DeviceClass> by_key;
    for (const auto& [where, machine] : machines) {
      Key key = where.second;
      key.push_back(static_cast<std::int64_t>(machine.size()));
      if (with_links) add_links(input, devices, machine, key);
      by_key[key].machines.push_back(machine);
    }
    if (by_key.size() > most && with_links) continue;
    std::vector<DeviceClass> classes;
    for (auto& [key, one] : by_key) {
      std::sort(one.machines.begin(), one.machines.end());
      classes.push_back(std::move(one));
    }
    const auto place = [&](const DeviceClass& one) {
      return std::find(devices.begin(), devices.end(), one.machines[0][0]);
    };
    std::sort(classes.begin(), classes.end(),
              [&](const DeviceClass& a, const DeviceClass& b) { return place(a) < place(b); });
    return classes;
  }
  return {};
}

Placement::Placement(const std::vector<DeviceClass>& classes) {
  for (const DeviceClass& one : classes) free_.push_back(one.machines);
}

std::optional<std::vector<std::vector<DeviceId>>> Placement::take(std::size_t of_class,
                                                                  std::size_t tensor,
                                                                  std::size_t count) {
  std::vector<std::vector<DeviceId>>& machines = free_[of_class];
  std::vector<std::vector<DeviceId>> groups;
  const auto cut = [&](std::vector<DeviceId>& from) {
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(tensor);
    groups.emplace_back(from.begin(), end);
    from.erase(from.begin(), end);
  };
  std::size_t largest = 0;
  for (const auto& machine : machines) largest = std::max(largest, machine.size());
  if (tensor > largest) {  // across machines
    std::vector<DeviceId> all;
    for (const auto& machine : machines) all.insert(all.end(), machine.begin(), machine.end());
    if (all.size() < tensor * count) return std::nullopt;
    while (groups.size() < count) cut(all);
    for (auto& machine : machines) {
      std::erase_if(machine, [&](DeviceId device) {
        return std::find(all.begin(), all.end(), device) == all.end();
      });
    }
    return groups;
  }
  std::vector<DeviceId>* fullest = nullptr;
  for (auto& machine : machines) {
    const bool room = machine.size() / tensor >= count;
    if (room && (fullest == nullptr || machine.size() < fullest->size())) fullest = &machine;
  }
  while (fullest != nullptr && groups.size() < count) cut(*fullest);
  while (groups.size() < count) {
    const auto most =
        std::max_element(machines.begin(), machines.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (most->size() < tensor) return std::nullopt;
    while (groups.size() < count && most->size() >= tensor) cut(*most);
  }
  return groups;
}

}  // namespace parsim::strategies::mixed
