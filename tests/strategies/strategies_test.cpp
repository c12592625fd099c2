// What every row of the table of strategies promises.
#include "strategies/strategies.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "lowering/sync.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

Cluster mixed_star() {
  return topologies::load_cluster("star:4,device=p100-sxm2*2+v100-sxm2*2,rate=10GB/s,latency=1us",
                                  "test");
}

World world_of(const std::string& name) { return {name, mixed_star()}; }

StrategyInput row_asked(const World& world, std::int64_t batch) {
  StrategyInput input = world.input(batch);
  input.budget = 100;
  return input;
}

}  // namespace

TEST_CASE("strategies: every strategy plans every kind of network validly") {
  for (const char* name : {"googlenet", "mobilenet_v2", "r3d_18"}) {
    if (name == std::string("googlenet") && !testing::long_tests()) continue;
    const World world = world_of(name);
    StrategyInput input = row_asked(world, 8);
    std::vector<Plan> plans;
    for (const Strategy& row : all()) {
      CAPTURE(name);
      CAPTURE(row.name);
      input.known = plans;
      plans.push_back(row.plan(input));
      CHECK(plans.back().strategy == row.name);
      CHECK_NOTHROW(validate(plans.back(), world.network, world.cluster, "test"));
      CHECK(lowering::lower(world.network, world.cluster, plans.back()).size() > 0);
    }
  }
}

TEST_CASE("strategies: every strategy plans the same plan and DAG again") {
  for (const char* name : {"lenet5", "alexnet"}) {
    const World world = world_of(name);
    StrategyInput input = row_asked(world, 8);
    std::vector<Plan> plans;
    for (const Strategy& row : all()) {
      CAPTURE(name);
      CAPTURE(row.name);
      input.known = plans;
      const Plan plan = row.plan(input);
      CHECK(plan == row.plan(input));
      plans.push_back(plan);
      CHECK(to_json(lowering::lower(world.network, world.cluster, plan)) ==
            to_json(lowering::lower(world.network, world.cluster, plan)));
    }
  }
}

TEST_CASE("strategies: the multiply-accumulates of a step do not depend on the strategy") {
  const World world = world_of("alexnet");
  const double once = forward_flops_per_sample(world.network).value * 16;
  for (const Strategy& row : all()) {
    CAPTURE(row.name);
    const ExecDag dag =
        lowering::lower(world.network, world.cluster, row.plan(row_asked(world, 16)));
    double sum = 0;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const Op op = dag.op(OpId{i});
      const auto* compute = std::get_if<Compute>(&op);
      if (compute == nullptr || compute->pass != Pass::forward) continue;
      const LayerId id = dag.work(compute->work).layer;
      sum += forward_flops(world.network[id].kind, input_shapes(world.network, id),
                           world.network[id].out, dag.part(compute->work))
                 .value;
    }
    CHECK(sum == testing::approx(once).epsilon(1e-12));
  }
}

TEST_CASE("strategies: an unknown name is refused with the nearest one") {
  std::vector<std::string> names;
  for (const Strategy& row : all()) names.push_back(row.name);
  for (const StrategyAlias& alias : strategy_aliases()) names.emplace_back(alias.name);
  const std::string message =
      "--strategy: unknown strategy 'dta'; accepted: " + join(names) + "; did you mean 'data'?";
  CHECK_THROWS_WITH_AS((void)strategy("dta", "--strategy"), message.c_str(), InputError);
}

TEST_CASE("strategies: devices without a sample are idle, and the plan says so") {
  const World world = world_of("lenet5");
  const Plan plan = plan_data(row_asked(world, 3));
  CHECK(plan.layers[1].cuts == std::vector<Cut>{{Dim::sample, {1, 1, 1, 0}}});
  CHECK(plan.notes ==
        std::vector<std::string>{"1 of 4 devices are idle: batch 3 is too small for all"});
  CHECK(plan_owt(row_asked(world, 3)).notes == plan.notes);
  CHECK(plan_data(row_asked(world, 4)).notes.empty());
}

// The backward pass makes the last layer's gradients first. As PyTorch's DistributedDataParallel
// does (Li et al. 2020, section 3.2.3), a bucket takes gradients until it has reached its size.
TEST_CASE(
    "strategies: buckets of gradients follow the backward pass and close when full, by hand") {
  const World world(testing::network_of("x: vector 10; a: dense 5; b: dense 4; c: dense 3; loss"),
                    testing::star_of(2, "10 GB/s", "1us"));
  // Weights and biases: 0 and 1 of a, 200 and 20 bytes; 2 and 3 of b, 80 and 16; 4 and 5 of c, 48
  // and 12.
  using Buckets = std::vector<std::vector<int>>;
  const auto buckets = [&](std::int64_t bytes, Precision precision = Precision::fp32) {
    StrategyInput input = world.input(8);
    input.bucket = Bytes{bytes};
    input.precision = input.reduce_precision = precision;
    Buckets found;
    for (const auto& bucket : plan_data(input).buckets) {
      found.emplace_back();
      for (const ParameterId id : bucket) found.back().push_back(id.value);
    }
    return found;
  };
  CHECK(buckets(0) == Buckets{{4, 5}, {2, 3}, {0, 1}});  // one a layer
  CHECK(buckets(1) == Buckets{{4}, {5}, {2}, {3}, {0}, {1}});
  CHECK(buckets(60) == Buckets{{4, 5}, {2}, {3, 0}, {1}});  // c fills the first exactly
  CHECK(buckets(61) == Buckets{{4, 5, 2}, {3, 0}, {1}});
  CHECK(buckets(30, Precision::fp16) == buckets(60));
  CHECK(buckets(1000) == Buckets{{4, 5, 2, 3, 0, 1}});
}

