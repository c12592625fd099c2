#include "strategies/best/memory_forecast.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "core/errors.hpp"
#include "lowering/memory.hpp"
#include "strategies/blocks.hpp"
#include "strategies/buckets.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

using tensor::ParallelDegrees;

namespace {

constexpr double roughly = 1.02;       ///< usable memory
constexpr double moved_borders = 1.1;  ///< the same, where layers can move to other devices
constexpr double easily = 0.75;        ///< the same, for what the forecast leaves out
constexpr double uneven_stages = 1.1;  ///< slowdown of stages as unequal as memory wants, roughly
constexpr double gathers = 1.05;       ///< slowdown by gathers of weights next to kernels, roughly

StrategyInput of_one_sample(const StrategyInput& input) {
  StrategyInput one = input;
  one.batch = 1;
  one.zero_stage = 0;
  one.zero_group = {};
  return one;
}

/// Micro-batches, of all layers of a device, that are in flight at once on the first device of a
/// pipeline, at most; on average over its devices, if not `first`. 1F1B has one for each stage from
/// a device on, interleaved as device_slots says.
double in_flight(const ParallelDegrees& degrees, bool first) {
  const auto stages = static_cast<double>(degrees.pipeline);
  const auto chunks = static_cast<double>(degrees.chunks);
  const double own = first ? stages : (stages + 1) / 2;
  const double most = chunks > 1 ? (2 * own - 1 + (chunks - 1) * stages) / chunks : own;
  return std::min(most, static_cast<double>(degrees.micro_batches));
}

}  // namespace

MemoryForecast::MemoryForecast(const StrategyInput& input, lowering::Estimator& estimator)
    : input_(of_one_sample(input)), batch_(input.batch), estimator_(estimator), arranging_(input_) {
  input_.zero_stage = 3;
  if (may_size_buckets(input)) input_.bucket = ddp_bucket;  // large blocks take more
  std::vector<std::int64_t> buckets{0, 0};
  for (const std::vector<ParameterId>& bucket : gradient_buckets(input_)) {
    std::int64_t& elements = buckets.emplace_back(0);
    for (const ParameterId id : bucket) elements += input.network[id].elements();
  }
  std::partial_sort(buckets.begin(), buckets.begin() + 2, buckets.end(), std::greater<>());
  gathered_ = static_cast<double>(buckets[0] + buckets[1]) /
              static_cast<double>(std::max<std::int64_t>(1, parameter_count(input.network)));
  input_.zero_stage = input.zero_stage;
  input_.bucket = input.bucket;
}

MemoryForecast::Sample MemoryForecast::measure(const Plan& plan, Recompute recompute) {
  StrategyInput asked = input_;
  asked.zero_stage = 0;
  asked.recompute = recompute;
  const Plan marked = with_memory_options(asked, plan);
  Sample sample;
  for (const lowering::MemoryUse& use : estimator_.memory(marked)) {
    if (use.total().value == 0) continue;
    sample.weights = static_cast<double>(use.weights.value);
    sample.gradients = static_cast<double>(use.gradients.value);
    sample.optimizer_state = static_cast<double>(use.optimizer_state.value);
    sample.activations = static_cast<double>(use.activations.value);
    break;
  }
  sample.step = estimator_.step_time(marked).count();
  return sample;
}

const MemoryForecast::Samples& MemoryForecast::samples(const ParallelDegrees& degrees,
                                                       std::span<const DeviceId> devices) {
  const auto [at, fresh] = known_.try_emplace({degrees.tensor, degrees.context});
  if (!fresh) return at->second;
  ParallelDegrees one;
  one.tensor = degrees.tensor;
  one.context = degrees.context;
  const std::span<const DeviceId> group = devices.first(one.group());
  const Plan plan = arranging_.plan_of(arranging_.arrange(one, {group.begin(), group.end()}));
  const bool blocks = !first_layers_of_blocks(input_.network).empty();
  const Recompute most = blocks ? Recompute::full : Recompute::optimal;
  try {
    at->second.least = measure(plan, input_.recompute.value_or(Recompute::none));
    at->second.most = input_.recompute ? at->second.least : measure(plan, most);
  } catch (const InputError&) {  // a plan that cannot be lowered
    at->second.possible = false;
  }
  return at->second;
}

double MemoryForecast::of_replica(const ParallelDegrees& degrees) const {
  return static_cast<double>(batch_) / static_cast<double>(degrees.micro_batches) /
         static_cast<double>(degrees.data);
}

