// Data parallelism: every device has all the weights and its share of the batch; gradients are
// summed in buckets while the backward pass still runs, as PyTorch's DistributedDataParallel does
// (Li et al. 2020).
#include "strategies/plan_support.hpp"

namespace parsim {

Plan plan_data(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  expect_samples(input, devices.size(), "data");
  Plan plan = empty_plan(input, "data", devices);
  for (LayerPlan& layer : plan.layers) {
    layer = by_sample(input.batch, devices);
    layer.sync = chosen_sync(input);
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim
