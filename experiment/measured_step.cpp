#include "experiment/measured_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/cost_model.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

namespace {

constexpr std::size_t index_of_part(GpuPart part) { return static_cast<std::size_t>(part); }

GpuPart gpu_part_of(StepPart part) {
  switch (part) {
    case StepPart::peak:
    case StepPart::products:
      return GpuPart::products;
    case StepPart::attention:
      return GpuPart::attention;
    case StepPart::element_wise:
      return GpuPart::element_wise;
    case StepPart::optimizer:
      return GpuPart::optimizer;
    case StepPart::exposed_sends:
      return GpuPart::communication;
    case StepPart::delays:
    case StepPart::imbalance:
    case StepPart::bubbles:
      return GpuPart::idle;
  }
  throw BrokenInvariant("a part of the step outside its enum");
}

/// What is not busy is idle. `others` counts where it stands in StepPart's place of delays.
GpuParts gpu_parts(const Waterfall& times, Seconds step, GpuPart delays) {
  GpuParts parts{};
  for (std::size_t p = 0; p < times.size(); ++p) {
    const auto part = static_cast<StepPart>(p);
    parts[index_of_part(part == StepPart::delays ? delays : gpu_part_of(part))] += times[p];
  }
  Seconds busy{};
  for (const Seconds time : parts) busy += time;
  const Seconds left = step - busy;
  constexpr double rounding = 1e-12;  // of a sum of thousands of times
  if (std::abs(left.count()) > rounding * step.count()) {
    parts[index_of_part(GpuPart::idle)] += left;
  }
  return parts;
}

/// Of a window of the trace. Work of unknown kind stands where StepPart has delays.
GpuParts measured_parts(const TraceSteps& trace, const Span& window) {
  std::vector<Busy> busy;
  for (const TraceWork& work : trace.work) {
    const Span inside{std::max(work.span.start, window.start), std::min(work.span.end, window.end)};
    if (inside.end > inside.start) {
      busy.push_back({inside, work.part.value_or(StepPart::delays)});
    }
  }
  return gpu_parts(exclusive_times(busy), window.end - window.start, GpuPart::rest);
}

using CallKey = std::pair<CallShape, bool>;  ///< shape, whether forward

/// A kernel of the plan that differs from others of its shape.
struct PlannedKind {
  WorkId work;
  std::set<Pass> passes{};
};

/// The plan's kernels on the device by shape.
struct PlannedShape {
  ShapeTimes times{};
  std::map<Pass, std::int64_t> calls{};
  std::map<std::vector<std::int64_t>, PlannedKind> kinds{};  ///< by signature, its pass left out
};

std::map<CallKey, PlannedShape> planned_shapes(const Run& run, DeviceId device) {
  const ExecDag& dag = run.dag;
  std::map<CallKey, PlannedShape> shapes;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) != OpKind::compute || record.device != device.value) continue;
    const WorkId work{record.what};
    const LayerId layer = dag.work(work).layer;
    const auto pass = static_cast<Pass>(record.sub);
    const bool forward = pass == Pass::forward || pass == Pass::recompute;
    const Part part = dag.part(work);
    const std::optional<CallShape> shape = shape_of_part(dag.network, layer, part);
    if (!shape) continue;
    PlannedShape& planned = shapes[{*shape, forward}];
    ShapeTimes& times = planned.times;
    if (planned.calls.empty()) {
      times.shape = *shape;
      times.forward = forward;
      times.layer = dag.network[layer].name;
    }
    ++planned.calls[pass];
    const Span& span = run.timeline.spans[i];
    times.predicted += span.end - span.start;
    const Layer& what = dag.network[layer];
    const std::vector<Shape> inputs = input_shapes(dag.network, layer);
    PlannedKind& kind = planned.kinds
                            .try_emplace(kernel_signature(what.kind, inputs, what.out, part,
                                                          Pass::forward, dag.precision),
                                         PlannedKind{work})
                            .first->second;
    kind.passes.insert(forward ? Pass::forward : pass);
  }
  for (auto& [key, shape] : shapes) {
    auto& calls = shape.calls;  // the gradients of a divided pass are one call
    shape.times.predicted_calls =
        calls[Pass::forward] + calls[Pass::recompute] + calls[Pass::backward] +
        std::max(calls[Pass::backward_data], calls[Pass::backward_weights]);
  }
  return shapes;
}

