// Mixtures of experts: what divided experts compute, move and keep.
#include "strategies/experts.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "strategies/degrees.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/mixtures.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {

TEST_CASE("experts: divided among replicas they compute what the unsplit network computes") {
  // Slots for all tokens (4 of 4 experts of 2), for those of a router in balance, and for fewer.
  const char* networks[] = {"experts=4,capacity=2", "experts=4,top_k=1,shared_ffn_hidden=4",
                            "experts=5,capacity=0.7,bias=no"};
  const ExpertDegrees all[] = {{1, 2, 1, 2},
                               {1, 4, 1, 2},
                               {1, 4, 1, 4},
                               {1, 3, 1, 3},
                               {2, 2, 1, 2},
                               {2, 4, 1, 2},
                               {2, 2, 2, 2},
                               {1, 2, 2, 2},
                               {3, 2, 1, 2},
                               // Whole experts in tensor groups: of all devices, of two groups of
                               // four, of a tensor group, of half of one, of each device all.
                               {2, 2, 1, 4, true},
                               {2, 4, 1, 4, true},
                               {2, 2, 1, 2, true},
                               {4, 2, 1, 2, true},
                               {2, 2, 1, 1, true},
                               {2, 1, 2, 2, true},
                               {2, 2, 2, 4, true}};
  std::mt19937_64 random(3);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  const int rounds = long_tests() ? 12 : 2;
  for (int round = 0; round < rounds; ++round) {
    for (const char* options : networks) {
      for (const ExpertDegrees& degrees : all) {
        const World world(tiny_moe(options), star_of(12, "10 GB/s", "1us"));
        strategies::StrategyInput input =
            world.input(static_cast<std::int64_t>(degrees.data) * one_of(2, 4));
        input.micro_batches = one_of(1, 2);
        input.zero_stage = one_of(0, 1, 2, 3);
        input.sequence_parallel = degrees.tensor > 1 && (degrees.whole || one_of(false, true));
        input.recompute = one_of(strategies::Recompute::none, strategies::Recompute::full);
        input.tensor_overlap = degrees.whole && degrees.tensor > 1 && one_of(false, true);
        input.expert_tensor_parallel =
            degrees.whole ? 1 : static_cast<std::int32_t>(degrees.tensor);
        if (!strategies::splits_experts_as_asked(input, degrees.tensor)) continue;  // too few slots
        const Plan plan = mixture_plan(input, degrees);
        const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
        CAPTURE(options);
        CAPTURE(fmt::format("tp {} dp {} pp {} ep {}{}, zero {}, sequence {}", degrees.tensor,
                            degrees.data, degrees.pipeline, degrees.experts,
                            degrees.whole ? " etp 1" : "", *input.zero_stage,
                            input.sequence_parallel));
        CHECK(difference(plan, dag, random()) == "");
        CHECK(strategies::degrees_of(world.network, plan).ep ==
              static_cast<std::int64_t>(degrees.experts));
        CHECK(strategies::degrees_of(world.network, plan).dp ==
              static_cast<std::int64_t>(degrees.data));
        CHECK(strategies::degrees_of(world.network, plan).tp ==
              static_cast<std::int64_t>(degrees.tensor));
        CHECK(strategies::degrees_of(world.network, plan).etp ==
              static_cast<std::int64_t>(degrees.whole ? 1 : degrees.tensor));
      }
    }
  }
}

