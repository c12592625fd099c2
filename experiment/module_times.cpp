#include "experiment/module_times.hpp"

#include <algorithm>
#include <map>

namespace parsim::experiment {

namespace {

using TimesOfLayers = std::map<LayerId, Seconds>;

/// Of all passes, by the shape of the layer's part on the device.
std::map<CallShape, TimesOfLayers> planned_layers(const Run& run, DeviceId device) {
  const ExecDag& dag = run.dag;
  std::map<CallShape, TimesOfLayers> planned;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) != OpKind::compute || record.device != device.value) continue;
    const WorkId work{record.what};
    const LayerId layer = dag.work(work).layer;
    const std::optional<CallShape> shape = shape_of_part(dag.network, layer, dag.part(work));
    if (!shape) continue;
    const Span& span = run.timeline.spans[i];
    planned[*shape][layer] += span.end - span.start;
  }
  return planned;
}

void add(std::optional<Seconds>& sum, Seconds time) { sum = sum.value_or(Seconds{}) + time; }

}  // namespace

std::vector<ModuleTimes> module_times(const Run& run, const TraceSteps& trace,
                                      const std::vector<LayerCall>& calls, DeviceId device) {
  std::vector<ModuleTimes> times;
  for (const ModulePath& path : trace.modules) times.push_back({path, {}, {}});
  const std::size_t median = trace.median();
  for (const TraceWork& work : trace.work) {
    if (work.step != median || work.module >= times.size()) continue;
    times[work.module].measured += work.span.end - work.span.start;
  }

  std::map<CallShape, std::vector<const LayerCall*>> by_shape;
  for (const LayerCall& call : calls) {
    if (call.step == median && !call.recomputed) by_shape[call.shape].push_back(&call);
  }
  const std::map<CallShape, TimesOfLayers> planned = planned_layers(run, device);
  for (auto& [shape, of_shape] : by_shape) {
    const auto found = planned.find(shape);
    if (found == planned.end() || of_shape.size() % found->second.size() != 0) continue;
    const double micro_batches =
        static_cast<double>(of_shape.size()) / static_cast<double>(found->second.size());
    std::stable_sort(of_shape.begin(), of_shape.end(),
                     [](const LayerCall* a, const LayerCall* b) { return a->start < b->start; });
    auto layer = found->second.begin();
    for (const LayerCall* call : of_shape) {
      if (call->module < times.size()) {
        add(times[call->module].predicted, layer->second / micro_batches);
      }
      if (++layer == found->second.end()) layer = found->second.begin();
    }
  }
  std::erase_if(times, [](const ModuleTimes& row) { return row.measured <= Seconds{}; });
  return times;
}

std::vector<ModuleTimes> grouped(const std::vector<ModuleTimes>& modules, std::size_t depth) {
  if (modules.empty()) return {};
  std::size_t shared = modules.front().path.size();
  for (const ModuleTimes& row : modules) {
    const ModulePath& first = modules.front().path;
    const auto differ = std::mismatch(first.begin(), first.end(), row.path.begin(), row.path.end());
    shared = std::min(shared, static_cast<std::size_t>(differ.first - first.begin()));
  }
  std::vector<ModuleTimes> groups;
  std::map<ModulePath, std::size_t> known;
  for (const ModuleTimes& row : modules) {
    const auto from =
        row.path.begin() + static_cast<std::ptrdiff_t>(std::min(shared, row.path.size() - 1));
    ModulePath path(from, row.path.end());
    path.resize(std::min(path.size(), depth));
    const auto [entry, fresh] = known.try_emplace(path, groups.size());
    if (fresh) groups.push_back({path, {}, {}});
    ModuleTimes& group = groups[entry->second];
    group.measured += row.measured;
    if (row.predicted) add(group.predicted, *row.predicted);
  }
  return groups;
}

}  // namespace parsim::experiment
