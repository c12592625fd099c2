#include "core/timeline.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace parsim {

namespace {

/// Sorts the spans and merges those that touch; empty ones vanish.
std::vector<Span> union_of(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.end <= span.start; });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (!merged.empty() && span.start <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

Seconds length(const std::vector<Span>& spans) {
  Seconds sum{};
  for (const Span& span : spans) sum += span.end - span.start;
  return sum;
}

/// Length of the common part of two sorted unions.
Seconds overlap(const std::vector<Span>& a, const std::vector<Span>& b) {
  Seconds sum{};
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Seconds start = std::max(a[i].start, b[j].start);
    const Seconds end = std::min(a[i].end, b[j].end);
    if (start < end) sum += end - start;
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

struct DeviceSpans {
  std::vector<Span> kernels, communication;
};

void file(const ExecDag& dag, OpId id, const Span& span, std::vector<DeviceSpans>& devices) {
  const OpRecord& record = dag.record(id);
  const auto at = [&](std::int32_t device) -> DeviceSpans& {
    ensure(device >= 0 && static_cast<std::size_t>(device) < devices.size(),
           "device_use has an entry for every device of the DAG");
    return devices[static_cast<std::size_t>(device)];
  };
  switch (dag.kind(id)) {
    case OpKind::compute:
    case OpKind::update:
    case OpKind::local:
    case OpKind::delay:
      at(record.device).kernels.push_back(span);
      break;
    case OpKind::transfer:
      at(record.device).communication.push_back(span);
      if (record.to != record.device) at(record.to).communication.push_back(span);
      break;
    case OpKind::collective:
      for (const DeviceId member : dag.group(GroupId{record.device})) {
        if (dag.fold.lacks(member)) continue;  // it gets what another one has
        at(member.value).communication.push_back(span);
      }
      break;
  }
}

}  // namespace

Seconds makespan(const Timeline& timeline) {
  Seconds latest{};
  for (const Span& span : timeline.spans) latest = std::max(latest, span.end);
  return latest;
}

std::vector<DeviceUse> device_use(const ExecDag& dag, const Timeline& timeline,
                                  std::size_t devices) {
  ensure(timeline.spans.size() == dag.size(), "a timeline has a span for every operation");
  std::vector<DeviceSpans> spans(devices);
  for (std::size_t i = 0; i < dag.size(); ++i) file(dag, OpId{i}, timeline.spans[i], spans);

  const Seconds whole = makespan(timeline);
  std::vector<DeviceUse> use(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    const std::vector<Span> kernels = union_of(std::move(spans[d].kernels));
    const std::vector<Span> communication = union_of(std::move(spans[d].communication));
    use[d].compute = length(kernels);
    // Differences of long sums: what rounding leaves of nothing must not show as a share of time.
    const auto rest = [&](Seconds time) { return time > 1e-12 * whole ? time : Seconds{}; };
    use[d].exposed_communication = rest(length(communication) - overlap(kernels, communication));
    use[d].idle = rest(whole - use[d].compute - use[d].exposed_communication);
  }
  dag.fold.copy_to_all(use);
  return use;
}

}  // namespace parsim
