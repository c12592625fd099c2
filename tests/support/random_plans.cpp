#include "tests/support/random_plans.hpp"

#include <algorithm>
#include <random>
#include <set>

namespace parsim::testing {
namespace {

class Generator {
 public:
  Generator(const Network& network, std::size_t gpus, std::int64_t batch, std::uint64_t seed,
            bool replicates = false)
      : network_(network),
        gpus_(gpus),
        random_(seed),
        plan_(single_device_plan(network, batch)),
        replicates_(replicates) {}

  Plan run() {
    plan_.schedule.micro_batches = static_cast<std::int32_t>(pick({1, 1, 2, 4}));
    layers();
    schedule();
    buckets();
    return std::move(plan_);
  }

  Plan run_interleaved() {
    const std::size_t layers_of_all = network_.layers.size();
    const std::size_t devices = gpus_ >= 4 && layers_of_all >= 8 && chance(2) ? 4 : 2;
    const std::size_t chunks = layers_of_all >= 3 * devices && chance(2) ? 3 : 2;
    const std::size_t width = gpus_ / devices, all = gpus_;
    plan_.schedule.micro_batches = static_cast<std::int32_t>(
        devices == 4 ? 4 : pick({2, static_cast<std::int64_t>(devices) * 2}));
    gpus_ = width;
    layers();
    gpus_ = all;
    std::set<std::size_t> first{0};
    while (first.size() < std::min(devices * chunks, layers_of_all)) {
      first.insert(below(layers_of_all));
    }
    for (std::size_t l = 0; l < layers_of_all; ++l) {
      const auto stage = std::distance(first.begin(), first.upper_bound(l)) - 1;
      plan_.schedule.stage_of_layer[l] = static_cast<std::int32_t>(stage);
      const std::size_t begin = static_cast<std::size_t>(stage) % devices * width;
      for (DeviceId& device : plan_.layers[l].devices.edit())
        device = DeviceId{begin + device.index()};
    }
    plan_.schedule.rank_lists.clear();
    for (std::size_t d = 0; d < devices; ++d) {
      RankList& list = plan_.schedule.rank_lists.emplace_back();
      for (std::size_t k = 0; k < width; ++k) list.devices.emplace_back(d * width + k);
      list.slots =
          interleaved_order(static_cast<std::int32_t>(d), static_cast<std::int32_t>(devices),
                            static_cast<std::int32_t>(chunks), plan_.schedule.micro_batches);
    }
    buckets();
    return std::move(plan_);
  }

 private:
  void layers() {
    samples_ = plan_.batch / plan_.schedule.micro_batches;
    // Layers that share parameters may not be replicated differently: they are not replicated.
    std::vector<std::size_t> users(network_.parameters.size(), 0);
    for (const Layer& layer : network_.layers) {
      for (const ParameterId id : layer.parameters) ++users[id.index()];
    }
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const std::vector<ParameterId>& parameters = network_.layers[l].parameters;
      tied_ = std::any_of(parameters.begin(), parameters.end(),
                          [&](ParameterId id) { return users[id.index()] > 1; });
      layer(LayerId{l});
    }
  }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  std::int64_t pick(const std::vector<std::int64_t>& values) {
    return values[below(values.size())];
  }

  /// Parts of an extent with random borders; now and then an empty one.
  std::vector<std::int64_t> sizes(std::int64_t extent, std::size_t parts) {
    std::vector<std::int64_t> borders{0, extent};
    for (std::size_t p = 1; p < parts; ++p) {
      borders.push_back(static_cast<std::int64_t>(below(static_cast<std::size_t>(extent) + 1)));
    }
    std::sort(borders.begin(), borders.end());
    std::vector<std::int64_t> result;
    for (std::size_t p = 0; p < parts; ++p) result.push_back(borders[p + 1] - borders[p]);
    return result;
  }

  std::int64_t extent_of(LayerId id, Dim dim) {
    if (dim == Dim::sample) return samples_;
    if (dim != Dim::in_channel) return network_[id].out.extent(dim);
    return contraction_extent(network_[id].kind, input_shapes(network_, id));
  }

