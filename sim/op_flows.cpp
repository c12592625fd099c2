#include "sim/op_flows.hpp"

#include <algorithm>

namespace parsim::sim {

namespace {

void carry(const Route& route, Bytes payload, const SimulationOutput& output) {
  for (const Hop hop : route.hops) {
    output.hop_bytes[hop.index()] += static_cast<double>(payload.value);
  }
}

const OpFlows& merged_flows(const PreparedDag& prepared, OpId op) {
  return prepared.flows.at(static_cast<std::size_t>(prepared.flows_of.at(op.index())));
}

CollectiveChoice choice_of(const PreparedDag& prepared, OpId op) {
  if (prepared.library.empty()) return {};
  return prepared.choices[static_cast<std::size_t>(prepared.library[op.index()])];
}

/// One flow for each ring, over all its links, of the bytes of its fullest hop.
void add_wholes(const std::vector<HopFlow>& hops, std::size_t first, OpFlows& result) {
  for (const HopFlow& hop : hops) {  // by ring
    const std::size_t route = first + hop.ring;
    if (result.flows.empty() || result.flows.back().route != route) {
      result.flows.push_back({route, Bytes{}, Seconds{0}});
    }
    OpFlow& whole = result.flows.back();
    whole.payload = std::max(whole.payload, hop.payload);
    whole.wait = std::max(whole.wait, hop.wait);
  }
}

void add_rings(const ExecDag& dag, const PreparedDag& prepared, OpId op, Fidelity fidelity,
               const SimulationOutput& output, OpFlows& result) {
  const RouteTable& table = prepared.table;
  const GroupId id{dag.record(op).device};
  const RouteTable::Group& group = table.groups.at(id.value);
  const CollectivePayload payload = payload_of(dag, op);
  const CollectiveChoice choice = choice_of(prepared, op);
  const std::vector<HopFlow> hops = hop_flows(payload, *group.rings, choice);
  result.least = choice.least;
  for (const HopFlow& flow : hops) {
    carry(group.rings->rings[flow.ring].hops[flow.hop], flow.payload, output);
    result.longest_wait = std::max(result.longest_wait, flow.wait);
  }
  if (choice.traffic != 1) {
    for (const HopFlow& flow : hops) {
      output.bytes_reduced_in_network -= static_cast<double>(flow.payload.value);
    }
    for (const HopFlow& flow : hop_flows(payload, *group.rings)) {
      output.bytes_reduced_in_network += static_cast<double>(flow.payload.value);
    }
  }
  if (fidelity == Fidelity::macro) {
    add_wholes(hops, table.wholes.at(RouteTable::whole_key(id, payload.kind)), result);
    return;
  }
  const std::size_t n = group.rings->members.front().size();
  for (const HopFlow& flow : hops) {
    result.flows.push_back({group.first + flow.ring * n + flow.hop, flow.payload, flow.wait});
  }
}

}  // namespace

std::size_t flow_count(const ExecDag& dag, const PreparedDag& prepared, OpId op) {
  if (prepared.merged()) return merged_flows(prepared, op).flows.size();
  if (dag.kind(op) == OpKind::transfer) return rank_count(dag, dag.record(op).device);
  const GroupId group{dag.record(op).device};
  const std::size_t n = dag.group(group).size();
  if (static_cast<CollectiveKind>(dag.record(op).sub) == CollectiveKind::all_to_all) {
    return n * (n - 1);
  }
  return n * prepared.table.groups.at(group.value).rings->rings.size();
}

CollectivePayload payload_of(const ExecDag& dag, OpId op) {
  return {static_cast<CollectiveKind>(dag.record(op).sub), dag.payload(op),
          share_bytes(dag, dag.shares(op), dag.role(op))};
}

void flows_of(const ExecDag& dag, const PreparedDag& prepared, OpId op, Fidelity fidelity,
              const SimulationOutput& output, OpFlows& result) {
  const OpRecord& record = dag.record(op);
  const RouteTable& table = prepared.table;
  if (prepared.merged()) {
    result = merged_flows(prepared, op);
    return;
  }
  result.flows.clear();
  result.longest_wait = result.least = Seconds{0};
  const auto add_pair = [&](DeviceId from, DeviceId to, Bytes asked,
                            const CollectiveChoice& choice) {
    const std::size_t route = table.pair(from, to);
    const Bytes payload = part_carried(asked, choice);
    carry(*table.routes[route], payload, output);
    output.bytes_reduced_in_network += static_cast<double>((asked - payload).value);
    result.flows.push_back({route, payload, pair_wait(choice, *table.routes[route])});
    if (choice.measured()) {
      result.longest_wait = choice.wait;
      result.least = choice.least;
    }
  };
  if (dag.kind(op) == OpKind::transfer) {
    for (std::size_t rank = 0; rank < rank_count(dag, record.device); ++rank) {
      const auto [from, to] = ends(dag, record, rank);
      add_pair(from, to, dag.payload(op), CollectiveChoice{});
      if (prepared.library.empty()) continue;
      const auto call = static_cast<std::size_t>(prepared.library[op.index()]);
      result.flows.back().wait = prepared.transfer_waits[call];
    }
  } else if (static_cast<CollectiveKind>(record.sub) == CollectiveKind::all_to_all) {
    const std::vector<DeviceId>& group = dag.group(GroupId{record.device});
    const CollectiveChoice choice = choice_of(prepared, op);
    for (const PairFlow& flow : pair_flows(dag, dag.shares(op), dag.role(op))) {
      add_pair(group[flow.from], group[flow.to], flow.payload, choice);
    }
  } else {
    add_rings(dag, prepared, op, fidelity, output, result);
  }
  std::stable_sort(result.flows.begin(), result.flows.end(),
                   [](const OpFlow& a, const OpFlow& b) { return a.wait < b.wait; });
}

Seconds time_alone(const OpFlows& flows, const PreparedDag& prepared, const Cluster& cluster) {
  std::vector<LoneFlow> lone;
  for (const OpFlow& flow : flows.flows) {
    lone.push_back(
        {prepared.table.routes[flow.route], static_cast<double>(flow.payload.value), flow.wait});
  }
  return time_alone(lone, flows.least, cluster);
}

Seconds longest_alone(std::span<const OpFlow> flows, const PreparedDag& prepared,
                      const Cluster& cluster) {
  Seconds longest{};
  for (const OpFlow& flow : flows) {
    const LoneFlow lone{prepared.table.routes[flow.route], static_cast<double>(flow.payload.value),
                        flow.wait};
    longest = std::max(longest, time_alone(std::span(&lone, 1), Seconds{0}, cluster));
  }
  return longest;
}

Seconds time_alone(const ExecDag& dag, const PreparedDag& prepared, OpId op, const Cluster& cluster,
                   const SimulationOutput& output) {
  OpFlows flows;
  flows_of(dag, prepared, op, Fidelity::hops, output, flows);
  if (dag.kind(op) == OpKind::transfer) return longest_alone(flows.flows, prepared, cluster);
  return time_alone(flows, prepared, cluster);
}

}  // namespace parsim::sim
