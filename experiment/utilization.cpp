#include "experiment/utilization.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/critical_chain.hpp"
#include "core/dag_traffic.hpp"
#include "lowering/recompute.hpp"

namespace parsim::experiment {

namespace {

/// Of the slots of experts, the part that tokens need. What they compute lies behind a dispatch.
double needed_slots(const Network& network, LayerId id) {
  while (network[id].kind.as<ExpertDispatch>() == nullptr) {
    if (network[id].inputs.empty()) return 1;
    id = network[id].inputs[0];
  }
  const auto& dispatch = *network[id].kind.as<ExpertDispatch>();
  const std::int64_t tokens = network[network[id].inputs[0]].out.axes[0].extent;
  const std::int64_t slots = network[id].out.axes[0].extent * dispatch.slots;
  return std::min(1.0, static_cast<double>(tokens * dispatch.top_k) / static_cast<double>(slots));
}

/// Forward FLOPs of a part, as StepFlops counts them.
double counted_flops(const Network& network, LayerId id, const Part& part) {
  const Layer& layer = network[id];
  const std::vector<Shape> shapes = input_shapes(network, id);
  LayerKind kind = layer.kind;
  double seen = 1;
  if (const auto* attention = kind.as<Attention>()) {
    const auto keys = static_cast<double>(shapes[1].axes[0].extent);
    if (attention->window > 0) seen = std::min(1.0, static_cast<double>(attention->window) / keys);
    kind = Attention{attention->heads, attention->key_heads, false};
  }
  const double flops = seen * forward_flops(kind, shapes, layer.out, part).value;
  return layer.kind.as<ExpertDense>() != nullptr ? flops * needed_slots(network, id) : flops;
}

bool is_attention(const LayerKind& kind) {
  return kind.as<Attention>() != nullptr || kind.as<MatMul>() != nullptr;
}

/// Counted FLOPs of a forward pass over one sample: of attention, and of all else.
struct ForwardFlops {
  double attention = 0, products = 0;
};
ForwardFlops forward_of(const Network& network) {
  ForwardFlops sum;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const double flops = counted_flops(network, id, {whole(network[id].out, 1), {}});
    (is_attention(network[id].kind) ? sum.attention : sum.products) += flops;
  }
  return sum;
}

/// By device: whether it computes layers.
std::vector<bool> computing(const ExecDag& dag, std::size_t devices) {
  std::vector<bool> computes(devices);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) == OpKind::compute) {
      computes[static_cast<std::size_t>(dag.record(OpId{i}).device)] = true;
    }
  }
  return computes;
}

constexpr double passes = 3;  // one forward, and backward two gradients of as many FLOPs

}  // namespace

std::string mfu_above_peak(const Network& network, bool calibrated) {
  const bool masks = std::any_of(network.layers.begin(), network.layers.end(),
                                 [](const Layer& layer) { return is_attention(layer.kind); });
  std::string why = masks ? "MFU counts, by convention, attention scores that the mask hides"
                          : "MFU counts, by convention, all products of convolutions; Winograd's "
                            "algorithm does with fewer";
  if (calibrated) {
    why +=
        "; or a row of --calibrate-with is off: check its unit of time, batch, precision and GPU";
  }
  return why;
}

double highest_mfu(const Network& network, Precision precision) {
  constexpr double unmasked = 0.5, winograd = 0.25;
  double all = 0, needed = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const double flops = counted_flops(network, id, {whole(network[id].out, 1), {}});
    const auto* conv = network[id].kind.as<Conv>();
    const bool transforms = conv != nullptr && element_bytes(precision) == 4 &&
                            std::all_of(conv->windows.begin(), conv->windows.end(),
                                        [](const Window& window) { return window.kernel >= 3; });
    all += flops;
    needed += flops * (is_attention(network[id].kind) ? unmasked : transforms ? winograd : 1);
  }
  return needed > 0 ? all / needed : 1;
}

