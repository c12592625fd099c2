#include "strategies/memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "strategies/reshard.hpp"
#include "strategies/sync.hpp"

namespace parsim {

namespace {

/// Whether a function's gradient follows from its output. Of others, such as gelu, silu and
/// hardswish, the input is kept beside it.
bool forgets_input(const Activation& activation) {
  static const std::set<std::string_view> functions{
      "relu", "leakyrelu",   "thresholdedrelu", "clip",     "elu", "celu", "selu",     "sigmoid",
      "tanh", "hardsigmoid", "softplus",        "softsign", "exp", "sqrt", "identity", "rotary"};
  return functions.contains(activation.function);
}

/// Kinds whose output may take the place of their input, as frameworks do for ReLU, or need not
/// keep it beside their output, as softmax; or a view of it.
bool in_place(const LayerKind& kind) {
  const auto* rearrange = kind.as<Rearrange>();
  const auto* activation = kind.as<Activation>();
  return (activation != nullptr && forgets_input(*activation)) || kind.as<Softmax>() != nullptr ||
         kind.as<Flatten>() != nullptr || (rearrange != nullptr && !rearrange->moves_data);
}

/// Bytes that one micro-batch keeps on a device until its backward, by stage.
struct Kept {
  std::map<std::int32_t, std::int64_t> by_stage;
  std::int64_t once = 0;  ///< recomputed layers: one working copy whatever is in flight
  std::int64_t largest_gradient = 0;
  std::int64_t largest_arrival = 0;
};

class Accounting {
 public:
  Accounting(const Network& network, const Cluster& cluster, const Plan& plan)
      : network_(network),
        cluster_(cluster),
        plan_(plan),
        element_(element_bytes(plan.precision)),
        kept_(cluster.devices.size()),
        use_(cluster.devices.size()) {}

  std::vector<MemoryUse> run() {
    activations();
    states();
    for (const Lane& lane : plan_.schedule.lanes) {
      for (const DeviceId device : lane.devices) in_flight(lane, device);
    }
    return std::move(use_);
  }

 private:
  void activations();
  void states();
  void in_flight(const Lane& lane, DeviceId device);

  const Network& network_;
  const Cluster& cluster_;
  const Plan& plan_;
  std::int64_t element_;
  std::vector<TensorLayout> layouts_;
  std::vector<Kept> kept_;
  std::vector<MemoryUse> use_;
};

void Accounting::activations() {
  const std::int64_t samples = plan_.batch / plan_.schedule.micro_batches;
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network_[id];
    const LayerPlan& plan = plan_.layers[l];
    const std::int32_t stage = plan_.schedule.stage_of_layer[l];
    layouts_.emplace_back(cells(network_, id, plan, samples));
    const std::vector<Cell>& all = layouts_.back().cells();
    const bool source = layer.kind.as<Input>() != nullptr;
    const std::vector<Shape> inputs = input_shapes(network_, id);
    if (!source) {
      for (std::size_t c = 0; c < all.size(); ++c) {
        // Parts of the contraction on one device add up in one store.
        const bool again =
            all[c].contraction > 0 &&
            std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(c),
                        [&](const Cell& other) {
                          return other.device == all[c].device && other.part.out == all[c].part.out;
                        });
        if (again) continue;
        const std::int64_t bytes = all[c].part.out.volume() * element_;
        Kept& kept = kept_[all[c].device.index()];
        kept.largest_gradient = std::max(kept.largest_gradient, 2 * bytes);  // of output and input
        if (in_place(layer.kind)) continue;
        (plan.recompute ? kept.once : kept.by_stage[stage]) += bytes;
      }
    }
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const std::size_t producer = layer.inputs[i].index();
      std::vector<Need> needs;
      for (const Cell& cell : all) {
        needs.push_back(
            {cell.device, input_region(layer.kind, inputs, layer.out, i, cell.part), cell.replica});
      }
      if (network_.layers[producer].kind.as<Input>() != nullptr) {  // its own copy of the data
        for (const Need& need : needs)
          kept_[need.device.index()].by_stage[stage] += need.region.volume() * element_;
        continue;
      }
      const std::size_t known = layouts_[producer].arrivals().size();
      (void)layouts_[producer].bring(needs, cluster_);
      for (std::size_t a = known; a < layouts_[producer].arrivals().size(); ++a) {
        const Movement& movement = layouts_[producer].arrivals()[a];
        std::int64_t moved = 0;
        for (const Region& region : movement.regions) moved += region.volume();
        for (std::size_t d = 0; d < movement.devices.size(); ++d) {
          std::int64_t received = moved;
          if (movement.pattern == Pattern::all_gather) received -= movement.regions[d].volume();
          if (movement.pattern == Pattern::all_to_all) {
            received = movement.needs[d].volume() -
                       intersect(movement.needs[d], movement.regions[d]).volume();
          }
          const bool sender_only = d == 0 && (movement.pattern == Pattern::broadcast ||
                                              !is_collective(movement.pattern));
          if (sender_only) continue;
          Kept& kept = kept_[movement.devices[d].index()];
          kept.by_stage[stage] += received * element_;
          kept.largest_arrival = std::max(kept.largest_arrival, received * element_);
        }
      }
    }
  }
}

