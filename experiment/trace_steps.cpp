#include "experiment/trace_steps.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

namespace parsim::experiment {

namespace {

constexpr std::size_t no_event = std::numeric_limits<std::size_t>::max();
constexpr std::string_view backward_prefix = "autograd::engine::evaluate_function: ";

/// Whether a node of the autograd graph runs: the engine's call, or the node's own operator in it,
/// "AddmmBackward0". Up to PyTorch 1.11 only the latter has the sequence number.
bool is_backward_node(const TraceEvent& event, std::string_view name) {
  if (event.kind != TraceEvent::Kind::op) return false;
  if (name.starts_with(backward_prefix)) return true;
  const std::size_t last = name.find_last_not_of("0123456789");
  return last != name.npos && name.substr(0, last + 1).ends_with("Backward");
}

/// What is known of the events of the host, by position in KinetoTrace::events.
class HostEvents {
 public:
  explicit HostEvents(const KinetoTrace& trace)
      : trace_(trace), parent_(trace.events.size(), no_event) {
    nest();
    for (std::size_t e = 0; e < trace.events.size(); ++e) {
      const TraceEvent& event = trace.events[e];
      if (event.kind == TraceEvent::Kind::launch) launches_[event.correlation] = e;
      if (event.kind != TraceEvent::Kind::op) continue;
      if (event.external >= 0) by_external_.try_emplace(event.external, e);
      if (event.sequence < 0) continue;
      if (!is_of_backward(e)) {
        by_sequence_[event.sequence].push_back(e);
      } else if (is_backward(e) && parent_[e] != no_event) {
        of_node_.try_emplace(parent_[e], event.sequence);
      }
    }
    for (auto& [sequence, ops] : by_sequence_) {
      std::sort(ops.begin(), ops.end(), [&](std::size_t a, std::size_t b) {
        return trace_.events[a].start < trace_.events[b].start;
      });
    }
  }

  [[nodiscard]] const std::string& name(std::size_t event) const {
    return trace_.name_of(trace_.events[event]);
  }
  [[nodiscard]] std::size_t parent(std::size_t event) const { return parent_[event]; }
  [[nodiscard]] bool is_backward(std::size_t event) const {
    return is_backward_node(trace_.events[event], name(event));
  }

  /// Whether the engine itself adds up gradients of a tensor that several layers read.
  [[nodiscard]] bool is_accumulation(std::size_t op) const {
    const std::string& what = name(op);
    return (what == "aten::add" || what == "aten::add_") && parent_[op] != no_event &&
           name(parent_[op]).starts_with(backward_prefix);
  }
  /// The layer that an operator with shapes, or a module, is.
  [[nodiscard]] std::optional<CallShape> layer_of(std::size_t event) const {
    const TraceEvent& what = trace_.events[event];
    if (what.kind == TraceEvent::Kind::op && what.shapes != 0) {
      return shape_of_call(name(event), trace_.shapes[what.shapes]);
    }
    const auto first = first_op_.find(event);
    if (what.kind != TraceEvent::Kind::module || first == first_op_.end()) return std::nullopt;
    return shape_of_module(name(event), trace_.shapes[trace_.events[first->second].shapes]);
  }

  /// The call of the runtime that starts work on the GPU, or nothing.
  [[nodiscard]] std::size_t launch_of(const TraceEvent& work) const {
    const auto found = launches_.find(work.correlation);
    return work.correlation < 0 || found == launches_.end() ? no_event : found->second;
  }
  /// The innermost operator that starts it, or nothing. An id that repeats the correlation is
  /// CUDA's, and an operator that has the same one has nothing to do with it.
  [[nodiscard]] std::size_t op_of(const TraceEvent& work) const {
    const auto found = by_external_.find(work.external);
    const bool linked = work.external >= 0 && work.external != work.correlation;
    if (linked && found != by_external_.end()) return found->second;
    const std::size_t launch = launch_of(work);
    return launch == no_event ? no_event : parent_[launch];
  }
  /// The operator whose backward pass has this sequence number: the last one before it that has the
  /// number, too, because operators count on only when they make a node of the graph.
  [[nodiscard]] std::size_t forward_of(std::size_t backward) const {
    const TraceEvent& event = trace_.events[backward];
    const auto node = of_node_.find(backward);
    const bool inner = event.sequence < 0 && node != of_node_.end();
    const auto found = by_sequence_.find(inner ? node->second : event.sequence);
    if (found == by_sequence_.end()) return no_event;
    std::size_t last = no_event;
    for (const std::size_t op : found->second) {
      if (trace_.events[op].start < event.start) last = op;
    }
    return last;
  }