TEST_CASE("strategies: gradients in no bucket are summed after the buckets, the last first") {
  const Network network =
      testing::network_of("x: vector 10; a: dense 5; b: dense 4; c: dense 3; loss");
  Plan plan;
  const auto order = [&](std::vector<std::vector<ParameterId>> buckets) {
    plan.buckets = std::move(buckets);
    std::vector<std::vector<int>> found;
    for (const auto& bucket : lowering::bucket_order(network, plan)) {
      found.emplace_back();
      for (const ParameterId id : bucket) found.back().push_back(id.value);
    }
    return found;
  };
  using Order = std::vector<std::vector<int>>;
  CHECK(order({}) == Order{{5}, {4}, {3}, {2}, {1}, {0}});
  CHECK(order({{ParameterId{2}, ParameterId{1}}, {ParameterId{5}}}) ==
        Order{{2, 1}, {5}, {4}, {3}, {0}});
}

TEST_CASE("pipeline: one forward and one backward in turn keep fewer micro-batches than GPipe") {
  const World world = world_of("vgg16");
  StrategyInput input = row_asked(world, 64);
  input.micro_batches = 16;
  input.schedule = PipelineSchedule::gpipe;
  const auto gpipe = lowering::memory_use(world.network, world.cluster, plan_pipeline(input));
  input.schedule = PipelineSchedule::one_f_one_b;
  const auto turns = lowering::memory_use(world.network, world.cluster, plan_pipeline(input));
  // The last stage keeps 1 of 16 micro-batches instead of all.
  CHECK(turns[3].activations.value < gpipe[3].activations.value / 4);
  CHECK(turns[0].weights == gpipe[0].weights);
}

TEST_CASE("pipeline: micro-batches that do not divide the batch are refused") {
  const World world = world_of("lenet5");
  StrategyInput input = row_asked(world, 10);
  input.micro_batches = 4;
  CHECK_THROWS_WITH_AS((void)plan_pipeline(input),
                       "strategy 'pipeline': batch 10 in 4 micro-batches; accepted: a number of "
                       "micro-batches that divides the batch",
                       InputError);
}

TEST_CASE("memory: what a function's gradient needs is kept, by hand") {
  // 6 samples of 5 numbers: the data, the dense layer's output, and what comes behind it; the
  // largest gradient, of the logits, counts twice.
  const auto kept = [](const std::string& function) {
    Network net;
    LayerId x = add_input(net, "in", vector_shape(5));
    x = add_layer(net, "dense", Dense{5}, {x});
    const LayerKind kind =
        function == "softmax" ? LayerKind{Softmax{0}} : LayerKind{Activation{function}};
    x = add_layer(net, function, kind, {x});
    x = add_layer(net, "last", Dense{5}, {x});
    (void)add_layer(net, "loss", Loss{}, {x});
    const World world{net, testing::star_of(1, "10 GB/s", "1 us")};
    return lowering::memory_use(world.network, world.cluster, plan_data(row_asked(world, 6)))[0]
               .activations.value /
           4;
  };
  for (const std::string function : {"relu", "tanh", "softmax"}) {
    CHECK(kept(function) == 30 + 30 + 30 + 60);
  }
  for (const std::string function : {"gelu", "silu", "hardswish"}) {
    CHECK(kept(function) == 30 + 30 + 30 + 30 + 60);
  }
}

TEST_CASE("memory: a dense layer by hand") {
  // 3 inputs, 5 units: 20 parameters. Batch 6 on two devices, 3 samples each, momentum.
  World world{testing::network_of("x: vector 3; dense 5; loss"), mixed_star()};
  world.cluster = testing::star_of(2, "10 GB/s", "1 us");
  const auto use =
      lowering::memory_use(world.network, world.cluster, plan_data(row_asked(world, 6)));
  CHECK(use[0].weights == Bytes{80});
  CHECK(use[0].gradients == Bytes{80});
  CHECK(use[0].optimizer_state == Bytes{80});
  // Kept: 3 x 3 inputs, 3 x 5 logits; the largest gradient, of the logits, twice.
  CHECK(use[0].activations == Bytes{4 * (9 + 15 + 2 * 15)});
  CHECK(use[0].communication == Bytes{80});  // its one bucket has the gradients once more
}
