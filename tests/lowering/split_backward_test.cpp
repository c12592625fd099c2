// Schedules whose weight gradients have slots of their own (zero-bubble pipelines).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/json.hpp"
#include "core/timeline.hpp"
#include "lowering/estimate.hpp"
#include "lowering/issue_order.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "sim/sim.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

/// Every pass of a dense layer takes a second, but for the first one, which has no input gradient;
/// nothing else takes any time.
class EqualParts final : public CostModel {
 public:
  Cost compute(const Network& network, LayerId layer, const Part&, Pass, DeviceId,
               Precision) const override {
    const bool counts =
        network[layer].kind.as<Dense>() != nullptr && network[layer].name != "first";
    return {Seconds{counts ? 1.0 : 0.0}, Origin::guessed};
  }
  Cost memory(DeviceId, Bytes) const override { return {Seconds{0}, Origin::guessed}; }
  Seconds transfer(DeviceId, DeviceId, Bytes) const override { return Seconds{0}; }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
    return Seconds{0};
  }
  std::string summary() const override { return "equal"; }
};

Seconds list_schedule_of(const ExecDag& dag, const CostModel& cost) {
  Seconds end{};
  for (const Span& span : list_schedule(dag, durations_alone(dag, cost)))
    end = std::max(end, span.end);
  return end;
}

/// A chain of a dense layer for each device, with a further one first.
Network chain(int devices) {
  std::string text = "x: vector 8; first: dense 8";
  for (int d = 0; d < devices; ++d) text += "; d" + std::to_string(d) + ": dense 8";
  return network_of(text + "; loss");
}

strategies::Layout layout_of_chain(const Cluster& cluster, int devices) {
  std::vector<std::size_t> first{0};
  for (int d = 1; d < devices; ++d) first.push_back(static_cast<std::size_t>(d) + 2);
  return strategies::even_layout(first, 1, 1, devices_of(cluster, DeviceKind::gpu));
}

/// The plan, but backward is split: weight gradients of every stage and micro-batch some random
/// time after their backward.
Plan with_split_backward(const Network& network, Plan plan, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Slot> order;
  for (const std::vector<Slot>& round : lowering::issue_order(network, plan.schedule)) {
    order.insert(order.end(), round.begin(), round.end());
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    if (order[at].direction != Direction::backward) continue;
    const std::size_t later = at + 1 + random() % std::min<std::size_t>(6, order.size() - at);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(later),
                 {order[at].stage, order[at].micro_batch, Direction::weights});
  }
  plan.schedule.split_backward = true;
  for (RankList& list : plan.schedule.rank_lists) {
    std::set<std::int32_t> stages;
    for (const Slot& slot : list.slots) stages.insert(slot.stage);
    list.slots.clear();
    std::copy_if(order.begin(), order.end(), std::back_inserter(list.slots),
                 [&](const Slot& slot) { return stages.contains(slot.stage); });
  }
  return plan;
}

}  // namespace

// T_F = T_B = T_W = 1: bubbles of (p - 1)(1 + 1 - 1). Of a stage of one layer, 1F1B sends the input
// gradient before it computes the weight gradient, too: (p - 1)(1 + 1). Two layers have the weight
// gradients of the later one in between, which take the place of the paper's T_W.
TEST_CASE("split backward: a zero-bubble pipeline of equal parts takes 3m + p - 1") {
  for (const auto& [devices, micro_batches] : {std::array{2, 2}, {2, 5}, {3, 6}, {4, 8}}) {
    const Network network = chain(devices);
    const Cluster cluster = star_of(static_cast<std::size_t>(devices), "10 GB/s", "1us");
    const EqualParts cost;
    strategies::StrategyInput input{network, cluster, cost};
    input.batch = micro_batches;
    input.micro_batches = micro_batches;
    for (const bool split : {false, true}) {
      input.schedule = split ? strategies::PipelineSchedule::zero_bubble
                             : strategies::PipelineSchedule::one_f_one_b;
      const Plan plan = strategies::plan_layout(input, layout_of_chain(cluster, devices));
      CHECK(plan.schedule.split_backward == split);
      lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
      const double expected = 3 * micro_batches + (devices - 1) * (split ? 1 : 2);
      CAPTURE(devices);
      CHECK(std::abs(estimator.step_time(plan).count() - expected) < 1e-9);
      CHECK(std::abs(list_schedule_of(lowering::lower(network, cluster, plan), cost).count() -
                     expected) < 1e-9);
    }
  }
}

