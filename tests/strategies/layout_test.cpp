// Plans that are given: stages, groups and samples as the layout names them, and the numbers of the
// unsplit network whatever they are.
#include "strategies/layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>

#include "core/errors.hpp"
#include "lowering/lower.hpp"
#include "lowering/sync.hpp"
#include "strategies/blocks.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

const std::string tiny_gpt =
    "gpt:layers=3,hidden=8,heads=4,seq_length=3,vocab_size=6,ffn_hidden=12";

/// A language model whose loss is of its first word: what the interpreter can compute.
Network tiny_model(const std::string& options = {}) {
  Network net = networks::load_network(tiny_gpt + options, {}, "test");
  net.layers.pop_back();
  const LayerId first =
      add_layer(net, "first", Slicing{0, 0, 1, 1}, {LayerId{net.layers.size() - 1}});
  add_layer(net, "loss", Loss{}, {add_layer(net, "vector", Flatten{}, {first})});
  return net;
}

std::vector<std::vector<DeviceId>> groups(const std::vector<std::vector<std::int32_t>>& numbers) {
  std::vector<std::vector<DeviceId>> all;
  for (const auto& group : numbers) {
    all.emplace_back();
    for (const std::int32_t device : group) all.back().emplace_back(device);
  }
  return all;
}

/// Stages that begin with these blocks.
strategies::Layout layout_of(const Network& network, const std::vector<std::size_t>& blocks,
                             const std::vector<std::vector<std::vector<std::int32_t>>>& devices) {
  const std::vector<std::size_t> first = strategies::first_layers_of_blocks(network);
  strategies::Layout layout;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    layout.stages.push_back({first.at(blocks[s]), groups(devices[s]), {}});
  }
  return layout;
}

std::string difference_of(const strategies::StrategyInput& input, const strategies::Layout& layout,
                          std::uint64_t seed) {
  const Plan plan = strategies::with_memory_options(input, strategies::plan_layout(input, layout));
  return difference(plan, lowering::lower(input.network, input.cluster, plan), seed);
}

std::string name_of(const strategies::StrategyInput& input, LayerId layer) {
  return input.network[layer].name;
}

}  // namespace

TEST_CASE("layout: blocks are found by the names of layers") {
  const Network network = networks::load_network(tiny_gpt, {}, "test");
  const std::vector<std::size_t> first = strategies::first_layers_of_blocks(network);
  REQUIRE(first.size() == 3);
  CHECK(first[0] == 0);
  CHECK(network.layers[first[1]].name.starts_with("block1."));
  CHECK(network.layers[first[1] - 1].name.starts_with("block0."));
  CHECK(strategies::first_layers_of_blocks(tiny_network("plain")).empty());
}

TEST_CASE("layout: groups of one size are the plan of strategy tensor") {
  const World world("gpt:layers=4,hidden=64,heads=8,seq_length=32,vocab_size=96",
                    "nodes:2x4,device=v100-sxm2,intra=50GB/s,inter=10GB/s");
  for (const auto& [tensor, stages] : {std::pair{2, 2}, {4, 1}, {1, 2}, {1, 1}, {2, 4}}) {
    CAPTURE(tensor);
    CAPTURE(stages);
    strategies::StrategyInput input = world.input(16);
    input.tensor_parallel = tensor;
    input.pipeline_parallel = stages;
    input.micro_batches = 4;
    const Plan searched = strategies::plan_tensor(input);
    std::vector<std::size_t> first;
    for (std::size_t l = 0; l < searched.layers.size(); ++l) {
      const auto stage = static_cast<std::size_t>(searched.schedule.stage_of_layer[l]);
      if (stage == first.size()) first.push_back(l);
    }
    const auto ways = static_cast<std::size_t>(tensor), parts = static_cast<std::size_t>(stages);
    Plan given = strategies::plan_layout(
        input, strategies::even_layout(first, ways, 8 / ways / parts,
                                       devices_of(world.cluster, DeviceKind::gpu)));
    given.strategy = searched.strategy;
    given.notes = searched.notes;
    CHECK(given == searched);
  }
}

