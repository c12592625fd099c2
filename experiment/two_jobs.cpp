#include "experiment/two_jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/kernel_times.hpp"
#include "experiment/attention.hpp"
#include "experiment/whole_dag.hpp"
#include "lowering/lower.hpp"
#include "strategies/experts.hpp"

namespace parsim::experiment {

namespace {

bool is_kernel(OpKind kind) { return kind != OpKind::transfer && kind != OpKind::collective; }

/// Time of each operation that is a kernel: what a job has of its own network and precision.
std::vector<Seconds> kernel_seconds(const ExecDag& dag, const CostModel& cost) {
  DeviceTimes times(dag, cost);
  std::vector<Seconds> seconds(dag.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (is_kernel(dag.kind(OpId{i}))) seconds[i] = times.of(OpId{i}).time;
  }
  return seconds;
}

/// Steps of jobs as one DAG, kernels as delays.
class JointDag {
 public:
  explicit JointDag(const ExecDag& first) {
    tables_ = first.tables();
    tables_.records.clear();
    tables_.predecessors.clear();
    tables_.works.clear();
    tables_.regions.clear();
    tables_.tensors.clear();
    tables_.slices.clear();
    tables_.groups.clear();
    tables_.buckets.clear();
    tables_.shares.clear();
  }

  /// Appends `steps` steps of a job, each after the one before; returns the last operation of each.
  std::vector<OpId> add(const ExecDag& dag, const std::vector<Seconds>& seconds,
                        std::int64_t steps) {
    const ExecDag::Tables job = dag.tables();
    const Offsets at = append_tables(job);
    std::vector<bool> ends(dag.size(), true);
    for (const OpId before : job.predecessors) ends[before.index()] = false;
    std::vector<OpId> barriers;
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::size_t first = tables_.records.size();
      for (std::size_t i = 0; i < dag.size(); ++i) {
        OpRecord record = is_kernel(dag.kind(OpId{i}))
                              ? delay(dag.record(OpId{i}).device, seconds[i])
                              : moved(dag.record(OpId{i}), dag.kind(OpId{i}), at);
        std::vector<OpId> after;
        for (const OpId before : dag.predecessors(OpId{i})) {
          after.push_back(OpId{first + before.index()});
        }
        if (after.empty() && !barriers.empty()) after.push_back(barriers.back());
        append(record, after);
      }
      std::vector<OpId> last;
      for (std::size_t i = 0; i < dag.size(); ++i) {
        if (ends[i]) last.push_back(OpId{first + i});
      }
      barriers.push_back(append(delay(some_device(dag), Seconds{}), last));
    }
    return barriers;
  }

  [[nodiscard]] ExecDag finish() && { return ExecDag::from_tables(std::move(tables_)); }

 private:
  struct Offsets {
    std::int32_t slice, group, shares;
  };

  /// Of the job's own: on another one's stream a barrier would wait for that job.
  static std::int32_t some_device(const ExecDag& dag) {
    const OpRecord& first = dag.record(OpId{0});
    return dag.kind(OpId{0}) == OpKind::collective ? dag.group(GroupId{first.device}).front().value
                                                   : first.device;
  }

  static OpRecord delay(std::int32_t device, Seconds time) {
    constexpr double picoseconds = 1e12;
    OpRecord record;
    record.kind = static_cast<std::uint8_t>(OpKind::delay);
    record.device = device;
    record.payload = std::llround(time.count() * picoseconds);
    return record;
  }

  static OpRecord moved(OpRecord record, OpKind kind, const Offsets& at) {
    const auto shift = [](std::int32_t& index, std::int32_t by) {
      if (index >= 0) index += by;
    };
    shift(record.what, at.slice);
    shift(record.target, at.slice);
    if (kind == OpKind::collective) {
      shift(record.device, at.group);
      shift(record.to, at.shares);
    }
    return record;
  }

