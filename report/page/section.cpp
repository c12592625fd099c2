#include "report/page/section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "report/page/ranks.hpp"
#include "report/trace.hpp"

namespace parsim::report {

namespace {

constexpr std::size_t most_bars = 1'000'000, most_tracks = 64;

}  // namespace

BarKind bar_kind(const ExecDag& dag, OpId id) {
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const auto pass = static_cast<Pass>(dag.record(id).sub);
      return pass == Pass::forward || pass == Pass::recompute ? BarKind::forward
                                                              : BarKind::backward;
    }
    case OpKind::update:
    case OpKind::local:
    case OpKind::delay:
      return BarKind::update;
    case OpKind::transfer:
    case OpKind::collective:
      break;
  }
  switch (dag.stream(id)) {
    case Stream::gradient:
    case Stream::replicas:
      return BarKind::gradients;
    case Stream::pipeline:
    case Stream::pipeline_back:
      return BarKind::pipeline;
    case Stream::compute:
    case Stream::tensor:
      break;
  }
  return BarKind::tensors;
}

std::int64_t nanosecond(Seconds time) { return std::llround(time.count() * 1e9); }

Bars bars_of(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster) {
  Bars bars;
  bars.end = nanosecond(makespan(timeline));
  std::size_t devices = std::min(cluster.devices.size(), most_tracks);
  std::vector<Queue> occupied;
  std::vector<std::size_t> count(cluster.devices.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    occupied.clear();
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) ++count[queue.device.index()];
  }
  std::size_t total = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    total += count[d];
    if (total > most_bars && d > 0) devices = d;
  }
  if (devices < cluster.devices.size()) {
    bars.left_out = fmt::format("the first {} of {} devices", devices, cluster.devices.size());
  }
  std::map<Queue, std::vector<Bar>> tracks;
  std::map<std::string, std::int32_t> known;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    occupied.clear();
    queues(dag, id, occupied);
    std::erase_if(occupied, [&](const Queue& queue) { return queue.device.index() >= devices; });
    const std::int64_t start = nanosecond(timeline.spans[i].start);
    const std::int64_t end = nanosecond(timeline.spans[i].end);
    if (occupied.empty() || end <= start) continue;
    std::string text = operation_name(dag, id);
    if (dag.kind(id) == OpKind::transfer || dag.kind(id) == OpKind::collective) {
      text += ", " + to_text(dag.payload(id));
    }
    const auto [label, fresh] = known.try_emplace(text, static_cast<std::int32_t>(known.size()));
    if (fresh) bars.labels.push_back({text, bar_kind(dag, id)});
    for (const Queue& queue : occupied) {
      tracks[queue].push_back({start, end - start, label->second});
    }
  }
  for (auto& [queue, list] : tracks) {
    std::sort(list.begin(), list.end(),
              [](const Bar& a, const Bar& b) { return a.start < b.start; });
    bars.tracks.push_back({queue.device, queue.queue, std::move(list)});
  }
  return bars;
}

Bars side_by_side(const Bars& predicted, const Bars& measured) {
  Bars both = predicted;
  both.end = std::max(predicted.end, measured.end);
  const auto first = static_cast<std::int32_t>(both.labels.size());
  both.labels.insert(both.labels.end(), measured.labels.begin(), measured.labels.end());
  for (BarTrack& track : both.tracks) track.note = "predicted";
  for (BarTrack track : measured.tracks) {
    track.note = "measured";
    for (Bar& bar : track.bars) bar.label += first;
    both.tracks.push_back(std::move(track));
  }
  std::stable_sort(both.tracks.begin(), both.tracks.end(),
                   [](const BarTrack& a, const BarTrack& b) {
                     return std::pair(a.device, a.queue) < std::pair(b.device, b.queue);
                   });
  return both;
}

StrategySection make_section(const Cluster& cluster, const experiment::Run& run, Plan plan,
                             bool with_timeline) {
  StrategySection section;
  section.result = run.result;
  section.plan = std::move(plan);
  section.hop_use = run.hop_use;
  section.parts = experiment::waterfall(run.dag, run.timeline, cluster);
  if (with_timeline) {
    section.bars = ranks_of(run.dag, run.timeline, cluster, section.result.stages);
  }
  return section;
}

}  // namespace parsim::report
