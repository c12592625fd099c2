#include "lowering/communication.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace parsim::lowering {

namespace {

void occupy(PricedCommunication& communication, DeviceId device, std::uint32_t side) {
  communication.queues.push_back(static_cast<std::uint32_t>(device.index()) *
                                     static_cast<std::uint32_t>(queues_per_device) +
                                 side);
}

void occupy_all(PricedCommunication& communication, std::span<const DeviceId> group) {
  communication.queues.reserve(2 * group.size());
  for (const DeviceId device : group) {
    occupy(communication, device, 0);
    occupy(communication, device, 1);
  }
}

/// Turns bytes by hop into loads. No link is busy for longer than the communication takes: where
/// the cost model's algorithm sends less over a link than the rings here do (a tree between
/// machines), all loads shrink alike.
template <class ByHop>
void load(PricedCommunication& communication, const ByHop& bytes, const Cluster& cluster) {
  communication.loads.reserve(bytes.size());
  for (const auto& [hop, carried] : bytes) {
    const double seconds = carried / cluster.links[hop / 2].rate.value;
    communication.loads.push_back({static_cast<std::uint32_t>(hop), seconds});
    communication.busiest = std::max(communication.busiest, seconds);
  }
  if (communication.busiest <= communication.seconds) return;
  const double share = communication.seconds / communication.busiest;
  for (LinkLoad& of : communication.loads) of.seconds *= share;
  communication.busiest = communication.seconds;
}

}  // namespace

void Together::add(const Movement& movement, PricedCommunication& price,
                   std::vector<PricedCommunication>& legs) {
  for (std::size_t i = 0; i < legs.size(); ++i) {
    add(legs[i], movement.legs[i].from, movement.legs[i].to);
  }
  if (movement.pattern == Pattern::point_to_point || movement.pattern == Pattern::halo) {
    add(price, movement.devices[0], movement.devices[1]);
  }
}

void Together::add(PricedCommunication& message, DeviceId from, DeviceId to) {
  messages_.push_back({&message, from, to});
  for (const LinkLoad& load : message.loads) {
    Hop& hop = hops_[{cluster_[from].model, load.hop}];
    hop.seconds += load.seconds;
    hop.messages += 1;
    hop.senders.insert(from);
    hop.receivers.insert(to);
  }
}

void Together::share() {
  for (const Message& message : messages_) {
    double& together = message.price->together;
    for (const LinkLoad& load : message.price->loads) {
      const Hop& hop = hops_[{cluster_[message.from].model, load.hop}];
      const auto at_once = static_cast<double>(std::min(hop.senders.size(), hop.receivers.size()));
      together = std::max(together, hop.seconds * at_once / hop.messages);
    }
  }
}

PricedCommunication CommunicationPricer::transfer(DeviceId from, DeviceId to, Bytes payload) {
  PricedCommunication communication;
  communication.seconds = cost_.transfer(from, to, payload).count();
  occupy(communication, from, 0);
  occupy(communication, to, 1);
  if (from == to) return communication;
  std::map<std::size_t, double> bytes;
  for (const Hop& hop : routes_.between(from, to).hops) {
    bytes[hop.index()] += static_cast<double>(payload.value);
  }
  load(communication, bytes, cluster_);
  return communication;
}

const std::vector<CommunicationPricer::Share>& CommunicationPricer::shares(
    std::span<const DeviceId> group) {
  const auto [entry, fresh] = shares_.try_emplace({group.begin(), group.end()});
  if (!fresh) return entry->second;
  const std::vector<Ring> rings = edge_disjoint_rings(cluster_, routes_, group);
  std::map<std::size_t, double> crossings;
  for (const Ring& ring : rings) {
    for (const Route& route : ring.hops) {
      for (const Hop& hop : route.hops) crossings[hop.index()] += 1;
    }
  }
  // The payload is divided among rings in proportion to the rate of each one's slowest hop, where a
  // link that several hops cross gives each its part.
  std::vector<double> rates;
  double total = 0;
  for (const Ring& ring : rings) {
    double slowest = std::numeric_limits<double>::infinity();
    for (const Route& route : ring.hops) {
      for (const Hop& hop : route.hops) {
        slowest = std::min(slowest, cluster_[hop.link].rate.value / crossings[hop.index()]);
      }
    }
    rates.push_back(slowest);
    total += slowest;
  }
  std::map<std::size_t, double> parts;
  for (std::size_t r = 0; r < rings.size(); ++r) {
    for (const Route& route : rings[r].hops) {
      for (const Hop& hop : route.hops) parts[hop.index()] += rates[r] / total;
    }
  }
  for (const auto& [hop, part] : parts) entry->second.push_back({hop, part});
  return entry->second;
}

