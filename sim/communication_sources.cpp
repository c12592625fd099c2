#include "sim/communication_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "core/errors.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

namespace {

bool all_gpus(const Cluster& cluster, std::span<const DeviceId> group) {
  return std::all_of(group.begin(), group.end(), [&](DeviceId device) {
    return cluster.model(device).kind == DeviceKind::gpu;
  });
}

std::optional<NcclRefusal> refusal_of(CollectiveKind kind, std::span<const DeviceId> group,
                                      PathCache& paths, const SimOptions& options) {
  if (!options.algorithm && !options.protocol) return std::nullopt;
  return nccl_refusal(kind, paths.shape(group), options);
}

}  // namespace

void check_collective(CollectiveKind kind, std::span<const DeviceId> group, const Cluster& cluster,
                      const SimOptions& options) {
  PathCache paths(cluster);
  if (const auto refusal = refusal_of(kind, group, paths, options)) {
    throw InputError(refusal->flag, refusal->reason, refusal->accepted);
  }
}

CommunicationSources communication_sources(const ExecDag& dag, std::span<const Seconds> times,
                                           const Cluster& cluster, const CostModel& cost,
                                           const SimOptions& options) {
  PathCache paths(cluster);
  CommunicationSources sources;
  std::map<std::pair<CollectiveKind, GroupId>, std::optional<NcclRefusal>> refusals;
  // Ranks, machines.
  std::set<std::tuple<CollectiveKind, std::size_t, std::size_t>> lacking, assumed;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const OpRecord& record = dag.record(id);
    const bool transfer = dag.kind(id) == OpKind::transfer;
    if (!transfer && dag.kind(id) != OpKind::collective) continue;
    const auto equal = static_cast<std::size_t>(dag.count(id));
    const double time = static_cast<double>(equal) * times[i].count();
    if (cost.communication(dag, id)) {
      sources.measured += time;
      continue;
    }
    const GroupId group_id{record.device};
    const bool ideal = options.collectives == CollectiveCost::ideal;
    if (transfer) {
      if (record.device == record.to) continue;
      const std::array ends{DeviceId{record.device}, DeviceId{record.to}};
      const bool by_library =
          !ideal && all_gpus(cluster, ends) && !are_parts_of_one_gpu(ends, options);
      (by_library ? sources.library : sources.links) += time;
      continue;
    }
    if (ideal || !all_gpus(cluster, dag.group(group_id)) ||
        are_parts_of_one_gpu(dag.group(group_id), options)) {
      sources.links += time;
      continue;
    }
    const std::vector<DeviceId>& group = dag.group(group_id);
    if (group.size() < 2) continue;
    const auto kind = static_cast<CollectiveKind>(record.sub);
    const auto [entry, fresh] = refusals.try_emplace({kind, group_id});
    if (fresh) entry->second = refusal_of(kind, group, paths, options);
    sources.collectives += equal;
    if (const std::optional<NcclRefusal>& refusal = entry->second) {
      if (sources.refused == 0) {
        sources.flag = refusal->flag;
        sources.reason = refusal->reason;
        sources.accepted = refusal->accepted;
      }
      sources.refused += equal;
    }
    const RankPlaces where = places_of(paths.shape(group));
    if (const CollectiveTable* table = find_table(options.tables, kind, where)) {
      if (table->machines == 0 && where.machines > 1)
        assumed.insert({kind, where.ranks, where.machines});
      sources.measured += time;
    } else {
      sources.library += time;
      lacking.insert({kind, where.ranks, where.machines});
    }
  }
  const double all = sources.measured + sources.library + sources.links;
  for (double* part : {&sources.measured, &sources.library, &sources.links}) {
    *part = all > 0 ? *part / all : 0;
  }
  if (options.collectives == CollectiveCost::measured) {
    const auto texts = [](const auto& found) {
      std::vector<std::string> words;
      for (const auto& [kind, ranks, machines] : found) {
        words.push_back(fmt::format("{} over {}{}", to_text(kind), ranks,
                                    machines > 1 ? fmt::format(" on {} machines", machines) : ""));
      }
      return words;
    };
    sources.lacking = texts(lacking);
    sources.assumed = texts(assumed);
  }
  return sources;
}

}  // namespace parsim::sim