  Offsets append_tables(const ExecDag::Tables& job) {
    const auto count = [](const auto& table) { return static_cast<std::int32_t>(table.size()); };
    const Offsets at{count(tables_.slices), count(tables_.groups), count(tables_.shares)};
    const std::int32_t regions = count(tables_.regions), tensors = count(tables_.tensors),
                       buckets = count(tables_.buckets);
    const auto region = [&](RegionId id) {
      return id.value < 0 ? id : RegionId{static_cast<std::size_t>(id.value + regions)};
    };
    tables_.regions.insert(tables_.regions.end(), job.regions.begin(), job.regions.end());
    for (Tensor tensor : job.tensors) {
      if (tensor.kind == Tensor::Kind::bucket) tensor.index += buckets;
      tables_.tensors.push_back(tensor);
    }
    for (Slice slice : job.slices) {
      slice.tensor = TensorId{static_cast<std::size_t>(slice.tensor.value + tensors)};
      slice.region = region(slice.region);
      tables_.slices.push_back(slice);
    }
    tables_.groups.insert(tables_.groups.end(), job.groups.begin(), job.groups.end());
    for (auto bucket : job.buckets) {
      for (auto& [parameter, part] : bucket) part = region(part);
      tables_.buckets.push_back(std::move(bucket));
    }
    for (Shares shares : job.shares) {
      for (RegionId& id : shares.regions) id = region(id);
      for (RegionId& id : shares.needs) id = region(id);
      tables_.shares.push_back(std::move(shares));
    }
    return at;
  }

  OpId append(OpRecord record, const std::vector<OpId>& after) {
    record.first_predecessor = static_cast<std::uint32_t>(tables_.predecessors.size());
    tables_.predecessors.insert(tables_.predecessors.end(), after.begin(), after.end());
    tables_.records.push_back(record);
    return OpId{tables_.records.size() - 1};
  }

  ExecDag::Tables tables_;
};

std::set<DeviceId> devices_in(const ExecDag& dag) {
  std::set<DeviceId> devices;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) == OpKind::collective) {
      const std::vector<DeviceId>& group = dag.group(GroupId{record.device});
      devices.insert(group.begin(), group.end());
      continue;
    }
    devices.insert(DeviceId{record.device});
    if (dag.kind(OpId{i}) == OpKind::transfer) devices.insert(DeviceId{record.to});
  }
  return devices;
}

}  // namespace

TwoJobs simulate_together(const ExecDag& first, const ExecDag& second, const Cluster& cluster,
                          const CostModel& cost, const sim::SimOptions& options,
                          std::size_t most_operations) {
  const auto simulator = sim::make_simulator(cluster, cost, options);
  const std::vector<Seconds> first_times = kernel_seconds(first, cost);
  const std::vector<Seconds> second_times = kernel_seconds(second, cost);
  const auto alone = [&](const ExecDag& dag, const std::vector<Seconds>& times) {
    JointDag joint(dag);
    const OpId end = joint.add(dag, times, 1).front();
    return simulator->run(std::move(joint).finish()).spans[end.index()].end;
  };
  TwoJobs jobs;
  jobs.first.alone = alone(first, first_times);
  jobs.second.alone = alone(second, second_times);
  const bool first_is_longer = jobs.first.alone >= jobs.second.alone;
  SharingJob& longer = first_is_longer ? jobs.first : jobs.second;
  SharingJob& shorter = first_is_longer ? jobs.second : jobs.first;
  const ExecDag& repeated = first_is_longer ? second : first;
  const ExecDag& once = first_is_longer ? first : second;
  const auto most_steps = static_cast<std::int64_t>(most_operations / repeated.size());
  std::int64_t steps = 1;
  if (shorter.alone > Seconds{}) {
    steps = static_cast<std::int64_t>(std::ceil(std::min(1e6, longer.alone / shorter.alone)));
  }
  while (true) {
    steps = std::clamp<std::int64_t>(steps, 1, std::max<std::int64_t>(1, most_steps));
    JointDag joint(once);
    const OpId end = joint.add(once, first_is_longer ? first_times : second_times, 1).front();
    const std::vector<OpId> ends =
        joint.add(repeated, first_is_longer ? second_times : first_times, steps);
    const Timeline timeline = simulator->run(std::move(joint).finish());
    longer.together = timeline.spans[end.index()].end;
    const auto ended = [&](OpId id) { return timeline.spans[id.index()].end; };
    const bool more = ended(ends.back()) < longer.together;
    if (more && steps < most_steps) {
      steps *= 2;
      continue;
    }
    if (more) {
      const Seconds shared = ended(ends.back()), lost = longer.together - longer.alone;
      if (lost < shared) longer.together = longer.alone * (shared / (shared - lost));
    }
    shorter.steps = 0;
    constexpr double about = 1 + 1e-6;  // latencies
    for (const OpId each : ends) {
      shorter.steps += ended(each) <= about * longer.together ? 1 : 0;
    }
    shorter.steps = std::max<std::int64_t>(1, shorter.steps);
    shorter.together = ended(ends[static_cast<std::size_t>(shorter.steps - 1)]) /
                       static_cast<double>(shorter.steps);
    return jobs;
  }
}

