#include "sim/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/errors.hpp"

namespace parsim::sim {

namespace {

/// Part `index` of `total` when it is divided by `weights`: rounded at the boundaries, so that the
/// parts add up exactly.
Bytes part_of(Bytes total, const std::vector<double>& weights, std::size_t index) {
  double before = 0;
  for (std::size_t i = 0; i < index; ++i) before += weights[i];
  const auto boundary = [&](double share) {
    return std::int64_t{std::llround(static_cast<double>(total.value) * share)};
  };
  const bool last = index + 1 == weights.size();
  const std::int64_t begin = index == 0 ? 0 : boundary(before);
  return {(last ? total.value : boundary(before + weights[index])) - begin};
}

/// Chunk sizes of one ring by position: the shares, or equal parts with the remainder in the last.
std::vector<Bytes> ring_chunks(const CollectivePayload& payload, const GroupRings& rings,
                               std::size_t ring) {
  const std::vector<std::size_t>& members = rings.members[ring];
  std::vector<Bytes> chunks(members.size());
  if (payload.shares.empty()) {
    const Bytes total = part_of(payload.total, rings.weights, ring);
    const auto n = static_cast<std::int64_t>(members.size());
    std::fill(chunks.begin(), chunks.end(), Bytes{total.value / n});
    chunks.back() += Bytes{total.value % n};
  } else {
    ensure(payload.shares.size() == members.size(), "a collective has one share for each member");
    for (std::size_t i = 0; i < members.size(); ++i) {
      chunks[i] = part_of(payload.shares[members[i]], rings.weights, ring);
    }
  }
  return chunks;
}

Bytes sum(const std::vector<Bytes>& parts) {
  Bytes total;
  for (const Bytes part : parts) total += part;
  return total;
}

void add_broadcast(const CollectivePayload& payload, const GroupRings& rings, std::size_t ring,
                   std::vector<HopFlow>& flows) {
  const std::vector<std::size_t>& members = rings.members[ring];
  const std::size_t n = members.size();
  const auto root = static_cast<std::size_t>(
      std::find(members.begin(), members.end(), std::size_t{0}) - members.begin());
  const Bytes total = part_of(payload.total, rings.weights, ring);
  Seconds wait{};
  for (std::size_t i = 0; i + 1 < n; ++i) wait += rings.rings[ring].hops[(root + i) % n].latency;
  for (std::size_t i = 0; i + 1 < n; ++i) flows.push_back({ring, (root + i) % n, total, wait});
}

/// What the members of a ring do with their chunks: go round summing them, then round again with
/// the sums.
struct RingPasses {
  bool reduces = false, gathers = false;
};

RingPasses ring_passes(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return {true, true};
    case CollectiveKind::all_gather:
      return {false, true};
    case CollectiveKind::reduce_scatter:
      return {true, false};
    case CollectiveKind::broadcast:   // a chain that ends before its root
    case CollectiveKind::all_to_all:  // pairwise
      break;
  }
  throw BrokenInvariant("a collective that does not go round rings");
}

/// Flows of an all_to_all among all pairs alike.
std::vector<LoneFlow> equal_pairs(std::span<const DeviceId> group, Bytes payload,
                                  PathCache& paths) {
  const auto n = static_cast<double>(group.size());
  const double each = static_cast<double>(payload.value) / (n * (n - 1));
  std::vector<LoneFlow> flows;
  for (const DeviceId from : group) {
    for (const DeviceId to : group) {
      if (from != to) flows.push_back({&paths.between(from, to), each, Seconds{0}});
    }
  }
  return flows;
}

/// The table's time in three parts. It waits as long as the smallest size does beyond its bytes,
/// and then its flows take the rest; those of links that are slower than the table carry less, so
/// that on an idle network the whole takes the table's time exactly, never more and never less.
CollectiveChoice measured_choice(const CollectiveTable& table, std::span<const DeviceId> group,
                                 Bytes payload, PathCache& paths) {
  const auto smallest = table.times.begin();
  // Sizes as payloads: the same factor for all.
  const double travels = table.kind == CollectiveKind::all_to_all ? table.ranks - 1 : 1;
  const Bytes first{std::llround(static_cast<double>(smallest->first) * travels)};
  const Seconds before =
      std::max(Seconds{0}, smallest->second - time_on_links(table.kind, group, first, paths));
  const Seconds all = *interpolated(table.times, table_size(table.kind, group.size(), payload));
  CollectiveChoice choice{"measured", "measured", std::min(all, before),
                          Seconds{0}, 1,          Seconds{std::numeric_limits<double>::infinity()}};
  choice.least = all - choice.wait;
  const Seconds links = time_on_links(table.kind, group, payload, paths);
  if (links > choice.least) choice.traffic = choice.least / links;
  return choice;
}

}  // namespace

