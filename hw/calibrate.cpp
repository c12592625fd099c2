// A profile of a machine: what its operations take alone, and beside each other.
#include <algorithm>
#include <map>

#include "hw/hardware.hpp"
#include "hw/links.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

namespace {

/// What is measured once: kernels by signature, copies by bytes, messages by kind, group and bytes.
class Calibration {
 public:
  Calibration(const Hardware& hardware, int samples) : hardware_(hardware), samples_(samples) {
    profile_.machine = hardware.machine;
  }

  void add(const ExecDag& dag) {
    std::vector<OpId> ops;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (times_.try_emplace(key_of(dag, OpId{i})).second) ops.emplace_back(i);
    }
    const std::vector<Spread> times = hardware_.alone(dag, ops, samples_);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      times_[key_of(dag, ops[i])] = times[i].median;
      keep(dag, ops[i], times[i]);
    }
    if (hardware_.together) add_neighbours(dag);
  }
  void add_links() {
    const std::vector<Bytes> sizes = message_sizes(hardware_.largest_message);
    const std::size_t devices = profile_.machine.cluster.devices.size();
    if (devices > 1 && sizes.size() > 1) add(link_dag(devices, sizes));
  }
  /// Updates of all parts of a GPU at once: what its memory gives to each.
  void add_common_memory() {
    const ExecDag dag = walk_dag(profile_.machine.cluster.devices.size(), hardware_.walk);
    for (const std::vector<DeviceId>& parts : hardware_.common_memory) {
      if (parts.size() < 2 || !hardware_.together) continue;
      std::vector<Neighbour> walks;
      for (const DeviceId part : parts) walks.push_back({OpId{part.index()}, part});
      const std::vector<Beside> times = hardware_.together(dag, {walks}, samples_).at(0);
      CommonMemory memory{touched_bytes(dag, walks[0].op), {}};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        memory.parts.push_back({parts[i], times.at(i).alone, times.at(i).during});
      }
      profile_.common_memory.push_back(std::move(memory));
    }
  }
  void add_launch() {
    if (hardware_.launch) profile_.launch = hardware_.launch(samples_);
  }

  Profile take() {
    fit_links();
    profile_.interference = interference_of(profile_.interference_samples);
    return std::move(profile_);
  }

 private:
  using Key = std::vector<std::int64_t>;

  [[nodiscard]] const std::string& model_of(DeviceId device) const {
    return profile_.machine.cluster.model(device).name;
  }

  [[nodiscard]] Key key_of(const ExecDag& dag, OpId id) const {
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

  void keep(const ExecDag& dag, OpId id, const Spread& time) {
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
        profile_.memory.push_back(
            {model_of(DeviceId{record.device}), touched_bytes(dag, id), time});
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

  /// The longest kernel of a model and activity, so far.
  struct Candidate {
    Seconds time{};
    OpId kernel;
    DeviceId device;
  };

  /// By device; an invalid id: it sends and receives nothing.
  [[nodiscard]] std::vector<OpId> largest_messages(const ExecDag& dag) const {
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

  /// The longest kernel of each model and activity, beside the largest message of its device.
  void add_neighbours(const ExecDag& dag) {
    const std::vector<OpId> largest = largest_messages(dag);
    std::map<std::pair<std::string, Activity>, Candidate> longest;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const auto activity = kernel_activity(dag, OpId{i});
      const DeviceId device{dag.record(OpId{i}).device};
      if (!activity || !largest[device.index()].valid()) continue;
      const Seconds time = times_.at(key_of(dag, OpId{i}));
      Candidate& best = longest[{model_of(device), *activity}];
      if (time > best.time) best = {time, OpId{i}, device};
    }
    std::vector<std::vector<Neighbour>> pairs;
    std::vector<std::pair<std::string, Activity>> what;
    for (const auto& [key, candidate] : longest) {
      if (++dags_of_[key] > most_dags) continue;
      pairs.push_back({{candidate.kernel, candidate.device},
                       {largest[candidate.device.index()], candidate.device}});
      what.push_back(key);
    }
    if (pairs.empty()) return;
    const std::vector<std::vector<Beside>> times = hardware_.together(dag, pairs, samples_);
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto& [model, activity] = what[i];
      keep_pair(model, {activity, Activity::communication}, times[i].at(0));
      keep_pair(model, {Activity::communication, activity}, times[i].at(1));
    }
  }
  void keep_pair(const std::string& model, const InterferencePair& pair, const Beside& times) {
    for (std::size_t p = 0; p < interference_pairs.size(); ++p) {
      if (interference_pairs[p].activity != pair.activity ||
          interference_pairs[p].during != pair.during) {
        continue;
      }
      profile_.interference_samples.push_back({model, p, times.alone, times.during});
    }
  }

  /// What strategies weigh communication with. Simulations use the measured times themselves.
  void fit_links() {
    std::map<std::pair<DeviceId, DeviceId>, std::vector<std::pair<Bytes, Seconds>>> times;
    for (const MessageSample& sample : profile_.messages) {
      if (sample.kind != "transfer" || sample.devices[0] == sample.devices[1]) continue;
      times[{sample.devices[0], sample.devices[1]}].emplace_back(sample.payload,
                                                                 sample.time.median);
    }
    for (const auto& [devices, table] : times) {
      if (const auto fit = fit_link(devices.first, devices.second, table)) {
        profile_.links.push_back(*fit);
      }
    }
    const auto links = star_links(profile_.machine.cluster.devices.size(), profile_.links);
    if (!links.empty()) connect_as_star(profile_.machine, links);
  }

  /// Of so many DAGs the same question is asked again.
  static constexpr int most_dags = 2;

  const Hardware& hardware_;
  int samples_;
  Profile profile_;
  std::map<Key, Seconds> times_;
  std::map<std::pair<std::string, Activity>, int> dags_of_;
};

}  // namespace

Profile calibrate(const Hardware& hardware, const std::vector<ExecDag>& dags, int samples) {
  Calibration calibration(hardware, samples);
  std::size_t refused = 0;
  for (const ExecDag& dag : dags) {
    try {
      check_fits(dag, hardware.machine);
    } catch (const MemoryError&) {
      // What does not fit is neither run nor calibrated; a profile of nothing is no profile.
      if (++refused == dags.size()) throw;
      continue;
    }
    calibration.add(dag);
  }
  calibration.add_links();
  calibration.add_common_memory();
  calibration.add_launch();
  return calibration.take();
}

}  // namespace parsim::hw