double MemoryForecast::needed(const Sample& sample, const ParallelDegrees& degrees,
                              std::int32_t zero_stage, bool first_stage) const {
  const auto replicas = static_cast<double>(degrees.data);
  const double owners = replicas * static_cast<double>(degrees.context);
  const auto share = [&](std::int32_t stage) { return zero_stage >= stage ? owners : 1; };
  // As scatters_each_micro_batch() has it.
  const bool scatters = degrees.micro_batches == 1 ||
                        (degrees.stages() == 1 && input_.reduce_every != ReduceEvery::step);
  const double held = sample.weights / share(3) + sample.gradients / (scatters ? share(2) : 1) +
                      sample.optimizer_state / share(1);
  // Buckets that hold all gradients once more.
  const bool copied = zero_stage == 0 && owners > 1 && input_.framework == Framework::pytorch;
  const double copies = copied ? sample.gradients *
                                     static_cast<double>(element_bytes(input_.reduce_precision)) /
                                     static_cast<double>(lowering::gradient_bytes(
                                         input_.precision, input_.reduce_precision))
                               : 0;
  const auto stages = static_cast<double>(degrees.pipeline);
  const double samples = in_flight(degrees, first_stage) * of_replica(degrees);
  const double units = zero_stage == 3 && owners > 1 ? gathered_ : 0;
  return (held + copies + samples * sample.activations) / stages +
         units * (sample.weights + (scatters ? sample.gradients : 0));
}

double MemoryForecast::gathering(const Sample& sample, const ParallelDegrees& degrees,
                                 std::span<const DeviceId> devices) const {
  std::vector<DeviceId> owners;
  for (std::size_t r = 0; r < degrees.data; ++r) {
    for (std::size_t c = 0; c < degrees.context; ++c)
      owners.push_back(devices[r * degrees.group() + c * degrees.tensor]);
  }
  if (owners.size() < 2) return 1;
  const auto stages = static_cast<double>(degrees.pipeline);
  const Bytes weights{static_cast<std::int64_t>(sample.weights / stages)};
  const Seconds gather = input_.cost.collective(CollectiveKind::all_gather, owners, weights);
  const double kernels = sample.step * of_replica(degrees) / stages;
  return std::max(gathers, 2 * gather.count() / kernels);  // forward and backward
}

bool MemoryForecast::fits_easily(const ParallelDegrees& degrees,
                                 std::span<const DeviceId> devices) {
  double usable = std::numeric_limits<double>::infinity();
  for (const DeviceId device : devices) {
    usable = std::min(usable, static_cast<double>(input_.usable_memory(device).value));
  }
  const Samples& known = samples(degrees, devices);
  return known.possible &&
         needed(known.most, degrees, input_.zero_stage.value_or(1), true) <= easily * usable;
}

double MemoryForecast::slowdown(const ParallelDegrees& degrees, std::span<const DeviceId> devices) {
  double usable = 0;
  bool alike = true;
  for (const DeviceId device : devices) {
    usable += static_cast<double>(input_.usable_memory(device).value);
    alike = alike && input_.cluster[device].model == input_.cluster[devices[0]].model;
  }
  const bool movable = degrees.pipeline > 1 && degrees.chunks == 1;
  usable *= roughly / static_cast<double>(devices.size());
  // Layers that move to other devices leave these with less: there must be room for all.
  const double of_one = movable ? usable * moved_borders / roughly : usable;
  const Samples& known = samples(degrees, devices);
  if (!known.possible) return will_not_fit;
  const auto recomputing = [&](std::int32_t stage, bool first_stage) {
    const auto fits = [&](const Sample& sample) {
      return needed(sample, degrees, stage, first_stage) <= of_one &&
             needed(sample, degrees, stage, false) <= usable;
    };
    if (fits(known.least)) return 1.0;
    if (!fits(known.most)) return will_not_fit;
    return known.most.step / known.least.step;
  };
  const auto with_zero = [&](std::int32_t stage) {
    const double uneven = (alike ? uneven_stages : 1) * recomputing(stage, false);
    return alike ? std::min(recomputing(stage, true), uneven) : uneven;
  };
  if (input_.zero_stage) return with_zero(*input_.zero_stage);
  return std::min(with_zero(1), gathering(known.least, degrees, devices) * with_zero(3));
}

}  // namespace parsim::strategies
