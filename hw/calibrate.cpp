#include "hw/calibrate.hpp"

#include <algorithm>
#include <set>

#include "hw/tensor_slices.hpp"

namespace parsim::hw {

Calibration::Key Calibration::key_of(const ExecDag& dag, OpId id) const {
  const OpRecord& record = dag.record(id);
  Key key{static_cast<std::int64_t>(dag.kind(id))};
  const auto model = [&](std::int32_t device) {
    return profile_.machine.cluster.devices[static_cast<std::size_t>(device)].model;
  };
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const Compute op = std::get<Compute>(dag.op(id));
      const LayerId layer = dag.work(op.work).layer;
      const Key what =
          kernel_signature(dag.network[layer].kind, input_shapes(dag.network, layer),
                           dag.network[layer].out, dag.part(op.work), op.pass, dag.precision);
      key.push_back(model(record.device));
      key.insert(key.end(), what.begin(), what.end());
      return key;
    }
    case OpKind::update:
    case OpKind::local:
      key = {static_cast<std::int64_t>(OpKind::local), model(record.device),
             touched_bytes(dag, id).value};
      return key;
    case OpKind::delay:
      return key;
    case OpKind::transfer:
      key.insert(key.end(), {record.device, record.to});
      break;
    case OpKind::collective:
      key.push_back(record.sub);
      for (const DeviceId device : dag.group(GroupId{record.device})) {
        key.push_back(device.value);
      }
  }
  key.push_back(dag.payload(id).value);
  return key;
}

void Calibration::keep(const ExecDag& dag, OpId id, const Spread& time) {
  const OpRecord& record = dag.record(id);
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const Compute op = std::get<Compute>(dag.op(id));
      const LayerId layer = dag.work(op.work).layer;
      if (dag.region(dag.work(op.work).out).empty()) return;
      profile_.kernels.push_back({model_of(op.device), dag.network[layer].kind,
                                  input_shapes(dag.network, layer), dag.part(op.work), op.pass,
                                  dag.precision, time});
      return;
    }
    case OpKind::update:
    case OpKind::local:
      profile_.memory.push_back({model_of(DeviceId{record.device}), touched_bytes(dag, id), time});
      return;
    case OpKind::delay:
      return;
    case OpKind::transfer:
      profile_.messages.push_back(
          {"transfer", {DeviceId{record.device}, DeviceId{record.to}}, dag.payload(id), time});
      return;
    case OpKind::collective:
      profile_.messages.push_back({std::string(to_text(static_cast<CollectiveKind>(record.sub))),
                                   dag.group(GroupId{record.device}), dag.payload(id), time});
  }
}

std::vector<OpId> Calibration::unknown(const ExecDag& dag) const {
  std::vector<OpId> ops;
  std::set<Key> seen;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    Key key = key_of(dag, OpId{i});
    if (!times_.contains(key) && seen.insert(std::move(key)).second) ops.emplace_back(i);
  }
  return ops;
}

void Calibration::add(const ExecDag& dag, const std::vector<OpId>& ops,
                      const std::vector<Spread>& times) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    times_[key_of(dag, ops[i])] = times.at(i).median;
    keep(dag, ops[i], times[i]);
  }
}

/// By device; an invalid id: it sends and receives nothing.
std::vector<OpId> Calibration::largest_messages(const ExecDag& dag) const {
  std::vector<OpId> largest(profile_.machine.cluster.devices.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    std::vector<DeviceId> members;
    if (dag.kind(OpId{i}) == OpKind::transfer && record.device != record.to) {
      members = {DeviceId{record.device}, DeviceId{record.to}};
    } else if (dag.kind(OpId{i}) == OpKind::collective) {
      members = dag.group(GroupId{record.device});
    }
    if (members.size() < 2) continue;
    for (const DeviceId member : members) {
      OpId& best = largest[member.index()];
      if (!best.valid() || dag.payload(OpId{i}) > dag.payload(best)) best = OpId{i};
    }
  }
  return largest;
}

std::vector<Calibration::Group> Calibration::neighbours(const ExecDag& dag) {
  constexpr int most_dags = 2;
  struct Candidate {
    Seconds time{};
    Group group;
  };
  const std::vector<OpId> largest = largest_messages(dag);
  std::map<Activities, Candidate> longest;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const auto activity = kernel_activity(dag, OpId{i});
    const DeviceId device{dag.record(OpId{i}).device};
    if (!activity || !largest[device.index()].valid()) continue;
    const Seconds time = times_.at(key_of(dag, OpId{i}));
    Candidate& best = longest[{model_of(device), *activity}];
    if (time > best.time) best = {time, {{OpId{i}, device}, {largest[device.index()], device}}};
  }
  std::vector<Group> groups;
  for (const auto& [activities, candidate] : longest) {
    if (++dags_of_[activities] <= most_dags) groups.push_back(candidate.group);
  }
  return groups;
}

void Calibration::add(const ExecDag& dag, const Group& group, const std::vector<Beside>& times) {
  const Activity kernel = kernel_activity(dag, group[0].op).value();
  const Activity message = Activity::communication;
  for (std::size_t p = 0; p < interference_pairs.size(); ++p) {
    const auto& [activity, during] = interference_pairs[p];
    const bool slows_kernel = activity == kernel && during == message;
    if (!slows_kernel && !(activity == message && during == kernel)) continue;
    const Beside& time = times.at(slows_kernel ? 0 : 1);
    profile_.interference_samples.push_back(
        {model_of(group[0].device), p, time.alone, time.during});
  }
}

void Calibration::add_walks(const ExecDag& dag, const Group& walks,
                            const std::vector<Beside>& times) {
  CommonMemory memory{touched_bytes(dag, walks[0].op), {}};
  for (std::size_t i = 0; i < walks.size(); ++i) {
    memory.parts.push_back({walks[i].device, times.at(i).alone, times.at(i).during});
  }
  profile_.common_memory.push_back(std::move(memory));
}

/// What strategies weigh communication with. Simulations use the measured times themselves.
void Calibration::fit_links() {
  std::map<std::pair<DeviceId, DeviceId>, std::vector<std::pair<Bytes, Seconds>>> times;
  for (const MessageSample& sample : profile_.messages) {
    if (sample.kind != "transfer" || sample.devices[0] == sample.devices[1]) continue;
    times[{sample.devices[0], sample.devices[1]}].emplace_back(sample.payload, sample.time.median);
  }
  for (const auto& [devices, table] : times) {
    if (const auto fit = fit_link(devices.first, devices.second, table)) {
      profile_.links.push_back(*fit);
    }
  }
  const auto links = star_links(profile_.machine.cluster.devices.size(), profile_.links);
  if (!links.empty()) connect_as_star(profile_.machine, links);
}

Profile Calibration::take() {
  fit_links();
  profile_.interference = interference_of(profile_.interference_samples);
  return std::move(profile_);
}

std::vector<const ExecDag*> those_that_fit(const std::vector<ExecDag>& dags,
                                           const Machine& machine) {
  std::vector<const ExecDag*> fitting;
  for (const ExecDag& dag : dags) {
    try {
      check_fits(dag, machine);
      fitting.push_back(&dag);
    } catch (const MemoryError&) {
      if (fitting.empty() && &dag == &dags.back()) throw;
    }
  }
  return fitting;
}

}  // namespace parsim::hw
