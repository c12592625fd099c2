#include "hw/dispatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {

class Dispatcher {
 public:
  /// apart   devices know of each other what operations of both tell them
  Dispatcher(const ExecDag& dag, bool apart) : dag_(dag), apart_(apart) {}

  Dispatch run() {
    for (std::size_t i = 0; i < dag_.size(); ++i) add(OpId{i});
    out_.first_turn.push_back(static_cast<std::uint32_t>(out_.turns.size()));
    return std::move(out_);
  }

 private:
  void add(OpId op) {
    queues(dag_, op, queues_);
    // By dependency or because they stand before this one in a queue.
    std::set<OpId> sources(dag_.predecessors(op).begin(), dag_.predecessors(op).end());
    for (const Queue& queue : queues_) {
      const auto found = last_.find(queue);
      if (found != last_.end()) sources.insert(found->second);
      last_[queue] = op;
    }
    sources.erase(op);  // a transfer within a device stands in both of its queues
    out_.first_turn.push_back(static_cast<std::uint32_t>(out_.turns.size()));
    const bool collective = dag_.kind(op) == OpKind::collective;
    std::vector<DeviceId> devices;
    for (const Queue& queue : queues_) {
      if (devices.empty() || devices.back() != queue.device) devices.push_back(queue.device);
    }
    if (!collective && !(apart_ && devices.size() > 1)) {
      add_turn(op, queues_[0], devices, sources, devices);
      return;
    }
    // A member stands in both its queues, sender and receiver in one each.
    const std::size_t each = collective ? 2 : 1;
    for (std::size_t m = 0; m < devices.size(); ++m) {
      add_turn(op, queues_[each * m], {devices[m]}, sources, devices);
    }
  }

  /// touched   devices whose memory and queues this turn is responsible for
  /// all       those of the whole operation
  void add_turn(OpId op, const Queue& queue, const std::vector<DeviceId>& touched,
                const std::set<OpId>& sources, const std::vector<DeviceId>& all) {
    Turn turn{op, lane_of(queue), static_cast<std::uint32_t>(out_.waits.size()), 0, false};
    for (const OpId source : sources) {
      // A predecessor on none of this operation's devices concerns all of them.
      const bool near = touches(source, all);
      if (!near && apart_) {
        throw InputError(
            "--dag",
            fmt::format("operation {} comes after {}, which is other devices' business", op.index(),
                        source.index()),
            "accepted with a process for each device: dependencies that messages carry");
      }
      for (std::uint32_t t = out_.first_turn[source.index()];
           t < out_.first_turn[source.index() + 1]; ++t) {
        if (near && !turn_touches(t, touched)) continue;
        wait_for(turn, t);
      }
    }
    turn.waits = static_cast<std::uint32_t>(out_.waits.size()) - turn.first_wait;
    out_.turns.push_back(turn);
  }

  void wait_for(const Turn& turn, std::uint32_t source) {
    Turn& other = out_.turns[source];
    if (other.lane == turn.lane) return;  // in order anyway
    auto [seen, fresh] = seen_.try_emplace({turn.lane, other.lane}, source);
    if (!fresh) {
      if (seen->second >= source) return;
      seen->second = source;
    }
    other.recorded = true;
    out_.waits.push_back(source);
  }

  [[nodiscard]] bool turn_touches(std::uint32_t t, const std::vector<DeviceId>& devices) const {
    const Turn& turn = out_.turns[t];
    if (!apart_ && dag_.kind(turn.op) != OpKind::collective) return touches(turn.op, devices);
    const DeviceId device = out_.lanes[static_cast<std::size_t>(turn.lane)].device;
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  }
  [[nodiscard]] bool touches(OpId op, const std::vector<DeviceId>& devices) const {
    std::vector<Queue> occupied;
    queues(dag_, op, occupied);
    return std::any_of(occupied.begin(), occupied.end(), [&](const Queue& queue) {
      return std::find(devices.begin(), devices.end(), queue.device) != devices.end();
    });
  }

  std::int32_t lane_of(const Queue& queue) {
    const auto [entry, fresh] =
        lane_index_.try_emplace(queue, static_cast<std::int32_t>(out_.lanes.size()));
    if (fresh) out_.lanes.push_back(queue);
    return entry->second;
  }

  const ExecDag& dag_;
  bool apart_;
  Dispatch out_;
  std::vector<Queue> queues_;
  std::map<Queue, OpId> last_;
  std::map<Queue, std::int32_t> lane_index_;
  /// By (waiting lane, other lane): the last turn waited for; the other lane's earlier ones have
  /// ended before it.
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> seen_;
};

}  // namespace

Dispatch dispatch(const ExecDag& dag) { return Dispatcher(dag, false).run(); }

Dispatch dispatch(const ExecDag& dag, DeviceId mine) {
  const Dispatch all = Dispatcher(dag, true).run();
  constexpr std::uint32_t nobodys = ~std::uint32_t{0};
  Dispatch own;
  std::vector<std::int32_t> lanes(all.lanes.size(), -1);
  for (std::size_t lane = 0; lane < all.lanes.size(); ++lane) {
    if (all.lanes[lane].device != mine) continue;
    lanes[lane] = static_cast<std::int32_t>(own.lanes.size());
    own.lanes.push_back(all.lanes[lane]);
  }
  std::vector<std::uint32_t> numbers(all.turns.size(), nobodys);
  for (std::size_t op = 0; op < dag.size(); ++op) {
    own.first_turn.push_back(static_cast<std::uint32_t>(own.turns.size()));
    for (std::uint32_t t = all.first_turn[op]; t < all.first_turn[op + 1]; ++t) {
      Turn turn = all.turns[t];
      turn.lane = lanes[static_cast<std::size_t>(turn.lane)];
      if (turn.lane < 0) continue;
      turn.first_wait = static_cast<std::uint32_t>(own.waits.size());
      for (const std::uint32_t wait : all.waits_of(all.turns[t])) {
        ensure(numbers[wait] != nobodys, "a device waits for turns of its own");
        own.waits.push_back(numbers[wait]);
      }
      numbers[t] = static_cast<std::uint32_t>(own.turns.size());
      own.turns.push_back(turn);
    }
  }
  own.first_turn.push_back(static_cast<std::uint32_t>(own.turns.size()));
  return own;
}

}  // namespace parsim::hw
