#include "sim/dag_run.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/errors.hpp"
#include "sim/contention.hpp"
#include "sim/fair_flows.hpp"
#include "sim/flow_engine.hpp"
#include "sim/op_flows.hpp"

namespace parsim::sim {

namespace {

/// A transfer or collective in flight.
struct Active {
  /// A hop of a ring that runs message by message.
  struct Hop {
    std::size_t sent = 0;  ///< messages that have arrived at its end
    bool busy = false;
  };

  OpId op;
  std::size_t left = 0;  ///< flows or messages that have not ended
  OpFlows flows;
  /// A library that is slower than the links: its flows share them freely, and the operation then
  /// waits for this date. (SimGrid ignores rate caps of flows without actors.)
  Seconds not_before{};
  std::vector<Seconds> ends;  ///< by flow; none if it does not matter (OpFlows::together)
  // Message by message only:
  const RouteTable::Group* group = nullptr;
  std::vector<RingMessages> messages;  ///< by ring
  std::vector<Hop> hops;               ///< by ring, then position
  Seconds start{};
};

/// Dates this close are one: engines round them.
constexpr double date_slack = 1e-12;

/// The engine's tokens: an active operation and one of its flows or hops.
constexpr std::int64_t token(std::size_t active, std::size_t part) {
  return static_cast<std::int64_t>(active << 32 | part);
}
constexpr std::size_t active_of(std::int64_t t) { return static_cast<std::size_t>(t) >> 32; }
constexpr std::size_t part_of(std::int64_t t) { return static_cast<std::size_t>(t) & 0xFFFFFFFFU; }
/// Negative tokens: an operation under contention may have ended, or an operation starts.
constexpr std::int64_t contention_token = -1;
constexpr std::int64_t start_token(std::size_t op) { return -2 - static_cast<std::int64_t>(op); }
constexpr std::size_t starting_op(std::int64_t t) { return static_cast<std::size_t>(-2 - t); }

/// Flows: FlowEngine or FairFlows.
template <class Flows>
class DagRun {
 public:
  /// where: for FlowEngine
  template <class... Where>
  DagRun(const ExecDag& dag, const PreparedDag& prepared, const Cluster& cluster,
         const SimOptions& options, const SimulationOutput& output, Where... where)
      : dag_(dag),
        prepared_(prepared),
        cluster_(cluster),
        fidelity_(options.fidelity),
        slowdowns_(options.slowdowns),
        output_(output),
        spans_(output.spans),
        waiting_(prepared.successors.waiting),
        engine_(
            cluster, prepared.table.routes, [this](std::int64_t t) { on_date(t); },
            [this](std::int64_t t) { on_end(t); }, rate_changes(cluster, options.slowdowns),
            where...) {
    if (slowdowns_.has_contention()) contention_.emplace(dag, slowdowns_, cluster.devices.size());
  }

