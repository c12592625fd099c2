#include "sim/prepared_dag.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/hash.hpp"
#include "core/kernel_times.hpp"
#include "core/profile.hpp"
#include "sim/kernels.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

namespace {

/// Calls visit(source) once for each operation that `id` waits for. Ids must be visited in order.
///
/// Of collectives of a large group that follow each other in a stream, the one before is the last
/// in the queues of all members: it is remembered for the group, until another operation of the
/// stream asks.
class Predecessors {
 public:
  Predecessors(const ExecDag& dag, std::size_t devices)
      : dag_(dag),
        last_in_queue_(devices * static_cast<std::size_t>(queues_per_device), -1),
        visited_for_(dag.size(), -1),
        last_of_group_(static_cast<std::size_t>(queues_per_device) / 2) {}

  template <class Visit>
  void of(OpId id, Visit visit) {
    const auto once = [&](std::int32_t source) {
      ensure(source >= 0 && static_cast<std::size_t>(source) < visited_for_.size(),
             "predecessors are operations of the DAG");
      std::int32_t& mark = visited_for_[static_cast<std::size_t>(source)];
      if (mark == id.value) return;
      mark = id.value;
      visit(static_cast<std::size_t>(source));
    };
    for (const OpId source : dag_.predecessors(id)) once(source.value);
    const OpRecord& record = dag_.record(id);
    LastOfGroup& last_of_group = last_of_group_[static_cast<std::size_t>(record.stream)];
    const bool large = dag_.kind(id) == OpKind::collective &&
                       dag_.group(GroupId{record.device}).size() >= large_group;
    if (last_of_group.op >= 0) {
      if (large && last_of_group.group == record.device) {
        once(std::exchange(last_of_group.op, id.value));
        return;
      }
      queues(dag_, OpId{last_of_group.op}, queues_);
      for (const Queue& queue : queues_) last_in(queue) = last_of_group.op;
      last_of_group.op = -1;
    }
    queues(dag_, id, queues_);
    if (large) last_of_group = {record.device, id.value};
    for (const Queue& queue : queues_) {
      std::int32_t& last = last_in(queue);
      // A transfer from a device to itself is listed in both of its queues.
      if (last >= 0 && last != id.value) once(last);
      last = id.value;
    }
  }

 private:
  static constexpr std::size_t large_group = 64;
  struct LastOfGroup {
    std::int32_t group = -1, op = -1;  ///< no operation: each queue has its own
  };
  std::int32_t& last_in(const Queue& queue) {
    return last_in_queue_[queue.device.index() * queues_per_device +
                          static_cast<std::size_t>(queue.queue)];
  }

  const ExecDag& dag_;
  std::vector<std::int32_t> last_in_queue_, visited_for_;
  std::vector<LastOfGroup> last_of_group_;  ///< by stream
  std::vector<Queue> queues_;
};

/// Of a transfer within a device: read and written once.
Bytes bytes_within(const ExecDag& dag, OpId id) { return 2 * dag.payload(id); }

double seconds_on_device(const ExecDag& dag, OpId id, const CostModel& cost, DeviceTimes& times) {
  if (dag.kind(id) == OpKind::transfer) {
    return cost.memory(DeviceId{dag.record(id).device}, bytes_within(dag, id)).time.count();
  }
  if (dag.kind(id) == OpKind::collective) return 0;  // of a single device
  return times.of(id).time.count();
}

/// Calls visit(device, launches, seconds) for what an operation has the hosts of its devices
/// launch: so many kernels, which take so long together.
template <typename Visit>
void visit_launches(const ExecDag& dag, OpId id, DeviceTimes& times, Visit visit) {
  const OpRecord& record = dag.record(id);
  switch (dag.kind(id)) {
    case OpKind::collective:
      for (const DeviceId member : dag.group(GroupId{record.device})) visit(member.value, 1.0, 0.0);
      return;
    case OpKind::transfer:
      if (record.to != record.device) visit(record.to, 1.0, 0.0);
      visit(record.device, 1.0, 0.0);
      return;
    case OpKind::delay:
      return;
    case OpKind::compute:
    case OpKind::update:
    case OpKind::local: {
      const Cost cost = times.of(id);
      visit(record.device, cost.launches, cost.time.count());
    }
  }
}

/// When the host of a device launches.
class Host {
 public:
  explicit Host(Seconds interval) : interval_(interval.count()) {}

  /// The next operation's date, the first launch of all being at 0. One of several kernels ends no
  /// earlier than the last of them can, launched after the others: it starts that much later, for
  /// it runs in one piece here.
  double launch(double launches, double seconds) {
    const double wait = interval_ - seconds / std::max(1.0, launches);
    const double date = launched_ * interval_ + std::max(0.0, launches - 1) * std::max(0.0, wait);
    launched_ += launches;
    latest_ = std::max(latest_, date - busy_);
    busy_ += seconds;
    return date;
  }
  /// How far the host is ahead when a step begins, if steps follow one another. The device, which
  /// would end at `latest_` + `busy_`, then takes as long as the slower of both does for a step;
  /// negative: its first operation waits.
  [[nodiscard]] double lead() const {
    return latest_ + busy_ - std::max(busy_, launched_ * interval_);
  }