/// Products that PyTorch's models make in one, such as queries, keys and values: of dense layers
/// that read one tensor, by the shape of all together.
std::map<CallShape, std::vector<CallShape>> fused_products(const ExecDag& dag, DeviceId device) {
  std::map<LayerId, std::map<LayerId, CallShape>> by_input;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) != OpKind::compute || record.device != device.value) continue;
    const LayerId layer = dag.work(WorkId{record.what}).layer;
    if (dag.network[layer].kind.as<Dense>() == nullptr) continue;
    const Part part = dag.part(WorkId{record.what});
    by_input[dag.network[layer].inputs[0]].try_emplace(
        layer, shape_of_part(dag.network, layer, part).value());
  }
  std::map<CallShape, std::vector<CallShape>> fused;
  for (const auto& [input, layers] : by_input) {
    std::vector<CallShape> parts;
    CallShape whole = layers.begin()->second;
    whole.extents[2] = 0;
    for (const auto& [layer, shape] : layers) {
      whole.extents[2] += shape.extents[2];
      if (std::equal(shape.extents.begin(), shape.extents.begin() + 2, whole.extents.begin())) {
        parts.push_back(shape);
      }
    }
    if (parts.size() > 1 && parts.size() == layers.size()) fused.try_emplace(whole, parts);
  }
  return fused;
}

/// Convolutions of the plan by their shape without strides; those that it does not tell apart are
/// left out.
std::map<CallShape, CallShape> without_strides(const std::map<CallKey, PlannedShape>& planned) {
  std::map<CallShape, CallShape> known;
  std::set<CallShape> twice;
  for (const auto& [key, shape] : planned) {
    if (key.first.what != "conv" || !key.second) continue;
    CallShape less = key.first;
    less.extents.resize(less.extents.size() - (less.extents.size() - 3) / 3);
    if (!known.try_emplace(less, key.first).second) twice.insert(less);
  }
  for (const CallShape& shape : twice) known.erase(shape);
  return known;
}

/// The calls with fused products divided by their outputs, but those of shapes that the plan has.
std::vector<LayerCall> divided_calls(const TraceSteps& trace, const ExecDag& dag, DeviceId device,
                                     const std::map<CallKey, PlannedShape>& planned) {
  const auto fused = fused_products(dag, device);
  const auto convolutions = without_strides(planned);
  std::vector<LayerCall> calls;
  for (const LayerCall& call : trace.calls) {
    const auto parts = fused.find(call.shape);
    if (parts == fused.end() || planned.contains({call.shape, true})) {
      const auto convolution = convolutions.find(call.shape);
      calls.push_back(call);
      if (convolution != convolutions.end()) calls.back().shape = convolution->second;
      continue;
    }
    for (const CallShape& part : parts->second) {
      const double share =
          static_cast<double>(part.extents[2]) / static_cast<double>(call.shape.extents[2]);
      LayerCall& divided = calls.emplace_back(call);
      divided.shape = part;
      for (Seconds* time : {&divided.forward, &divided.backward, &divided.backward_data,
                            &divided.backward_weights}) {
        *time = share * *time;
      }
    }
  }
  return calls;
}

/// What a pass of a call took; nothing if the trace does not say it. What of a backward pass may be
/// either gradient is shared out as the rest of it.
std::optional<Seconds> time_of(const LayerCall& call, Pass pass, bool divided) {
  if (pass == Pass::forward) return call.forward;
  if (!divided) return call.backward;
  const Seconds known = call.backward_data + call.backward_weights;
  if (call.backward_data <= Seconds{} || call.backward_weights <= Seconds{}) return std::nullopt;
  return call.backward *
         ((pass == Pass::backward_data ? call.backward_data : call.backward_weights) / known);
}

using CallsOfShape = std::map<CallShape, std::vector<const LayerCall*>>;

/// Calls of complete steps.
CallsOfShape by_shape(const std::vector<LayerCall>& all, std::size_t steps) {
  CallsOfShape calls;
  for (const LayerCall& call : all) {
    if (call.step < steps) calls[call.shape].push_back(&call);
  }
  return calls;
}

/// The kernel's time in all calls; empty if the trace does not say it.
std::vector<Seconds> times_of(const std::vector<const LayerCall*>& calls, Pass pass, bool divided) {
  std::vector<Seconds> times;
  for (const LayerCall* call : calls) {
    const std::optional<Seconds> time = time_of(*call, pass, divided);
    if (time && *time > Seconds{}) times.push_back(*time);
  }
  return times;
}

void check_traced_precision(const TraceSteps& trace, Precision precision,
                            const std::string& trace_name) {
  const std::string& type = trace.precision_of_products;
  const std::string_view found = type == "c10::BFloat16" ? "bf16"
                                 : type == "c10::Half"   ? "fp16"
                                 : type == "float"       ? "fp32"
                                                         : "";
  if (found.empty()) return;
  const Precision stored = storage_of(precision);
  const bool same = to_text(stored) == found || (found == "fp32" && stored == Precision::tf32);
  if (same) return;
  throw InputError(
      "--precision",
      fmt::format("{}, but matrix products of {} are in {}", to_text(precision), trace_name, found),
      fmt::format("accepted: {}{}", found, found == "fp32" ? " or tf32" : ""));
}