  void layer(LayerId id) {
    LayerPlan& plan = plan_.layers[id.index()];
    // Often like the layer before it, as real plans are.
    const bool by_all = replicates_ && !chance(3);
    if (by_all) {
      plan.cuts = {{Dim::sample, even_split(samples_, gpus_)}};
      plan.devices.clear();
      for (std::size_t d = 0; d < gpus_; ++d) plan.devices.emplace_back(d);
      std::shuffle(plan.devices.edit().begin(), plan.devices.edit().end(), random_);
    } else if (id.index() > 0 && chance(3)) {
      plan.devices = plan_.layers[id.index() - 1].devices;
      if (plan.devices.size() > 1 && plan.devices.size() <= gpus_) {
        plan.cuts = {{Dim::sample, sizes(samples_, plan.devices.size())}};
      } else {
        plan.devices.resize(1);
      }
    } else {
      grid(id, plan);
    }
    plan.recompute = chance(5);
    if (!by_all && chance(2)) {
      plan.sync = {Sync::Kind::server, DeviceId{below(gpus_ + 1)}};
    } else {
      plan.sync.kind = Sync::Kind::ring;
    }
  }

  void grid(LayerId id, LayerPlan& plan) {
    std::vector<Dim> dims =
        cuttable_dims(network_[id].kind, input_shapes(network_, id), network_[id].out);
    if (tied_ || gpus_ < 2) std::erase(dims, Dim::replica);
    std::shuffle(dims.begin(), dims.end(), random_);
    std::size_t cells = 1;
    std::size_t replicas = 1;
    const std::size_t wanted = below(4);
    for (std::size_t d = 0; d < dims.size() && plan.cuts.size() < wanted; ++d) {
      const std::size_t parts = 1 + below(3);
      if (cells * parts > 8) break;
      if (dims[d] == Dim::replica) {
        if (parts > gpus_) continue;
        replicas = parts;
        plan.cuts.push_back({Dim::replica, std::vector<std::int64_t>(parts, 1)});
      } else {
        plan.cuts.push_back({dims[d], sizes(extent_of(id, dims[d]), parts)});
      }
      cells *= parts;
    }
    // Replica r uses devices r, r + replicas, …: a device computes one replica of a layer.
    std::size_t after_replica = 1;
    for (std::size_t c = plan.cuts.size(); c-- > 0;) {
      if (plan.cuts[c].dim == Dim::replica) break;
      after_replica *= plan.cuts[c].sizes.size();
    }
    plan.devices.clear();
    for (std::size_t cell = 0; cell < cells; ++cell) {
      const std::size_t replica = replicas == 1 ? 0 : cell / after_replica % replicas;
      const std::size_t choices = (gpus_ - replica + replicas - 1) / replicas;
      plan.devices.emplace_back(replica + replicas * below(choices));
    }
  }

  /// One to three stages of contiguous layers; all devices in one rank list, or one rank list each.
  void schedule() {
    Schedule& schedule = plan_.schedule;
    const std::size_t stages = 1 + below(3);
    std::int32_t stage = 0;
    for (std::int32_t& s : schedule.stage_of_layer) {
      s = stage;
      if (chance(3) && stage + 1 < static_cast<std::int32_t>(stages)) ++stage;
    }
    std::vector<Slot> order;
    const bool in_turn = chance(2);
    for (std::int32_t m = 0; m < schedule.micro_batches; ++m) {
      for (std::int32_t s = 0; s <= stage; ++s) order.push_back({s, m, Direction::forward});
      for (std::int32_t s = stage; in_turn && s >= 0; --s) {
        order.push_back({s, m, Direction::backward});
      }
    }
    for (std::int32_t m = 0; !in_turn && m < schedule.micro_batches; ++m) {
      for (std::int32_t s = stage; s >= 0; --s) order.push_back({s, m, Direction::backward});
    }
    schedule.rank_lists.clear();
    const bool together = chance(2);
    std::vector<DeviceId> all;
    for (std::size_t d = 0; d < gpus_; ++d) all.emplace_back(d);
    if (together) {
      schedule.rank_lists.push_back({all, slots_of(all, order)});
    } else {
      for (const DeviceId device : all) {
        schedule.rank_lists.push_back({{device}, slots_of({device}, order)});
      }
    }
  }