const GroupRings& PathCache::rings(std::span<const DeviceId> group) {
  const auto [entry, fresh] =
      rings_.try_emplace(std::vector<DeviceId>(group.begin(), group.end()), GroupRings{});
  GroupRings& found = entry->second;
  if (!fresh) return found;
  if (group.size() < 2) return found;
  found.rings = edge_disjoint_rings(cluster_, routes_, group);

  std::unordered_map<std::int32_t, std::size_t> position;
  for (std::size_t i = 0; i < group.size(); ++i) position[group[i].value] = i;
  std::unordered_map<std::size_t, double> uses;
  for (const Ring& ring : found.rings) {
    ensure(ring.devices.size() == group.size() && ring.hops.size() == group.size(),
           "a ring passes every device of its group once");
    std::vector<std::size_t>& members = found.members.emplace_back();
    for (const DeviceId device : ring.devices) members.push_back(position.at(device.value));
    for (const Route& route : ring.hops) {
      for (const Hop hop : route.hops) uses[hop.index()] += 1;
    }
  }
  double all = 0;
  for (const Ring& ring : found.rings) {
    double slowest = std::numeric_limits<double>::infinity();
    for (const Route& route : ring.hops) {
      for (const Hop hop : route.hops) {
        slowest = std::min(slowest, cluster_[hop.link].rate.value / uses.at(hop.index()));
      }
    }
    found.weights.push_back(slowest);
    all += slowest;
  }
  for (double& weight : found.weights) weight /= all;
  found.rate = all;
  return found;
}

std::vector<HopFlow> hop_flows(const CollectivePayload& payload, const GroupRings& rings) {
  std::vector<HopFlow> flows;
  for (std::size_t ring = 0; ring < rings.rings.size(); ++ring) {
    if (payload.kind == CollectiveKind::broadcast) {
      add_broadcast(payload, rings, ring, flows);
      continue;
    }
    const std::size_t n = rings.members[ring].size();
    const auto [reduces, gathers] = ring_passes(payload.kind);
    const auto messages = static_cast<double>((n - 1) * (reduces && gathers ? 2 : 1));
    const double part = static_cast<double>(payload.total.value) * rings.weights[ring];
    const Bytes equal{std::llround(messages * part / static_cast<double>(n))};
    std::vector<Bytes> chunks;
    if (!payload.shares.empty()) chunks = ring_chunks(payload, rings, ring);
    const Bytes total = sum(chunks);
    for (std::size_t r = 0; r < n; ++r) {
      Bytes carried = chunks.empty() ? equal : Bytes{};
      if (!chunks.empty() && reduces) carried += total - chunks[r];
      if (!chunks.empty() && gathers) carried += total - chunks[(r + 1) % n];
      flows.push_back({ring, r, carried, messages * rings.rings[ring].hops[r].latency});
    }
  }
  return flows;
}

std::vector<HopFlow> hop_flows(const CollectivePayload& payload, const GroupRings& rings,
                               const CollectiveChoice& choice) {
  std::vector<HopFlow> flows = hop_flows(payload, rings);
  if (choice.protocol == CollectiveChoice{}.protocol) return flows;
  for (HopFlow& flow : flows) {
    flow.wait = choice.wait;
    flow.payload = part_carried(flow.payload, choice);
  }
  return flows;
}

Bytes part_carried(Bytes payload, const CollectiveChoice& choice) {
  if (choice.traffic == 1) return payload;
  return {std::llround(static_cast<double>(payload.value) * choice.traffic)};
}

bool are_parts_of_one_gpu(std::span<const DeviceId> devices, const SimOptions& options) {
  return std::any_of(options.shared_gpus.begin(), options.shared_gpus.end(),
                     [&](const std::vector<DeviceId>& parts) {
                       return std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
                         return std::binary_search(parts.begin(), parts.end(), device);
                       });
                     });
}

CollectiveChoice choose(CollectiveKind kind, std::span<const DeviceId> group, Bytes payload,
                        PathCache& paths, const SimOptions& options) {
  const bool exchange = kind == CollectiveKind::all_to_all;
  CollectiveChoice choice;
  if (exchange) choice.algorithm = "pairwise";
  if (options.collectives == CollectiveCost::ideal || group.size() < 2) return choice;
  if (are_parts_of_one_gpu(group, options)) return choice;
  const CommShape& shape = paths.shape(group);
  if (!shape.gpus) return choice;
  if (options.collectives == CollectiveCost::measured) {
    const CollectiveTable* table = find_table(options.tables, kind, places_of(shape));
    if (table != nullptr) return measured_choice(*table, group, payload, paths);
  }
  if (!exchange) return choose_nccl(kind, shape, payload, options);
  // One group of messages: all wait as one does, and once for the launch. The terms are those of
  // what one member holds.
  const auto n = static_cast<std::int64_t>(group.size());
  const Bytes held{payload.value / n}, message{payload.value / (n * (n - 1))};
  const bool inside = shape.nodes == 1;
  choice.protocol = to_text(message_protocol(message));
  choice.wait =
      message_wait({inside, shape.nvlink, Seconds{0}, std::nullopt}, message, {}) +
      launch_time(held, fixed_costs(options.terms, shape.kind), message_protocol(message));
  choice.covered = covered_latency(inside);
  // Each member also copies its own part, with the same few blocks.
  if (message_protocol(message) == NcclProtocol::simple) {
    const double part = static_cast<double>(held.value) / static_cast<double>(n - 1);
    choice.wait += copy_time(part, shape.memory_rate);
  }
  return choice;
}

