#include "strategies/interleaved_cut.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "strategies/blocks.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

using First = std::vector<std::size_t>;

/// Calls `visit` with every cut of a chain of units into stages.
void each_cut(std::size_t stages, std::size_t units, const std::function<void(const First&)>& visit,
              First first = {0}) {
  if (first.size() == stages) {
    visit(first);
    return;
  }
  const std::size_t left = stages - first.size();
  for (std::size_t begin = first.back() + 1; begin + left <= units; ++begin) {
    First longer = first;
    longer.push_back(begin);
    each_cut(stages, units, visit, longer);
  }
}

/// Stages that are alike, of units with these loads.
ChainCosts alike(std::size_t stages, const std::vector<double>& loads, double hand_over) {
  std::vector<double> until{0};
  for (const double load : loads) until.push_back(until.back() + load);
  return {{stages, until}, {stages, std::vector<double>(loads.size(), hand_over)}};
}

First every(std::size_t units) {
  First all;
  for (std::size_t u = 0; u < units; ++u) all.push_back(u);
  return all;
}

}  // namespace

// Narayanan et al. 2021, section 2.2: with v chunks each the bubble is (p - 1) / v of the m
// micro-batches' time, which is v · m loads of a stage.
TEST_CASE("interleaved cut: equal stages take as long as by hand") {
  for (const std::size_t devices : {2U, 4U}) {
    for (const std::size_t chunks : {2U, 3U}) {
      for (const std::int32_t groups : {1, 2, 5, 16}) {
        const auto micro_batches = groups * static_cast<std::int32_t>(devices);
        const std::size_t stages = devices * chunks;
        const Interleaving pipeline{devices, chunks, micro_batches};
        const ChainCosts costs = alike(stages, std::vector<double>(2 * stages, 3), 0);
        const PipelineCut cut = interleaved_cut(costs, pipeline, every(2 * stages));
        for (std::size_t s = 0; s < stages; ++s) CHECK(cut.first[s] == 2 * s);
        const double slots = micro_batches * static_cast<double>(chunks);
        CHECK(cut.step == testing::approx(6 * (slots + static_cast<double>(devices) - 1)));
        // Of ZB-H1 and ZB-H2 a third of the bubble (tests/strategies/zero_bubble_test.cpp).
        for (const PipelineSchedule schedule :
             {PipelineSchedule::zero_bubble, PipelineSchedule::zero_bubble_h2}) {
          Interleaving split = pipeline;
          split.schedule = schedule;
          CHECK(interleaved_step(costs, split, cut.first) ==
                testing::approx(6 * slots + 2 * (static_cast<double>(devices) - 1)));
        }
      }
    }
  }
}

TEST_CASE("interleaved cut: what is handed over takes longer if its sender waits") {
  const ChainCosts costs = alike(4, std::vector<double>(8, 1), 0.1);
  const First first{0, 2, 4, 6};
  const double free = interleaved_step(costs, {2, 2, 4, PipelineSends::overlapped}, first);
  const double blocking = interleaved_step(costs, {2, 2, 4, PipelineSends::blocking}, first);
  CHECK(free > interleaved_step(alike(4, std::vector<double>(8, 1), 0), {2, 2, 4}, first));
  CHECK(blocking > free);
}

TEST_CASE("interleaved cut: near the best of all cuts") {
  std::mt19937_64 random(11);
  double sum = 0;
  constexpr int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    const std::size_t devices = 2 + random() % 2, stages = 2 * devices;
    const std::size_t units = stages + 1 + random() % 6;
    std::vector<double> loads(units, 10);
    loads.front() = 1 + static_cast<double>(random() % 4);
    loads.back() = 1 + static_cast<double>(random() % 30);
    Interleaving pipeline{devices, 2, static_cast<std::int32_t>(devices * (1 + random() % 12))};
    if (round % 3 > 0) {
      pipeline.schedule =
          round % 3 == 1 ? PipelineSchedule::zero_bubble : PipelineSchedule::zero_bubble_h2;
    }
    const ChainCosts costs = alike(stages, loads, static_cast<double>(random() % 3) / 4);
    const PipelineCut cut = interleaved_cut(costs, pipeline, every(units));
    CHECK(cut.step == testing::approx(interleaved_step(costs, pipeline, cut.first)));
    double least = cut.step;
    each_cut(stages, units, [&](const First& first) {
      least = std::min(least, interleaved_step(costs, pipeline, first));
    });
    CHECK(cut.step <= 1.03 * least);
    sum += cut.step / least - 1;
  }
  CHECK(sum / rounds < 0.002);
}

TEST_CASE("interleaved cut: no cut at blocks is 1 % faster by simulation") {
  struct Case {
    const char *sizes, *machines;
    std::int32_t micro_batches;
  };
  // Vocabularies from a tenth of a block to several blocks; blocks that divide by four and not.
  const char* nvlink = "nodes:1x2,device=a100-sxm4-80,intra=300GB/s";
  const char* ethernet = "nodes:2x1,device=v100-sxm2,inter=10GB/s";
  for (const Case& one : {Case{"layers=8,vocab_size=50000", nvlink, 4},
                          {"layers=8,vocab_size=2000", nvlink, 8},
                          {"layers=9,vocab_size=20000", ethernet, 2},
                          {"layers=10,vocab_size=20000", nvlink, 4},
                          {"layers=10,vocab_size=50000", ethernet, 8}}) {
    const World world(std::string("gpt:hidden=1024,heads=16,seq_length=512,") + one.sizes,
                      std::string(one.machines));
    StrategyInput input = world.simulated(8);
    input.precision = Precision::bf16;
    input.tensor_parallel = 1;
    input.pipeline_parallel = input.virtual_pipeline = 2;
    input.micro_batches = one.micro_batches;
    const Plan plan = plan_tensor(input);
    const First units = units_of(world.network, {});
    tensor::Arranging arranging(input);
    tensor::Arrangement other =
        arranging.arrange({1, 2, 1, one.micro_batches, 2}, {DeviceId{0}, DeviceId{1}});
    Seconds least{1e9};
    each_cut(4, units.size(), [&](const First& first) {
      for (std::size_t s = 0; s < 4; ++s) other.cut.first[s] = units[first[s]];
      least = std::min(least, input.simulate(arranging.plan_of(other)));
    });
    CAPTURE(one.sizes);
    CAPTURE(one.micro_batches);
    CHECK(input.simulate(plan) <= 1.01 * least);
  }
}

TEST_CASE("interleaved cut: equal blocks are cut as Megatron-LM cuts them where that is fastest") {
  const World world("gpt:layers=16,hidden=4096,heads=32,seq_length=1024,vocab_size=64",
                    "nodes:1x4,device=a100-sxm4-80,intra=300GB/s");
  StrategyInput input = world.simulated(16);
  input.precision = Precision::bf16;
  input.tensor_parallel = 1;
  input.virtual_pipeline = 2;
  input.micro_batches = 16;
  for (const std::int32_t devices : {2, 4}) {
    input.pipeline_parallel = devices;
    const Plan plan = plan_tensor(input);
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(2 * devices));
    for (const std::size_t layer : first_layers_of_blocks(world.network)) {
      ++blocks[static_cast<std::size_t>(plan.schedule.stage_of_layer[layer])];
    }
    CHECK(blocks == std::vector<std::int64_t>(blocks.size(), 16 / (2 * devices)));
  }
}