TEST_CASE("experts: all-to-alls move tokens · top_k · hidden · (N - 1) / N each way, by hand") {
  // 2 blocks, 6 samples of 32 tokens on each of N devices, hidden size 64, 2 of 8 experts.
  for (const std::int64_t n : {4, 8}) {
    CAPTURE(n);
    const World world(
        "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=8,top_k=2",
        fmt::format("star:{},device=v100-sxm2,rate=25GB/s", n));
    strategies::StrategyInput input = world.input(6 * n);
    input.expert_parallel = static_cast<std::int32_t>(n);
    const ExecDag dag = lowering::lower(world.network, world.cluster, strategies::plan_data(input));
    const auto [count, bytes] = all_to_alls(dag);
    // Dispatch, combine, and both backward.
    CHECK(count == 2 * 4);
    const std::int64_t each = 6 * 32 * 2 * 64 * (n - 1) / n * 4;
    CHECK(bytes == 2 * 4 * n * each);
    // Every expert has one owner: gradients of the rest alone are summed, by rings.
    std::int64_t experts = 0;
    for (const Layer& layer : world.network.layers) {
      if (layer.kind.as<ExpertDense>() == nullptr) continue;
      for (const ParameterId id : layer.parameters) experts += world.network[id].elements();
    }
    CHECK(experts == 2 * 8 * (2 * 64 * 256 + 256 + 64));
    const std::int64_t rest = parameter_count(world.network) - experts;
    CHECK(bytes_moved(dag).value == bytes + 2 * (n - 1) * rest * 4);
  }
}

TEST_CASE("experts: what is recomputed is sent again and keeps no tokens of others, by hand") {
  // Megatron-LM's full recomputation repeats a whole layer, its dispatcher included
  // (megatron/core/transformer/transformer_block.py, _checkpointed_forward). 6 samples of 32
  // tokens.
  struct Cost {
    std::int64_t count, bytes, activations;
  };
  const auto cost = [](int layers, std::int64_t n, strategies::Recompute recompute) -> Cost {
    const World world(fmt::format("gpt:layers={},hidden=64,heads=4,seq_length=32,vocab_size=96,"
                                  "experts=8,top_k=2",
                                  layers),
                      "star:8,device=v100-sxm2,rate=25GB/s");
    strategies::StrategyInput input = world.input(6 * 8);
    input.expert_parallel = static_cast<std::int32_t>(n);
    input.recompute = recompute;
    const Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
    const auto [count, bytes] = all_to_alls(lowering::lower(world.network, world.cluster, plan));
    return {count, bytes, strategies::memory_use(input, plan)[0].activations.value};
  };
  using strategies::Recompute;
  for (const std::int64_t n : {2, 4, 8}) {  // two devices send each other pieces
    CAPTURE(n);
    const Cost once = cost(4, n, Recompute::none), again = cost(4, n, Recompute::full);
    CHECK(again.count * 4 == once.count * 6);
    CHECK(again.bytes * 4 == once.bytes * 6);
    // A block keeps only its input, on whichever GPU its experts are.
    const std::int64_t block =
        cost(4, n, Recompute::full).activations - cost(3, n, Recompute::full).activations;
    CHECK(block == 6 * 32 * 64 * 4);
    // What a device receives takes the place of what it sends.
    CHECK(once.activations == cost(4, 1, Recompute::none).activations);
    CHECK(again.activations == cost(4, 1, Recompute::full).activations);
    // Selective recomputation, of torchtitan, saves what all-to-alls deliver: also the results of
    // experts, which are else computed again. The last block is computed again all the same.
    const Cost some = cost(4, n, Recompute::op);
    CHECK(some.count == once.count);
    const std::int64_t results = 6 * 32 * 2 * 64 * (n - 1) / n * 4;
    CHECK(some.activations - cost(4, 1, Recompute::op).activations == 3 * results);
  }
}

