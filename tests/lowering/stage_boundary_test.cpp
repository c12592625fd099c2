// What travels between the groups of devices of two pipeline stages: every activation and every
// gradient once, whatever the tensor-parallel degrees of both sides.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/split.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

constexpr std::int64_t step_batch = 8, tokens = 4, width = 12;

/// Devices of one stage: groups of `tensor` devices, one a replica, with that many samples.
struct Stage {
  std::size_t first = 0;  ///< layer
  std::size_t tensor = 1;
  std::vector<std::int64_t> samples;
};

/// Stages on devices of their own, in order.
Plan staged(const Network& network, const std::vector<Stage>& stages, std::int32_t micro_batches) {
  Plan plan = single_device_plan(network, step_batch);
  plan.schedule.micro_batches = micro_batches;
  plan.schedule.rank_lists.clear();
  std::int32_t next = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d < stage.tensor * stage.samples.size(); ++d)
      devices.emplace_back(next++);
    const auto split = strategies::tensor::split(network, stage.tensor);
    const std::size_t end = s + 1 < stages.size() ? stages[s + 1].first : network.layers.size();
    for (std::size_t l = stage.first; l < end; ++l) {
      plan.schedule.stage_of_layer[l] = static_cast<std::int32_t>(s);
      plan.layers[l].devices = devices;
      plan.layers[l].cuts = {{Dim::sample, stage.samples}};
      plan.layers[l].cuts.insert(plan.layers[l].cuts.end(), split[l].begin(), split[l].end());
    }
    plan.schedule.rank_lists.push_back(
        {devices, strategies::stage_slots(
                      strategies::PipelineSchedule::one_f_one_b, static_cast<std::int32_t>(s),
                      static_cast<std::int32_t>(stages.size()), micro_batches)});
  }
  return plan;
}

std::size_t layer_named(const Network& network, const std::string& name) {
  const auto at = std::find_if(network.layers.begin(), network.layers.end(),
                               [&](const Layer& layer) { return layer.name == name; });
  REQUIRE(at != network.layers.end());
  return static_cast<std::size_t>(at - network.layers.begin());
}