  std::vector<Slot> slots_of(const std::vector<DeviceId>& devices, const std::vector<Slot>& order) {
    std::set<std::int32_t> stages;
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      for (const DeviceId device : plan_.layers[l].devices) {
        if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
          stages.insert(plan_.schedule.stage_of_layer[l]);
        }
      }
    }
    std::vector<Slot> own;
    std::copy_if(order.begin(), order.end(), std::back_inserter(own),
                 [&](const Slot& slot) { return stages.contains(slot.stage); });
    return own;
  }

  void buckets() {
    std::vector<ParameterId> left;
    for (std::size_t p = network_.parameters.size(); p-- > 0;) left.emplace_back(p);
    if (chance(3)) std::shuffle(left.begin(), left.end(), random_);
    while (!left.empty() && !chance(4)) {
      const std::size_t count = 1 + below(left.size());
      plan_.buckets.emplace_back(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count));
      left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }

  const Network& network_;
  std::size_t gpus_;
  std::mt19937_64 random_;
  Plan plan_;
  std::int64_t samples_ = 1;
  bool tied_ = false;
  bool replicates_ = false;
};

}  // namespace

Plan single_device_plan(const Network& network, std::int64_t batch) {
  Plan plan;
  plan.strategy = "by hand";
  plan.network = network.name;
  plan.batch = batch;
  plan.layers.assign(network.layers.size(), LayerPlan{{}, {DeviceId{0}}, {}, false, {}});
  plan.schedule.stage_of_layer.assign(network.layers.size(), 0);
  plan.schedule.rank_lists = {
      {{DeviceId{0}}, {{0, 0, Direction::forward}, {0, 0, Direction::backward}}}};
  return plan;
}

Plan random_plan(const Network& network, std::size_t gpus, std::int64_t batch, std::uint64_t seed) {
  return Generator(network, gpus, batch, seed).run();
}

Plan random_replicated_plan(const Network& network, std::size_t gpus, std::int64_t batch,
                            std::uint64_t seed) {
  return Generator(network, gpus, batch, seed, true).run();
}

Plan random_interleaved_plan(const Network& network, std::size_t gpus, std::int64_t batch,
                             std::uint64_t seed) {
  return Generator(network, gpus, batch, seed).run_interleaved();
}

std::vector<Slot> interleaved_order(std::int32_t device, std::int32_t devices, std::int32_t chunks,
                                    std::int32_t micro_batches) {
  std::vector<Slot> forward, backward;
  for (std::int32_t group = 0; group < micro_batches; group += devices) {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
      for (std::int32_t m = group; m < group + devices; ++m) {
        forward.push_back({chunk * devices + device, m, Direction::forward});
        backward.push_back({(chunks - 1 - chunk) * devices + device, m, Direction::backward});
      }
    }
  }
  const auto ahead =
      static_cast<std::size_t>((devices - device - 1) * 2 + (chunks - 1) * devices + 1);
  std::vector<Slot> order;
  std::size_t there = 0;
  for (std::size_t back = 0; back < backward.size(); ++back) {
    while (there < forward.size() && there < back + ahead) order.push_back(forward[there++]);
    order.push_back(backward[back]);
  }
  return order;
}

Plan with_split_states(Plan plan, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (LayerPlan& layer : plan.layers) {
    if (layer.sync.kind == Sync::Kind::server) continue;
    layer.zero = {static_cast<std::int32_t>(random() % 4), {}};
  }
  plan.schedule.reduce_every = static_cast<ReduceEvery>(random() % 3);
  plan.schedule.late_gathers = random() % 2 == 1;
  return plan;
}

}  // namespace parsim::testing
