// Tensor, pipeline and data parallelism together, as large transformers are trained: layers shared
// within groups of devices (Shoeybi et al. 2019, "Megatron-LM"), groups in a pipeline, pipelines
// side by side (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM"). Beyond them: any network, devices of unequal speed, and the three
// numbers are searched for.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "strategies/device_order.hpp"
#include "strategies/estimate.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/arrangement.hpp"

namespace parsim {

namespace {

using tensor::Arrangement;
using tensor::Arranging;
using tensor::Ways;

/// Groups share a layer over the fastest links only: within a machine, or few devices.
constexpr std::size_t most_tensor_ways = 8;

std::size_t largest_machine(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  std::vector<std::size_t> count(input.cluster.nodes.size());
  for (const DeviceId device : devices) ++count[input.cluster[device].node.index()];
  return *std::max_element(count.begin(), count.end());
}

[[noreturn]] void refuse(const StrategyInput& input, std::size_t devices) {
  std::vector<std::string> asked;
  if (input.tensor) asked.push_back(fmt::format("{} devices to a group", *input.tensor));
  if (input.parts) asked.push_back(fmt::format("{} parts", *input.parts));
  throw InputError("strategy 'tensor'", fmt::format("{} on {} devices", join(asked), devices),
                   "accepted: numbers whose product is at most that of the devices, and no more "
                   "parts than layers");
}

/// All ways in which groups, stages and replicas use all devices; with numbers asked for, as many
/// devices as possible.
std::vector<Ways> all_ways(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  const std::size_t most = std::max(most_tensor_ways, largest_machine(input, devices));
  const std::size_t layers = input.network.layers.size(), count = devices.size();
  std::vector<Ways> all;
  const auto worth_a_look = [](std::size_t number, const std::optional<std::int32_t>& asked,
                               std::size_t of) {
    return asked ? number == static_cast<std::size_t>(*asked) : of % number == 0;
  };
  for (std::size_t ways = 1; ways <= count; ++ways) {
    if (!worth_a_look(ways, input.tensor, count) || (!input.tensor && ways > most)) continue;
    for (std::size_t stages = 1; stages <= std::min(count / ways, layers); ++stages) {
      if (!worth_a_look(stages, input.parts, count / ways)) continue;
      const std::size_t replicas = count / ways / stages;
      const std::set<std::int32_t> numbers = input.micro_batches
                                                 ? std::set{*input.micro_batches}
                                                 : numbers_of_micro_batches(input.batch, stages);
      for (const std::int32_t number : numbers) {
        const bool feeds_all = input.batch / number >= static_cast<std::int64_t>(replicas);
        if (feeds_all || number == *numbers.begin())
          all.push_back({ways, stages, replicas, number});
      }
    }
  }
  if (all.empty()) refuse(input, count);
  return all;
}

struct Estimated {
  Arrangement arrangement;
  Plan plan;
  Price price;
};

std::string note_of(const Ways& ways) {
  return fmt::format("tensor {} x pipeline {} x data {}, {} micro-batches", ways.tensor,
                     ways.pipeline, ways.data, ways.micro_batches);
}

/// The fastest by the closed form first; in single precision, because what adds up in another order
/// is not another time.
std::vector<Arrangement> arranged(Arranging& arranging, const std::vector<Ways>& all,
                                  const std::vector<DeviceId>& devices) {
  std::vector<Arrangement> arrangements;
  for (const Ways& ways : all) arrangements.push_back(arranging.arrange(ways, devices));
  std::stable_sort(arrangements.begin(), arrangements.end(),
                   [](const Arrangement& a, const Arrangement& b) {
                     return static_cast<float>(a.cut.step) < static_cast<float>(b.cut.step);
                   });
  return arrangements;
}

/// Layers x micro-batches x devices that a walk through the step meets.
std::size_t work_of(const StrategyInput& input, const Ways& ways) {
  return input.network.layers.size() * static_cast<std::size_t>(ways.micro_batches) * ways.tensor *
         ways.data;
}

/// Estimates of the most promising arrangements; of more, until one fits, if none of them does.
std::vector<Estimated> most_promising(const StrategyInput& input, Arranging& arranging,
                                      const std::vector<Arrangement>& arrangements) {
  constexpr std::size_t few = 16, most = 64;
  constexpr std::size_t most_work = 4'000'000;
  Estimator estimator(input);
  std::vector<Estimated> candidates;
  bool some_fits = false;
  std::size_t work = 0;
  for (const Arrangement& arrangement : arrangements) {
    const bool enough = candidates.size() >= few || work > most_work;
    if (!candidates.empty() && enough && (some_fits || candidates.size() >= most)) break;
    Estimated& one =
        candidates.emplace_back(Estimated{arrangement, arranging.plan_of(arrangement), {}});
    one.price.shortage = shortage(input, one.plan);
    some_fits = some_fits || one.price.fits();
    one.price.step = arrangement.cut.step > 0 && work > most_work ? Seconds{arrangement.cut.step}
                                                                  : estimator.step_time(one.plan);
    work += work_of(input, arrangement.ways);
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Estimated& a, const Estimated& b) { return a.price.better_than(b.price); });
  return candidates;
}

}  // namespace

Plan plan_tensor(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  if (input.micro_batches) {
    expect_whole_micro_batches(input.batch, *input.micro_batches, "tensor");
  }
  Arranging arranging(input);
  const std::vector<Estimated> candidates =
      most_promising(input, arranging, arranged(arranging, all_ways(input, devices), devices));
  constexpr std::size_t finalists = 4;
  constexpr double hopeless = 2;  // times the fastest estimate
  std::vector<Plan> plans;
  for (const Estimated& one : candidates) {
    const bool late = one.price.fits() != candidates[0].price.fits() ||
                      one.price.step > hopeless * candidates[0].price.step;
    if (late || plans.size() == finalists) break;
    plans.push_back(one.plan);
    const Ways& ways = one.arrangement.ways;
    plans.back().notes.push_back(note_of(ways));
    const std::size_t used = ways.tensor * ways.pipeline * ways.data;
    if (used < devices.size()) {
      plans.back().notes.push_back(
          fmt::format("{} of {} devices: the others are left over", used, devices.size()));
    }
  }
  return std::move(plans[best_by_simulation(input, plans)]);
}

}  // namespace parsim
