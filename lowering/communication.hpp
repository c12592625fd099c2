// Communications of an estimate: their times, the queues that they occupy, the links that they
// load.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/dag_traffic.hpp"
#include "core/routes.hpp"
#include "lowering/reshard.hpp"

namespace parsim::lowering {

/// A directed link and how long a communication keeps it busy.
struct LinkLoad {
  std::uint32_t hop = 0;
  double seconds = 0;
};

struct PricedCommunication {
  bool local = false;                 ///< work on one device's compute stream
  double seconds = 0;                 ///< on an otherwise idle cluster
  double busiest = 0;                 ///< largest load
  double together = 0;                ///< the same with what starts at the same time
  std::vector<std::uint32_t> queues;  ///< device · queues_per_device + side; a stream adds 2·stream
  std::vector<LinkLoad> loads;
};

/// Messages of one tensor at the same time: micro-batches of equal replicas, parts of one layer.
/// Senders of one device model are ready together, and stay so, because links are shared fairly: of
/// those that cross a link at once all end when the last one would if they went one after the
/// other. A device sends one message at a time, and receives one.
class Together {
 public:
  explicit Together(const Cluster& cluster) : cluster_(cluster) {}
  /// The messages of a movement: its legs, or itself unless it is a collective.
  void add(const Movement& movement, PricedCommunication& price,
           std::vector<PricedCommunication>& legs);
  /// Sets `together` of all that were added, which must still be where they were.
  void share();

 private:
  void add(PricedCommunication& message, DeviceId from, DeviceId to);
  struct Message {
    PricedCommunication* price = nullptr;
    DeviceId from, to;
  };
  struct Hop {
    double seconds = 0, messages = 0;
    std::set<DeviceId> senders, receivers;
  };
  const Cluster& cluster_;
  std::vector<Message> messages_;
  std::map<std::pair<std::int32_t, std::uint32_t>, Hop> hops_;  ///< by the senders' model
};

/// Of a tensor's arrivals or returns.
template <class Way>
void start_together(const Cluster& cluster, std::vector<Way>& ways) {
  Together together(cluster);
  for (Way& way : ways) together.add(way.movement, way.price, way.legs);
  together.share();
}

/// Prices communications; finds routes and rings once.
class CommunicationPricer {
 public:
  CommunicationPricer(const Cluster& cluster, const CostModel& cost)
      : cluster_(cluster), cost_(cost), routes_(cluster) {}

  [[nodiscard]] PricedCommunication transfer(DeviceId from, DeviceId to, Bytes payload);
  /// Not for all_to_all.
  [[nodiscard]] PricedCommunication ring(CollectiveKind kind, std::span<const DeviceId> group,
                                         Bytes payload);
  /// regions[i] is the part that member i has, needs[i] the part that it needs.
  [[nodiscard]] PricedCommunication all_to_all(std::span<const DeviceId> group,
                                               std::span<const Region> regions,
                                               std::span<const Region> needs, std::int64_t element);
  /// A movement of a tensor whose elements take `element` bytes.
  /// Of a scatter_gather: the gathering alone, nothing if one device receives.
  [[nodiscard]] PricedCommunication movement(const Movement& movement, std::int64_t element);
  /// Work on one device: seconds and the device's compute queue.
  [[nodiscard]] PricedCommunication local(DeviceId device, Bytes touched) const;

 private:
  struct Share {
    std::size_t hop = 0;
    double part = 0;  ///< of the payload that goes once round
  };
  [[nodiscard]] const std::vector<Share>& shares(std::span<const DeviceId> group);

  const Cluster& cluster_;
  const CostModel& cost_;
  Routes routes_;
  std::map<std::vector<DeviceId>, std::vector<Share>> shares_;
};

}  // namespace parsim::lowering
