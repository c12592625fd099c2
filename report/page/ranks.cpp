#include "report/page/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/dag_traffic.hpp"

namespace parsim::report {

namespace {

constexpr std::size_t most_ranks = 16, compared_columns = 500;
constexpr std::array<std::string_view, bar_kinds> kind_words{
    "forward",         "backward", "update, copies", "gradients, ZeRO's weights",
    "layers' tensors", "pipeline"};

/// What kernels and messages belong to.
struct Label {
  BarKind kind;
  std::int32_t micro_batch;  ///< -1: of none, or of several
  friend auto operator<=>(const Label&, const Label&) = default;
};
Label label_of(const ExecDag& dag, OpId id) {
  const bool one = dag.kind(id) == OpKind::compute;
  return {bar_kind(dag, id), one ? dag.record(id).target : -1};
}
/// "forward, micro-batch 3".
std::string text_of(const Label& label) {
  std::string text(kind_words[static_cast<std::size_t>(label.kind)]);
  if (label.micro_batch >= 0) text += fmt::format(", micro-batch {}", label.micro_batch);
  return text;
}

/// Appends a bar; what overlaps the last one is cut, and what continues it makes it longer.
void append(std::vector<Bar>& bars, Bar bar, std::int64_t gap) {
  if (!bars.empty()) {
    Bar& last = bars.back();
    const std::int64_t end = last.start + last.length;
    if (bar.start < end) {
      bar.length -= end - bar.start;
      bar.start = end;
    }
    if (bar.length <= 0) return;
    if (bar.label == last.label && bar.start - end <= gap) {
      last.length = bar.start + bar.length - last.start;
      return;
    }
  }
  bars.push_back(bar);
}

/// Whether the time that two devices' tracks fill differently is at most so long.
bool alike(const std::array<std::vector<ColumnFill>, 2>& a,
           const std::array<std::vector<ColumnFill>, 2>& b, std::int64_t most) {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t c = 0; c < a[t].size(); ++c) {
      for (std::size_t k = 0; k < bar_kinds; ++k) sum += std::abs(a[t][c][k] - b[t][c][k]);
      if (sum > most) return false;
    }
  }
  return true;
}

/// The tracks of a device.
using Tracks = std::array<BarTrack, 2>;

std::vector<Tracks> all_tracks(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster,
                               Bars& bars) {
  std::vector<Tracks> tracks(cluster.devices.size());
  std::map<Label, std::int32_t> known;
  std::vector<Queue> occupied;
  const std::int64_t gap = bars.end / 2000;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const std::int64_t start = nanosecond(timeline.spans[i].start);
    const std::int64_t end = nanosecond(timeline.spans[i].end);
    if (end <= start) continue;
    const auto [label, fresh] =
        known.try_emplace(label_of(dag, id), static_cast<std::int32_t>(known.size()));
    if (fresh) bars.labels.push_back({text_of(label->first), label->first.kind});
    occupied.clear();
    queues(dag, id, occupied);
    for (const Queue& queue : occupied) {
      const std::size_t track = queue.queue / 2 == 0 ? 0 : 1;
      const Bar bar{start, end - start, label->second};
      std::vector<Bar>& list = tracks[queue.device.index()][track].bars;
      if (track == 0) {
        append(list, bar, gap);  // kernels come in their order
      } else if (list.empty() || list.back().start != start || list.back().length != bar.length) {
        list.push_back(bar);  // streams are mixed
      }
    }
  }
  for (std::size_t d = 0; d < tracks.size(); ++d) {
    std::vector<Bar> mixed = std::exchange(tracks[d][1].bars, {});
    std::stable_sort(mixed.begin(), mixed.end(),
                     [](const Bar& a, const Bar& b) { return a.start < b.start; });
    for (const Bar& bar : mixed) append(tracks[d][1].bars, bar, gap);
    for (BarTrack& track : tracks[d]) track.device = DeviceId{d};
  }
  return tracks;
}

/// By device, the first stage that it works on, or, without a pipeline, its type of device.
std::vector<std::size_t> groups_of(const Cluster& cluster,
                                   const std::vector<strategies::StageSummary>& stages) {
  std::vector<std::size_t> groups(cluster.devices.size(), stages.size());
  if (stages.size() < 2) {
    for (std::size_t d = 0; d < groups.size(); ++d)
      groups[d] = static_cast<std::size_t>(cluster.devices[d].model);
    return groups;
  }
  for (std::size_t s = stages.size(); s-- > 0;) {
    for (const DeviceId device : stages[s].devices) groups[device.index()] = s;
  }
  return groups;
}

/// "stage 3, communication" of a device that works on one stage.
std::string second_name(DeviceId device, const std::vector<strategies::StageSummary>& stages) {
  std::vector<std::size_t> own;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::vector<DeviceId>& devices = stages[s].devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) own.push_back(s);
  }
  return stages.size() < 2 || own.size() != 1 ? std::string("communication")
                                              : fmt::format("stage {}, communication", own.front());
}

}  // namespace

