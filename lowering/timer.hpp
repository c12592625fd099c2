// The sink of the walk that keeps time: an operation is when it ends. Private to lowering/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "lowering/link_queue.hpp"
#include "lowering/step_bound.hpp"
#include "lowering/walk.hpp"

namespace parsim::lowering {

struct TimedOp {
  double end = -1;
  std::uint32_t number = 0;  ///< in order of issue, from 1
  friend bool operator==(const TimedOp&, const TimedOp&) = default;
};

/// Times are seconds since the step's start.
class Timer {
 public:
  using Op = TimedOp;
  using When = double;
  using After = double;
  static constexpr Op never{};
  static constexpr When not_yet = -1;
  static constexpr bool lets_go = false;
  static Op later(Op a, Op b) { return a.number < b.number ? b : a; }
  static When done(Op op) { return op.end; }
  static After nothing() { return not_yet; }
  static bool none(After after) { return after == not_yet; }
  static void add(After& after, When when) { after = std::max(after, when); }
  static void merge(After& after, After more) { add(after, more); }

  Timer(const Cluster& cluster, LinkSharing sharing) : cluster_(cluster), sharing_(sharing) {}

  /// A step that surely takes this long need not be timed to its end.
  void give_up_at(Seconds limit) { limit_ = limit.count() * (1 + rounding); }
  /// False if kernels alone, without any wait, take longer than allowed.
  bool worth_walking(const PlanFragments& parts) {
    latest_ = 0;
    lost_ = false;
    if (limit_ == never_lost) return true;
    bound_.find(parts, cluster_.devices.size());
    for (std::size_t d = 0; d < bound_.devices.size(); ++d) expect(d, bound_.devices[d].before);
    return !lost_;
  }
  [[nodiscard]] bool gives_up() const { return lost_; }

  void begin(const PlanFragments& parts) {
    parts_ = &parts;
    queues_.assign(cluster_.devices.size() * static_cast<std::size_t>(queues_per_device), 0);
    links_.resize(2 * cluster_.links.size());
    for (LinkQueue& link : links_) link.clear();
    issued_ = 0;
  }
  [[nodiscard]] Seconds latest() const { return Seconds{latest_}; }