std::string TwoJobs::assumed() const {
  const auto& [longer, shorter] =
      first.alone >= second.alone ? std::tie(first, second) : std::tie(second, first);
  const Seconds shared = static_cast<double>(shorter.steps) * shorter.together;
  if (shared + 2 * shorter.together >= longer.together) return {};
  return fmt::format(
      "together the two jobs were simulated for {} ({} steps of {}), and the rest of {}'s step is "
      "taken to lose as much: too little if its communication comes later",
      to_text(shared), shorter.steps, shorter.network, longer.network);
}

TwoJobs run_with_job(const Experiment& experiment, const Plan& plan, const std::string& file) {
  const Cluster& cluster = experiment.cluster;
  const Plan other = plan_from_json(read_file(file, "--beside"), file);
  if (other.cluster != cluster.name) {
    throw InputError(
        file, fmt::format("a plan for cluster '{}', not for '{}'", other.cluster, cluster.name),
        "accepted: a plan for the cluster of the first job, on other devices of it");
  }
  if (experiment.request.sim.fidelity == sim::Fidelity::analytic) {
    throw InputError("--fidelity",
                     "analytic together with --beside, but its formulas have no contention",
                     "accepted: p2p, hops or macro");
  }
  sim::SimOptions options = experiment.step_options();
  const auto refuse_if = [](bool given, const char* option) {
    if (!given) return;
    throw InputError(option, "together with --beside, where kernels take as long as alone",
                     "accepted: one of them");
  };
  refuse_if(options.slowdowns.has_contention(), "--interference");
  for (const char* option : {"--launch-interval", "--input-rate", "--jitter"}) {
    refuse_if(experiment.request.given.contains(option), option);
  }
  options.launch_interval = {};  // a profile's
  options.host_delay = {};       // of measured steps
  options.slowdowns.jitter = {};
  // Plans have the name of a network, not its file: that of the first job may be of one.
  const bool alike = other.network == experiment.network.name;
  if (experiment.has_layer_times && !(alike && other.dims == plan.dims)) {
    throw InputError("--profile", "layer times of another network than the --beside plan's",
                     "accepted: a profile of kernels, or two jobs of one network");
  }
  const std::string& name = alike ? experiment.request.network : other.network;
  const std::map<std::string, std::int64_t> dims = parse_dims(other.dims, file);
  Network network =
      on_devices(load_network_with(name, dims, file), name, dims, cluster, other).network;
  strategies::route_in_parts(network, strategies::routed_parts(network, other));
  validate(other, network, cluster, file);
  check_whole_dag(network, cluster, experiment.step_cost(), other, file);
  const lowering::Lowered first = lowering::lower_with_memory(experiment.network, cluster, plan);
  const lowering::Lowered second = lowering::lower_with_memory(network, cluster, other);
  if (first.dag.precision != second.dag.precision ||
      first.dag.reduce_precision != second.dag.reduce_precision) {
    throw InputError(
        file,
        fmt::format("a plan in {} that adds up in {}, but the first job's is in {} and {}",
                    to_text(second.dag.precision), to_text(second.dag.reduce_precision),
                    to_text(first.dag.precision), to_text(first.dag.reduce_precision)),
        "accepted: two plans of the same precisions");
  }
  const std::set<DeviceId> of_first = devices_in(first.dag), of_second = devices_in(second.dag);
  for (const DeviceId device : of_second) {
    if (!of_first.contains(device)) continue;
    throw InputError(file,
                     fmt::format("device '{}' is also used by the first job",
                                 cluster.devices[device.index()].name),
                     "accepted: plans on different devices of one cluster, as of --layout files");
  }
  TwoJobs jobs = simulate_together(first.dag, second.dag, cluster, experiment.step_cost(), options);
  const auto describe = [&](SharingJob& job, const Plan& of, const std::set<DeviceId>& devices,
                            const std::vector<lowering::MemoryUse>& memory) {
    job.network = of.network;
    job.strategy = of.strategy;
    job.devices = devices.size();
    for (const DeviceId device : devices) {
      job.fits = job.fits && experiment.request.headroom.verdict(
                                 memory[device.index()].total(),
                                 cluster.devices[device.index()].memory) != lowering::Verdict::over;
    }
  };
  describe(jobs.first, plan, of_first, first.memory);
  describe(jobs.second, other, of_second, second.memory);
  return jobs;
}

}  // namespace parsim::experiment
