// Changes to the stages of a plan, against all plans that are one change away.
#include <doctest/doctest.h>

#include <limits>

#include "strategies/blocks.hpp"
#include "strategies/mixed/layouts.hpp"
#include "strategies/mixed/rearrange.hpp"
#include "strategies/mixed/reasons.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

using strategies::Layout;
using strategies::StrategyInput;

const char* const cluster = "nodes:2x3,device=v100-sxm2*3+t4*3,intra=12GB/s,inter=1GB/s";
const char* const network = "gpt:layers=8,hidden=512,heads=8,seq_length=256,vocab_size=2048";

double step_of(const StrategyInput& input, const Plan& plan) {
  return simulated_price(input, plan).step.count();
}

Layout layout_of_devices(const Network& net, const std::vector<std::size_t>& blocks,
                         const std::vector<std::vector<std::size_t>>& replicas) {
  const std::vector<std::size_t> first = strategies::first_layers_of_blocks(net);
  Layout layout;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    strategies::LayoutStage& stage = layout.stages.emplace_back();
    stage.first = s == 0 ? 0 : first[blocks[s]];
    for (const std::size_t device : replicas[s]) stage.groups.push_back({DeviceId{device}});
  }
  return layout;
}

}  // namespace

TEST_CASE("varied stages: the result is better, and no change of a stage makes it better still") {
  const World world(network, cluster);
  StrategyInput input = world.simulated(32);
  input.optimizer = Optimizer::adam;
  input.micro_batches = 8;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
    input.schedule = schedule;
    lowering::Estimator estimator(input.step());
    // One after the other, and the slow ones first.
    const Layout start = layout_of_devices(world.network, {0, 2, 4, 5}, {{3, 4}, {5}, {0}, {1, 2}});
    const Plan plan = strategies::plan_of_stages(input, {start, 8});
    const auto varied = strategies::varied_stages(input, estimator, plan);
    REQUIRE(varied);
    const double step = step_of(input, *varied);
    CHECK(step < 0.95 * step_of(input, plan));
    const auto again = strategies::varied_stages(input, estimator, *varied);
    CHECK_FALSE(again);

    const auto classes = strategies::mixed::device_classes(input, 4);
    strategies::mixed::StageCosts costs(input, classes);
    strategies::mixed::StageTable table(input, classes, costs, 8);
    const auto layout = strategies::mixed::layout_of_plan(input, classes, *varied);
    REQUIRE(layout);
    const auto shaped = strategies::mixed::shaped_as(classes, costs, *layout);
    REQUIRE(shaped);
    strategies::mixed::Sequence stages;
    for (const auto& shape : shaped->shapes) stages.push_back(*table.add(shape));
    std::size_t count = 0;
    for (const auto& other : changed_sequences(input, classes, table, stages)) {
      const auto borders = table.cut(other, std::numeric_limits<double>::infinity());
      if (borders.first_block.empty()) continue;
      const auto changed = layout_of(classes, costs, table.pipeline(other, borders));
      if (!changed) continue;
      const Plan one = strategies::plan_of_stages(input, {*changed, 8});
      CHECK(step_of(input, one) >= step);
      ++count;
    }
    CHECK(count > 10);
  }
}

TEST_CASE("varied stages: plans of other kinds, and without simulation, stay") {
  const World world(network, cluster);
  const World alike(network, "nodes:1x4,device=v100-sxm2,intra=12GB/s,inter=1GB/s");
  const Layout layout = layout_of_devices(world.network, {0, 4}, {{3}, {0}});
  StrategyInput input = world.input(8);
  input.micro_batches = 4;
  lowering::Estimator estimator(input.step());
  const Plan plan = strategies::plan_of_stages(input, {layout, 4});
  CHECK_FALSE(strategies::varied_stages(input, estimator, plan));
  StrategyInput equal = alike.simulated(8);
  equal.micro_batches = 4;
  lowering::Estimator other(equal.step());
  CHECK_FALSE(
      strategies::varied_stages(equal, other, strategies::plan_of_stages(equal, {layout, 4})));
  const StrategyInput simulated = world.simulated(8);
  CHECK_FALSE(strategies::varied_stages(simulated, estimator, strategies::plan_data(simulated)));
  // Each device has two chunks, stages that lie apart.
  StrategyInput interleaved = world.simulated(8);
  interleaved.micro_batches = 4;
  interleaved.virtual_pipeline = 2;
  Layout chunks = layout_of_devices(world.network, {0, 2, 4, 6}, {{3}, {0}, {3}, {0}});
  chunks.chunks = 2;
  const Plan in_chunks = strategies::plan_layout(interleaved, chunks);
  CHECK_FALSE(strategies::varied_stages(interleaved, estimator, in_chunks));
  CHECK(strategies::stage_reasons(interleaved, in_chunks).empty());
}

TEST_CASE("stage reasons: alternatives that take long to hand micro-batches over say so") {
  const auto lines = [&](const std::string& rate) {
    const World world(network, "nodes:2x3,device=v100-sxm2*3+t4*3,intra=12GB/s,inter=" + rate);
    StrategyInput input = world.input(32);
    input.micro_batches = 8;
    const Layout layout = layout_of_devices(world.network, {0, 5}, {{0, 1}, {3}});
    std::string all;
    for (const std::string& line :
         strategies::stage_reasons(input, strategies::plan_of_stages(input, {layout, 8}))) {
      all += line + "\n";
    }
    CHECK(all.find("one block more: ") != std::string::npos);
    return all;
  };
  CHECK(lines("0.01GB/s").find(" ms to hand over") != std::string::npos);
  CHECK(lines("10GB/s").find("to hand over") == std::string::npos);
}

}  // namespace parsim::testing