 private:
  /// Events of a thread lie within each other: sorted by start, longer ones first, the last one
  /// that has not ended is the parent. Times in whole microseconds leave ties: launches contain
  /// nothing, and of two operators the one that began first has the smaller id.
  void nest() {
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < trace_.events.size(); ++e) {
      if (trace_.events[e].kind < TraceEvent::Kind::kernel) order.push_back(e);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const TraceEvent &one = trace_.events[a], &other = trace_.events[b];
      if (one.thread != other.thread) return one.thread < other.thread;
      if (one.start != other.start) return one.start < other.start;
      const bool launches = one.kind == TraceEvent::Kind::launch;
      if (launches != (other.kind == TraceEvent::Kind::launch)) return !launches;
      if (one.end != other.end) return one.end > other.end;
      return one.external < other.external;
    });
    std::vector<std::size_t> open;
    for (const std::size_t e : order) {
      const TraceEvent& event = trace_.events[e];
      while (!open.empty() && (trace_.events[open.back()].thread != event.thread ||
                               trace_.events[open.back()].end <= event.start)) {
        open.pop_back();
      }
      if (!open.empty()) {
        parent_[e] = open.back();
        const bool in_module = trace_.events[open.back()].kind == TraceEvent::Kind::module;
        if (in_module && event.shapes != 0) first_op_.try_emplace(open.back(), e);
      }
      if (event.kind != TraceEvent::Kind::launch) open.push_back(e);
    }
  }
  /// Whether an operator is a part of the backward pass, not of a layer that is recomputed in it.
  [[nodiscard]] bool is_of_backward(std::size_t event) const {
    for (std::size_t e = event; e != no_event; e = parent_[e]) {
      if (is_backward(e)) return true;
      if (trace_.events[e].kind == TraceEvent::Kind::module) return false;
      if (is_layer_op(name(e)) && !is_of_both_passes(name(e))) return false;
    }
    return false;
  }

  const KinetoTrace& trace_;
  std::vector<std::size_t> parent_;
  std::unordered_map<std::size_t, std::size_t> first_op_;  ///< with shapes, of a module
  std::unordered_map<std::int64_t, std::size_t> launches_, by_external_;
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_sequence_;
  std::unordered_map<std::size_t, std::int64_t> of_node_;  ///< of the node that the engine calls
};

/// What the operators around a kernel say.
struct KernelOrigin {
  std::size_t layer = no_event;  ///< the forward operator that is the layer
  bool backward = false;
  bool of_optimizer = false;
  bool recomputed = false;        ///< `layer` runs again, within the backward pass
  std::size_t module = no_event;  ///< the innermost call of a module
  std::optional<StepPart> part;   ///< of the innermost operator that tells
};

class OriginFinder {
 public:
  OriginFinder(const KinetoTrace& trace, const HostEvents& host) : trace_(trace), host_(host) {}

  [[nodiscard]] KernelOrigin origin_of(std::size_t op) const {
    KernelOrigin origin;
    if (op != no_event && host_.is_accumulation(op)) {
      origin.backward = true;
      origin.part = StepPart::element_wise;
      if (host_.layer_of(op)) origin.layer = op;
      return origin;
    }
    std::size_t backward = no_event;
    for (std::size_t e = op; e != no_event; e = host_.parent(e)) {
      const std::string& name = host_.name(e);
      if (name.starts_with("Optimizer.step") || name.starts_with("_fused_adam")) {
        origin.of_optimizer = true;
      }
      if (backward != no_event) continue;
      keep_module(e, origin);
      if (host_.is_backward(e)) {
        backward = e;
        continue;
      }
      const bool is_op = trace_.events[e].kind == TraceEvent::Kind::op;
      if (is_op && !origin.part) origin.part = part_of_op(name);
      if (host_.layer_of(e)) origin.layer = e;  // the outermost stays
    }
    // Within the backward pass a product or a sum is the backward pass; a layer was recomputed.
    if (backward == no_event) return origin;
    origin.recomputed = origin.layer != no_event && !is_of_both_passes(host_.name(origin.layer));
    if (origin.recomputed) return origin;
    origin.layer = no_event;
    origin.backward = true;
    for (std::size_t e = host_.forward_of(backward); e != no_event; e = host_.parent(e)) {
      if (host_.is_backward(e)) break;
      keep_module(e, origin);
      if (host_.layer_of(e)) origin.layer = e;
    }
    if (origin.layer != no_event) {
      const bool is_op = trace_.events[origin.layer].kind == TraceEvent::Kind::op;
      origin.part = is_op ? part_of_op(host_.name(origin.layer)) : StepPart::element_wise;
    }
    return origin;
  }

