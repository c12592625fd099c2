#include "sim/smpi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "sim/collectives.hpp"
#include "sim/op_flows.hpp"
#include "sim/prepared_dag.hpp"
#include "sim/smpi_platform.hpp"

namespace parsim::sim {

namespace {

constexpr double host_speed = 1e9;  // FLOP/s: an amount is a time in nanoseconds

/// Counts of elements have 31 bits. Larger messages are sent as doubles, eight bytes each.
constexpr std::int64_t most_elements = 0x7fffffff;
constexpr int smpi_double = 0, smpi_byte = 6;

void refuse(const std::string& found, const std::string& accepted) {
  throw InputError("--smpi", found, "accepted: " + accepted);
}

}  // namespace

void check_smpi(const SimOptions& options) {
  const Slowdowns& slowdowns = options.slowdowns;
  const auto slow = [](const SlowPeriods& periods) { return !periods.empty(); };
  if (options.collectives != CollectiveCost::ideal) {
    refuse("traces hold bytes, no costs of a library", "--collectives ideal with --smpi");
  }
  if (options.launch_interval > Seconds{0}) {
    refuse("traces do not say when a host launches its operations",
           "a profile without a launch interval");
  }
  if (options.input_rate > 0) {
    refuse("traces do not say when a host has its samples ready", "no --input-rate with --smpi");
  }
  if (slowdowns.has_contention()) {
    refuse("traces do not say how operations slow each other down",
           "no --interference, and a profile of devices with memory of their own");
  }
  if (slowdowns.jitter.relative > 0 ||
      std::any_of(slowdowns.devices.begin(), slowdowns.devices.end(), slow) ||
      std::any_of(slowdowns.links.begin(), slowdowns.links.end(), slow)) {
    refuse("traces do not say what is slow for a while", "a step without --straggler and --jitter");
  }
}

namespace {

class Writer {
 public:
  Writer(const ExecDag& dag, const Cluster& cluster, const PreparedDag& prepared, PathCache& paths)
      : dag_(dag),
        cluster_(cluster),
        prepared_(prepared),
        paths_(paths),
        platform_(cluster, paths) {
    number_ranks();
    successors_.resize(dag.size());
    expected_.resize(dag.size());
    for (std::size_t i = 0; i < dag.size(); ++i) {
      for (const OpId before : dag.predecessors(OpId{i})) {
        successors_[before.index()].push_back(OpId{i});
      }
    }
  }

  SmpiReplay write() && {
    for (std::size_t i = 0; i < dag_.size(); ++i) write(OpId{i});
    SmpiReplay replay;
    std::vector<std::size_t> by_host(platform_.host_count());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ++by_host[ranks_[r].host];
      replay.hostfile += platform_.host(ranks_[r].host) + '\n';
      replay.traces.push_back(fmt::format("{0} init\n{1}{0} finalize\n", r, ranks_[r].trace));
    }
    replay.platform = platform_.text(by_host, host_speed);
    replay.hosts =
        by_host.size() - static_cast<std::size_t>(std::count(by_host.begin(), by_host.end(), 0U));
    return replay;
  }

 private:
  struct Rank {
    std::size_t host = 0;
    std::string trace{};
  };
  /// An empty message that a predecessor has sent.
  struct Signal {
    std::size_t from = 0;
    int tag = 0;
  };

  /// The receiving side of a stream has a rank of its own only where transfers use it.
  [[nodiscard]] Queue rank_queue(Queue queue) const {
    const auto stream = static_cast<std::size_t>(queue.queue / 2);
    if (!transfers_[queue.device.index() * stream_count + stream]) queue.queue -= queue.queue % 2;
    return queue;
  }

