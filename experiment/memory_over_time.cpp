#include "experiment/memory_over_time.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "lowering/gradient_flow.hpp"
#include "lowering/kept_activations.hpp"
#include "lowering/memory.hpp"

namespace parsim::experiment {

namespace {

/// A layer's kernels for a micro-batch on a device.
struct LayerTimes {
  Seconds last_backward{};  ///< 0: no backward pass
  bool recomputes = false;
};

struct Allocation {
  Seconds from{}, until{};
  Bytes bytes{};
};

class ActivationMemory {
 public:
  ActivationMemory(const ExecDag& dag, const Timeline& timeline, std::size_t devices,
                   Framework framework)
      : dag_(dag),
        timeline_(timeline),
        whole_(lowering::kept_bytes(dag.network, dag.precision)),
        kept_(whole_),
        source_(lowering::gradient_flow(dag.network).source),
        readers_(dag.network.layers.size()),
        found_(devices) {
    for (std::size_t l = 0; l < readers_.size(); ++l) {
      for (const LayerId input : dag.network.layers[l].inputs) {
        readers_[input.index()].push_back(LayerId{l});
      }
    }
    for (std::size_t i = 0; i < dag.size(); ++i) {
      note_kernel(OpId{i});
      note_movement(OpId{i});
      note_scatter(OpId{i});
    }
    if (of_megatron(framework)) free_what_is_sent();
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const OpKind kind = dag.kind(OpId{i});
      if (kind == OpKind::compute) add_output(OpId{i});
      if (kind == OpKind::transfer || kind == OpKind::collective) add_received(OpId{i});
    }
  }

  [[nodiscard]] std::vector<std::vector<MemoryChange>> changes() const {
    std::vector<std::vector<MemoryChange>> all;
    for (const std::vector<Allocation>& allocations : found_) all.push_back(sum_of(allocations));
    return all;
  }

