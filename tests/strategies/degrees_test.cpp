#include "strategies/degrees.hpp"

#include <doctest/doctest.h>

#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

const char* const four = "star:4,device=a100-sxm4-80,rate=25GB/s,latency=5us";
const char* const gpt = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128";

/// With these degrees.
StrategyInput asked(const World& world, std::int32_t tp, std::int32_t pp, std::int32_t dp,
                    std::int32_t micro_batches) {
  StrategyInput input = world.input(16);
  input.tensor_parallel = tp;
  input.pipeline_parallel = pp;
  input.data_parallel = dp;
  input.micro_batches = micro_batches;
  return input;
}

}  // namespace

TEST_CASE("degrees: those that the strategy 'tensor' was asked for") {
  const World world(gpt, four);
  for (const std::int32_t tp : {1, 2, 4}) {
    for (const std::int32_t pp : {1, 2, 4}) {
      for (const std::int32_t dp : {1, 2, 4}) {
        if (tp * pp * dp > 4) continue;
        for (const PipelineSchedule schedule :
             {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
          StrategyInput input = asked(world, tp, pp, dp, 4);
          input.schedule = schedule;
          input.zero_stage = dp > 1 ? 1 : 0;
          if (dp == 4) input.zero_group = ZeroGroup{2, false};
          input.recompute = Recompute::full;
          input.sequence_parallel = tp > 1;
          const Plan plan = with_memory_options(input, plan_tensor(input));
          const Degrees degrees = degrees_of(world.network, plan);
          CAPTURE(short_text(degrees));
          CHECK(degrees.tp == tp);
          CHECK(degrees.pp == pp);
          CHECK(degrees.dp == dp);
          CHECK(degrees.cp == 1);
          CHECK(degrees.ep == 1);
          CHECK(degrees.vp == 1);
          CHECK(degrees.micro_batches == 4);
          CHECK(degrees.micro_batch == 4 / dp);
          CHECK(degrees.zero == input.zero_stage);
          CHECK(zero_group_text(degrees).value_or("") == (dp == 4 ? "2" : ""));
          CHECK(short_text(degrees).ends_with(dp == 4 ? "zero 1 by 2, recompute full"
                                                      : "recompute full"));
          CHECK(degrees.recompute == Recompute::full);
          CHECK(degrees.sequence_parallel == (tp > 1));
          if (pp > 1) CHECK(degrees.schedule == schedule);
          if (pp == 1) CHECK_FALSE(degrees.schedule.has_value());
        }
      }
    }
  }
}

TEST_CASE("degrees: of model chunks") {
  const World world(gpt, four);
  StrategyInput input = asked(world, 1, 2, 2, 4);
  input.virtual_pipeline = 2;
  const Degrees degrees = degrees_of(world.network, plan_tensor(input));
  CHECK(degrees.pp == 2);
  CHECK(degrees.vp == 2);
  CHECK(degrees.dp == 2);
  CHECK(degrees.schedule == PipelineSchedule::one_f_one_b);
  CHECK(short_text(degrees) == "tp 1 x pp 2 x dp 2, mb 4, vp 2");
}

TEST_CASE("degrees: absent where layers differ") {
  const World world("alexnet", four);
  const StrategyInput input = world.input(16);
  const Degrees owt = degrees_of(world.network, plan_owt(input));  // by sample, then by channel
  CHECK_FALSE(owt.tp.has_value());
  CHECK_FALSE(owt.dp.has_value());
  CHECK_FALSE(owt.micro_batch.has_value());
  CHECK(owt.pp == 1);
  CHECK(short_text(owt) == "mixed");
  const Degrees data = degrees_of(world.network, plan_data(input));
  CHECK(data.dp == 4);
  CHECK(data.tp == 1);
  CHECK(data.micro_batch == 4);
  CHECK(short_text(data) == "tp 1 x pp 1 x dp 4");
  const Degrees even = degrees_of(world.network, plan_model_even(input));
  CHECK(even.dp == 1);
  CHECK(even.tp == 4);
}

TEST_CASE("degrees: replicas of unlike devices have no common micro-batch") {
  const World world("alexnet", "star:2,device=v100-sxm2*1+p100-sxm2*1,rate=25GB/s,latency=5us");
  StrategyInput input = world.input(64);
  input.shares = ShareRule::proportional;
  const Degrees degrees = degrees_of(world.network, plan_data(input));
  CHECK(degrees.dp == 2);
  CHECK_FALSE(degrees.micro_batch.has_value());
}

TEST_CASE("degrees: stages of whole blocks, and of parts of blocks") {
  const World world(gpt, four);
  StrategyInput input = asked(world, 1, 2, 2, 4);
  Plan plan = plan_tensor(input);
  const auto at = [&](std::string_view name) {
    for (std::size_t l = 0; l < world.network.layers.size(); ++l) {
      if (world.network.layers[l].name.starts_with(name)) return l;
    }
    return std::size_t{0};
  };
  const auto cut_at = [&](std::size_t first) {
    const auto owner = [&](std::int32_t stage) {
      for (std::size_t l = 0;; ++l) {
        if (plan.schedule.stage_of_layer[l] == stage) return plan.layers[l].devices;
      }
    };
    const std::vector<DeviceId> front = owner(0), back = owner(1);
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      plan.schedule.stage_of_layer[l] = l < first ? 0 : 1;
      plan.layers[l].devices = l < first ? front : back;
    }
    return stages_of(world.network, plan);
  };
  const std::vector<StageSummary> whole = cut_at(at("block1."));
  REQUIRE(whole.size() == 2);
  CHECK(whole[0].blocks == std::vector<Interval>{{0, 1}});
  CHECK(whole[1].blocks == std::vector<Interval>{{1, 4}});
  CHECK(whole[0].devices.size() == 2);
  CHECK(whole[1].dp == 2);
  CHECK(whole[1].tp == 1);
  const std::vector<StageSummary> parts = cut_at(at("block1.") + 2);
  CHECK_FALSE(parts[0].blocks.has_value());
  CHECK_FALSE(parts[1].blocks.has_value());
}