 private:
  void keep_module(std::size_t event, KernelOrigin& origin) const {
    const bool inner = origin.module == no_event;
    if (inner && trace_.events[event].kind == TraceEvent::Kind::module) origin.module = event;
  }

  const KinetoTrace& trace_;
  const HostEvents& host_;
};

/// Paths of modules by the name of the innermost, which is unique. Recomputation calls modules
/// without those around them, so the longest path of a module is its own.
class ModulePaths {
 public:
  ModulePaths(const KinetoTrace& trace, const HostEvents& host) : trace_(trace), host_(host) {}

  /// Of a call of a module, or of nothing.
  std::size_t index_of(std::size_t event, std::vector<ModulePath>& paths) {
    if (event == no_event) return no_event;
    ModulePath path;
    for (std::size_t e = event; e != no_event; e = host_.parent(e)) {
      if (trace_.events[e].kind != TraceEvent::Kind::module) continue;
      path.push_back(host_.name(e).substr(module_prefix.size()));
    }
    std::reverse(path.begin(), path.end());
    const auto [entry, fresh] = known_.try_emplace(trace_.events[event].name, paths.size());
    if (fresh) paths.emplace_back();
    if (path.size() > paths[entry->second].size()) paths[entry->second] = std::move(path);
    return entry->second;
  }

 private:
  const KinetoTrace& trace_;
  const HostEvents& host_;
  std::unordered_map<std::uint32_t, std::size_t> known_;
};

/// Which gradient a kernel of a layer's backward pass makes; nothing if it may be either.
///
/// With rows m, and n outputs of k inputs, that of the input is m x n times n x k, that of the
/// weights sums over the m rows, as does a bias's sum. Convolutions say it in the kernel's name.
std::optional<Pass> gradient_of(const CallShape& layer, std::string_view op, const OpShapes& shapes,
                                std::string_view kernel) {
  if (layer.what == "conv") {
    if (kernel.find("dgrad") != std::string_view::npos) return Pass::backward_data;
    if (kernel.find("wgrad") != std::string_view::npos) return Pass::backward_weights;
    return std::nullopt;
  }
  if (layer.what != "matmul") return std::nullopt;
  if (op == "aten::sum") return Pass::backward_weights;
  const std::optional<CallShape> product = shape_of_call(op, shapes);
  if (!product || product->what != "matmul") return std::nullopt;
  const std::int64_t m = layer.extents[0], k = layer.extents[1], n = layer.extents[2];
  const bool data = product->extents == std::vector{m, n, k};
  const bool weights = product->extents[1] == m;
  if (data == weights) return std::nullopt;
  return data ? Pass::backward_data : Pass::backward_weights;
}

bool is_number_format(std::string_view type) {
  return type == "float" || type == "double" || type == "c10::Half" || type == "c10::BFloat16" ||
         type.starts_with("c10::Float8");
}

/// Beginnings of the steps on the host, the last one's end behind them; empty: no annotation.
std::vector<double> borders_on_host(const KinetoTrace& trace) {
  std::vector<double> starts, optimizer_ends;
  double end = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != TraceEvent::Kind::annotation) continue;
    const std::string& name = trace.name_of(event);
    if (name.starts_with(profiler_step_prefix)) {
      starts.push_back(event.start);
      end = std::max(end, event.end);
    }
    if (name.starts_with(optimizer_step_prefix)) optimizer_ends.push_back(event.end);
  }
  std::sort(starts.begin(), starts.end());
  if (!starts.empty()) {
    starts.push_back(end);
    return starts;
  }
  // Several optimizers of one step would make short steps; one is the rule.
  std::sort(optimizer_ends.begin(), optimizer_ends.end());
  if (optimizer_ends.size() < 2) return {};
  return optimizer_ends;
}

}  // namespace

std::size_t TraceSteps::median() const {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].end - steps[a].start < steps[b].end - steps[b].start;
  });
  return order[(order.size() - 1) / 2];
}

