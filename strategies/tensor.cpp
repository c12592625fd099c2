// Tensor, pipeline and data parallelism together, as large transformers are trained: layers shared
// within groups of devices (Shoeybi et al. 2019, "Megatron-LM"), groups in a pipeline, pipelines
// side by side (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM"). Beyond them: any network, replicas and stages of unequal speed, and
// the three numbers are searched for.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/device_order.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/arrangement.hpp"

namespace parsim::strategies {

namespace {

using tensor::Arrangement;
using tensor::Arranging;
using tensor::ParallelDegrees;

/// Groups share a layer over the fastest links only: within a machine, or few devices.
constexpr std::size_t most_tensor_degree = 8;

std::size_t largest_machine(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  std::vector<std::size_t> count(input.cluster.nodes.size());
  for (const DeviceId device : devices) ++count[input.cluster[device].node.index()];
  return *std::max_element(count.begin(), count.end());
}

[[noreturn]] void refuse(const StrategyInput& input, std::size_t devices) {
  std::vector<std::string> asked;
  if (input.tensor_parallel) asked.push_back(fmt::format("--tp {}", *input.tensor_parallel));
  if (input.pipeline_parallel) asked.push_back(fmt::format("--pp {}", *input.pipeline_parallel));
  if (input.data_parallel) asked.push_back(fmt::format("--dp {}", *input.data_parallel));
  const bool interleaved = input.virtual_pipeline > 1;
  if (interleaved) asked.push_back(fmt::format("--vp {}", input.virtual_pipeline));
  throw InputError(
      "strategy 'tensor'", fmt::format("{} on {} devices", join(asked, " "), devices),
      fmt::format("accepted: degrees whose product is at most the number of devices, and no more "
                  "stages than layers{}",
                  interleaved ? "; with --vp two stages or more, and a batch that divides into a "
                                "multiple of them as micro-batches"
                              : ""));
}

/// Numbers of micro-batches worth a look, as long as every replica has a sample: those of
/// pipelines, and, because smaller ones need less memory, every half of them down to one sample
/// each. Of model chunks only multiples of the stages.
std::set<std::int32_t> numbers_of(const StrategyInput& input, std::size_t stages,
                                  std::size_t replicas) {
  const auto count = static_cast<std::int32_t>(stages);
  const bool interleaved = input.virtual_pipeline > 1;
  const auto possible = [&](std::int32_t number) { return !interleaved || number % count == 0; };
  if (input.micro_batches && !possible(*input.micro_batches)) return {};
  if (input.micro_batches) return {*input.micro_batches};
  std::set<std::int32_t> numbers = numbers_of_micro_batches(input.batch, stages);
  for (std::int32_t more = count; interleaved && more <= 16 * count; more *= 2) {
    if (input.batch % more == 0) numbers.insert(more);
  }
  const auto each = static_cast<std::int64_t>(replicas);
  for (std::int64_t more = 2; more <= std::min(input.batch / each, most_micro_batches); more *= 2) {
    if (input.batch % more == 0) numbers.insert(static_cast<std::int32_t>(more));
  }
  std::erase_if(numbers, [&](std::int32_t number) { return !possible(number); });
  return numbers;
}

/// Devices in the order in which they form groups: within machines, where groups fit into one;
/// those that are left over in a machine are left out.
std::vector<DeviceId> in_groups(const StrategyInput& input, const std::vector<DeviceId>& devices,
                                std::size_t degree) {
  if (degree > largest_machine(input, devices)) return devices;
  std::map<NodeId, std::vector<DeviceId>> of_machine;
  std::vector<DeviceId> grouped;
  for (const DeviceId device : devices) {
    std::vector<DeviceId>& group = of_machine[input.cluster[device].node];
    group.push_back(device);
    if (group.size() < degree) continue;
    grouped.insert(grouped.end(), group.begin(), group.end());
    group.clear();
  }
  return grouped;
}

/// All degrees whose groups, stages and replicas use all devices; with degrees given, as many
/// devices as possible.
std::vector<ParallelDegrees> all_degrees(const StrategyInput& input,
                                         const std::vector<DeviceId>& devices) {
  const std::size_t most = std::max(most_tensor_degree, largest_machine(input, devices));
  const std::size_t layers = input.network.layers.size(), count = devices.size();
  std::vector<ParallelDegrees> all;
  const auto worth_a_look = [](std::size_t number, const std::optional<std::int32_t>& asked,
                               std::size_t of) {
    return asked ? number == static_cast<std::size_t>(*asked) : of % number == 0;
  };
  for (std::size_t ways = 1; ways <= count; ++ways) {
    if (!worth_a_look(ways, input.tensor_parallel, count) ||
        (!input.tensor_parallel && ways > most))
      continue;
    const std::size_t groups = in_groups(input, devices, ways).size() / ways;
    const auto chunks = static_cast<std::size_t>(input.virtual_pipeline);
    const std::size_t fewest = chunks > 1 ? 2 : 1;
    for (std::size_t stages = fewest; stages <= std::min(groups, layers / chunks); ++stages) {
      if (!worth_a_look(stages, input.pipeline_parallel, groups)) continue;
      const std::size_t most_replicas = groups / stages;
      const auto replicas = static_cast<std::size_t>(
          input.data_parallel.value_or(static_cast<std::int32_t>(most_replicas)));
      if (replicas > most_replicas) continue;
      const std::set<std::int32_t> numbers = numbers_of(input, stages, replicas);
      for (const std::int32_t number : numbers) {
        const bool feeds_all = input.batch / number >= static_cast<std::int64_t>(replicas);
        if (feeds_all || number == *numbers.begin())
          all.push_back({ways, stages, replicas, number, chunks});
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

std::string note_of(const ParallelDegrees& degrees) {
  const auto chunks = static_cast<std::int64_t>(degrees.chunks);
  return fmt::format(
      "tensor {} x pipeline {} x data {}, {}{}", degrees.tensor, degrees.pipeline, degrees.data,
      counted(degrees.micro_batches, "micro-batch"),
      chunks > 1 ? fmt::format(", {} a device", counted(chunks, "model chunk")) : "");
}

/// The fastest by the closed form first; in single precision, because what adds up in another order
/// is not another time.
std::vector<Arrangement> arranged(const StrategyInput& input, Arranging& arranging,
                                  const std::vector<ParallelDegrees>& all,
                                  const std::vector<DeviceId>& devices) {
  std::vector<Arrangement> arrangements;
  for (const ParallelDegrees& degrees : all) {
    arrangements.push_back(arranging.arrange(degrees, in_groups(input, devices, degrees.tensor)));
  }
  std::stable_sort(arrangements.begin(), arrangements.end(),
                   [](const Arrangement& a, const Arrangement& b) {
                     return static_cast<float>(a.cut.step) < static_cast<float>(b.cut.step);
                   });
  return arrangements;
}

/// Layers x micro-batches x devices in a walk through the step.
std::size_t work_of(const StrategyInput& input, const ParallelDegrees& degrees) {
  return input.network.layers.size() * static_cast<std::size_t>(degrees.micro_batches) *
         degrees.tensor * degrees.data;
}

/// Estimates of the most promising arrangements; of more, until one fits, if none of them does.
std::vector<Estimated> most_promising(const StrategyInput& input, Arranging& arranging,
                                      lowering::Estimator& estimator,
                                      const std::vector<Arrangement>& arrangements) {
  constexpr std::size_t fewest = 4, few = 32, most = 64;
  constexpr std::size_t much_work = 4'000'000;
  std::vector<Estimated> candidates;
  bool some_fits = false;
  std::size_t work = 0;
  for (const Arrangement& arrangement : arrangements) {
    const bool enough =
        candidates.size() >= few || (work > much_work && candidates.size() >= fewest);
    if (!candidates.empty() && enough && (some_fits || candidates.size() >= most)) break;
    Estimated& one =
        candidates.emplace_back(Estimated{arrangement, arranging.plan_of(arrangement), {}});
    one.price.overcommit = overcommit(input, one.plan);
    some_fits = some_fits || one.price.fits();
    const bool worth_it = one.price.fits() || work <= much_work;
    one.price.step = worth_it ? estimator.step_time(with_memory_options(input, one.plan))
                              : Seconds{arrangement.cut.step};
    if (worth_it) work += work_of(input, arrangement.degrees);
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
  expect_interleavable(input, input.pipeline_parallel, "--vp");
  Arranging arranging(input);
  lowering::Estimator estimator(input.step());
  const std::vector<Estimated> candidates =
      most_promising(input, arranging, estimator,
                     arranged(input, arranging, all_degrees(input, devices), devices));
  constexpr std::size_t finalists = 8, refined = 16;
  constexpr double hopeless = 2;              // times the fastest estimate
  constexpr std::size_t most_work = 400'000;  // layers x micro-batches that are simulated
  std::size_t work = 0;
  std::vector<std::pair<Seconds, Plan>> moved;
  for (const Estimated& one : candidates) {
    const bool late = one.price.fits() != candidates[0].price.fits() ||
                      one.price.step > hopeless * candidates[0].price.step;
    work += input.network.layers.size() *
            static_cast<std::size_t>(one.arrangement.degrees.micro_batches);
    const bool long_enough = !moved.empty() && work > most_work;
    if (late || moved.size() == refined || long_enough) break;
    const auto make = [&](const std::vector<std::size_t>& first) {
      Arrangement other = one.arrangement;
      other.cut.first = first;
      return arranging.plan_of(other);
    };
    Plan plan = move_borders(input, estimator, {one.arrangement.cut.first, one.plan}, make).plan;
    const ParallelDegrees& degrees = one.arrangement.degrees;
    plan.notes.push_back(note_of(degrees));
    note_sequence_parallel(input, plan);
    const auto idle = std::count(one.arrangement.shares.begin(), one.arrangement.shares.end(), 0);
    if (idle > 0) {
      plan.notes.push_back(fmt::format("{} of {} replicas are idle: a micro-batch has only {}",
                                       idle, degrees.data,
                                       counted(input.batch / degrees.micro_batches, "sample")));
    }
    const std::size_t used = degrees.tensor * degrees.pipeline * degrees.data;
    if (used < devices.size()) {
      plan.notes.push_back(fmt::format("{} of {} devices are used", used, devices.size()));
    }
    const Seconds step =
        one.price.fits() ? estimator.step_time(with_memory_options(input, plan)) : one.price.step;
    moved.emplace_back(step, std::move(plan));
  }
  std::stable_sort(moved.begin(), moved.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Plan> plans;
  for (auto& [step, plan] : moved) {
    if (plans.size() < finalists) plans.push_back(std::move(plan));
  }
  return std::move(plans[best_by_simulation(input, plans)]);
}

}  // namespace parsim::strategies
