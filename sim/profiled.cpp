// Measured times where a profile has them: the same kernel; else the nearest shape of its class,
// scaled by the model's ratio; else the model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "core/errors.hpp"
#include "core/hash.hpp"
#include "sim/sim.hpp"
#include "sim/size_table.hpp"

namespace parsim::sim {

namespace {

using KernelKey = std::vector<std::int64_t>;
struct KernelKeyHash {
  std::size_t operator()(const KernelKey& key) const noexcept { return hash_of(key); }
};

/// A network of one layer, to price a sample's shape with the base model.
struct SampleNetwork {
  Network network;
  LayerId layer;
};
SampleNetwork network_of_sample(const KernelSample& sample) {
  SampleNetwork alone;
  std::vector<LayerId> inputs;
  for (const Shape& shape : sample.inputs) {
    inputs.push_back(
        add_input(alone.network, fmt::format("input{}", alone.network.layers.size()), shape));
  }
  alone.layer = add_layer(alone.network, "layer", sample.kind, inputs);
  return alone;
}

/// Kernels of one class can stand in for each other, scaled.
KernelKey class_of(const LayerKind& kind, Pass pass, Precision precision) {
  if (pass == Pass::recompute) pass = Pass::forward;
  KernelKey key{static_cast<std::int64_t>(kind.value.index()), static_cast<std::int64_t>(pass),
                static_cast<std::int64_t>(precision)};
  if (const auto* conv = kind.as<Conv>()) {
    key.push_back(conv->groups > 1 ? 1 : 0);
    for (const Window& window : conv->windows) key.push_back(window.kernel);
  }
  return key;
}

bool is_machine_of(const Profile& profile, const Cluster& cluster) {
  return profile.machine.cluster.devices.size() == cluster.devices.size() &&
         profile.machine.cluster.name == cluster.name;
}

class Profiled final : public CostModel {
 public:
  Profiled(const Cluster& cluster, std::unique_ptr<CostModel> base, const Profile& profile)
      : cluster_(cluster),
        base_(std::move(base)),
        launches_operations_(profile.launch.samples > 0) {
    summary_ = fmt::format(
        "measured on {} ({}); other shapes scaled from the nearest measured one, other kernels: {}",
        profile.machine.name, profile.machine.backend, base_->summary());
    for (std::size_t m = 0; m < cluster.models.size(); ++m) {
      tables_.emplace_back();
      fill(tables_.back(), cluster.models[m].name, profile);
      for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
        if (cluster.devices[d].model != static_cast<std::int32_t>(m)) continue;
        price_samples(tables_.back(), DeviceId{d});
        break;
      }
    }
    if (!is_machine_of(profile, cluster)) return;  // another machine's wires are not these
    for (const MessageSample& sample : profile.messages) {
      exact_[{sample.kind, sample.devices}][sample.payload.value] = sample.time.median;
      by_count_[{sample.kind, sample.devices.size()}][sample.payload.value] = sample.time.median;
    }
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const ModelTable& table = table_of(device);
    const Layer& what = network[layer];
    const std::vector<Shape> shapes = input_shapes(network, layer);
    KernelKey key = kernel_signature(what.kind, shapes, what.out, part, pass, precision);
    const auto exact = table.exact.find(key);
    if (exact != table.exact.end()) {
      const bool one = launches_operations_;
      return {exact->second, Origin::measured,
              one ? 1 : base_->compute(network, layer, part, pass, device, precision).launches};
    }
    key.push_back(cluster_.devices[device.index()].model);
    const auto known = memo_.find(key);
    if (known != memo_.end()) return known->second;
    Cost cost = base_->compute(network, layer, part, pass, device, precision);
    const auto near = table.classes.find(class_of(what.kind, pass, precision));
    if (near != table.classes.end()) {
      // The nearest by the model's time; the first sample among equals.
      double best = INFINITY;
      Seconds time{};
      for (const Sample& sample : near->second) {
        // A layer that costs the model nothing takes the time of the nearest size.
        const bool priced = sample.modelled > Seconds{} && cost.time > Seconds{};
        const double ratio =
            priced ? cost.time / sample.modelled
                   : static_cast<double>(part.out.volume()) / static_cast<double>(sample.elements);
        const double distance = std::abs(std::log(ratio));
        if (distance >= best) continue;
        best = distance;
        time = sample.measured * (priced ? ratio : 1.0);
      }
      if (best < INFINITY) cost = {time, Origin::scaled, cost.launches};
    }
    if (launches_operations_) cost.launches = 1;
    memo_.emplace(std::move(key), cost);
    return cost;
  }