TEST_CASE("experts: of two groups that divide them, replicas of an expert sum its gradients") {
  const World world("gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=8,top_k=2",
                    "star:8,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(8);
  input.expert_parallel = 4;
  const Plan plan = strategies::plan_data(input);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  const std::int64_t experts = 8 * (2 * 64 * 256 + 256 + 64);
  const std::int64_t rest = parameter_count(world.network) - experts;
  // 4 experts' groups of 2 devices each sum a quarter.
  CHECK(bytes_moved(dag).value - all_to_alls(dag).second ==
        2 * 7 * rest * 4 + 4 * 2 * 1 * (experts / 4) * 4);
}

TEST_CASE("experts: tensor groups send each token once, and gather it within the group") {
  // Groups of 2 and 4-way experts. A device sends its half of the channels of tokens · top_k to the
  // same device of other groups, three quarters of which have other experts; so do the results, and
  // both gradients. What the two halves of an expert read, and make, is gathered and summed by the
  // group: as Megatron-LM's dispatcher does (megatron/core/transformer/moe/token_dispatcher.py).
  const World world("gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=8,top_k=2",
                    "star:8,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(4);
  const Plan plan = mixture_plan(input, {2, 4, 1, 4});
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  const auto [count, bytes] = all_to_alls(dag);
  CHECK(count == 4 * 2);  // one for each half of the channels
  CHECK(bytes == 4 * 8 * (32 * 2 * 64 / 2 * 3 / 4 * 4));
  const std::int64_t slots = 32 * 2 * 64 * 4;  // what each group works on
  std::int64_t gathers = 0, scatters = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || dag.payload(OpId{i}).value != slots) continue;
    gathers += collective->kind == CollectiveKind::all_gather ? 1 : 0;
    scatters += collective->kind == CollectiveKind::reduce_scatter ? 1 : 0;
  }
  CHECK(gathers == 2 * 4);  // forward before the experts, backward before what made the result
  CHECK(scatters == 2 * 4);
}

TEST_CASE("experts: whole in tensor groups, each device sends its own tokens, by hand") {
  // 3 samples of 32 tokens for every tensor group, 2 of 8 experts, hidden size 64, 2 blocks.
  const World world("gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96,experts=8,top_k=2",
                    "star:8,device=v100-sxm2,rate=25GB/s");
  const std::int64_t experts = 2 * 8 * (2 * 64 * 256 + 256 + 64);
  const auto planned = [&](const ExpertDegrees& degrees) {
    strategies::StrategyInput input = world.input(static_cast<std::int64_t>(3 * degrees.data));
    input.sequence_parallel = true;
    const Plan plan = mixture_plan(input, degrees);
    return std::pair(lowering::lower(world.network, world.cluster, plan),
                     strategies::memory_use(input, plan).at(1));
  };
  for (const ExpertDegrees& degrees : {ExpertDegrees{2, 2, 1, 4, true},
                                       {2, 4, 1, 8, true},
                                       {2, 4, 1, 4, true},
                                       {4, 2, 1, 4, true},
                                       {4, 2, 1, 8, true},
                                       {8, 1, 1, 4, true}}) {
    CAPTURE(fmt::format("tp {} dp {} ep {}", degrees.tensor, degrees.data, degrees.experts));
    const auto tp = static_cast<std::int64_t>(degrees.tensor);
    const auto ep = static_cast<std::int64_t>(degrees.experts);
    const std::int64_t devices = tp * static_cast<std::int64_t>(degrees.data);
    const auto [dag, memory] = planned(degrees);
    // Dispatch, combine, and both backward, in each group of `ep` devices: tokens / tp · top_k ·
    // hidden · (ep - 1) / ep to each of them.
    const auto [count, bytes] = all_to_alls(dag);
    CHECK(count == 2 * 4 * devices / ep);
    CHECK(bytes == 2 * 4 * devices * (3 * 32 / tp * 2 * 64 * (ep - 1) / ep * 4));
    // The same with all experts on each device: their gradients alone move, in rings of all instead
    // of devices / ep.
    const auto [of_all, memory_of_all] = planned({degrees.tensor, degrees.data, 1, 1, true});
    CHECK(bytes_moved(of_all).value - bytes_moved(dag).value ==
          2 * (devices - 1) * experts * 4 - bytes - ep * 2 * (devices / ep - 1) * experts / ep * 4);
    CHECK(memory_of_all.weights.value - memory.weights.value == (experts - experts / ep) * 4);
    CHECK(memory_of_all.optimizer_state.value - memory.optimizer_state.value ==
          (experts - experts / ep) * 4);
  }
}