TEST_CASE("degrees: stages of different widths say what groups do with tokens") {
  const World world(gpt, four);
  const std::size_t second = first_layers_of_blocks(world.network)[2];
  const Layout layout{
      {{0, {{DeviceId{0}, DeviceId{1}}}, {}}, {second, {{DeviceId{2}}, {DeviceId{3}}}, {}}}};
  for (const bool shared : {false, true}) {
    StrategyInput input = world.input(16);
    input.micro_batches = 4;
    input.sequence_parallel = input.tensor_overlap = shared;
    const Degrees degrees = degrees_of(world.network, plan_layout(input, layout));
    CHECK_FALSE(degrees.tp.has_value());
    CHECK(degrees.sequence_parallel == shared);
    CHECK(degrees.tensor_overlap == shared);
  }
}

TEST_CASE("degrees: equal plans have equal ids, others have not") {
  const World world("alexnet", four);
  const StrategyInput input = world.input(16);
  const Plan data = plan_data(input);
  Plan same = data;
  same.strategy = "other";
  same.notes.emplace_back("a note");
  same.layers[1].cuts.push_back({Dim::replica, {1}});  // nothing is cut by it
  CHECK(plan_id(world.network, same) == plan_id(world.network, data));
  CHECK(plan_id(world.network, data).size() == 16);
  for (int what = 0; what < 5; ++what) {
    Plan other = data;
    if (what == 0) other.layers[1].recompute = true;
    if (what == 1) other.layers[1].zero.stage = 1;
    if (what == 2) other.buckets.clear();
    if (what == 3)
      --other.layers[1].cuts[0].sizes.edit()[0], ++other.layers[1].cuts[0].sizes.edit()[1];
    if (what == 4) other.optimizer = Optimizer::adam;
    CAPTURE(what);
    CHECK(plan_id(world.network, other) != plan_id(world.network, data));
  }
}

}  // namespace parsim::strategies