 private:
  /// As lowering::outputs_stay() has it of a plan.
  void free_what_is_sent() {
    std::vector<std::set<std::int32_t>> devices(readers_.size());
    for (const auto& [kernel, times] : times_) {
      devices[std::get<LayerId>(kernel).index()].insert(std::get<0>(kernel));
    }
    kept_ =
        lowering::kept_bytes(dag_.network, dag_.precision, [&](LayerId producer, LayerId reader) {
          const std::set<std::int32_t>& reads = devices[reader.index()];
          return std::any_of(devices[producer.index()].begin(), devices[producer.index()].end(),
                             [&](std::int32_t device) { return reads.contains(device); });
        });
  }
  void note_kernel(OpId id) {
    if (dag_.kind(id) != OpKind::compute) return;
    const OpRecord& record = dag_.record(id);
    const auto pass = static_cast<Pass>(record.sub);
    LayerTimes& times =
        times_[{record.device, dag_.work(WorkId{record.what}).layer, record.target}];
    if (pass == Pass::recompute) times.recomputes = true;
    if (pass == Pass::forward || pass == Pass::recompute) return;
    times.last_backward = std::max(times.last_backward, timeline_.spans[id.index()].end);
  }
  /// Of a device's output, by layer, micro-batch and region: what it has no longer once its partial
  /// sums are reduce-scattered, in forward and the last time (lowering::elements_kept()).
  struct Scattered {
    std::int64_t elements = 0;
    Seconds first{}, last{};
  };
  void note_scatter(OpId id) {
    const OpKind kind = dag_.kind(id);
    if (kind != OpKind::transfer && kind != OpKind::collective) return;
    if (dag_.role(id) != Role::partial_sum) return;
    const Op op = dag_.op(id);
    const auto* transfer = std::get_if<Transfer>(&op);
    const auto* collective = std::get_if<Collective>(&op);
    const Slice& what = transfer != nullptr ? transfer->slice : collective->slice;
    const Tensor& tensor = dag_.tensor(what.tensor);
    if (tensor.kind != Tensor::Kind::output) return;
    const Seconds end = timeline_.spans[id.index()].end;
    const auto note = [&](DeviceId device, std::int64_t left) {
      Scattered& one =
          scattered_
              .try_emplace({device.value, LayerId{tensor.index}, what.micro_batch, what.region},
                           Scattered{0, end, end})
              .first->second;
      one.elements = dag_.region(what.region).volume() - left;
      one.last = end;
    };
    if (transfer != nullptr) return note(transfer->from, 0);
    if (collective->kind != CollectiveKind::reduce_scatter) return;
    const std::vector<DeviceId>& members = dag_.group(collective->group);
    for (std::size_t m = 0; m < members.size(); ++m)
      note(members[m], dag_.region(dag_.shares(id).regions[m]).volume());
  }
  /// Layer, micro-batch, region, and a device that receives or a member.
  using Moved = std::tuple<LayerId, std::int32_t, RegionId, std::int32_t>;
  /// Of a transfer or collective of activations; none for others.
  [[nodiscard]] std::optional<Moved> moved_by(const Op& op) const {
    const auto* transfer = std::get_if<Transfer>(&op);
    const auto* collective = std::get_if<Collective>(&op);
    if (transfer == nullptr && collective == nullptr) return std::nullopt;
    const Slice& target = transfer != nullptr ? transfer->target : collective->target;
    const Tensor& tensor = dag_.tensor(target.tensor);
    if (tensor.kind != Tensor::Kind::output && tensor.kind != Tensor::Kind::edge)
      return std::nullopt;
    const DeviceId device =
        transfer != nullptr ? transfer->to : dag_.group(collective->group).front();
    return Moved{LayerId{tensor.index}, target.micro_batch, target.region, device.value};
  }
  /// What is moved again in backward is not kept until then, and the sender of tokens of experts
  /// keeps nothing of them (lowering::memory_use()).
  void note_movement(OpId id) {
    const OpKind kind = dag_.kind(id);
    if (kind != OpKind::transfer && kind != OpKind::collective) return;
    if (dag_.role(id) != Role::activation) return;
    const Op op = dag_.op(id);
    const std::optional<Moved> moved = moved_by(op);
    if (!moved || ++times_moved_[*moved] > 1) return;
    LayerId layer = std::get<LayerId>(*moved);
    const bool of_experts = dag_.network[layer].out.region_axis(Dim::expert) != 0;
    while (lowering::works_in_place(dag_.network[layer].kind))
      layer = dag_.network[layer].inputs[0];
    const auto* away = std::get_if<Transfer>(&op);
    Seconds& left = left_[{away != nullptr ? away->from.value : std::get<3>(*moved), layer,
                           std::get<1>(*moved)}];
    left = std::max(left, timeline_.spans[id.index()].end);
    if (!of_experts) return;
    const auto send = [&](DeviceId device, std::int64_t elements) {
      sent_[{device.value, layer, std::get<1>(*moved)}] += elements;
    };
    if (const auto* transfer = std::get_if<Transfer>(&op)) {
      return send(transfer->from, dag_.region(transfer->target.region).volume());
    }
    const auto& collective = std::get<Collective>(op);
    if (collective.kind != CollectiveKind::all_to_all) return;
    const std::vector<DeviceId>& members = dag_.group(collective.group);
    const Shares& shares = dag_.shares(id);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Region& has = dag_.region(shares.regions[m]);
      send(members[m], has.volume() - intersect(has, dag_.region(shares.needs[m])).volume());
    }
  }
  [[nodiscard]] LayerTimes times_of(std::int32_t device, LayerId layer, std::int32_t micro) const {
    const auto found = times_.find({device, layer, micro});
    return found == times_.end() ? LayerTimes{} : found->second;
  }
  /// The end of the last backward kernel of the layer, or of those that read it.
  [[nodiscard]] Seconds release_of(std::int32_t device, LayerId layer, std::int32_t micro) const {
    Seconds last = times_of(device, layer, micro).last_backward;
    if (last > Seconds{}) return last;
    for (const LayerId reader : readers_[layer.index()]) {
      last = std::max(last, times_of(device, reader, micro).last_backward);
    }
    return last;
  }

