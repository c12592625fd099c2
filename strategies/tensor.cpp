// Tensor, pipeline and data parallelism together, as large transformers are trained: layers shared
// within groups of devices (Shoeybi et al. 2019, "Megatron-LM"), groups in a pipeline, pipelines
// side by side (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM"). Beyond them: any network, replicas and stages of unequal speed, and
// the three numbers are searched for; on mixed clusters also pipelines whose stages differ
// (mixed_stages).
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/device_order.hpp"
#include "strategies/experts.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "strategies/tensor/degrees.hpp"

namespace parsim::strategies {

namespace {

using tensor::Arrangement;
using tensor::Arranging;
using tensor::ParallelDegrees;

struct Estimated {
  Arrangement arrangement;
  Plan plan;
  Price price;
};

/// The fastest by the closed form first; in single precision, because what adds up in another order
/// is not another time.
std::vector<Arrangement> arranged(const StrategyInput& input, Arranging& arranging,
                                  const std::vector<ParallelDegrees>& all,
                                  const std::vector<DeviceId>& devices) {
  std::vector<Arrangement> arrangements;
  const auto shorter = [](const Arrangement& a, const Arrangement& b) {
    return static_cast<float>(a.cut.step) < static_cast<float>(b.cut.step);
  };
  const std::vector<std::vector<DeviceId>> orders = tensor::device_orders(input, devices);
  for (const ParallelDegrees& degrees : all) {
    std::vector<Arrangement> by_order;
    for (const std::vector<DeviceId>& order : orders) {
      by_order.push_back(arranging.arrange(
          degrees, tensor::in_groups(input, order, degrees.tensor, degrees.context)));
      const std::size_t used = degrees.group() * degrees.pipeline * degrees.data;
      if (degrees.pipeline == 1 && used == devices.size()) break;  // the same in each
    }
    arrangements.push_back(std::move(*std::min_element(by_order.begin(), by_order.end(), shorter)));
  }
  std::stable_sort(arrangements.begin(), arrangements.end(), shorter);
  return arrangements;
}

/// Layers x micro-batches x devices in a walk through the step.
std::size_t work_of(const StrategyInput& input, const ParallelDegrees& degrees) {
  return input.network.layers.size() * static_cast<std::size_t>(degrees.micro_batches) *
         degrees.group() * degrees.data;
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
    one.price.step = worth_it ? estimated_step(estimator, with_memory_options(input, one.plan))
                              : Seconds{arrangement.cut.step};
    if (worth_it) work += work_of(input, arrangement.degrees);
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Estimated& a, const Estimated& b) { return a.price.better_than(b.price); });
  return candidates;
}

/// Leaves plans that may be chosen (StrategyInput::accepts), unless there are none.
template <class Candidates, class PlanOf>
void keep_accepted(const StrategyInput& input, Candidates& candidates, const PlanOf& plan_of) {
  if (!input.accepts) return;
  const auto refused = [&](const auto& one) {
    return !input.accepts(with_memory_options(input, plan_of(one)));
  };
  if (std::all_of(candidates.begin(), candidates.end(), refused)) return;
  std::erase_if(candidates, refused);
}

/// The best of the plans and of some whose stages differ, which are simulated if there is a
/// simulator: of stages with slow links between them estimates err by more than of equal ones.
Plan best_with_mixed(const StrategyInput& input, lowering::Estimator& estimator,
                     std::vector<Plan> plans) {
  constexpr std::size_t few = 2;
  std::vector<Plan> mixed = mixed_plans(input, estimator, few, mixed_stages(input));
  const auto accepted = [&](const Plan& plan) {
    return !input.accepts || input.accepts(with_memory_options(input, plan));
  };
  if (std::any_of(plans.begin(), plans.end(), accepted) ||
      std::any_of(mixed.begin(), mixed.end(), accepted)) {
    std::erase_if(plans, [&](const Plan& plan) { return !accepted(plan); });
    std::erase_if(mixed, [&](const Plan& plan) { return !accepted(plan); });
  }
  const auto price = [&](const Plan& plan) {
    return input.simulate ? simulated_price(input, plan) : estimated_price(input, estimator, plan);
  };
  if (!plans.empty()) mixed.insert(mixed.begin(), plans[best_by_simulation(input, plans)]);
  std::size_t best = 0;
  Price least = price(mixed[0]);
  for (std::size_t p = 1; p < mixed.size(); ++p) {
    const Price other = price(mixed[p]);
    if (!other.better_than(least)) continue;
    best = p;
    least = other;
  }
  return std::move(mixed[best]);
}

/// Throws InputError if more replicas are given than a micro-batch has samples.
void expect_fed_replicas(const StrategyInput& input) {
  const std::int64_t samples = input.batch / input.micro_batches.value_or(1);
  if (input.data_parallel.value_or(1) <= samples) return;
  throw InputError("strategy 'tensor'",
                   fmt::format("--dp {} and {} of {}", *input.data_parallel,
                               counted(input.micro_batches.value_or(1), "micro-batch"),
                               counted(samples, "sample")),
                   "accepted: no more replicas than a micro-batch has samples");
}

}  // namespace

Plan plan_tensor(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  if (input.micro_batches) {
    expect_whole_micro_batches(input.batch, *input.micro_batches, "tensor");
  }
  expect_fed_replicas(input);
  expect_interleavable(input, input.pipeline_parallel, "--vp");
  expect_experts(input);
  tensor::expect_context(input);
  Arranging arranging(input);
  lowering::Estimator estimator(input.step());
  std::vector<Estimated> candidates =
      most_promising(input, arranging, estimator,
                     arranged(input, arranging, tensor::all_degrees(input, devices), devices));
  // Now, too: a faster one that may not be chosen must not make all others hopeless.
  keep_accepted(input, candidates, [](const Estimated& one) { return one.plan; });
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
    plan.notes.push_back(tensor::note_of(degrees));
    if (std::string note = arranging.note_on_cut(one.arrangement); !note.empty()) {
      plan.notes.push_back(std::move(note));
    }
    note_sequence_parallel(input, plan);
    const auto idle = std::count(one.arrangement.shares.begin(), one.arrangement.shares.end(), 0);
    if (idle > 0) {
      const std::int64_t samples = input.batch / degrees.micro_batches;
      const bool few = samples < static_cast<std::int64_t>(degrees.data);
      plan.notes.push_back(fmt::format(
          "{} of {} replicas {} idle: {}", idle, degrees.data, idle == 1 ? "is" : "are",
          few ? fmt::format("a micro-batch has only {}", counted(samples, "sample"))
              : fmt::format("of {} in a micro-batch, shared by speed, they get none; --dp gives "
                            "each replica one",
                            counted(samples, "sample"))));
    }
    const std::size_t used = degrees.group() * degrees.pipeline * degrees.data;
    if (used < devices.size()) {
      plan.notes.push_back(fmt::format("{} of {} devices are used", used, devices.size()));
    }
    const Seconds step = one.price.fits()
                             ? estimated_step(estimator, with_memory_options(input, plan))
                             : one.price.step;
    moved.emplace_back(step, std::move(plan));
  }
  std::stable_sort(moved.begin(), moved.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  keep_accepted(input, moved, [](const auto& one) { return one.second; });
  std::vector<Plan> plans;
  for (auto& [step, plan] : moved) {
    if (plans.size() < finalists) plans.push_back(std::move(plan));
  }
  if (has_mixed_stages(input)) return best_with_mixed(input, estimator, std::move(plans));
  return std::move(plans[best_by_simulation(input, plans)]);
}

}  // namespace parsim::strategies