PricedCommunication CommunicationPricer::ring(CollectiveKind kind, std::span<const DeviceId> group,
                                              Bytes payload) {
  PricedCommunication communication;
  occupy_all(communication, group);
  if (group.size() < 2) return communication;
  communication.seconds = cost_.collective(kind, group, payload).count();
  const double rounds = bus_factor(kind, group.size());
  const std::vector<Share>& shares = this->shares(group);
  std::vector<std::pair<std::size_t, double>> bytes;  // shares are by hop
  bytes.reserve(shares.size());
  for (const Share& share : shares) {
    bytes.emplace_back(share.hop, rounds * share.part * static_cast<double>(payload.value));
  }
  load(communication, bytes, cluster_);
  return communication;
}

PricedCommunication CommunicationPricer::all_to_all(std::span<const DeviceId> group,
                                                    std::span<const Region> regions,
                                                    std::span<const Region> needs,
                                                    std::int64_t element) {
  PricedCommunication communication;
  occupy_all(communication, group);
  std::map<std::size_t, double> bytes;
  std::int64_t travelling = 0;
  for (std::size_t to = 0; to < group.size(); ++to) {
    for (std::size_t from = 0; from < group.size(); ++from) {
      if (from == to) continue;
      const std::int64_t piece = intersect(needs[to], regions[from]).volume() * element;
      if (piece == 0) continue;
      travelling += piece;
      for (const Hop& hop : routes_.between(group[from], group[to]).hops) {
        bytes[hop.index()] += static_cast<double>(piece);
      }
    }
  }
  if (group.size() < 2) return communication;
  communication.seconds =
      cost_.collective(CollectiveKind::all_to_all, group, Bytes{travelling}).count();
  load(communication, bytes, cluster_);
  return communication;
}

PricedCommunication CommunicationPricer::movement(const Movement& movement, std::int64_t element) {
  Region all;
  std::int64_t elements = 0;
  for (const Region& region : movement.regions) {
    all = hull(all, region);
    elements += region.volume();
  }
  const Bytes whole{all.volume() * element}, sum{elements * element};
  switch (movement.pattern) {
    case Pattern::all_gather:
      return ring(CollectiveKind::all_gather, movement.devices, sum);
    case Pattern::reduce_scatter:
      return ring(CollectiveKind::reduce_scatter, movement.devices, sum);
    case Pattern::all_reduce:
      return ring(CollectiveKind::all_reduce, movement.devices, whole);
    case Pattern::broadcast:
      return ring(CollectiveKind::broadcast, movement.devices, whole);
    case Pattern::all_to_all:
      return all_to_all(movement.devices, movement.regions, movement.needs, element);
    case Pattern::halo:
    case Pattern::point_to_point:
      return transfer(movement.devices[0], movement.devices[1], whole);
    case Pattern::scatter_gather:
      if (movement.devices.size() < 2) return {};
      return ring(CollectiveKind::all_gather, movement.devices, sum);
    case Pattern::local_add:
      return local(movement.devices[0], 3 * whole);
  }
  return {};
}

PricedCommunication CommunicationPricer::local(DeviceId device, Bytes touched) const {
  PricedCommunication communication;
  communication.local = true;
  communication.seconds = cost_.memory(device, touched).time.count();
  occupy(communication, device, 0);
  return communication;
}

}  // namespace parsim::lowering