TEST_CASE("layout: stages have the blocks, devices and samples that they name") {
  const World world(tiny_gpt, star_of(6, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.micro_batches = 2;
  strategies::Layout layout = layout_of(world.network, {0, 2}, {{{0, 1}, {2}}, {{5}, {4}}});
  layout.stages[0].samples = {3, 1};
  layout.stages[1].samples = {1, 3};
  const Plan plan = strategies::plan_layout(input, layout);
  CHECK(plan.strategy == "layout");
  CHECK(plan.schedule.micro_batches == 2);
  const std::array<std::set<DeviceId>, 2> of_stage{std::set{DeviceId{0}, DeviceId{1}, DeviceId{2}},
                                                   std::set{DeviceId{4}, DeviceId{5}}};
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::string name = name_of(input, LayerId{l});
    CAPTURE(name);
    const bool second = l >= strategies::first_layers_of_blocks(world.network)[2];
    CHECK(plan.schedule.stage_of_layer[l] == (second ? 1 : 0));
    std::set<DeviceId> devices(plan.layers[l].devices.begin(), plan.layers[l].devices.end());
    CHECK(devices == of_stage[second ? 1 : 0]);
    // Device 2 has one kernel for all that 0 and 1 have together.
    const std::vector<Cell> all = cells(world.network, LayerId{l}, plan.layers[l], 4);
    CHECK(all.size() == (second ? 2 : 3));
    for (const Cell& cell : all) {
      const std::int64_t samples = cell.part.out[0].size();
      CHECK(samples ==
            (second ? (cell.device == DeviceId{5} ? 1 : 3) : (cell.device == DeviceId{2} ? 1 : 3)));
    }
  }
  CHECK(plan.notes == std::vector<std::string>{"1 of 6 GPUs idle: in no group of the layout"});
  layout.stages[1].groups[1].push_back(DeviceId{3});
  CHECK(strategies::plan_layout(input, layout).notes.empty());
}

TEST_CASE("layout: a replica without samples is noted with the reason") {
  const World world(tiny_gpt, star_of(6, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  const auto note = [&](const strategies::Layout& layout) {
    return strategies::plan_layout(input, layout).notes.at(0);
  };
  strategies::Layout layout = layout_of(world.network, {0, 2}, {{{0}, {1}, {2}}, {{3}, {4}, {5}}});
  layout.stages[0].samples = {5, 0, 3};
  CHECK(note(layout) == "stage 0: 1 of 3 replicas is idle: samples = [5, 0, 3] in the layout");
  layout.stages[0].samples.clear();
  input.micro_batches = 4;
  CHECK(note(layout) == "stage 0: 1 of 3 replicas is idle: a micro-batch has only 2 samples");
}

TEST_CASE("layout: any degrees of stages and replicas compute what the unsplit network computes") {
  struct Case {
    const char* what;
    std::vector<std::size_t> blocks;
    std::vector<std::vector<std::vector<std::int32_t>>> devices;
    std::vector<std::vector<std::int64_t>> samples;
  };
  const std::vector<Case> all{
      {"tensor 2 to 1", {0, 1}, {{{0, 1}}, {{2}}}, {}},
      {"tensor 1 to 2", {0, 2}, {{{0}}, {{1, 2}}}, {}},
      {"tensor 4 to 2", {0, 1}, {{{0, 1, 2, 3}}, {{4, 5}}}, {}},
      {"replicas 2 to 1", {0, 1}, {{{0}, {1}}, {{2}}}, {{3, 1}, {}}},
      {"replicas 1 to 3", {0, 2}, {{{0}}, {{1}, {2}, {3}}}, {{}, {1, 1, 2}}},
      {"replicas 2 to 3, other samples",
       {0, 1},
       {{{0}, {1}}, {{2}, {3}, {4}}},
       {{1, 3}, {2, 1, 1}}},
      {"groups of 2 and 1", {0}, {{{0, 1}, {2}}}, {{3, 1}}},
      {"groups of 1 and 2", {0}, {{{2}, {0, 1}}}, {{1, 3}}},
      {"groups of 2 and 4", {0}, {{{0, 1}, {2, 3, 4, 5}}}, {}},
      {"groups of 2 and 3", {0}, {{{0, 1}, {2, 3, 4}}}, {}},
      {"groups of 2 and 1, then 1 and 2", {0, 1}, {{{0, 1}, {2}}, {{3}, {4, 5}}}, {{1, 3}, {3, 1}}},
      {"groups of 2 and 1, then 1", {0, 2}, {{{0, 1}, {2}}, {{3}}}, {}},
      {"three stages", {0, 1, 2}, {{{0, 1}}, {{2}, {3}}, {{4, 5}}}, {{}, {1, 3}, {}}},
      {"a replica without samples", {0, 1}, {{{0, 1}, {2}}, {{3}}}, {{4, 0}, {}}},
  };
  for (const char* attention : {"", ",attention=eager"}) {
    const World world(tiny_model(attention), star_of(6, "10 GB/s", "1us"));
    std::uint64_t seed = 0, turns = 0;
    for (const Case& one : all) {
      CAPTURE(attention);
      CAPTURE(one.what);
      strategies::Layout layout = layout_of(world.network, one.blocks, one.devices);
      for (std::size_t s = 0; s < one.samples.size(); ++s) {
        layout.stages[s].samples = one.samples[s];
      }
      for (const std::int32_t zero : {0, 1, 3}) {
        const bool another = ++turns % 2 == 0;  // each case with some of them
        if (another && !long_tests()) continue;
        strategies::StrategyInput input = world.input(8);
        input.micro_batches = 2;
        input.zero_stage = zero;
        input.schedule = ++seed % 2 == 0 ? strategies::PipelineSchedule::gpipe
                                         : strategies::PipelineSchedule::one_f_one_b;
        input.recompute =
            seed % 3 == 0 ? strategies::Recompute::optimal : strategies::Recompute::none;
        CAPTURE(zero);
        CHECK(difference_of(input, layout, seed) == "");
      }
    }
  }
}

// Weights that all devices of a group have get the gradients of all samples, also where one group
// is a single device: the others receive the sum.
TEST_CASE("layout: replicas in groups of other size get the first replica's sum") {
  const World world(tiny_gpt, star_of(3, "10 GB/s", "1us"));
  const strategies::StrategyInput input = world.input(4);
  const Plan plan = strategies::plan_layout(input, layout_of(world.network, {0}, {{{0, 1}, {2}}}));
  std::size_t receivers = 0;
  for (const lowering::SyncGroup& group :
       lowering::sync_groups(world.network, world.cluster, plan)) {
    CHECK(std::binary_search(group.devices.begin(), group.devices.end(), DeviceId{2}));
    if (group.mirrors.empty()) continue;
    CHECK(group.devices == std::vector{DeviceId{0}, DeviceId{2}});
    CHECK(group.mirrors == std::vector{DeviceId{1}});
    ++receivers;
  }
  CHECK(receivers > 0);
}

TEST_CASE("layout: random layouts of tiny networks compute what the unsplit network computes") {
  std::vector<Network> networks = tiny_networks();
  networks.push_back(tiny_model());
  networks.push_back(tiny_model(",kv_heads=2"));
  networks.push_back(tiny_model(",attention=eager"));
  std::size_t split = 0;
  for (std::uint64_t seed = 0; seed < (long_tests() ? 240U : 80U); ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::size_t most) { return 1 + random() % most; };
    const Network& network = networks[seed % networks.size()];
    constexpr std::size_t devices = 8;
    const World world(network, star_of(devices, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(8);
    input.micro_batches = 1 << random() % 3;
    const std::int64_t samples = input.batch / *input.micro_batches;
    input.schedule =
        std::array{strategies::PipelineSchedule::gpipe, strategies::PipelineSchedule::one_f_one_b,
                   strategies::PipelineSchedule::zero_bubble}[random() % 3];
    input.recompute =
        random() % 4 == 0 ? strategies::Recompute::optimal : strategies::Recompute::none;
    input.zero_stage = static_cast<std::int32_t>(random() % 4);
    input.bucket = Bytes{std::array{0, 300, 1 << 20}[random() % 3]};
    std::set<std::size_t> first{0};
    for (std::size_t stages = pick(3); first.size() < stages;) {
      first.insert(random() % network.layers.size());
    }
    strategies::Layout layout;
    if (random() % 2 == 0) input.pipeline_sends = strategies::PipelineSends::blocking;
    std::int32_t next = 0;
    std::size_t left = first.size();
    for (const std::size_t layer : first) {
      strategies::LayoutStage& stage =
          layout.stages.emplace_back(strategies::LayoutStage{layer, {}, {}});
      std::size_t mine = pick(devices - static_cast<std::size_t>(next) - --left);
      while (mine > 0) {
        const std::size_t size = pick(std::min<std::size_t>(mine, 4));
        std::vector<DeviceId>& group = stage.groups.emplace_back();
        for (std::size_t d = 0; d < size; ++d) group.emplace_back(next++);
        mine -= size;
      }
      if (random() % 3 == 0) continue;
      std::int64_t rest = samples;
      for (std::size_t r = 0; r + 1 < stage.groups.size(); ++r) {
        stage.samples.push_back(static_cast<std::int64_t>(random()) % (rest + 1));
        stage.samples.back() = std::abs(stage.samples.back());
        rest -= stage.samples.back();
      }
      stage.samples.push_back(rest);
    }
    // Of every other layout devices share layers unequally.
    for (strategies::LayoutStage& stage : layout.stages) {
      if (seed % 2 == 0) break;
      for (const std::vector<DeviceId>& group : stage.groups) {
        std::vector<std::int64_t>& parts = stage.parts.emplace_back();
        for (std::size_t d = 0; d < group.size(); ++d) {
          parts.push_back(static_cast<std::int64_t>(pick(3)));
        }
      }
    }
    INFO(network.name, ", seed ", seed);
    CHECK(difference_of(input, layout, seed) == "");
    const Plan plan = strategies::plan_layout(input, layout);
    const std::vector<RankList>& lists = plan.schedule.rank_lists;
    split += std::any_of(lists.begin(), lists.end(), [](const RankList& list) {
      return list.slots.back().direction == Direction::weights;
    });
  }
  CHECK(split > (long_tests() ? 30U : 10U));
}

TEST_CASE("layout: devices share layers as their parts say, heads whole") {
  const World world("gpt:layers=2,hidden=64,heads=8,kv_heads=4,seq_length=32,vocab_size=256",
                    star_of(2, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(4);
  const auto plan = [&](std::vector<std::vector<std::int64_t>> parts) {
    strategies::Layout layout{{{0, {{DeviceId{0}, DeviceId{1}}}, {}, std::move(parts)}}, 1};
    return strategies::plan_layout(input, layout);
  };
  const Plan unequal = plan({{3, 1}});
  std::size_t attentions = 0, products = 0;
  for (std::size_t l = 0; l < world.network.layers.size(); ++l) {
    const Layer& layer = world.network.layers[l];
    const Cut& cut = unequal.layers[l].cuts.at(0);
    if (layer.kind.as<Attention>() != nullptr) {
      CHECK(cut == Cut{Dim::channel, {48, 16}});
      ++attentions;
    } else if (layer.kind.as<Dense>() != nullptr && cut.dim == Dim::in_channel) {
      CHECK(3 * cut.sizes.at(1) == cut.sizes.at(0));
      ++products;
    }
  }
  CHECK(attentions == 2);
  CHECK(products >= 4);
  CHECK(plan({{7, 7}}) == plan({}));
  const auto refused = [&](std::vector<std::vector<std::int64_t>> parts) {
    return refusal_of([&] { return plan(std::move(parts)); });
  };
  CHECK(refused({{3, 1}, {1, 1}}).find("parts of 2 for 1 replicas") != std::string::npos);
  CHECK(refused({{3}}).find("a number of 1 or more for each device") != std::string::npos);
  CHECK(refused({{3, 0}}).find("a number of 1 or more for each device") != std::string::npos);
  input.context_parallel = 2;
  CHECK(refused({{3, 1}}).find("without --cp") != std::string::npos);
}

// Two stages of one layer each: by hand, the second one receives 1 ms, computes, sends 1 ms.
TEST_CASE("layout: with blocking sends a stage waits for what it sends and receives") {
  const World world("gpt:layers=2,hidden=256,heads=4,seq_length=256,vocab_size=256",
                    star_of(2, "1 GB/s", "1us"));
  strategies::StrategyInput input = world.simulated(16);
  input.micro_batches = 16;
  strategies::Layout layout = layout_of(world.network, {0, 1}, {{{0}}, {{1}}});
  const double overlapped =
      strategies::simulated_price(input, strategies::plan_layout(input, layout)).step.count();
  input.pipeline_sends = strategies::PipelineSends::blocking;
  const Plan plan = strategies::plan_layout(input, layout);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  const double blocking = strategies::simulated_price(input, plan).step.count();
  double sent = 0;  // there and back
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) == OpKind::transfer) {
      sent += static_cast<double>(dag.payload(OpId{i}).value) / 1e9;
    }
  }
  double work = 0;  // of the second stage
  const Timeline timeline = world.simulator->run(dag);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute || dag.record(OpId{i}).device != 1) continue;
    work += (timeline.spans[i].end - timeline.spans[i].start).count();
  }
  CHECK(blocking > overlapped);
  CHECK(blocking > work + sent);
  CHECK(blocking < 1.25 * (work + sent));
}

TEST_CASE("layout: replicas without samples share a micro-batch equally or by speed") {
  const World world("gpt:layers=2,hidden=256,heads=8,seq_length=128,vocab_size=512",
                    star_of({test_device("fast", "30 TFLOP/s"), test_device("slow", "10 TFLOP/s")},
                            "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(64);
  const strategies::Layout layout{{{0, groups({{0}, {1}}), {}}}};
  const auto shares = [&] {
    return strategies::plan_layout(input, layout).layers.back().cuts.at(0).sizes;
  };
  CHECK(shares() == std::vector<std::int64_t>{32, 32});
  input.shares = strategies::ShareRule::proportional;
  CHECK(shares()[0] > 36);
  CHECK(shares()[0] + shares()[1] == 64);
}

TEST_CASE("layout: what no layout can be is refused") {
  const World world(tiny_gpt, star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  const auto refusal = [&](const strategies::Layout& layout) {
    return refusal_of([&] { (void)strategies::plan_layout(input, layout); });
  };
  CHECK(refusal({}) == "layout: no stage; one stage or more");
  CHECK(refusal({{{0, groups({{0}, {0}}), {}}}}) ==
        "layout: stage 0: device 'd0' a second time; each device in one group");
  CHECK(refusal({{{0, groups({{0}, {1}}), {3, 4}}}}) ==
        "layout: stage 0: 7 samples of a micro-batch; 8: a batch of 8 in 1 micro-batch");
  CHECK(refusal({{{0, groups({{0}, {1}}), {8}}}}) ==
        "layout: stage 0: samples of 1 for 2 replicas; one number for each group");
  CHECK(refusal({{{0, {}, {}}}}) == "layout: stage 0: no groups; one group or more");
}

}  // namespace parsim::testing