void Accounting::states() {
  constexpr std::int64_t state_bytes = 4;  // optimizer states are fp32 whatever the precision
  const std::int64_t master =
      element_ < state_bytes ? 1 : 0;  // and so is a master copy of 16-bit weights
  std::vector<std::vector<std::int64_t>> buckets(use_.size());
  std::vector<std::span<const Cell>> cells;
  for (const TensorLayout& layout : layouts_) cells.emplace_back(layout.cells());
  for (const SyncGroup& group : sync_groups(network_, plan_, cells)) {
    std::int64_t elements = 0;
    for (const auto& [parameter, region] : group.contents) elements += region.volume();
    const bool served = group.served();
    std::set<DeviceId> holders(group.devices.begin(), group.devices.end());
    holders.insert(group.mirrors.begin(), group.mirrors.end());
    if (served) holders.insert(group.sync.server);
    for (const DeviceId device : holders) {
      MemoryUse& use = use_[device.index()];
      use.weights += Bytes{elements * element_};
      use.gradients += Bytes{elements * element_};
      if (!served || device == group.sync.server) {
        use.optimizer_state +=
            Bytes{elements * state_bytes * (state_per_parameter(plan_.optimizer) + master)};
      }
      if (holders.size() > 1) buckets[device.index()].push_back(elements * element_);
    }
  }
  for (std::size_t d = 0; d < use_.size(); ++d) {
    std::sort(buckets[d].rbegin(), buckets[d].rend());
    std::int64_t bytes = kept_[d].largest_arrival;
    for (std::size_t b = 0; b < std::min<std::size_t>(2, buckets[d].size()); ++b)
      bytes += buckets[d][b];
    use_[d].communication = Bytes{bytes};
  }
}

void Accounting::in_flight(const Lane& lane, DeviceId device) {
  Kept& kept = kept_[device.index()];
  std::int64_t now = 0, peak = 0;
  for (const Slot& slot : lane.slots) {
    const auto stage = kept.by_stage.find(slot.stage);
    const std::int64_t bytes = stage == kept.by_stage.end() ? 0 : stage->second;
    now += slot.direction == Direction::forward ? bytes : -bytes;
    peak = std::max(peak, now);
  }
  use_[device.index()].activations = Bytes{peak + kept.once + kept.largest_gradient};
}

}  // namespace

std::vector<MemoryUse> memory_use(const Network& network, const Cluster& cluster,
                                  const Plan& plan) {
  return Accounting(network, cluster, plan).run();
}

}  // namespace parsim