  void number_ranks() {
    transfers_.assign(cluster_.devices.size() * stream_count, false);
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      if (dag_.kind(OpId{i}) != OpKind::transfer) continue;
      for (const std::int32_t end : {dag_.record(OpId{i}).device, dag_.record(OpId{i}).to}) {
        transfers_[static_cast<std::size_t>(end) * stream_count +
                   static_cast<std::size_t>(dag_.stream(OpId{i}))] = true;
      }
    }
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      queues(dag_, OpId{i}, queues_);
      for (const Queue& queue : queues_) ranks_of_queues_.try_emplace(rank_queue(queue));
    }
    for (auto& [queue, rank] : ranks_of_queues_) {
      rank = ranks_.size();
      ranks_.push_back({queue.device.index()});
    }
  }

  /// The ranks that an operation occupies; the first one starts it.
  [[nodiscard]] std::vector<std::size_t> ranks_of(OpId op) {
    std::vector<std::size_t> ranks;
    queues(dag_, op, queues_);
    for (const Queue& queue : queues_) {
      const std::size_t rank = ranks_of_queues_.at(rank_queue(queue));
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
    return ranks;
  }

  [[nodiscard]] std::size_t sending_rank(DeviceId device, Stream stream) const {
    return ranks_of_queues_.at(rank_queue({device, 2 * static_cast<std::int32_t>(stream)}));
  }

  // ---- Lines of traces.

  template <class... Arguments>
  void line(std::size_t rank, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    std::string& trace = ranks_[rank].trace;
    fmt::format_to(std::back_inserter(trace), "{} ", rank);
    fmt::format_to(std::back_inserter(trace), format, std::forward<Arguments>(arguments)...);
    trace += '\n';
  }

  void sleep(std::size_t rank, Seconds time) {
    if (time > Seconds{0}) line(rank, "sleep {}", time.count());
  }

  /// The first of `count` tags for messages between two ranks, which have not been used.
  int take_tags(std::size_t from, std::size_t to, std::size_t count = 1) {
    platform_.use_route(ranks_[from].host, ranks_[to].host);
    int& next = tags_[{from, to}];
    return std::exchange(next, next + static_cast<int>(count));
  }

  /// "send", "recv" and their asynchronous forms.
  void message(std::size_t rank, const char* action, std::size_t partner, int tag, Bytes payload) {
    const bool bytes = payload.value <= most_elements;
    const std::int64_t count = bytes ? payload.value : (payload.value + 7) / 8;
    if (count > most_elements) {
      refuse(fmt::format("a message has {} bytes", payload.value), "messages of less than 16 GiB");
    }
    line(rank, "{} {} {} {} {}", action, partner, tag, count, bytes ? smpi_byte : smpi_double);
  }

  void signal(std::size_t from, std::size_t to) {
    if (from == to) return;
    const int tag = take_tags(from, to);
    message(from, "send", to, tag, Bytes{0});
    message(to, "recv", from, tag, Bytes{0});
  }
  void gather(const std::vector<std::size_t>& from, std::size_t to) {
    for (const std::size_t rank : from) signal(rank, to);
  }
  void scatter(std::size_t from, const std::vector<std::size_t>& to) {
    for (const std::size_t rank : to) signal(from, rank);
  }

  // ---- Operations.

  /// An operation starts when all its ranks have come to it and its predecessors have ended; it
  /// leaves all of them at once.
  void write(OpId op) {
    const std::vector<std::size_t> ranks = ranks_of(op);
    const std::size_t first = ranks.front();
    gather(ranks, first);
    for (const Signal& signal : expected_[op.index()]) {
      message(first, "recv", signal.from, signal.tag, Bytes{0});
    }
    const double seconds = prepared_.seconds[op.index()];
    if (seconds >= 0) {
      if (kernel_device(dag_, op).valid() && seconds > 0) {
        line(first, "compute {}", seconds * host_speed);
      } else {
        sleep(first, Seconds{seconds});
      }
      scatter(first, ranks);
    } else if (dag_.kind(op) == OpKind::transfer) {
      write_transfer(op, ranks);
    } else {
      scatter(first, ranks);
      write_collective(op);
      gather(ranks, first);
      scatter(first, ranks);
    }
    tell_successors(op, ranks);
  }

  /// From the rank of an operation that is nearest to its successor.
  void tell_successors(OpId op, const std::vector<std::size_t>& ranks) {
    for (const OpId next : successors_[op.index()]) {
      const std::vector<std::size_t> waiting = ranks_of(next);
      const std::size_t to = waiting.front();
      const auto shares = [&](std::size_t rank) {
        return std::find(waiting.begin(), waiting.end(), rank) != waiting.end();
      };
      if (std::any_of(ranks.begin(), ranks.end(), shares)) continue;
      const auto near = std::find_if(ranks.begin(), ranks.end(), [&](std::size_t rank) {
        return ranks_[rank].host == ranks_[to].host;
      });
      const std::size_t from = near == ranks.end() ? ranks.front() : *near;
      const int tag = take_tags(from, to);
      message(from, "send", to, tag, Bytes{0});
      expected_[next.index()].push_back({from, tag});
    }
  }

  void write_transfer(OpId op, const std::vector<std::size_t>& ranks) {
    const OpRecord& record = dag_.record(op);
    const std::size_t from = ranks[0], to = ranks[1];
    const int tag = take_tags(from, to);
    sleep(from, paths_.between(DeviceId{record.device}, DeviceId{record.to}).latency);
    message(from, "send", to, tag, dag_.payload(op));
    message(to, "recv", from, tag, dag_.payload(op));
  }

  void write_collective(OpId op) {
    const OpRecord& record = dag_.record(op);
    const CollectivePayload payload = payload_of(dag_, op);
    const std::vector<DeviceId>& group = dag_.group(GroupId{record.device});
    std::vector<std::size_t> members;
    for (const DeviceId device : group) members.push_back(sending_rank(device, dag_.stream(op)));
    if (payload.kind == CollectiveKind::all_to_all) {
      write_pairs(op, members);
      return;
    }
    const GroupRings& rings = paths_.rings(group);
    const bool broadcast = payload.kind == CollectiveKind::broadcast;
    const std::vector<HopFlow> flows =
        broadcast ? hop_flows(payload, rings) : std::vector<HopFlow>();
    const std::vector<RingMessages> messages =
        broadcast ? std::vector<RingMessages>() : ring_messages(payload, rings);
    std::vector<std::pair<std::size_t, std::size_t>> ended;  // who reports to whom
    for (std::size_t r = 0; r < rings.rings.size(); ++r) {
      std::vector<std::size_t> ranks;  // by position
      for (const std::size_t member : rings.members[r]) ranks.push_back(members[member]);
      if (rings.rings.size() > 1 || !platform_.is_usual(rings.rings[r])) {
        const std::vector<std::size_t> own =
            ring_ranks(GroupId{record.device}, r, dag_.stream(op), rings.rings[r]);
        for (std::size_t i = 0; i < own.size(); ++i) {
          signal(ranks[i], own[i]);
          ended.emplace_back(own[i], ranks[i]);
        }
        ranks = own;
      }
      if (broadcast) {
        write_broadcast(ranks, r, flows);
      } else {
        write_ring(ranks, rings.rings[r], messages[r]);
      }
    }
    for (const auto& [from, to] : ended) signal(from, to);
  }

  /// Message k leaves when the one before has left and message k − 1 has come in: all receives are
  /// posted first, so that no sender waits for a receiver that still sends.
  void write_ring(const std::vector<std::size_t>& ranks, const Ring& ring,
                  const RingMessages& messages) {
    const std::size_t n = ranks.size();
    std::vector<int> tags;  // of the first message, by the position it leaves
    for (std::size_t i = 0; i < n; ++i) {
      tags.push_back(take_tags(ranks[i], ranks[(i + 1) % n], messages.steps));
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t rank = ranks[i], before = (i + n - 1) % n, after = (i + 1) % n;
      const auto tag = [&](std::size_t position, std::size_t step) {
        return tags[position] + static_cast<int>(step);
      };
      const auto wait = [&](std::size_t step) {
        line(rank, "wait {} {} {}", ranks[before], rank, tag(before, step));
      };
      for (std::size_t step = 0; step < messages.steps; ++step) {
        message(rank, "irecv", ranks[before], tag(before, step), messages.payload(step, before));
      }
      for (std::size_t step = 0; step < messages.steps; ++step) {
        if (step > 0) wait(step - 1);
        sleep(rank, ring.hops[i].latency);
        message(rank, "send", ranks[after], tag(i, step), messages.payload(step, i));
      }
      wait(messages.steps - 1);
    }
  }

  void write_broadcast(const std::vector<std::size_t>& ranks, std::size_t ring,
                       const std::vector<HopFlow>& flows) {
    std::vector<std::tuple<std::size_t, std::size_t, int>> waits;
    for (const HopFlow& flow : flows) {
      if (flow.ring != ring) continue;
      const std::size_t from = ranks[flow.hop], to = ranks[(flow.hop + 1) % ranks.size()];
      const int tag = take_tags(from, to);
      message(to, "irecv", from, tag, flow.payload);
      waits.emplace_back(to, from, tag);
    }
    std::size_t next = 0;
    for (const HopFlow& flow : flows) {
      if (flow.ring != ring) continue;
      const auto [to, from, tag] = waits[next++];
      sleep(from, flow.wait);
      message(from, "send", to, tag, flow.payload);
    }
    for (const auto& [to, from, tag] : waits) line(to, "wait {} {} {}", from, to, tag);
  }

  void write_pairs(OpId op, const std::vector<std::size_t>& members) {
    const std::vector<DeviceId>& group = dag_.group(GroupId{dag_.record(op).device});
    struct Pair {
      Seconds wait{};
      std::size_t from = 0, to = 0;
      int tag = 0;
      Bytes payload;
    };
    std::vector<Pair> pairs;
    for (const PairFlow& flow : pair_flows(dag_, dag_.shares(op), dag_.role(op))) {
      const std::size_t from = members[flow.from], to = members[flow.to];
      pairs.push_back({paths_.between(group[flow.from], group[flow.to]).latency, from, to,
                       take_tags(from, to), flow.payload});
      message(to, "irecv", from, pairs.back().tag, flow.payload);
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.wait < b.wait; });
    std::map<std::size_t, Seconds> slept;
    for (const Pair& pair : pairs) {
      sleep(pair.from, pair.wait - std::exchange(slept[pair.from], pair.wait));
      message(pair.from, "isend", pair.to, pair.tag, pair.payload);
    }
    for (const std::size_t member : members) line(member, "waitall");
  }

  /// Ranks by position, for a ring of a group on a stream.
  const std::vector<std::size_t>& ring_ranks(GroupId group, std::size_t ring, Stream stream,
                                             const Ring& way) {
    const auto [entry, fresh] = ring_ranks_.try_emplace({group, ring, stream});
    if (!fresh) return entry->second;
    for (const std::size_t host : platform_.ring_hosts(group, ring, way)) {
      entry->second.push_back(ranks_.size());
      ranks_.push_back({host});
    }
    return entry->second;
  }

  const ExecDag& dag_;
  const Cluster& cluster_;
  const PreparedDag& prepared_;
  PathCache& paths_;
  SmpiPlatform platform_;
  std::vector<Queue> queues_;    ///< of one operation
  std::vector<bool> transfers_;  ///< by device and stream: whether transfers use it
  std::vector<Rank> ranks_;
  std::map<Queue, std::size_t> ranks_of_queues_;
  std::vector<std::vector<OpId>> successors_;
  std::vector<std::vector<Signal>> expected_;  ///< by operation: from its predecessors
  std::map<std::pair<std::size_t, std::size_t>, int> tags_;
  std::map<std::tuple<GroupId, std::size_t, Stream>, std::vector<std::size_t>> ring_ranks_;
};

}  // namespace

SmpiReplay smpi_replay(const ExecDag& dag, const Cluster& cluster, const CostModel& cost,
                       const SimOptions& options) {
  check_smpi(options);
  PathCache paths(cluster);
  const PreparedDag prepared = prepare(dag, cost, paths, options);
  return Writer(dag, cluster, prepared, paths).write();
}

}  // namespace parsim::sim