  void add_output(OpId id) {
    const OpRecord& record = dag_.record(id);
    const auto pass = static_cast<Pass>(record.sub);
    if (pass != Pass::forward && pass != Pass::recompute) return;
    const Work work = dag_.work(WorkId{record.what});
    const Layer& layer = dag_.network[work.layer];
    // Parts of a contraction add up in one place.
    if (!outputs_.insert({record.device, record.target, work.layer, work.out, pass}).second) return;
    const Part part = dag_.part(WorkId{record.what});
    const Span& span = timeline_.spans[id.index()];
    const LayerTimes times = times_of(record.device, work.layer, record.target);
    const Seconds release = release_of(record.device, work.layer, record.target);
    std::int64_t elements = lowering::works_in_place(layer.kind) ? 0 : part.out.volume();
    if (const auto sent = sent_.find({record.device, work.layer, record.target});
        sent != sent_.end()) {
      elements = std::max<std::int64_t>(0, elements - sent->second);
    }
    if (const auto away = scattered_.find({record.device, work.layer, record.target, work.out});
        elements > 0 && away != scattered_.end()) {
      const Scattered& one = away->second;
      elements -= one.elements;
      add(record.device, {span.start, pass == Pass::forward ? one.first : one.last,
                          Bytes{one.elements * whole_[work.layer.index()]}});
    }
    const std::int64_t own = elements * kept_[work.layer.index()];
    const bool dropped = pass == Pass::forward && times.recomputes;
    add(record.device, {span.start, dropped ? span.end : release, Bytes{own}});
    if (const auto left = left_.find({record.device, work.layer, record.target});
        left != left_.end()) {
      const std::int64_t sent = elements * whole_[work.layer.index()] - own;
      add(record.device, {span.start, left->second, Bytes{sent}});
    }
    if (pass == Pass::recompute) return;
    const std::vector<Shape> inputs = input_shapes(dag_.network, work.layer);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (!source_[layer.inputs[i].index()]) continue;
      const std::int64_t data = input_region(layer.kind, inputs, layer.out, i, part).volume();
      add(record.device, {span.start, release, Bytes{data * element_bytes(dag_.precision)}});
    }
  }

  /// Of a transfer or collective of activations what each member receives.
  void add_received(OpId id) {
    if (dag_.role(id) != Role::activation) return;
    const Op op = dag_.op(id);
    const auto* transfer = std::get_if<Transfer>(&op);
    const auto* collective = std::get_if<Collective>(&op);
    const std::optional<Moved> moved = moved_by(op);
    if (!moved || --times_moved_[*moved] > 0) return;  // moved again later
    const Slice& target = transfer != nullptr ? transfer->target : collective->target;
    const LayerId layer = std::get<LayerId>(*moved);
    const Seconds end = timeline_.spans[id.index()].end;
    const auto receive = [&](DeviceId device, std::int64_t bytes) {
      if (!received_.insert({device.value, target.micro_batch, layer, target.region}).second)
        return;
      Seconds last{};
      for (const LayerId reader : readers_[layer.index()]) {
        const Seconds read = times_of(device.value, reader, target.micro_batch).last_backward;
        last = std::max(last, read);
      }
      add(device.value, {end, last, Bytes{bytes}});
    };
    if (transfer != nullptr) {
      if (transfer->from != transfer->to) receive(transfer->to, dag_.payload(id).value);
      return;
    }
    const std::vector<DeviceId>& members = dag_.group(collective->group);
    const Shares& shares = dag_.shares(id);
    const std::int64_t element = element_bytes(dag_.precision);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const auto own = [&] { return dag_.region(shares.regions[m]).volume() * element; };
      switch (collective->kind) {
        case CollectiveKind::all_reduce:
          break;  // in the memory of what each member adds
        case CollectiveKind::broadcast:
          if (m > 0) receive(members[m], dag_.payload(id).value);
          break;
        case CollectiveKind::all_gather:
          receive(members[m], dag_.payload(id).value - own());
          break;
        case CollectiveKind::reduce_scatter:
          receive(members[m], own());
          break;
        case CollectiveKind::all_to_all:
          receive(
              members[m],
              (dag_.region(shares.needs[m]).volume() -
               intersect(dag_.region(shares.needs[m]), dag_.region(shares.regions[m])).volume()) *
                  element);
          break;
      }
    }
  }

  void add(std::int32_t device, const Allocation& made) {
    if (made.until <= made.from || made.bytes <= Bytes{}) return;
    found_[static_cast<std::size_t>(device)].push_back(made);
  }

  /// What ends makes room for what begins at the same time.
  static std::vector<MemoryChange> sum_of(const std::vector<Allocation>& allocations) {
    std::map<Seconds, Bytes> changes;
    for (const Allocation& made : allocations) {
      changes[made.from] += made.bytes;
      changes[made.until] += Bytes{-made.bytes.value};
    }
    std::vector<MemoryChange> sums;
    Bytes now{};
    for (const auto& [at, change] : changes) {
      now += change;
      if (change != Bytes{}) sums.push_back({at, now});
    }
    return sums;
  }

  const ExecDag& dag_;
  const Timeline& timeline_;
  std::vector<std::int64_t> whole_, kept_;  ///< by layer, bytes of an element; without what is sent
  std::vector<bool> source_;
  std::vector<std::vector<LayerId>> readers_;
  std::vector<std::vector<Allocation>> found_;
  std::map<std::tuple<std::int32_t, LayerId, std::int32_t>, LayerTimes> times_{};
  std::set<std::tuple<std::int32_t, std::int32_t, LayerId, RegionId, Pass>> outputs_{};
  std::set<std::tuple<std::int32_t, std::int32_t, LayerId, RegionId>> received_{};
  std::map<Moved, int> times_moved_{};
  /// By device, layer and micro-batch: elements of tokens of experts that go elsewhere.
  std::map<std::tuple<std::int32_t, LayerId, std::int32_t>, std::int64_t> sent_{};
  std::map<std::tuple<std::int32_t, LayerId, std::int32_t, RegionId>, Scattered> scattered_{};
  /// By device, layer and micro-batch: when a device has sent an output, the last time.
  std::map<std::tuple<std::int32_t, LayerId, std::int32_t>, Seconds> left_{};
};

}  // namespace

std::vector<std::vector<MemoryChange>> memory_over_time(const ExecDag& dag,
                                                        const Timeline& timeline,
                                                        std::size_t devices, Framework framework) {
  return ActivationMemory(dag, timeline, devices, framework).changes();
}

}  // namespace parsim::experiment