void add_sample(const Run& run, const PlannedKind& kind, Pass pass, const Spread& time,
                const std::string& device, std::vector<KernelSample>& samples) {
  const ExecDag& dag = run.dag;
  const LayerId layer = dag.work(kind.work).layer;
  samples.push_back({device, dag.network[layer].kind, input_shapes(dag.network, layer),
                     dag.part(kind.work), pass, dag.precision, time});
}

/// The machine of a profile: the traced device alone.
Machine traced_machine(const Cluster& cluster, DeviceId device, const std::string& trace_name) {
  Machine machine;
  machine.backend = "cuda";
  machine.name = cluster.model(device).name;
  machine.versions = {};
  machine.clocks = "times of " + trace_name + ", a trace of PyTorch's profiler";
  Cluster& alone = machine.cluster;
  alone.name = cluster.model(device).name;
  alone.models = {cluster.model(device)};
  alone.nodes = {{"node"}};
  Device one = cluster[device];
  one.node = NodeId{0};
  one.model = 0;
  alone.devices = {one};
  connect_as_star(machine, {{BytesPerSecond{1e9}, Seconds{}}});
  return machine;
}

}  // namespace

double MeasuredStep::points(GpuPart part) const {
  if (measured == predicted) return 0;
  const std::size_t p = index_of_part(part);
  return (predicted_mfu - measured_mfu) *
         ((measured_parts[p] - predicted_parts[p]) / (measured - predicted));
}

MeasuredStep compare_with_trace(const Experiment& experiment, const Run& run,
                                const TraceSteps& trace, DeviceId device,
                                const std::string& trace_name) {
  const Cluster& cluster = experiment.cluster;
  if (trace.steps.empty()) {
    throw InputError(trace_name, "no kernel in a complete step",
                     "accepted: a trace of whole steps, each with kernels");
  }
  check_traced_precision(trace, run.dag.precision, trace_name);
  MeasuredStep step;
  step.device = device;
  step.steps = trace.steps.size();
  const std::size_t median = trace.median();
  const Span& window = trace.steps.at(median);
  step.predicted = run.result.step_time;
  step.measured = window.end - window.start;
  step.predicted_mfu = run.result.flops.mfu(step.predicted);
  step.measured_mfu = run.result.flops.mfu(step.measured);
  step.predicted_parts =
      gpu_parts(device_times(run.dag, run.timeline, device, cluster.devices.size()), step.predicted,
                GpuPart::idle);
  step.measured_parts = measured_parts(trace, window);

  std::map<CallKey, PlannedShape> planned = planned_shapes(run, device);
  const std::string& model = cluster.model(device).name;
  std::size_t unknown = 0;
  const std::vector<LayerCall> all = divided_calls(trace, run.dag, device, planned);
  const CallsOfShape calls = by_shape(all, trace.steps.size());
  for (const auto& [key, shape] : planned) {
    const auto found = calls.find(key.first);
    if (found == calls.end()) continue;
    for (const auto& [signature, kind] : shape.kinds) {
      for (const Pass pass : kind.passes) {
        const std::vector<Seconds> times = times_of(found->second, pass, kind.passes.size() > 1);
        if (times.empty()) {
          ++unknown;
        } else {
          add_sample(run, kind, pass, spread_of(times), model, step.profile.kernels);
        }
      }
    }
  }
  for (const LayerCall& call : all) {
    if (call.step != median) continue;
    for (const bool forward : {true, false}) {
      const Seconds time = forward ? call.forward : call.backward;
      if (time <= Seconds{}) continue;
      const auto [entry, fresh] = planned.try_emplace({call.shape, forward});
      ShapeTimes& times = entry->second.times;
      if (fresh) {
        times.shape = call.shape;
        times.forward = forward;
      }
      ++times.measured_calls;
      times.measured += time;
      if (times.layer.empty()) step.unknown_shapes += time;
    }
  }
  for (auto& [shape, both] : planned) step.shapes.push_back(std::move(both.times));
  std::stable_sort(step.shapes.begin(), step.shapes.end(),
                   [](const ShapeTimes& a, const ShapeTimes& b) {
                     return std::abs((a.measured - a.predicted).count()) >
                            std::abs((b.measured - b.predicted).count());
                   });
  step.modules = module_times(run, trace, all, device);
  step.profile.machine = traced_machine(cluster, device, trace_name);
  if (!trace.has_shapes) {
    step.notes.emplace_back(
        "the trace has no shapes, so layers are not compared: record_shapes=True in "
        "torch.profiler.profile()");
  }
  if (unknown > 0) {
    step.notes.push_back(fmt::format("{} {} not in the profile: the trace does not tell how long",
                                     counted(static_cast<std::int64_t>(unknown), "kernel"),
                                     unknown == 1 ? "is" : "are"));
  }
  if (trace.annotated == 0) {
    step.notes.emplace_back(
        "no ProfilerStep in the trace, so all of it counts as one step: profiler.step() after "
        "each step marks them");
  }
  return step;
}

}  // namespace parsim::experiment