 private:
  double interval_, launched_ = 0, busy_ = 0, latest_ = 0;
};

/// The first launch of a device has been done when the step starts, during the one before.
std::vector<double> issue_dates(const ExecDag& dag, const SimOptions& options, std::size_t devices,
                                DeviceTimes& times) {
  if (options.launch_interval <= Seconds{0}) return {};
  const std::vector<Host> idle(devices, Host(options.launch_interval));
  std::vector<double> leads(devices, 0), dates(dag.size(), 0);
  const auto launch_all = [&](std::vector<Host> hosts) {
    for (std::size_t i = 0; i < dag.size(); ++i) {
      visit_launches(dag, OpId{i}, times,
                     [&](std::int32_t device, double launches, double seconds) {
                       // Of a device whose kernels a folded DAG lacks, others' hosts tell the date.
                       if (dag.fold.lacks(DeviceId{device})) return;
                       const auto d = static_cast<std::size_t>(device);
                       const double date = hosts[d].launch(launches, seconds) - leads[d];
                       dates[i] = std::max(dates[i], date);
                     });
    }
    return hosts;
  };
  std::vector<Host> hosts = launch_all(idle);
  if (!options.steps_follow) return dates;
  for (std::size_t d = 0; d < devices; ++d) leads[d] = hosts[d].lead();
  std::fill(dates.begin(), dates.end(), 0);
  launch_all(idle);
  return dates;
}

void add_whole_routes(GroupId group, CollectiveKind kind, const GroupRings& rings,
                      RouteTable& table) {
  const auto first = table.routes.size();
  if (!table.wholes.try_emplace(RouteTable::whole_key(group, kind), first).second) return;
  for (std::size_t ring = 0; ring < rings.rings.size(); ++ring) {
    table.routes.push_back(&table.whole_routes.emplace_back());
  }
  for (const HopFlow& flow : hop_flows({kind, Bytes{}, {}}, rings)) {
    Route& whole = table.whole_routes[table.whole_routes.size() - rings.rings.size() + flow.ring];
    const std::vector<Hop>& hops = rings.rings[flow.ring].hops[flow.hop].hops;
    whole.hops.insert(whole.hops.end(), hops.begin(), hops.end());
  }
}

void add_routes(const ExecDag& dag, OpId id, PathCache& paths, Fidelity fidelity,
                RouteTable& table) {
  const OpRecord& record = dag.record(id);
  const auto add_pair = [&](DeviceId from, DeviceId to) {
    if (table.pairs.try_emplace(RouteTable::pair_key(from, to), table.routes.size()).second) {
      table.routes.push_back(&paths.between(from, to));
    }
  };
  if (dag.kind(id) == OpKind::transfer) {
    for (std::size_t rank = 0; rank < rank_count(dag, record.device); ++rank) {
      const auto [from, to] = ends(dag, record, rank);
      add_pair(from, to);
    }
    return;
  }
  const std::vector<DeviceId>& group = dag.group(GroupId{record.device});
  if (static_cast<CollectiveKind>(record.sub) == CollectiveKind::all_to_all) {
    for (const PairFlow& flow : pair_flows(dag, dag.shares(id), dag.role(id))) {
      add_pair(group[flow.from], group[flow.to]);
    }
    return;
  }
  const GroupRings& rings = paths.rings(group);
  if (fidelity == Fidelity::macro) {
    add_whole_routes(GroupId{record.device}, static_cast<CollectiveKind>(record.sub), rings, table);
  }
  const auto [entry, fresh] = table.groups.try_emplace(record.device);
  if (!fresh) return;
  entry->second = {&rings, table.routes.size()};
  if (fidelity == Fidelity::macro) return;
  for (const Ring& ring : rings.rings) {
    for (const Route& route : ring.hops) table.routes.push_back(&route);
  }
}

/// What a library makes of messages, asked once for those with the same members and bytes.
class LibraryCalls {
 public:
  LibraryCalls(PathCache& paths, const SimOptions& options) : paths_(paths), options_(options) {}

  /// See PreparedDag::library.
  std::int32_t of(const ExecDag& dag, OpId id, PreparedDag& prepared) {
    const OpRecord& record = dag.record(id);
    const Bytes payload = dag.payload(id);
    if (dag.kind(id) == OpKind::transfer) {
      const auto [at, fresh] = known_.try_emplace({-1, record.device, record.to, payload.value},
                                                  size(prepared.transfer_waits));
      if (fresh) {
        prepared.transfer_waits.push_back(
            transfer_wait(DeviceId{record.device}, DeviceId{record.to}, payload, paths_, options_));
      }
      return at->second;
    }
    const auto [at, fresh] =
        known_.try_emplace({record.sub, record.device, 0, payload.value}, size(prepared.choices));
    if (fresh) {
      prepared.choices.push_back(choose(static_cast<CollectiveKind>(record.sub),
                                        dag.group(GroupId{record.device}), payload, paths_,
                                        options_));
    }
    return at->second;
  }

