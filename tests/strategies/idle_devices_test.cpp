#include "strategies/idle_devices.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

using Lines = std::vector<std::string>;

constexpr std::int64_t samples = 4, micro_batches = 4;

World world(const std::string& inter) {
  return {"gpt:layers=4,hidden=512,heads=8,seq_length=256,vocab_size=1000",
          "nodes:2x2,device=a100-sxm4-40*2+t4*2,inter=" + inter};
}

StrategyInput input_of(const World& world) {
  StrategyInput input = world.input(samples * micro_batches);
  input.micro_batches = micro_batches;
  input.schedule = PipelineSchedule::one_f_one_b;
  input.zero_stage = 0;
  return input;
}

using Groups = std::vector<std::vector<DeviceId>>;

/// Stages that begin with these blocks, whose groups share the samples equally.
Plan on(const StrategyInput& input, const std::vector<std::size_t>& blocks,
        const std::vector<Groups>& groups) {
  const std::vector<std::size_t> first = first_layers_of_blocks(input.network);
  Layout layout;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    const std::size_t count = groups[s].size();
    layout.stages.push_back(
        {first[blocks[s]], groups[s],
         std::vector<std::int64_t>(count, samples / static_cast<std::int64_t>(count))});
  }
  return plan_layout(input, layout);
}

const Groups a0{{DeviceId{0}}}, a1{{DeviceId{1}}}, t0{{DeviceId{2}}}, t1{{DeviceId{3}}},
    both{{DeviceId{2}}, {DeviceId{3}}};

}  // namespace

TEST_CASE("idle devices: none where all have a part") {
  const World fast = world("10GB/s");
  const StrategyInput input = input_of(fast);
  CHECK(idle_devices(input, on(input, {0, 1, 3}, {a0, a1, both})).empty());
}

TEST_CASE("idle devices: links, memory and speed of the others are named") {
  const World slow = world("10MB/s");
  const StrategyInput behind = input_of(slow);
  const Lines links = idle_devices(behind, on(behind, {0, 2}, {a0, a1}));
  REQUIRE(links.size() == 1);
  CHECK(links[0].starts_with(
      "idle: 2 of 2 t4; because handing a micro-batch over to them takes at least "));
  World small = world("10GB/s");
  for (const std::size_t d : {2U, 3U}) small.cluster.devices[d].memory = Bytes{10'000'000};
  const StrategyInput full = input_of(small);
  const Lines memory = idle_devices(full, on(full, {0, 2}, {a0, a1}));
  REQUIRE(memory.size() == 1);
  CHECK(memory[0].starts_with("idle: 2 of 2 t4; because a block needs at least "));
  CHECK(memory[0].ends_with(" of 9.54 MiB there"));
  // The other way round nothing is slower.
  const World usual = world("10GB/s");
  const StrategyInput roomy = input_of(usual);
  const Lines fast = idle_devices(roomy, on(roomy, {0, 2}, {t0, t1}));
  REQUIRE(fast.size() == 1);
  CHECK(fast[0].starts_with(
      "idle: 2 of 2 a100-sxm4-40; the plan may not be the best: with a stage of a block on "));
}

TEST_CASE("idle devices: the plan with a stage on them is priced as all such plans are") {
  const World fast = world("10GB/s");
  const StrategyInput input = input_of(fast);
  const Plan plan = on(input, {0, 2}, {a0, a1});
  lowering::Estimator estimator(input.step());
  // A block is the fastest on both, as replicas: before, between and after the stages that are.
  const Seconds least = std::min({estimator.step_time(on(input, {0, 1, 2}, {both, a0, a1})),
                                  estimator.step_time(on(input, {0, 2, 3}, {a0, both, a1})),
                                  estimator.step_time(on(input, {0, 2, 3}, {a0, a1, both}))});
  CHECK(
      idle_devices(input, plan) ==
      Lines{"idle: 2 of 2 t4; the plan may not be the best: with a stage of a block on 2 of them " +
            to_text(least) + " instead of " + to_text(estimator.step_time(plan)) +
            ", by estimate"});
}