std::vector<std::size_t> shown_of(const std::vector<std::size_t>& groups, std::size_t most) {
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= most) return order;
  // The first of each group, then the second of each, ...; ties in the order of the groups.
  std::map<std::size_t, std::size_t> seen;
  std::vector<std::pair<std::size_t, std::size_t>> turns;  // turn, group
  for (const std::size_t group : groups) turns.emplace_back(seen[group]++, group);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return turns[a] < turns[b]; });
  if (seen.size() > most) {  // the first group, the last one, and some in equal steps between them
    for (std::size_t i = 0; i < most; ++i) {
      order[i] = order[most == 1 ? 0 : i * (seen.size() - 1) / (most - 1)];
    }
  }
  order.resize(most);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<ColumnFill> fills_of(const BarTrack& track, const Bars& bars, std::size_t columns) {
  std::vector<ColumnFill> fills(columns);
  const auto count = static_cast<std::int64_t>(columns);
  const auto edge = [&](std::int64_t column) { return column * bars.end / count; };
  for (const Bar& bar : track.bars) {
    const auto kind =
        static_cast<std::size_t>(bars.labels[static_cast<std::size_t>(bar.label)].kind);
    std::int64_t from = bar.start;
    const std::int64_t end = std::min(bar.start + bar.length, bars.end);
    while (from < end) {
      std::int64_t column = std::min(from * count / bars.end, count - 1);
      if (column + 1 < count && edge(column + 1) <= from) ++column;  // edges are rounded down
      const std::int64_t until = std::min(end, edge(column + 1));
      fills[static_cast<std::size_t>(column)][kind] += until - from;
      from = until;
    }
  }
  return fills;
}

std::vector<std::uint8_t> columns_of(const BarTrack& track, const Bars& bars, std::size_t columns) {
  const std::vector<ColumnFill> fills = fills_of(track, bars, columns);
  std::vector<std::uint8_t> kinds(columns, nothing);
  std::int64_t owed = 0;  // filled, less shown
  for (std::size_t c = 0; c < columns; ++c) {
    std::int64_t sum = 0;
    for (const std::int64_t each : fills[c]) sum += each;
    const auto edge = [&](std::size_t column) {
      return static_cast<std::int64_t>(column) * bars.end / static_cast<std::int64_t>(columns);
    };
    const std::int64_t width = edge(c + 1) - edge(c);
    owed += sum;
    if (sum == 0 || 2 * owed < width) continue;
    owed -= width;
    kinds[c] = static_cast<std::uint8_t>(std::max_element(fills[c].begin(), fills[c].end()) -
                                         fills[c].begin());
  }
  return kinds;
}

Bars ranks_of(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster,
              const std::vector<strategies::StageSummary>& stages) {
  Bars bars;
  bars.end = nanosecond(makespan(timeline));
  if (bars.end == 0) return bars;
  std::vector<Tracks> tracks = all_tracks(dag, timeline, cluster, bars);
  struct Rank {
    std::size_t first = 0, count = 0, group = 0;
    std::array<std::vector<ColumnFill>, 2> fills;
  };
  std::vector<Rank> ranks;
  const std::vector<std::size_t> groups = groups_of(cluster, stages);
  for (std::size_t d = 0; d < tracks.size(); ++d) {
    if (tracks[d][0].bars.empty() && tracks[d][1].bars.empty()) continue;
    Rank rank{d, 1, groups[d], {}};
    for (std::size_t t = 0; t < 2; ++t) {
      rank.fills[t] = fills_of(tracks[d][t], bars, compared_columns);
    }
    const auto known = std::find_if(ranks.begin(), ranks.end(), [&](const Rank& other) {
      return cluster.devices[d].model == cluster.devices[other.first].model &&
             other.group == rank.group && alike(rank.fills, other.fills, 2 * bars.end / 100);
    });
    if (known != ranks.end()) {
      ++known->count;
    } else {
      ranks.push_back(std::move(rank));
    }
  }
  const bool pipeline = stages.size() > 1;
  if (pipeline) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const Rank& a, const Rank& b) { return a.group < b.group; });
  }
  std::vector<std::size_t> of_ranks;
  for (const Rank& rank : ranks) of_ranks.push_back(rank.group);
  if (ranks.size() > most_ranks) {
    const std::size_t kinds = std::set<std::size_t>(of_ranks.begin(), of_ranks.end()).size();
    bars.left_out = fmt::format("{} of {} different ranks{}", most_ranks, ranks.size(),
                                kinds > most_ranks ? ", each of another stage"
                                : kinds == 1       ? ", the first ones"
                                : pipeline         ? ", at least one of each stage"
                                                   : ", at least one of each type of device");
  }
  for (const std::size_t r : shown_of(of_ranks, most_ranks)) {
    const Rank& rank = ranks[r];
    for (std::size_t t = 0; t < 2; ++t) {
      BarTrack& track = tracks[rank.first][t];
      track.name = t == 1 ? second_name(DeviceId{rank.first}, stages)
                          : fmt::format("{} ×{}", cluster.devices[rank.first].name, rank.count);
      bars.tracks.push_back(std::move(track));
    }
  }
  return bars;
}

Bars thinned(const Bars& bars, std::size_t most) {
  const auto size = [](const Bars& all) {
    std::size_t sum = 0;
    for (const BarTrack& track : all.tracks) sum += track.bars.size();
    return sum;
  };
  if (size(bars) <= most) return bars;
  Bars out;
  for (std::size_t columns = 4096; columns >= 64; columns /= 2) {
    out = {bars.end, {}, bars.tracks, bars.left_out};
    for (std::size_t k = 0; k < bar_kinds; ++k) {
      out.labels.push_back({std::string(kind_words[k]), static_cast<BarKind>(k)});
    }
    for (BarTrack& track : out.tracks) {
      const std::vector<std::uint8_t> kinds = columns_of(track, bars, columns);
      track.bars.clear();
      for (std::size_t c = 0; c < columns;) {
        const std::size_t first = c;
        while (c < columns && kinds[c] == kinds[first]) ++c;
        if (kinds[first] == nothing) continue;
        const auto edge = [&](std::size_t column) {
          return static_cast<std::int64_t>(column) * bars.end / static_cast<std::int64_t>(columns);
        };
        track.bars.push_back({edge(first), edge(c) - edge(first), kinds[first]});
      }
    }
    if (size(out) <= most) break;
  }
  return out;
}

}  // namespace parsim::report