 private:
  using Key = std::array<std::int64_t, 4>;
  struct Hash {
    // Not noexcept: tables keep its result.
    std::size_t operator()(const Key& key) const { return hash_of(key); }
  };
  template <class Item>
  static std::int32_t size(const std::vector<Item>& items) {
    return static_cast<std::int32_t>(items.size());
  }

  PathCache& paths_;
  const SimOptions& options_;
  std::unordered_map<Key, std::int32_t, Hash> known_;  ///< looked up only
};

}  // namespace

bool communicates(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  if (dag.kind(id) == OpKind::transfer) return record.device != record.to;
  return dag.kind(id) == OpKind::collective && dag.group(GroupId{record.device}).size() > 1;
}

DeviceId kernel_device(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  const OpKind kind = dag.kind(id);
  const bool within = kind == OpKind::transfer && record.device == record.to;
  const bool works = kind == OpKind::compute || kind == OpKind::update || kind == OpKind::local;
  return works || within ? DeviceId{record.device} : DeviceId{};
}

double memory_traffic(const ExecDag& dag, OpId id) {
  if (communicates(dag, id)) return static_cast<double>(message_traffic(dag, id).value);
  if (!kernel_device(dag, id).valid()) return 0;
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const OpRecord& record = dag.record(id);
      const WorkId work{record.what};
      double bytes = 0;
      for (const Kernel& kernel : kernels_of(dag.network, dag.work(work).layer, dag.part(work),
                                             static_cast<Pass>(record.sub))) {
        bytes += kernel.bytes(element_bytes(dag.precision));
      }
      const Bytes sums =
          sum_traffic(dag.network, dag.work(work).layer, dag.part(work),
                      static_cast<Pass>(record.sub), dag.precision, dag.reduce_precision);
      return bytes + static_cast<double>(std::max<std::int64_t>(0, sums.value));
    }
    case OpKind::transfer:
      return static_cast<double>(bytes_within(dag, id).value);
    default:
      return static_cast<double>(touched_bytes(dag, id).value);
  }
}

Successors successors(const ExecDag& dag, std::size_t devices) {
  const std::size_t n = dag.size();
  Successors all;
  all.first.assign(n + 2, 0);
  all.waiting.assign(n, 0);
  Predecessors counted(dag, devices);
  for (std::size_t i = 0; i < n; ++i) {
    counted.of(OpId{i}, [&](std::size_t source) {
      ++all.first[source + 2];
      ++all.waiting[i];
    });
  }
  for (std::size_t i = 2; i < all.first.size(); ++i) all.first[i] += all.first[i - 1];
  all.list.resize(all.first.back());
  Predecessors listed(dag, devices);
  // first[s + 1] is where the next successor of s goes; in the end that is where those of s+1
  // begin.
  for (std::size_t i = 0; i < n; ++i) {
    listed.of(OpId{i}, [&](std::size_t source) {
      all.list[all.first[source + 1]++] = static_cast<std::int32_t>(i);
    });
  }
  all.first.pop_back();
  return all;
}

std::vector<double> launches(const ExecDag& dag, const CostModel& cost, std::size_t devices) {
  DeviceTimes times(dag, cost);
  std::vector<double> launched(devices, 0);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    visit_launches(dag, OpId{i}, times, [&](std::int32_t device, double launches, double) {
      launched[static_cast<std::size_t>(device)] += launches;
    });
  }
  return launched;
}

PreparedDag prepare(const ExecDag& dag, const CostModel& cost, PathCache& paths,
                    const SimOptions& options) {
  PreparedDag prepared;
  DeviceTimes times(dag, cost);
  prepared.successors = successors(dag, paths.cluster().devices.size());
  prepared.seconds.resize(dag.size());
  prepared.issued = issue_dates(dag, options, paths.cluster().devices.size(), times);
  LibraryCalls library(paths, options);
  if (options.collectives != CollectiveCost::ideal) prepared.library.assign(dag.size(), -1);
  if (!options.slowdowns.common_memory.empty()) prepared.traffic.resize(dag.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    if (!prepared.traffic.empty()) prepared.traffic[i] = memory_traffic(dag, id);
    const bool message = communicates(dag, id);
    const std::optional<Seconds> measured =
        message ? cost.communication(dag, id) : std::optional<Seconds>();
    if (measured) {
      prepared.seconds[i] = measured->count();
      prepared.measured_messages = true;
    } else if (message) {
      prepared.seconds[i] = -1;
      add_routes(dag, id, paths, options.fidelity, prepared.table);
      if (options.collectives != CollectiveCost::ideal)
        prepared.library[i] = library.of(dag, id, prepared);
    } else {
      prepared.seconds[i] =
          seconds_on_device(dag, id, cost, times) * jitter_factor(options.slowdowns.jitter, id);
      ensure(prepared.seconds[i] >= 0, "a cost is not negative");
    }
  }
  return prepared;
}

}  // namespace parsim::sim