  Op kernel(LayerId id, std::size_t cell, Pass pass, std::int32_t, After after) {
    const LayerFragment& layer = *parts_->layers[id.index()];
    const std::vector<double>& times = pass == Pass::backward_weights ? layer.weights
                                       : pass == Pass::forward || pass == Pass::recompute
                                           ? layer.forward
                                           : layer.backward;
    return kernel_of(layer.devices[cell], times[cell], after);
  }
  Op ring_kernel(LayerId id, const Ring& ring, std::size_t member, std::size_t block, Pass pass,
                 std::int32_t, After after) {
    const LayerFragment& layer = *parts_->layers[id.index()];
    const auto cell = static_cast<std::size_t>(ring.cells[member]);
    const bool backward = pass == Pass::backward;
    const double time = (backward ? layer.block_backward : layer.block_forward)[cell][block];
    return kernel_of(ring.devices[member], time, after);
  }
  Op ring_send(LayerId, const Ring& ring, std::size_t member, std::size_t, std::size_t operand,
               std::int32_t, After after) {
    return occupy(ring.sends[operand][member], Stream::tensor, after);
  }
  Op ring_return(LayerId, const Ring& ring, std::size_t member, std::size_t, std::size_t operand,
                 std::int32_t, After after) {
    return occupy(ring.sends[operand][member], Stream::tensor, after);
  }
  Op ring_add(LayerId, const Ring& ring, std::size_t member, std::size_t, std::size_t operand,
              std::int32_t, After after) {
    return run(ring.devices[member], after, ring.additions[operand][member]);
  }
  Op ring_home(LayerId, const Ring& ring, std::size_t member, std::size_t operand, std::int32_t,
               After after) {
    return run(ring.devices[member], after, ring.additions[operand][member]);
  }
  Op chunk_kernel(LayerId id, std::size_t cell, std::size_t chunk, Pass pass, std::int32_t,
                  After after) {
    const LayerFragment& layer = *parts_->layers[id.index()];
    const bool backward = pass == Pass::backward_data;
    const double time = (backward ? layer.chunk_backward : layer.chunk_forward)[cell][chunk];
    return kernel_of(layer.devices[cell], time, after);
  }
  Op arrive_part(LayerId, const FanOut::Arrival& arrival, std::size_t member, std::size_t part,
                 std::int32_t, After after) {
    return occupy(arrival.ring.sends[arrival.ring.at(member, part)], Stream::tensor, after);
  }
  Op scatter_chunk(LayerId id, const ScatteredChunks& how, std::size_t cell, std::size_t chunk,
                   bool, std::int32_t, After after) {
    const std::size_t sender = parts_->layers[id.index()]->chunks[cell].own;
    return occupy(how.sends[how.at(sender, chunk)], Stream::tensor, after);
  }
  Op keep_chunk(LayerId id, const ScatteredChunks& how, std::size_t chunk, std::int32_t,
                After after) {
    const auto cell = static_cast<std::size_t>(how.keepers[chunk]);
    return run(parts_->layers[id.index()]->devices[cell], after, how.additions[chunk]);
  }
  Op return_part(LayerId, Consumer, const FanOut::Return& way, std::size_t member, std::size_t part,
                 std::int32_t, After after) {
    return occupy(way.ring.sends[way.ring.at(member, part)], Stream::tensor, after);
  }
  Op keep_part(LayerId, Consumer, const FanOut::Return& way, std::size_t member, std::int32_t,
               After after) {
    return run(way.movement.devices[member], after, way.ring.copies[member]);
  }
  Op sum_parts(LayerId, const LayerFragment::Sum&, const FanOut::PartsSum& how, std::int32_t,
               After after) {
    return occupy(how.price, Stream::tensor, after);
  }
  Op arrive(LayerId, const FanOut::Arrival& arrival, std::int32_t, Stream stream, After after) {
    return occupy(arrival.price, stream, after);
  }
  Op arrive_leg(LayerId, const FanOut::Arrival& arrival, std::size_t leg, std::int32_t,
                Stream stream, After after) {
    return occupy(arrival.legs[leg], stream, after);
  }
  Op add_received(LayerId, Consumer, const FanOut::Store& store, std::int32_t, DeviceId device,
                  After after) {
    return run(device, after, store.seconds);
  }
  Op add_jointly(Consumer, Consumer, const FanOut::Joint::Addition& addition, std::int32_t,
                 After after) {
    return run(addition.where, after, addition.seconds);
  }
  Op move_home(LayerId, Consumer, const FanOut::Return& way, std::int32_t, Stream stream,
               After after) {
    return occupy(way.price, stream, after);
  }
  Op sum_home(LayerId, Consumer, const FanOut::Return& way, std::int32_t, After after) {
    return occupy(way.sum, Stream::tensor, after);
  }
  Op leg_home(LayerId, Consumer, const FanOut::Return& way, std::size_t leg, std::int32_t,
              Stream stream, After after) {
    return occupy(way.legs[leg], stream, after);
  }
  Op gather_home(LayerId, Consumer, const FanOut::Return& way, std::int32_t, After after) {
    return occupy(way.price, Stream::tensor, after);
  }
  void drop_gradients(std::size_t, DeviceId device, After after) { run(device, after, 0); }
  Op gather_weights(std::size_t s, std::size_t zero_group, After after) {
    return occupy(prices_of(s).gathers[zero_group], Stream::gradient, after);
  }
  Op sum(std::size_t s, std::size_t part, bool, After after) {
    return occupy(prices_of(s).sums[part], Stream::gradient, after);
  }
  Op scatter_sum(std::size_t s, std::size_t zero_group, bool, After after) {
    return occupy(prices_of(s).sums[zero_group], Stream::gradient, after);
  }
  Op sum_replicas(std::size_t s, std::size_t rank, bool, bool, After after) {
    return occupy(prices_of(s).replica_sums[rank], Stream::replicas, after);
  }
  Op send_sum(std::size_t s, std::size_t mirror, After after) {
    return occupy(prices_of(s).to_mirror[mirror], Stream::gradient, after);
  }
  Op push(std::size_t s, std::size_t holder, After after) {
    return occupy(prices_of(s).pushes[holder], Stream::gradient, after);
  }
  Op server_update(std::size_t s, After after) {
    return run(sum_of(s).group.sync.server, after, prices_of(s).updates[0]);
  }
  void pull(std::size_t s, std::size_t holder, After after) {
    occupy(prices_of(s).pulls[holder], Stream::gradient, after);
  }
  Op copy_share(std::size_t s, std::size_t holder, After after) {
    return run(sum_of(s).holders[holder], after, prices_of(s).copies[holder]);
  }
  Op update(std::size_t s, std::size_t holder, After after) {
    return run(sum_of(s).holders[holder], after, prices_of(s).updates[holder]);
  }