double StepFlops::mfu(Seconds step) const {
  const double most = step.count() * peak.value;
  return most > 0 ? model.value / most : 0;
}

double StepFlops::hfu(Seconds step) const {
  const double most = step.count() * peak.value;
  return most > 0 ? (model.value + recomputed.value) / most : 0;
}

Flops model_forward_flops(const Network& network) {
  const ForwardFlops flops = forward_of(network);
  return {flops.attention + flops.products};
}

StepFlops step_flops(const ExecDag& dag, const Cluster& cluster) {
  StepFlops flops;
  flops.model = {passes * static_cast<double>(dag.batch) * model_forward_flops(dag.network).value};
  std::vector<std::optional<double>> of_work;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    if (static_cast<Pass>(record.sub) != Pass::recompute) continue;
    const WorkId work{record.what};
    if (of_work.size() <= work.index()) of_work.resize(work.index() + 1);
    std::optional<double>& known = of_work[work.index()];
    if (!known) known = counted_flops(dag.network, dag.work(work).layer, dag.part(work));
    flops.recomputed.value += static_cast<double>(dag.count(OpId{i})) * *known;
  }
  std::vector<bool> computes = computing(dag, cluster.devices.size());
  dag.fold.copy_to_all(computes);
  for (std::size_t d = 0; d < computes.size(); ++d) {
    if (computes[d]) flops.peak.value += cluster.model(DeviceId{d}).peak_at(dag.precision).value;
  }
  return flops;
}

Waterfall exclusive_times(const std::vector<Busy>& all) {
  Waterfall times{};
  // At every border one begins or ends.
  std::vector<std::pair<Seconds, std::pair<std::size_t, int>>> borders;
  for (const Busy& busy : all) {
    if (busy.span.end <= busy.span.start) continue;
    const auto part = static_cast<std::size_t>(busy.part);
    borders.push_back({busy.span.start, {part, 1}});
    borders.push_back({busy.span.end, {part, -1}});
  }
  std::sort(borders.begin(), borders.end());
  std::array<int, step_part_count> running{};
  Seconds before{};
  for (const auto& [at, change] : borders) {
    const auto first = std::find_if(running.begin(), running.end(), [](int n) { return n > 0; });
    if (first != running.end()) {
      times[static_cast<std::size_t>(first - running.begin())] += at - before;
    }
    running[change.first] += change.second;
    before = at;
  }
  return times;
}

namespace {

/// The part that a layer's kernels belong to.
std::vector<StepPart> parts_of_layers(const Network& network) {
  std::vector<StepPart> parts;
  for (const Layer& layer : network.layers) {
    const bool product = layer.kind.as<Conv>() != nullptr || layer.kind.as<Dense>() != nullptr ||
                         layer.kind.as<ExpertDense>() != nullptr;
    parts.push_back(product                    ? StepPart::products
                    : is_attention(layer.kind) ? StepPart::attention
                                               : StepPart::element_wise);
  }
  for (const LayerId id : lowering::attention_scores(network)) {
    parts[id.index()] = StepPart::attention;
  }
  return parts;
}

std::vector<std::vector<Busy>> by_device(const ExecDag& dag, const Timeline& timeline,
                                         std::size_t devices) {
  const std::vector<StepPart> layers = parts_of_layers(dag.network);
  std::vector<std::vector<Busy>> busy(devices);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    const Span span = timeline.spans[i];
    const auto add = [&](std::int32_t device, StepPart part) {
      busy[static_cast<std::size_t>(device)].push_back({span, part});
    };
    switch (dag.kind(OpId{i})) {
      case OpKind::compute:
        add(record.device, layers[dag.work(WorkId{record.what}).layer.index()]);
        break;
      case OpKind::update:
        add(record.device, StepPart::optimizer);
        break;
      case OpKind::local:
        add(record.device, StepPart::element_wise);
        break;
      case OpKind::delay:
        add(record.device, StepPart::delays);
        break;
      case OpKind::transfer:
        add(record.device, StepPart::exposed_sends);
        if (record.to != record.device) add(record.to, StepPart::exposed_sends);
        break;
      case OpKind::collective:
        for (const DeviceId member : dag.group(GroupId{record.device})) {
          add(member.value, StepPart::exposed_sends);
        }
        break;
    }
  }
  return busy;
}