Bytes RingMessages::payload(std::size_t step, std::size_t position) const {
  const std::size_t n = chunks.size();
  // While reducing, position r first sends chunk r−1 and then what it has just received; while
  // gathering it begins with its own chunk r.
  const std::size_t back = step < first_all_gather ? step + 1 : step - first_all_gather;
  return chunks[(position + n - back % n) % n];
}

std::vector<RingMessages> ring_messages(const CollectivePayload& payload, const GroupRings& rings) {
  std::vector<RingMessages> all;
  for (std::size_t ring = 0; ring < rings.rings.size(); ++ring) {
    RingMessages messages;
    messages.chunks = ring_chunks(payload, rings, ring);
    const std::size_t once = messages.chunks.size() - 1;
    const auto [reduces, gathers] = ring_passes(payload.kind);
    messages.first_all_gather = reduces ? once : 0;
    messages.steps = reduces && gathers ? 2 * once : once;
    all.push_back(std::move(messages));
  }
  return all;
}

std::vector<PairFlow> pair_flows(const ExecDag& dag, const Shares& shares, Role role) {
  std::vector<PairFlow> flows;
  for (std::size_t to = 0; to < shares.needs.size(); ++to) {
    for (std::size_t from = 0; from < shares.regions.size(); ++from) {
      if (from == to) continue;
      const std::int64_t volume =
          intersect(dag.region(shares.needs[to]), dag.region(shares.regions[from])).volume();
      if (volume > 0) flows.push_back({from, to, Bytes{volume * dag.element_bytes(role)}});
    }
  }
  return flows;
}

std::vector<Bytes> share_bytes(const ExecDag& dag, const Shares& shares, Role role) {
  std::vector<Bytes> bytes;
  bytes.reserve(shares.regions.size());
  for (const RegionId id : shares.regions) {
    bytes.push_back({dag.region(id).volume() * dag.element_bytes(role)});
  }
  return bytes;
}

Seconds time_alone(std::span<const LoneFlow> flows, Seconds least, const Cluster& cluster) {
  struct Load {
    std::size_t hop = 0;
    Seconds wait{};
    double seconds = 0;
  };
  std::vector<Load> loads;
  Seconds slowest{};
  for (const LoneFlow& flow : flows) {
    slowest = std::max(slowest, flow.wait + least);
    for (const Hop hop : flow.route->hops) {
      loads.push_back({hop.index(), flow.wait, flow.bytes / cluster[hop.link].rate.value});
    }
  }
  std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
    return a.hop != b.hop ? a.hop < b.hop : a.wait > b.wait;
  });
  double behind = 0;  // what flows that wait at least as long put on the link
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const bool same_link = i > 0 && loads[i - 1].hop == loads[i].hop;
    behind = (same_link ? behind : 0) + loads[i].seconds;
    slowest = std::max(slowest, loads[i].wait + Seconds{behind});
  }
  return slowest;
}

Seconds time_on_links(CollectiveKind kind, std::span<const DeviceId> group, Bytes payload,
                      PathCache& paths) {
  if (kind == CollectiveKind::all_to_all) {
    return time_alone(equal_pairs(group, payload, paths), Seconds{0}, paths.cluster());
  }
  const GroupRings& rings = paths.rings(group);
  double slowest = 0;
  for (const HopFlow& flow : hop_flows({kind, payload, {}}, rings)) {
    const double rate = rings.weights[flow.ring] * rings.rate;
    slowest = std::max(slowest, static_cast<double>(flow.payload.value) / rate);
  }
  return Seconds{slowest};
}

Seconds pair_wait(const CollectiveChoice& choice, const Route& route) {
  return choice.wait + std::max(Seconds{0}, route.latency - choice.covered);
}

Seconds collective_time(CollectiveKind kind, std::span<const DeviceId> group, Bytes payload,
                        PathCache& paths, const SimOptions& options) {
  const CollectiveChoice choice = choose(kind, group, payload, paths, options);
  std::vector<LoneFlow> flows;
  if (kind == CollectiveKind::all_to_all) {
    flows = equal_pairs(group, payload, paths);
    for (LoneFlow& flow : flows) {
      flow.bytes *= choice.traffic;
      flow.wait = pair_wait(choice, *flow.route);
    }
  } else {
    const GroupRings& rings = paths.rings(group);
    for (const HopFlow& flow : hop_flows({kind, payload, {}}, rings, choice)) {
      flows.push_back({&rings.rings[flow.ring].hops[flow.hop],
                       static_cast<double>(flow.payload.value), flow.wait});
    }
  }
  return time_alone(flows, choice.least, paths.cluster());
}

CollectiveRun collective_run(CollectiveKind kind, std::span<const DeviceId> group, Bytes payload,
                             const Cluster& cluster, const SimOptions& options) {
  PathCache paths(cluster);
  const CollectiveChoice choice = choose(kind, group, payload, paths, options);
  return {std::string(choice.algorithm), std::string(choice.protocol)};
}

}  // namespace parsim::sim