  [[nodiscard]] std::int32_t alike(DeviceId device) const override {
    return cluster_[device].model;
  }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    const SizeTable& table = table_of(device).memory;
    if (const auto time = interpolated(table, touched)) {
      return {*time, table.contains(touched.value) ? Origin::measured : Origin::scaled};
    }
    return base_->memory(device, touched);
  }

  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return message("transfer", std::array{from, to}, payload)
        .value_or(base_->transfer(from, to, payload));
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return message(std::string(to_text(kind)), group, payload)
        .value_or(base_->collective(kind, group, payload));
  }
  [[nodiscard]] std::optional<Seconds> communication(const ExecDag& dag, OpId id) const override {
    const OpRecord& record = dag.record(id);
    if (dag.kind(id) == OpKind::transfer) {
      if (record.device == record.to) return std::nullopt;  // within a device
      return message("transfer", std::array{DeviceId{record.device}, DeviceId{record.to}},
                     dag.payload(id));
    }
    if (dag.kind(id) != OpKind::collective || dag.group(GroupId{record.device}).size() < 2) {
      return std::nullopt;
    }
    return message(std::string(to_text(static_cast<CollectiveKind>(record.sub))),
                   dag.group(GroupId{record.device}), dag.payload(id));
  }
  [[nodiscard]] std::string summary() const override { return summary_; }

  [[nodiscard]] std::string accuracy(Precision precision) const override {
    const auto of = spreads_.find(precision);
    if (of == spreads_.end()) return base_->accuracy(precision);
    std::vector<double> spreads = of->second;
    const auto middle = spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2);
    std::nth_element(spreads.begin(), middle, spreads.end());
    return fmt::format(
        "quartiles of measured kernels within {:.3g} % of the time used (median of "
        "{} kernels); others: {}",
        100 * *middle, spreads.size(), base_->accuracy(precision));
  }

 private:
  struct Sample {
    const KernelSample* sample = nullptr;  ///< during construction only
    Seconds measured{}, modelled{};
    std::int64_t elements = 1;  ///< of the output
  };
  struct ModelTable {
    std::unordered_map<KernelKey, Seconds, KernelKeyHash> exact;
    std::map<KernelKey, std::vector<Sample>> classes;
    SizeTable memory;
  };

  void fill(ModelTable& table, const std::string& model, const Profile& profile) {
    for (const KernelSample& sample : profile.kernels) {
      if (sample.device != model) continue;
      const Spread& time = sample.time;
      spreads_[sample.precision].push_back(
          std::max(time.high - time.median, time.median - time.low) / time.median);
      const Shape out = output_shape(sample.kind, sample.inputs, "profile");
      table.exact[kernel_signature(sample.kind, sample.inputs, out, sample.part, sample.pass,
                                   sample.precision)] = sample.time.median;
      table.classes[class_of(sample.kind, sample.pass, sample.precision)].push_back(
          {&sample, sample.time.median, Seconds{}, sample.part.out.volume()});
    }
    for (const MemorySample& sample : profile.memory) {
      if (sample.device == model) table.memory[sample.touched.value] = sample.time.median;
    }
  }
  void price_samples(ModelTable& table, DeviceId device) const {
    for (auto& [key, samples] : table.classes) {
      for (Sample& sample : samples) {
        const SampleNetwork alone = network_of_sample(*sample.sample);
        sample.modelled = base_
                              ->compute(alone.network, alone.layer, sample.sample->part,
                                        sample.sample->pass, device, sample.sample->precision)
                              .time;
        sample.sample = nullptr;
      }
    }
  }
  [[nodiscard]] const ModelTable& table_of(DeviceId device) const {
    return tables_[static_cast<std::size_t>(cluster_.devices[device.index()].model)];
  }
  [[nodiscard]] std::optional<Seconds> message(const std::string& kind,
                                               std::span<const DeviceId> devices,
                                               Bytes payload) const {
    const auto exact = exact_.find({kind, std::vector<DeviceId>(devices.begin(), devices.end())});
    if (exact != exact_.end()) return interpolated(exact->second, payload);
    const auto alike = by_count_.find({kind, devices.size()});
    if (alike == by_count_.end()) return std::nullopt;
    return interpolated(alike->second, payload);
  }

  const Cluster& cluster_;
  std::unique_ptr<CostModel> base_;
  bool launches_operations_ = false;  ///< each at once, as the profile's launch interval counts
  std::string summary_;
  std::map<Precision, std::vector<double>> spreads_;  ///< of kernels: quartile to median / median
  std::vector<ModelTable> tables_;                    ///< by model of the cluster
  std::map<std::pair<std::string, std::vector<DeviceId>>, SizeTable> exact_;
  std::map<std::pair<std::string, std::size_t>, SizeTable> by_count_;
  mutable std::unordered_map<KernelKey, Cost, KernelKeyHash> memo_;
};

}  // namespace

std::vector<CommonMemory> common_memory_of(const Profile& profile, const Cluster& cluster) {
  std::vector<CommonMemory> scarce;
  if (!is_machine_of(profile, cluster)) return scarce;
  for (const CommonMemory& memory : profile.common_memory) {
    if (memory.limits()) scarce.push_back(memory);
  }
  return scarce;
}

std::vector<std::vector<DeviceId>> shared_gpus_of(const Profile& profile, const Cluster& cluster) {
  std::vector<std::vector<DeviceId>> gpus;
  if (!is_machine_of(profile, cluster) || profile.machine.backend != "cuda") return gpus;
  for (const CommonMemory& memory : profile.common_memory) {
    std::vector<DeviceId>& parts = gpus.emplace_back();
    for (const MemoryPart& part : memory.parts) parts.push_back(part.device);
    std::sort(parts.begin(), parts.end());
  }
  return gpus;
}

std::unique_ptr<CostModel> make_profiled(const Cluster& cluster, std::unique_ptr<CostModel> base,
                                         const Profile& profile, const std::string& where) {
  std::set<std::string> measured;
  for (const KernelSample& sample : profile.kernels) measured.insert(sample.device);
  for (const DeviceModel& model : cluster.models) {
    if (measured.contains(model.name)) {
      return std::make_unique<Profiled>(cluster, std::move(base), profile);
    }
  }
  const std::vector<std::string> known(measured.begin(), measured.end());
  throw InputError(where,
                   fmt::format("the profile has no kernel of any device of '{}'", cluster.name),
                   fmt::format("accepted: a cluster with {}", join(known, " or ")));
}

}  // namespace parsim::sim