TraceSteps steps_of(const KinetoTrace& trace) {
  const HostEvents host(trace);
  const OriginFinder finder(trace, host);
  TraceSteps made;
  made.has_shapes = trace.shapes.size() > 1;
  double zero = std::numeric_limits<double>::infinity();
  for (const TraceEvent& event : trace.events) zero = std::min(zero, event.start);
  const auto seconds = [&](double microseconds) { return Seconds{(microseconds - zero) * 1e-6}; };

  const std::vector<double> borders = borders_on_host(trace);
  const std::size_t marked = borders.empty() ? 1 : borders.size() - 1;
  // The step in which the host started something; `marked` after the last, one more before the
  // first.
  const auto step_at = [&](double start) -> std::size_t {
    if (borders.empty()) return 0;
    const auto after = std::upper_bound(borders.begin(), borders.end(), start);
    const auto index = static_cast<std::size_t>(after - borders.begin());
    return index == 0 ? marked + 1 : index - 1;
  };
  std::vector<double> first(marked + 2, std::numeric_limits<double>::infinity());
  double last_end = -std::numeric_limits<double>::infinity();

  ModulePaths modules(trace, host);
  std::unordered_map<std::size_t, std::size_t> call_of;  // by the layer's operator
  std::map<std::string, double> types;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != TraceEvent::Kind::kernel && event.kind != TraceEvent::Kind::copy) continue;
    const std::size_t op = host.op_of(event), launch = host.launch_of(event);
    const Seconds time{(event.end - event.start) * 1e-6};
    const double started = launch != no_event ? trace.events[launch].start
                           : op != no_event   ? trace.events[op].start
                                              : event.start;
    const std::size_t step = step_at(started);
    const bool kernel = event.kind == TraceEvent::Kind::kernel;
    if (kernel) first[step] = std::min(first[step], event.start);
    if (step < marked) last_end = std::max(last_end, event.end);

    TraceWork& work = made.work.emplace_back();
    work.span = {seconds(event.start), seconds(event.end)};
    work.name = event.name;
    work.step = step;
    const std::optional<StepPart> by_name =
        kernel ? part_of_kernel(trace.name_of(event)) : std::nullopt;
    const KernelOrigin origin = op == no_event ? KernelOrigin{} : finder.origin_of(op);
    work.module = modules.index_of(origin.module, made.modules);
    work.part = by_name == StepPart::exposed_sends ? by_name
                : origin.of_optimizer              ? StepPart::optimizer
                : origin.part                      ? origin.part
                                                   : by_name;
    if (op != no_event && work.part == StepPart::products) {
      const OpShapes& shapes = trace.shapes[trace.events[op].shapes];
      const auto type = std::find_if(shapes.types.begin(), shapes.types.end(), is_number_format);
      if (type != shapes.types.end()) types[*type] += time.count();
    }
    if (origin.layer == no_event || origin.of_optimizer) continue;
    const auto [entry, fresh] = call_of.try_emplace(origin.layer, made.calls.size());
    if (fresh) {
      const TraceEvent& layer = trace.events[origin.layer];
      LayerCall& added = made.calls.emplace_back();
      added.shape = host.layer_of(origin.layer).value();
      added.step = step_at(layer.start);
      added.module = work.module;
      added.start = seconds(layer.start);
      added.recomputed = origin.recomputed;
    }
    LayerCall& call = made.calls[entry->second];
    (origin.backward ? call.backward : call.forward) += time;
    if (!origin.backward) continue;
    const TraceEvent& inner = trace.events[op];
    const std::optional<Pass> gradient = gradient_of(
        call.shape, trace.name_of(inner), trace.shapes[inner.shapes], trace.name_of(event));
    if (gradient == Pass::backward_data) call.backward_data += time;
    if (gradient == Pass::backward_weights) call.backward_weights += time;
  }
  std::stable_sort(made.work.begin(), made.work.end(), [](const TraceWork& a, const TraceWork& b) {
    return a.span.start < b.span.start;
  });
  double most = 0;
  for (const auto& [type, time] : types) {
    if (time <= most) continue;
    most = time;
    made.precision_of_products = type;
  }

  made.annotated = borders.empty() ? 0 : marked;
  std::vector<std::size_t> numbers;  // of the steps that have kernels
  for (std::size_t s = 0; s < marked; ++s) {
    if (first[s] < std::numeric_limits<double>::infinity()) numbers.push_back(s);
  }
  std::vector<std::size_t> position(marked + 2, no_event);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double begin = first[numbers[i]];
    const double next = i + 1 < numbers.size() ? first[numbers[i + 1]] : first[marked];
    const bool known = next < std::numeric_limits<double>::infinity() && next > begin;
    if (!known && numbers.size() > 1) continue;
    double end = known ? next : last_end;
    if (!known && !borders.empty()) end = std::max(end, begin + borders.back() - borders.front());
    position[numbers[i]] = made.steps.size();
    made.steps.push_back({seconds(begin), seconds(end)});
  }
  for (LayerCall& call : made.calls) call.step = position[call.step];
  for (TraceWork& work : made.work) work.step = position[work.step];
  return made;
}

}  // namespace parsim::experiment
