// Model parallelism with even cuts: the channels of every layer split evenly over all devices, the
// batch whole on each. The baseline called "model parallelism" by Jia et al. 2018, section 6.
#include <algorithm>

#include "strategies/buckets.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

Plan plan_model_even(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  Plan plan = empty_plan(input, "model-even", devices);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const Layer& layer = input.network.layers[l];
    const std::vector<Shape> inputs = input_shapes(input.network, LayerId{l});
    const std::vector<Dim> dims = cuttable_dims(layer.kind, inputs, layer.out);
    const bool by_channel = std::find(dims.begin(), dims.end(), Dim::channel) != dims.end();
    LayerPlan& chosen = plan.layers[l];
    if (by_channel && devices.size() > 1) {
      chosen.devices = devices;
      std::vector<std::int64_t> sizes = even_split(layer.out.extent(Dim::channel), devices.size());
      // Flattened tensors are cut between channels, so that each device keeps its channels.
      if (layer.kind.as<Flatten>() != nullptr && !inputs[0].axes.empty() &&
          inputs[0].axes[0].dim == Dim::channel) {
        const std::int64_t inner = inputs[0].elements() / inputs[0].axes[0].extent;
        sizes = even_split(inputs[0].axes[0].extent, devices.size());
        for (std::int64_t& size : sizes) size *= inner;
      }
      chosen.cuts = {{Dim::channel, std::move(sizes)}};
    } else {
      chosen = by_sample(input.batch, devices);
    }
    chosen.sync = chosen_sync(input);
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim::strategies