TEST_CASE("experts: tensor groups with whole experts gather tokens before attention alone") {
  // Megatron-LM with sequence parallelism and --expert-tensor-parallel-size 1: forward an
  // all-gather and a reduce-scatter around attention; backward both again, and the all-gather once
  // more for gradients of weights. None around experts or for routers.
  const World world(
      "gpt:layers=3,hidden=64,heads=4,seq_length=32,vocab_size=96,positions=none,"
      "experts=8,top_k=2",
      "star:8,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(8);
  input.sequence_parallel = true;
  const ExecDag dag =
      lowering::lower(world.network, world.cluster, mixture_plan(input, {2, 4, 1, 4, true}));
  std::map<CollectiveKind, int> count;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || dag.payload(OpId{i}).value != 2 * 32 * 64 * 4) continue;
    ++count[collective->kind];
  }
  // Of four groups. The scores of words have two all-gathers and a reduce-scatter more, and the
  // embedding one of each.
  CHECK(count[CollectiveKind::all_gather] == 4 * (3 * 3 + 3));
  CHECK(count[CollectiveKind::reduce_scatter] == 4 * (2 * 3 + 2));
}

TEST_CASE("experts: split by tensor groups with sequence parallelism, each device routes its own") {
  // Megatron-LM's MoEAlltoAllTokenDispatcher: a device routes and sends the tokens that it has; the
  // group gathers what its experts read and scatters the sums of what they make, and backward both
  // again. Around attention as above; nothing else moves activations within a group.
  const World world(
      "gpt:layers=3,hidden=64,heads=4,seq_length=32,vocab_size=96,positions=none,"
      "experts=8,top_k=2",
      "star:16,device=v100-sxm2,rate=25GB/s");
  // Also where every group has all experts.
  for (const auto& [tensor, data, divided] :
       {std::tuple<std::size_t, std::size_t, bool>{2, 4, true}, {4, 4, true}, {4, 4, false}}) {
    CAPTURE(tensor);
    CAPTURE(divided);
    const auto groups = static_cast<int>(data);
    strategies::StrategyInput input = world.input(2 * groups);
    input.sequence_parallel = true;
    const ExecDag dag = lowering::lower(world.network, world.cluster,
                                        mixture_plan(input, {tensor, data, 1, divided ? data : 1}));
    const std::int64_t tokens = 2 * 32 * 64 * 4;  // of a group
    std::map<std::pair<CollectiveKind, std::int64_t>, int> count;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const Op op = dag.op(OpId{i});
      const auto* collective = std::get_if<Collective>(&op);
      if (collective != nullptr) ++count[{collective->kind, dag.payload(OpId{i}).value}];
    }
    CHECK(count[{CollectiveKind::all_gather, tokens}] == groups * (3 * 3 + 3));
    CHECK(count[{CollectiveKind::reduce_scatter, tokens}] == groups * (2 * 3 + 2));
    CHECK(count[{CollectiveKind::all_gather, 2 * tokens}] == groups * 2 * 3);
    CHECK(count[{CollectiveKind::reduce_scatter, 2 * tokens}] == groups * 2 * 3);
    const auto [sent, bytes] = all_to_alls(dag);
    CHECK(sent == (divided ? static_cast<int>(tensor) * 4 * 3 : 0));
    const auto ways = static_cast<std::int64_t>(divided ? data : 1);
    CHECK(bytes == 4 * 3 * ways * (2 * tokens) * (ways - 1) / ways);
  }
}

TEST_CASE("experts: a device keeps the weights of its own experts, by hand") {
  const World world("gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=8,top_k=2",
                    "star:4,device=v100-sxm2,rate=25GB/s");
  const std::int64_t experts = 8 * (2 * 64 * 256 + 256 + 64);
  const std::int64_t rest = parameter_count(world.network) - experts;
  std::int64_t activations[2] = {};
  for (const bool divided : {false, true}) {
    strategies::StrategyInput input = world.input(8);
    if (divided) input.expert_parallel = 4;
    const lowering::MemoryUse use =
        strategies::memory_use(input, strategies::plan_data(input)).at(1);
    CHECK(use.weights.value == 4 * (rest + experts / (divided ? 4 : 1)));
    CHECK(use.gradients.value == 4 * (rest + experts / (divided ? 4 : 1)));
    CHECK(use.optimizer_state.value == 4 * (rest + experts / (divided ? 4 : 1)));
    activations[divided] = use.activations.value;
  }
  // As many tokens as before, in the experts of all samples; what came is kept, the copies sent,
  // not.
  CHECK(activations[1] >= activations[0]);
}