/// Adds waiting for hosts, which no operation explains: before a step begins for the samples, and
/// before an operation, when all that it waits for has ended, for its launch.
void add_waits_for_hosts(const ExecDag& dag, const Timeline& timeline,
                         std::vector<std::vector<Busy>>& busy) {
  constexpr double rounding = 1e-9;  // of the step
  const Seconds least = makespan(timeline) * rounding;
  const std::vector<OpId> before = awaited(dag, timeline, busy.size());
  Seconds begin = makespan(timeline);
  for (const Span& span : timeline.spans) begin = std::min(begin, span.start);
  if (begin > least) {
    for (std::vector<Busy>& device : busy) device.push_back({{Seconds{}, begin}, StepPart::delays});
  }
  std::vector<Queue> queues_of_op;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Seconds ready = before[i].valid() ? timeline.spans[before[i].index()].end : begin;
    const Seconds start = timeline.spans[i].start;
    if (start - ready <= least) continue;
    queues(dag, OpId{i}, queues_of_op);
    for (const Queue& queue : queues_of_op) {
      busy[queue.device.index()].push_back({{ready, start}, StepPart::delays});
    }
  }
}

Seconds& at(Waterfall& times, StepPart part) { return times[static_cast<std::size_t>(part)]; }

}  // namespace

Waterfall device_times(const ExecDag& dag, const Timeline& timeline, DeviceId device,
                       std::size_t devices) {
  return exclusive_times(by_device(dag, timeline, devices)[device.index()]);
}

Waterfall waterfall(const ExecDag& dag, const Timeline& timeline, const Cluster& cluster) {
  const std::size_t devices = cluster.devices.size();
  const std::vector<bool> computes = computing(dag, devices);
  const Seconds step = makespan(timeline);
  std::vector<std::vector<Busy>> busy = by_device(dag, timeline, devices);
  add_waits_for_hosts(dag, timeline, busy);
  std::vector<Waterfall> times;
  std::vector<Seconds> kernels;
  for (std::size_t d = 0; d < devices; ++d) {
    if (!computes[d]) continue;
    times.push_back(exclusive_times(busy[d]));
    Seconds sum{};
    for (const Seconds time : times.back()) sum += time;
    kernels.push_back(sum - at(times.back(), StepPart::exposed_sends));
  }
  Waterfall mean{};
  if (times.empty() || step <= Seconds{}) return mean;
  const Seconds busiest = *std::max_element(kernels.begin(), kernels.end());
  const auto count = static_cast<double>(times.size());
  for (std::size_t d = 0; d < times.size(); ++d) {
    const Seconds idle =
        std::max(Seconds{}, step - kernels[d] - at(times[d], StepPart::exposed_sends));
    at(times[d], StepPart::imbalance) = std::min(idle, busiest - kernels[d]);
    at(times[d], StepPart::bubbles) = idle - at(times[d], StepPart::imbalance);
    for (std::size_t p = 0; p < step_part_count; ++p) mean[p] += times[d][p] / count;
  }
  // The model FLOPs at the peak come out of the kernels that compute them.
  const StepFlops flops = step_flops(dag, cluster);
  const ForwardFlops forward = forward_of(dag.network);
  const double all = forward.attention + forward.products;
  if (all <= 0) return mean;
  const Seconds ideal = flops.model / flops.peak;
  at(mean, StepPart::peak) = ideal;
  at(mean, StepPart::products) -= ideal * (forward.products / all);
  at(mean, StepPart::attention) -= ideal * (forward.attention / all);
  return mean;
}

}  // namespace parsim::experiment
