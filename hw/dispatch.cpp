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
  Dispatcher(const ExecDag& dag, TransferEnds ends, bool apart)
      : dag_(dag), both_(ends == TransferEnds::both), apart_(apart) {}

  Dispatch run() {
    for (std::size_t i = 0; i < dag_.size(); ++i) add(OpId{i});
    out_.first_stream_op.push_back(static_cast<std::uint32_t>(out_.stream_ops.size()));
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
    out_.first_stream_op.push_back(static_cast<std::uint32_t>(out_.stream_ops.size()));
    const bool collective = dag_.kind(op) == OpKind::collective;
    std::vector<DeviceId> devices;
    for (const Queue& queue : queues_) {
      if (devices.empty() || devices.back() != queue.device) devices.push_back(queue.device);
    }
    if (!collective && !(both_ && devices.size() > 1)) {
      add_stream_op(op, queues_[0], devices, sources, devices);
      return;
    }
    // A member stands in both its queues, sender and receiver in one each.
    const std::size_t each = collective ? 2 : 1;
    for (std::size_t m = 0; m < devices.size(); ++m) {
      add_stream_op(op, queues_[each * m], {devices[m]}, sources, devices);
    }
  }

  /// touched   devices whose memory and queues this stream operation is responsible for
  /// all       those of the whole operation
  void add_stream_op(OpId op, const Queue& queue, const std::vector<DeviceId>& touched,
                     const std::set<OpId>& sources, const std::vector<DeviceId>& all) {
    StreamOp stream_op{op, stream_of(queue), static_cast<std::uint32_t>(out_.waits.size()), 0,
                       false};
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
      for (std::uint32_t t = out_.first_stream_op[source.index()];
           t < out_.first_stream_op[source.index() + 1]; ++t) {
        if (near && !stream_op_touches(t, touched)) continue;
        wait_for(stream_op, t);
      }
    }
    stream_op.waits = static_cast<std::uint32_t>(out_.waits.size()) - stream_op.first_wait;
    out_.stream_ops.push_back(stream_op);
  }

  void wait_for(const StreamOp& stream_op, std::uint32_t source) {
    StreamOp& other = out_.stream_ops[source];
    if (other.stream == stream_op.stream) return;  // in order anyway
    auto [seen, fresh] = seen_.try_emplace({stream_op.stream, other.stream}, source);
    if (!fresh) {
      if (seen->second >= source) return;
      seen->second = source;
    }
    other.recorded = true;
    out_.waits.push_back(source);
  }

  [[nodiscard]] bool stream_op_touches(std::uint32_t t,
                                       const std::vector<DeviceId>& devices) const {
    const StreamOp& stream_op = out_.stream_ops[t];
    if (!both_ && dag_.kind(stream_op.op) != OpKind::collective)
      return touches(stream_op.op, devices);
    const DeviceId device = out_.streams[static_cast<std::size_t>(stream_op.stream)].device;
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  }
  [[nodiscard]] bool touches(OpId op, const std::vector<DeviceId>& devices) const {
    std::vector<Queue> occupied;
    queues(dag_, op, occupied);
    return std::any_of(occupied.begin(), occupied.end(), [&](const Queue& queue) {
      return std::find(devices.begin(), devices.end(), queue.device) != devices.end();
    });
  }

  std::int32_t stream_of(const Queue& queue) {
    const auto [entry, fresh] =
        stream_index_.try_emplace(queue, static_cast<std::int32_t>(out_.streams.size()));
    if (fresh) out_.streams.push_back(queue);
    return entry->second;
  }

  const ExecDag& dag_;
  bool both_;  ///< ends of transfers
  bool apart_;
  Dispatch out_;
  std::vector<Queue> queues_;
  std::map<Queue, OpId> last_;
  std::map<Queue, std::int32_t> stream_index_;
  /// By (waiting stream, other stream): the last stream operation waited for; the other stream's
  /// earlier ones have ended before it.
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> seen_;
};

}  // namespace

Dispatch dispatch(const ExecDag& dag, TransferEnds ends) {
  return Dispatcher(dag, ends, false).run();
}

Dispatch dispatch(const ExecDag& dag, DeviceId mine) {
  const Dispatch all = Dispatcher(dag, TransferEnds::both, true).run();
  constexpr std::uint32_t nobodys = ~std::uint32_t{0};
  Dispatch own;
  std::vector<std::int32_t> streams(all.streams.size(), -1);
  for (std::size_t stream = 0; stream < all.streams.size(); ++stream) {
    if (all.streams[stream].device != mine) continue;
    streams[stream] = static_cast<std::int32_t>(own.streams.size());
    own.streams.push_back(all.streams[stream]);
  }
  std::vector<std::uint32_t> numbers(all.stream_ops.size(), nobodys);
  for (std::size_t op = 0; op < dag.size(); ++op) {
    own.first_stream_op.push_back(static_cast<std::uint32_t>(own.stream_ops.size()));
    for (std::uint32_t t = all.first_stream_op[op]; t < all.first_stream_op[op + 1]; ++t) {
      StreamOp stream_op = all.stream_ops[t];
      stream_op.stream = streams[static_cast<std::size_t>(stream_op.stream)];
      if (stream_op.stream < 0) continue;
      stream_op.first_wait = static_cast<std::uint32_t>(own.waits.size());
      for (const std::uint32_t wait : all.waits_of(all.stream_ops[t])) {
        ensure(numbers[wait] != nobodys, "a device waits for stream_ops of its own");
        own.waits.push_back(numbers[wait]);
      }
      numbers[t] = static_cast<std::uint32_t>(own.stream_ops.size());
      own.stream_ops.push_back(stream_op);
    }
  }
  own.first_stream_op.push_back(static_cast<std::uint32_t>(own.stream_ops.size()));
  return own;
}

std::vector<DeviceId> devices_of(const ExecDag& dag, OpId op) {
  std::vector<Queue> occupied;
  queues(dag, op, occupied);
  std::vector<DeviceId> devices;
  for (const Queue& queue : occupied) {
    if (std::find(devices.begin(), devices.end(), queue.device) == devices.end()) {
      devices.push_back(queue.device);
    }
  }
  return devices;
}

}  // namespace parsim::hw
