// A profile of a machine: what its operations take alone, and concurrently.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hw/hardware.hpp"
#include "hw/links.hpp"

namespace parsim::hw {

/// What is measured once: kernels by signature, copies by bytes, messages by kind, group and bytes.
class Calibration {
 public:
  explicit Calibration(const Machine& machine) { profile_.machine = machine; }

  /// One operation of each kind that the profile does not have yet, and its time alone.
  [[nodiscard]] std::vector<OpId> unknown(const ExecDag& dag) const;
  void add(const ExecDag& dag, const std::vector<OpId>& ops, const std::vector<Spread>& times);

  using Group = std::vector<Neighbour>;
  /// The longest kernel of each model and activity, during the largest message of its device; all
  /// operations' times have been added. Of several DAGs the first two with such a kernel are asked.
  [[nodiscard]] std::vector<Group> neighbours(const ExecDag& dag);
  void add(const ExecDag& dag, const Group& group, const std::vector<Beside>& times);

  /// Updates of all parts of a GPU at once: what its memory gives to each.
  void add_walks(const ExecDag& dag, const Group& walks, const std::vector<Beside>& times);
  void add_launch(const Spread& interval) { profile_.launch = interval; }

  [[nodiscard]] Profile take();

 private:
  using Key = std::vector<std::int64_t>;
  using Activities = std::pair<std::string, Activity>;  ///< of a model

  [[nodiscard]] const std::string& model_of(DeviceId device) const {
    return profile_.machine.cluster.model(device).name;
  }
  [[nodiscard]] Key key_of(const ExecDag& dag, OpId id) const;
  void keep(const ExecDag& dag, OpId id, const Spread& time);
  [[nodiscard]] std::vector<OpId> largest_messages(const ExecDag& dag) const;
  void fit_links();

  Profile profile_;
  std::map<Key, Seconds> times_;
  std::map<Activities, int> dags_of_;
};

/// Those that fit. Throws what check_fits() throws, MemoryError only if none fits: what does not is
/// neither run nor calibrated, but a profile of nothing is no profile.
[[nodiscard]] std::vector<const ExecDag*> those_that_fit(const std::vector<ExecDag>& dags,
                                                         const Machine& machine);

/// Measures each distinct kernel, update, copy and message of the DAGs alone; messages of growing
/// sizes between all pairs of devices (link_dag); interference of kernels and messages; memory
/// bandwidth under contention; launch time. The machine has
///
///     const Hardware& hardware()
///     std::vector<Spread> alone(dag, ops, samples)   of each, while nothing else runs
///     std::vector<std::vector<Beside>> together(dag, groups, samples)
///                                                    of each, alone and while its group runs
///     Spread launch(samples)                         from one empty kernel to the next when launched
///                                                    as in steps; no samples: no time
template <class Executed>
[[nodiscard]] Profile calibrate(Executed& machine, const std::vector<ExecDag>& dags, int samples) {
  const Hardware& hardware = machine.hardware();
  const std::size_t devices = hardware.machine.cluster.devices.size();
  Calibration calibration(hardware.machine);
  const auto add = [&](const ExecDag& dag) {
    const std::vector<OpId> ops = calibration.unknown(dag);
    calibration.add(dag, ops, machine.alone(dag, ops, samples));
    const std::vector<Calibration::Group> groups = calibration.neighbours(dag);
    if (groups.empty()) return;
    const std::vector<std::vector<Beside>> times = machine.together(dag, groups, samples);
    for (std::size_t i = 0; i < groups.size(); ++i) calibration.add(dag, groups[i], times.at(i));
  };
  for (const ExecDag* dag : those_that_fit(dags, hardware.machine)) add(*dag);
  const std::vector<Bytes> sizes = message_sizes(hardware.largest_message);
  if (devices > 1 && sizes.size() > 1) add(link_dag(devices, sizes));
  const ExecDag dag = walk_dag(devices, hardware.walk);
  for (const std::vector<DeviceId>& parts : hardware.common_memory) {
    if (parts.size() < 2) continue;
    Calibration::Group walks;
    for (const DeviceId part : parts) walks.push_back({OpId{part.index()}, part});
    calibration.add_walks(dag, walks, machine.together(dag, {walks}, samples).at(0));
  }
  calibration.add_launch(machine.launch(samples));
  return calibration.take();
}

}  // namespace parsim::hw