// A stage keeps of a sample what its layer reads and what it makes until backward, then what it
// reads and the gradient of what it makes until the weight gradients: 2 · 8 numbers for each of the
// four micro-batches in flight, on every device.
TEST_CASE("split backward: every stage keeps what the first stage of 1F1B keeps, by hand") {
  std::string text = "x: vector 8";
  for (int s = 0; s < 4; ++s) text += "; d" + std::to_string(s) + ": dense 8";
  const World world(network_of(text + "; loss"), star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.micro_batches = 8;
  input.schedule = strategies::PipelineSchedule::zero_bubble;
  const strategies::Layout layout =
      strategies::even_layout({0, 2, 3, 4}, 1, 1, devices_of(world.cluster, DeviceKind::gpu));
  constexpr std::int64_t sample = 8 * 4, gradients = 2 * sample;
  for (const lowering::MemoryUse& use :
       strategies::memory_use(input, strategies::plan_layout(input, layout))) {
    CHECK(use.activations.value - gradients == 4 * 2 * sample);
  }
}

TEST_CASE("split backward: plans compute what the unsplit network computes, as estimated") {
  const std::vector<Network> networks = tiny_networks();
  std::size_t split = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = 1 + seed / networks.size() % 4;
    const Cluster cluster = star_of(gpus + 1, "10 GB/s", "1us");
    const bool interleaved = gpus > 1 && seed % 3 == 0;
    Plan plan = interleaved     ? random_interleaved_plan(network, gpus, 8, seed)
                : seed % 3 == 1 ? random_replicated_plan(network, gpus, 8, seed)
                                : random_plan(network, gpus, 8, seed);
    if (seed % 2 == 0) plan = with_split_states(std::move(plan), seed);
    plan = with_split_backward(network, std::move(plan), seed);
    plan.schedule.blocking_sends = seed % 5 == 0;
    INFO(network.name, " on ", gpus, " devices, seed ", seed);
    CHECK_NOTHROW(validate(plan, network, cluster, "test"));
    CHECK(plan_from_json(to_json(plan), "test") == plan);
    const ExecDag dag = lowering::lower(network, cluster, plan);
    CHECK(difference(plan, dag, seed) == "");
    const auto cost = sim::make_constant_efficiency(cluster);
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = 8;
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    const double expected = list_schedule_of(dag, *cost).count();
    const Seconds step = estimator.step_time(plan);
    CHECK(std::abs(step.count() / expected - 1) < 1e-9);
    lowering::Estimator limited(input.step(), lowering::LinkSharing::ignored);
    CHECK(limited.step_time(plan, step * 1.0001) == step);  // no bound above it
    split += plan.schedule.rank_lists[0].slots.back().direction == Direction::weights ? 1 : 0;
  }
  CHECK(split > 60);
}

TEST_CASE("split backward: a slot of weight gradients in a plan that splits none is refused") {
  const Network network = chain(1);
  const Cluster cluster = star_of(1, "10 GB/s", "1us");
  Plan plan = single_device_plan(network, 2);
  plan.schedule.rank_lists[0].slots.push_back({0, 0, Direction::weights});
  CHECK_THROWS_WITH(validate(plan, network, cluster, "p.json"),
                    "p.json: schedule: rank list 0 has 3 slots; each of its 2 (stage, micro-batch, "
                    "direction) once");
  plan.schedule.split_backward = true;
  CHECK_NOTHROW(validate(plan, network, cluster, "p.json"));
  std::swap(plan.schedule.rank_lists[0].slots[1], plan.schedule.rank_lists[0].slots[2]);
  CHECK_THROWS_WITH(lowering::lower(network, cluster, plan),
                    "plan: schedule: rank list 0 waits for ever at weights of stage 0, micro-batch "
                    "0; an order in which every slot comes after the slots it depends on");
}

}  // namespace parsim::testing