  FlowWork run() {
    std::fill(spans_.begin(), spans_.end(), Span{Seconds{0}, Seconds{-1}});
    for (std::size_t i = 0; i < prepared_.issued.size(); ++i) {
      spans_[i].start = Seconds{prepared_.issued[i]};
    }
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i] == 0 && prepared_.runs(i)) ready_.push_back(i);
    }
    start_ready();
    if (contention_) run_contended();
    engine_.run();
    if constexpr (std::is_same_v<Flows, FairFlows>) return engine_.work();
    return {};
  }

 private:
  /// Ends every ready kernel, and those that it makes ready, until only communication is left.
  void start_ready() {
    while (!ready_.empty()) {
      const std::size_t op = ready_.back();
      ready_.pop_back();
      const double seconds = prepared_.seconds[op];
      if (contention_) {
        start_contended(op);
      } else if (seconds < 0) {
        start_communication(OpId{op});
      } else {
        const SlowPeriods& slow = slowdowns_.of(kernel_device(dag_, OpId{op}));
        end_operation(op, slow.end(spans_[op].start, Seconds{seconds}));
      }
    }
  }

  void end_operation(std::size_t op, Seconds end) {
    spans_[op].end = end;
    for (const std::int32_t successor : prepared_.successors.of(op)) {
      const auto next = static_cast<std::size_t>(successor);
      spans_[next].start = std::max(spans_[next].start, end);
      if (--waiting_[next] == 0) ready_.push_back(next);
    }
  }

  // Under contention, an operation that starts later changes when others end, so ends are known
  // only at their date, and every operation starts at an event.

  void start_contended(std::size_t op) {
    const Seconds start = spans_[op].start;
    if (start > engine_.now() * (1 + date_slack)) {
      engine_.wake_at(start, start_token(op));
    } else {
      begin_contended(op);
    }
  }

  void begin_contended(std::size_t op) {
    const OpId id{op};
    const Seconds start = spans_[op].start, alone{prepared_.seconds[op]};
    if (alone < Seconds{0}) {
      start_communication(id);
    } else if (communicates(dag_, id)) {
      begin_message(id, alone);
      contention_->flows_ended(id, start);
    } else {
      contention_->start_kernel(id, start, alone, traffic(id));
    }
  }

  void begin_message(OpId op, Seconds alone) {
    contention_->start_message(op, spans_[op.index()].start, alone, traffic(op));
  }
  [[nodiscard]] double traffic(OpId op) const {
    return prepared_.traffic.empty() ? 0 : prepared_.traffic[op.index()];
  }

  /// Ends the operations that are due, and asks to be called when the next one ends.
  void run_contended() {
    while (const std::optional<Contention::End> end = contention_->pop(engine_.now())) {
      end_operation(end->op.index(), end->date);
      start_ready();
    }
    const Seconds next = contention_->next();
    if (next >= woken_at_) return;
    woken_at_ = next;
    engine_.wake_at(next, contention_token);
  }

  /// All flows of a message have ended.
  void end_flows(OpId op, Seconds date) {
    if (contention_) {
      contention_->flows_ended(op, date);
      run_contended();
    } else {
      end_operation(op.index(), date);
      start_ready();
    }
  }

  /// What the message takes on an idle network; its flows leave no traces.
  [[nodiscard]] Seconds alone_by_messages(OpId op) {
    OpFlows flows;
    std::vector<double> bytes(output_.hop_bytes.size());
    double reduced_in_network = 0;
    flows_of(dag_, prepared_, op, Fidelity::hops, {spans_, bytes, reduced_in_network}, flows);
    return time_alone(flows, prepared_, cluster_);
  }

  std::size_t new_active(OpId op) {
    if (free_.empty()) {
      free_.push_back(actives_.size());
      actives_.emplace_back();
    }
    const std::size_t index = free_.back();
    free_.pop_back();
    Active& active = actives_[index];
    active.op = op;
    active.start = active.not_before = spans_[op.index()].start;
    active.hops.clear();
    active.messages.clear();
    active.ends.clear();
    active.group = nullptr;
    return index;
  }

  void start_communication(OpId op) {
    if (fidelity_ == Fidelity::analytic) {
      const Seconds alone = time_alone(dag_, prepared_, op, cluster_, output_);
      const Seconds start = spans_[op.index()].start;
      if (contention_) {
        begin_message(op, alone);
        contention_->flows_ended(op, start);
      } else {
        end_operation(op.index(), start + alone);
      }
      return;
    }
    const std::size_t index = new_active(op);
    if (fidelity_ == Fidelity::p2p && dag_.kind(op) == OpKind::collective) {
      const CollectivePayload payload = payload_of(dag_, op);
      // A broadcast has no step-by-step form of its own: its pieces may be as small as one likes.
      if (payload.kind != CollectiveKind::all_to_all && payload.kind != CollectiveKind::broadcast) {
        if (contention_) begin_message(op, alone_by_messages(op));
        start_messages(index, prepared_.table.groups.at(dag_.record(op).device), payload);
        return;
      }
    }
    start_flows(index);
  }

  /// Flows that wait equally long share one date.
  void start_flows(std::size_t index) {
    Active& active = actives_[index];
    flows_of(dag_, prepared_, active.op, fidelity_, output_, active.flows);
    active.not_before = active.start + active.flows.longest_wait + active.flows.least;
    const std::vector<OpFlow>& flows = active.flows.flows;
    active.left = flows.size();
    active.ends.assign(active.flows.together.empty() ? 0 : flows.size(), Seconds{0});
    if (contention_) begin_message(active.op, time_alone(active.flows, prepared_, cluster_));
    if (flows.empty()) {  // an all-to-all in which no member needs anything
      free_.push_back(index);
      if (contention_) {
        contention_->flows_ended(active.op, active.start);
      } else {
        end_operation(active.op.index(), active.start);
      }
      return;
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (i > 0 && flows[i].wait == flows[i - 1].wait) continue;
      engine_.wake_at(active.start + flows[i].wait, token(index, i));
    }
  }

  void start_messages(std::size_t index, const RouteTable::Group& group,
                      const CollectivePayload& payload) {
    Active& active = actives_[index];
    active.group = &group;
    active.messages = ring_messages(payload, *group.rings);
    for (const RingMessages& ring : active.messages) active.left += ring.steps * ring.chunks.size();
    active.hops.resize(active.messages.size() * active.messages.front().chunks.size());
    for (std::size_t hop = 0; hop < active.hops.size(); ++hop) {
      try_message(index, hop, active.start);
    }
  }

  /// Sends a hop's next message at `date` if the one before has left and its content has come.
  void try_message(std::size_t index, std::size_t at, Seconds date) {
    Active& active = actives_[index];
    const std::size_t n = active.messages.front().chunks.size();
    const std::size_t ring = at / n, position = at % n;
    const Active::Hop& before = active.hops[ring * n + (position + n - 1) % n];
    Active::Hop& hop = active.hops[at];
    if (hop.busy || hop.sent == active.messages[ring].steps || before.sent < hop.sent) return;
    hop.busy = true;
    const Seconds latency = active.group->rings->rings[ring].hops[position].latency;
    engine_.wake_at(date + latency, token(index, at));
  }

  void on_date(std::int64_t t) {
    if (t < 0) {
      if (t == contention_token) {
        // An earlier call may have requested a later date, whose wake-up still comes. SimGrid's
        // dates have a resolution of 1 ns.
        if (engine_.now() + Seconds{2e-9} >= woken_at_) woken_at_ = Contention::never;
      } else {
        begin_contended(starting_op(t));
      }
      run_contended();
      return;
    }
    const std::size_t index = active_of(t), part = part_of(t);
    const Active& active = actives_[index];
    if (active.group != nullptr) {
      const std::size_t n = active.messages.front().chunks.size();
      const std::size_t route = active.group->first + part;
      const Bytes payload = active.messages[part / n].payload(active.hops[part].sent, part % n);
      for (const Hop hop : prepared_.table.routes[route]->hops) {
        output_.hop_bytes[hop.index()] += static_cast<double>(payload.value);
      }
      engine_.start(route, payload, t);
      return;
    }
    const std::vector<OpFlow>& flows = active.flows.flows;
    for (std::size_t i = part; i < flows.size() && flows[i].wait == flows[part].wait; ++i) {
      engine_.start(flows[i].route, flows[i].payload, token(index, i));
    }
  }

  void on_end(std::int64_t t) {
    const std::size_t index = active_of(t), part = part_of(t);
    Active& active = actives_[index];
    const Seconds now = engine_.now();
    if (active.group != nullptr) {
      const std::size_t n = active.messages.front().chunks.size();
      active.hops[part].busy = false;
      ++active.hops[part].sent;
      try_message(index, part, now);
      try_message(index, part / n * n + (part % n + 1) % n, now);
    }
    if (!active.ends.empty()) active.ends[part] = now;
    if (--active.left > 0) return;
    const OpId op = active.op;
    if (!active.ends.empty() && !ends_together(active)) *output_.apart += 1;
    free_.push_back(index);
    end_flows(op, std::max(now, active.not_before));
  }

  [[nodiscard]] bool ends_together(const Active& active) const {
    const Seconds now = engine_.now();
    constexpr Engine engine = std::is_same_v<Flows, FairFlows> ? Engine::fast : Engine::simgrid;
    return std::all_of(active.flows.together.begin(), active.flows.together.end(),
                       [&](const std::vector<std::uint32_t>& flows) {
                         Seconds end = active.not_before;
                         for (const std::uint32_t flow : flows)
                           end = std::max(end, active.ends[flow]);
                         return one_date(std::max(now, active.not_before), end, engine);
                       });
  }

  const ExecDag& dag_;
  const PreparedDag& prepared_;
  const Cluster& cluster_;
  const Fidelity fidelity_;
  const Slowdowns& slowdowns_;
  const SimulationOutput output_;
  const std::span<Span> spans_;
  std::vector<std::uint32_t> waiting_;
  std::vector<std::size_t> ready_;
  std::vector<Active> actives_;
  std::vector<std::size_t> free_;
  std::optional<Contention> contention_;  ///< absent without contention
  Seconds woken_at_ = Contention::never;
  Flows engine_;
};

}  // namespace

FlowWork simulate(const ExecDag& dag, const PreparedDag& prepared, const Cluster& cluster,
                  const SimOptions& options, const SimulationOutput& output, SimgridIn where) {
  if (options.engine == Engine::fast || options.fidelity == Fidelity::analytic) {
    return DagRun<FairFlows>(dag, prepared, cluster, options, output).run();
  }
  return DagRun<FlowEngine>(dag, prepared, cluster, options, output, where).run();
}

}  // namespace parsim::sim
