// One weird trick (Krizhevsky 2014): convolutions by sample, because they have much work and few
// weights; dense layers by channel, because they have many weights and little work.
#include "strategies/buckets.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

Plan plan_owt(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  Plan plan = empty_plan(input, "owt", devices);
  // Between two dense layers, element-wise layers follow their producer's cut; everything else is
  // data parallel.
  std::vector<bool> by_channel(plan.layers.size(), false);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const Layer& layer = input.network.layers[l];
    const bool dense = layer.kind.as<Dense>() != nullptr;
    const bool follows =
        (layer.kind.as<Activation>() != nullptr || layer.kind.as<Dropout>() != nullptr) &&
        by_channel[layer.inputs[0].index()];
    by_channel[l] = devices.size() > 1 && (dense || follows);
    LayerPlan& chosen = plan.layers[l];
    if (by_channel[l]) {
      chosen.devices = devices;
      chosen.cuts = {{Dim::channel, even_split(layer.out.extent(Dim::channel), devices.size())}};
    } else {
      chosen = by_sample(input.batch, devices);
    }
    chosen.sync = chosen_sync(input);
  }
  note_idle(plan, by_sample(input.batch, devices));
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim::strategies