TEST_CASE("experts: the estimate of divided experts is the list schedule of their DAG") {
  for (const ExpertDegrees& degrees : {ExpertDegrees{1, 4, 1, 4},
                                       {2, 2, 2, 2},
                                       {2, 4, 1, 4},
                                       {2, 4, 1, 4, true},
                                       {2, 2, 2, 4, true}}) {
    const World world(tiny_moe("experts=4"), star_of(8, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(8);
    input.micro_batches = 2;
    input.sequence_parallel = degrees.whole;
    const Plan plan = mixture_plan(input, degrees);
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    double makespan = 0;
    for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost))) {
      makespan = std::max(makespan, span.end.count());
    }
    CHECK(estimator.step_time(plan).count() == testing::approx(makespan).epsilon(1e-9));
  }
}

TEST_CASE("experts: the busiest expert slows its device down, and the others take what it leaves") {
  World world("gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=8,top_k=2",
              "star:4,device=v100-sxm2,rate=25GB/s");
  const Flops balanced = forward_flops_per_sample(world.network);
  set_expert_imbalance(world.network, 2, "test");
  CHECK(forward_flops_per_sample(world.network).value ==
        testing::approx(balanced.value).epsilon(1e-12));
  // Two experts a device: 2 + 6/7 of the average against 2 · 6/7.
  for (std::size_t l = 0; l < world.network.layers.size(); ++l) {
    const Layer& layer = world.network.layers[l];
    if (layer.kind.as<ExpertDense>() == nullptr) continue;
    const std::vector<Shape> shapes = input_shapes(world.network, LayerId{l});
    Part first{whole(layer.out, 1), {}}, last = first;
    first.out[1] = {0, 2};
    last.out[1] = {6, 8};
    const double a = forward_flops(layer.kind, shapes, layer.out, first).value;
    const double b = forward_flops(layer.kind, shapes, layer.out, last).value;
    CHECK(a / b == testing::approx((2 + 6.0 / 7) / (2 * 6.0 / 7)));
  }
  // Each token goes to two of the eight, so that at most half of what they get is one's.
  set_expert_imbalance(world.network, 4, "test");
  CHECK(refusal_of([&] { set_expert_imbalance(world.network, 4.01, "--expert-imbalance"); }) ==
        "--expert-imbalance: 4.01 in '" + world.network.name +
            "'; accepted: 1 to 4, as a token goes to 2 of 8 experts");
}

TEST_CASE("experts: what cannot be divided is refused") {
  using PlanWith = Plan(const strategies::StrategyInput&);
  const auto refused = [](const std::string& network, std::int32_t ways,
                          PlanWith* plan = strategies::plan_data) {
    const World world(network, "star:4,device=v100-sxm2,rate=25GB/s");
    strategies::StrategyInput input = world.input(8);
    input.expert_parallel = ways;
    return refusal_of([&] { return plan(input); });
  };
  const std::string size = "gpt:layers=1,hidden=64,heads=4,seq_length=32,vocab_size=96";
  CHECK(refused(size, 2) ==
        "--ep: 2 for '" + size + "', which has no experts; accepted: with a mixture of experts");
  CHECK(refused(size + ",experts=8", 3) ==
        "--ep: 3 of 4 replicas; accepted: a divisor of the replicas");
  CHECK(refused(size, 2, strategies::plan_tensor) == refused(size, 2));
  CHECK(refused(size, 2, strategies::plan_best) == refused(size, 2));
  CHECK(refused(size + ",experts=8", 3, strategies::plan_tensor) ==
        "strategy 'tensor': --ep 3: the experts cannot be divided among 3 neighbours; accepted: "
        "--ep 1, 2, 4");
  CHECK(refused(size + ",experts=2", 4) ==
        "--ep: 4 for '" + size + ",experts=2', which has 2 experts; accepted: at most 2");
}

}  // namespace parsim::testing