 private:
  static constexpr double never_lost = std::numeric_limits<double>::infinity();
  /// Sums in another order differ by less.
  static constexpr double rounding = 1e-9;
  /// The device is busy until `end`.
  void expect(std::size_t device, double end) {
    const StepBound::Device& rest = bound_.devices[device];
    const double least = end + rest.work + rest.after;
    if (least < limit_) return;
    lost_ = true;
    latest_ = std::max(latest_, least);
  }
  [[nodiscard]] const SumFragment& sum_of(std::size_t s) const { return *parts_->sums[s]; }
  [[nodiscard]] const SumFragment::Prices& prices_of(std::size_t s) const {
    return *sum_of(s).prices;
  }
  Op kernel_of(DeviceId device, double seconds, double after) {
    const Op op = run(device, after, seconds);
    if (limit_ == never_lost) return op;
    bound_.devices[device.index()].work -= seconds;
    expect(device.index(), op.end);
    return op;
  }
  Op run(DeviceId device, double after, double seconds) {
    double& queue = queues_[device.index() * static_cast<std::size_t>(queues_per_device)];
    queue = std::max(queue, after) + seconds;
    latest_ = std::max(latest_, queue);
    return {queue, ++issued_};
  }
  Op occupy(const PricedCommunication& price, Stream stream, double after) {
    const std::size_t offset = price.local ? 0 : 2 * static_cast<std::size_t>(stream);
    double start = std::max(after, 0.0);
    for (const std::uint32_t queue : price.queues) start = std::max(start, queues_[queue + offset]);
    double end = start + price.seconds;
    if (sharing_ == LinkSharing::queued) {
      const bool sums = stream == Stream::gradient || stream == Stream::replicas;
      for (const LinkLoad& load : price.loads) {
        LinkQueue& link = links_[load.hop];
        const double carried =
            sums ? link.carry_sum(start, load.seconds) : link.carry(start, load.seconds);
        end = std::max(end, carried + (price.seconds - price.busiest));
        latest_ = std::max(latest_, link.busy());
      }
      end = std::max(end, start + price.together + (price.seconds - price.busiest));
    }
    for (const std::uint32_t queue : price.queues) queues_[queue + offset] = end;
    latest_ = std::max(latest_, end);
    return {end, ++issued_};
  }

  const Cluster& cluster_;
  LinkSharing sharing_;
  const PlanFragments* parts_ = nullptr;
  std::vector<double> queues_;
  std::vector<LinkQueue> links_;
  StepBound bound_;
  double limit_ = never_lost;
  bool lost_ = false;
  double latest_ = 0;
  std::uint32_t issued_ = 0;
};

}  // namespace parsim::lowering