/// Bytes that leave the first `border` devices for the others and back, sums of weight gradients
/// apart.
struct Crossing {
  std::int64_t there = 0, back = 0;
};
Crossing crossing(const ExecDag& dag, std::size_t border) {
  Crossing bytes;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const Op op = dag.op(id);
    if (dag.stream(id) == Stream::gradient) continue;
    if (const auto* transfer = std::get_if<Transfer>(&op)) {
      const bool from_first = transfer->from.index() < border;
      if (from_first == (transfer->to.index() < border)) continue;
      (from_first ? bytes.there : bytes.back) += dag.payload(id).value;
    }
    if (const auto* collective = std::get_if<Collective>(&op)) {
      const std::vector<DeviceId>& group = dag.group(collective->group);
      const auto inside = [&](DeviceId device) { return device.index() < border; };
      const bool all = std::all_of(group.begin(), group.end(), inside);
      if (all || std::none_of(group.begin(), group.end(), inside)) continue;
      // A broadcast from one side to the other crosses once, as a chain.
      CHECK(collective->kind == CollectiveKind::broadcast);
      CHECK(std::none_of(group.begin() + 1, group.end(), inside));
      bytes.there += dag.payload(id).value;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("stage boundary: b·s·h cross it for every micro-batch and direction, in any degrees") {
  const Network network = tiny_transformer(2);
  for (const std::string boundary : {"block1.norm1", "block1.norm2"}) {
    for (const std::size_t a : {1U, 2U, 3U, 6U}) {
      for (const std::size_t b : {1U, 2U, 3U, 6U}) {
        for (const std::int32_t micro_batches : {1, 4}) {
          const std::size_t border = layer_named(network, boundary);
          const Plan plan = staged(
              network,
              {{0, a, {step_batch / micro_batches}}, {border, b, {step_batch / micro_batches}}},
              micro_batches);
          const Cluster cluster = star_of(12, "10 GB/s", "1 us");
          const ExecDag dag = lowering::lower(network, cluster, plan);
          CAPTURE(boundary);
          CAPTURE(a);
          CAPTURE(b);
          const Crossing bytes = crossing(dag, a);
          CHECK(bytes.there == step_batch * tokens * width * 4);
          CHECK(bytes.back == step_batch * tokens * width * 4);
          CHECK(difference(plan, dag, 5) == "");
        }
      }
    }
  }
}

// Without sequence parallelism all t devices of a stage have all of b·s·h.
TEST_CASE(
    "stage boundary: Megatron-LM sends b·s·h from every device of a group, DeepSpeed shares") {
  const Network network = tiny_transformer(2);
  const std::size_t border = layer_named(network, "block1.norm1");
  const Cluster cluster = star_of(12, "10 GB/s", "1 us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = step_batch;
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  for (const std::size_t t : {1U, 2U, 3U}) {
    Plan plan = staged(network, {{0, t, {4}}, {border, t, {4}}}, 2);
    for (const Framework framework :
         {Framework::megatron, Framework::megatron_deepspeed, Framework::pytorch}) {
      plan.framework = framework;
      CAPTURE(t);
      CAPTURE(to_text(framework));
      const ExecDag dag = lowering::lower(network, cluster, plan);
      const Crossing bytes = crossing(dag, t);
      const auto copies = static_cast<std::int64_t>(framework == Framework::megatron ? t : 1);
      CHECK(bytes.there == copies * step_batch * tokens * width * 4);
      CHECK(bytes.back == copies * step_batch * tokens * width * 4);
      CHECK(difference(plan, dag, 5) == "");
      if (framework != Framework::megatron) continue;
      Seconds end{};
      for (const Span& span : list_schedule(dag, durations_alone(dag, *cost)))
        end = std::max(end, span.end);
      CHECK(estimator.step_time(plan).count() == testing::approx(end.count()).epsilon(1e-9));
    }
  }
}

TEST_CASE("stage boundary: partial sums of a stage that begins with products are summed first") {
  // Queries, keys and values each give a part of the gradient of what they read; the sum over the
  // group crosses once.
  const Network network = tiny_transformer(2);
  const std::size_t border = layer_named(network, "block1.query");
  for (const std::size_t a : {1U, 2U, 3U}) {
    for (const std::size_t b : {1U, 2U, 3U}) {
      const Plan plan = staged(network, {{0, a, {4}}, {border, b, {4}}}, 2);
      const Cluster cluster = star_of(12, "10 GB/s", "1 us");
      const ExecDag dag = lowering::lower(network, cluster, plan);
      CAPTURE(a);
      CAPTURE(b);
      const Crossing bytes = crossing(dag, a);
      // The normalised activations and the residual sum.
      CHECK(bytes.there == 2 * step_batch * tokens * width * 4);
      CHECK(bytes.back == 2 * step_batch * tokens * width * 4);
      CHECK(difference(plan, dag, 5) == "");
    }
  }
}

TEST_CASE("stage boundary: replicas with other samples on each side exchange what they share") {
  const Network network = tiny_transformer(3);
  const std::size_t second = layer_named(network, "block1.norm1"),
                    third = layer_named(network, "block2.norm1");
  std::mt19937_64 random(11);
  const auto draw = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  const Cluster cluster = star_of(18, "10 GB/s", "1 us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = step_batch;
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  for (int round = 0; round < 12; ++round) {
    std::vector<Stage> stages{{0, 1, {}}, {second, 1, {}}, {third, 1, {}}};
    for (Stage& stage : stages) {
      stage.tensor = std::size_t{1} << draw(2);
      const std::int64_t split = static_cast<std::int64_t>(draw(5));
      stage.samples =
          draw(3) == 0 ? std::vector<std::int64_t>{4} : std::vector<std::int64_t>{split, 4 - split};
    }
    const Plan plan = staged(network, stages, 2);
    const ExecDag dag = lowering::lower(network, cluster, plan);
    CAPTURE(round);
    CHECK(difference(plan, dag, 5) == "");
    // What a replica sends, some replica needs: no sample crosses twice.
    const Crossing first = crossing(dag, stages[0].tensor * stages[0].samples.size());
    CHECK(first.there == step_batch * tokens * width * 4);
    CHECK(first.back == step_batch * tokens * width * 4);
    Seconds end{};
    for (const Span& span : list_schedule(dag, durations_alone(dag, *cost)))
      end = std::max(end, span.end);
    CHECK(estimator.step_time(plan).count() == testing::approx(end.count()).epsilon(1e-9));
  }
}

// Three devices with two chunks: what stage s makes goes to stage s + 1, from the last device back
// to the first, and its gradient the other way.
TEST_CASE("stage boundary: chunks of an interleaved pipeline pass around the devices") {
  constexpr std::int32_t devices = 3, chunks = 2, micro_batches = 6;
  const Network network = network_of(
      "x: vector 8; a: dense 8; b: dense 8; c: dense 8; d: dense 8; e: dense 8; f: dense 8; loss");
  const Cluster cluster = star_of(devices, "10 GB/s", "1 us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = input.micro_batches.emplace(micro_batches);
  input.tensor_parallel = input.data_parallel = 1;
  input.pipeline_parallel = devices;
  input.virtual_pipeline = chunks;
  const ExecDag dag = lowering::lower(network, cluster, strategies::plan_tensor(input));
  std::map<std::pair<std::int32_t, std::int32_t>, int> sent;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* transfer = std::get_if<Transfer>(&op);
    if (transfer == nullptr) continue;
    ++sent[{transfer->from.value, transfer->to.value}];
    CHECK(dag.payload(OpId{i}).value == 8 * 4);
  }
  // Borders 0-1 and 1-2 are crossed by both chunks, 2-0 once.
  const std::map<std::pair<std::int32_t, std::int32_t>, int> expected{
      {{0, 1}, 12}, {{1, 0}, 12}, {{1, 2}, 12}, {{2, 1}, 12}, {{2, 0}, 6}, {{0, 2}, 6}};
  CHECK(sent == expected);
}

}  // namespace parsim::testing
