// Context parallelism: what parts of the tokens compute, move and keep.
#include "strategies/tensor/context.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/numeric.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

using strategies::ContextExchange;

/// A language model of two blocks, small enough for the interpreter.
Network tiny_model(const std::string& options, bool causal) {
  Network net = networks::load_network(
      "gpt:layers=2,hidden=8,heads=4,seq_length=8,vocab_size=5,ffn_hidden=6" + options, {}, "test");
  for (Layer& layer : net.layers) {
    auto* attention = std::get_if<Attention>(&layer.kind.value);
    if (attention != nullptr) attention->causal = causal;
  }
  return net;
}

LayerId find_layer(const Network& network, const std::string& name) {
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].name == name) return LayerId{l};
  }
  FAIL(name);
  return {};
}

struct ContextDegrees {
  std::size_t tensor = 1, context = 2, data = 1, pipeline = 1;
};

Plan context_plan(strategies::StrategyInput& input, const ContextDegrees& degrees) {
  input.context_parallel = static_cast<std::int32_t>(degrees.context);
  std::vector<std::size_t> first = strategies::first_layers_of_blocks(input.network);
  first.resize(degrees.pipeline);
  first[0] = 0;
  const std::size_t group = degrees.tensor * degrees.context;
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < group * degrees.data * degrees.pipeline; ++d) devices.emplace_back(d);
  const strategies::Layout layout = strategies::even_layout(first, group, degrees.data, devices);
  return strategies::with_memory_options(input, strategies::plan_layout(input, layout));
}

/// A step whose tokens are cut among all devices.
ExecDag context_dag(const World& world, std::int64_t batch, ContextExchange exchange,
                    strategies::Recompute recompute = strategies::Recompute::none) {
  strategies::StrategyInput input = world.input(batch);
  input.recompute = recompute;
  input.context_exchange = exchange;
  const Plan plan = context_plan(input, {1, world.cluster.devices.size(), 1, 1});
  return lowering::lower(world.network, world.cluster, plan);
}

/// The estimate is the list schedule's.
void expect_estimate(const World& world, const strategies::StrategyInput& input, const Plan& plan,
                     const ExecDag& dag) {
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  double makespan = 0;
  for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost))) {
    makespan = std::max(makespan, span.end.count());
  }
  CHECK(estimator.step_time(plan).count() == testing::approx(makespan).epsilon(1e-9));
}

constexpr ContextExchange exchanges[] = {ContextExchange::p2p, ContextExchange::all_gather,
                                         ContextExchange::a2a};

/// Bytes that devices receive of gradients' sums and updated weights.
std::int64_t gradient_bytes(const ExecDag& dag) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr) continue;
    const Tensor::Kind kind = dag.tensor(collective->slice.tensor).kind;
    if (kind == Tensor::Kind::bucket || kind == Tensor::Kind::parameter) {
      bytes += bytes_received(dag, OpId{i}).value;
    }
  }
  return bytes;
}

/// Bytes that devices receive in operations on activations, by direction: forward (and again in
/// backward), and of gradients.
struct Moved {
  std::int64_t values = 0, gradients = 0, collectives = 0;
};
Moved moved(const ExecDag& dag, CollectiveKind kind) {
  Moved all;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != kind) continue;
    const Tensor& tensor = dag.tensor(collective->slice.tensor);
    if (tensor.kind == Tensor::Kind::bucket) continue;
    ++all.collectives;
    const bool values = collective->slice.role == Role::activation;
    (values ? all.values : all.gradients) += bytes_received(dag, OpId{i}).value;
  }
  return all;
}

}  // namespace

TEST_CASE("context: parts of the tokens compute what the unsplit network computes") {
  const ContextDegrees all[] = {{1, 2, 1, 1}, {1, 4, 1, 1}, {2, 2, 1, 1}, {1, 2, 2, 1},
                                {1, 2, 1, 2}, {2, 2, 2, 1}, {2, 2, 1, 2}, {1, 4, 2, 1}};
  std::mt19937_64 random(5);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  const int rounds = long_tests() ? 12 : 2;
  for (int round = 0; round < rounds; ++round) {
    for (const ContextDegrees& degrees : all) {
      for (const ContextExchange exchange : exchanges) {
        const bool causal = one_of(true, true, false);
        // Of keys and values of two heads each, all-to-alls have but two parts.
        const bool groups = exchange != ContextExchange::a2a && one_of(true, false);
        const World world(tiny_model(groups ? ",kv_heads=2" : "", causal),
                          star_of(16, "10 GB/s", "1us"));
        strategies::StrategyInput input =
            world.input(static_cast<std::int64_t>(degrees.data) * one_of(2, 4));
        input.context_exchange = exchange;
        input.micro_batches = one_of(1, 2);
        input.zero_stage = one_of(0, 1, 2, 3);
        input.sequence_parallel = degrees.tensor > 1 && one_of(false, true);
        input.recompute = one_of(strategies::Recompute::none, strategies::Recompute::full);
        const Plan plan = context_plan(input, degrees);
        const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
        CAPTURE(fmt::format(
            "tp {} cp {} dp {} pp {}, {}, zero {}, sequence {}, causal {}, {} heads",
            degrees.tensor, degrees.context, degrees.data, degrees.pipeline, to_text(exchange),
            *input.zero_stage, input.sequence_parallel, causal, groups ? 2 : 4));
        CHECK(difference(plan, dag, random()) == "");
        const strategies::Degrees found = strategies::degrees_of(world.network, plan);
        CHECK(found.tp == static_cast<std::int64_t>(degrees.tensor));
        CHECK(found.cp == static_cast<std::int64_t>(degrees.context));
        CHECK(found.dp == static_cast<std::int64_t>(degrees.data));
        CHECK(found.sequence_parallel == input.sequence_parallel);
        expect_estimate(world, input, plan, dag);
      }
    }
  }
}

TEST_CASE("context: parts that have learned scales whole compute what the network computes") {
  const Network decoder = tiny_llama(false);
  for (const ContextDegrees& degrees :
       {ContextDegrees{1, 2, 1, 1}, {1, 2, 2, 1}, {3, 2, 1, 1}, {3, 2, 2, 1}}) {
    for (const bool sequence : {false, true}) {
      for (const std::int32_t zero : {0, 1, 2, 3}) {
        const World world(decoder, star_of(12, "10 GB/s", "1us"));
        strategies::StrategyInput input = world.input(2 * static_cast<std::int64_t>(degrees.data));
        input.micro_batches = 2;
        input.zero_stage = zero;
        input.sequence_parallel = sequence && degrees.tensor > 1;
        const Plan plan = context_plan(input, degrees);
        CAPTURE(fmt::format("tp {} dp {} zero {}", degrees.tensor, degrees.data, zero));
        const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
        CHECK(difference(plan, dag, 3) == "");
        expect_estimate(world, input, plan, dag);
      }
    }
  }
}

TEST_CASE("context: all gradients are summed over parts and replicas together, by hand") {
  // Rings among four devices: each receives 2 * 3/4 of every gradient in FP32. GPT: a table of 96
  // tokens and one of 32 positions, of 64 channels each; in a block norms (2 * 2 * 64), queries,
  // keys and values (65 * 192), their output (65 * 64), 65 * 256 and 257 * 64; a norm. LLaMA: a
  // table of 7 tokens and one as large for scores, of 12 channels; three scales; queries, output
  // and three products of 12 * 12, keys and values of 12 * 6.
  const std::int64_t block = 256 + 65 * 192 + 65 * 64 + 65 * 256 + 257 * 64;
  const std::int64_t gpt = (96 + 32) * 64 + 2 * block + 128;
  const std::int64_t llama = 2 * 7 * 12 + 3 * 12 + 5 * 144 + 2 * 72;
  for (const auto& [network, parameters] :
       {std::pair{networks::load_network(
                      "gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96", {}, "test"),
                  gpt},
        {tiny_llama(false), llama}}) {
    for (const std::size_t context : {2UL, 4UL}) {
      if (network.layers[0].out.extent(Dim::token) % (2 * context) != 0) continue;
      for (const std::int32_t zero : {0, 1}) {
        CAPTURE(fmt::format("{}, cp {}, zero {}", network.name, context, zero));
        const World world(network, star_of(4, "25 GB/s", "1us"));
        strategies::StrategyInput input = world.input(4 / static_cast<std::int64_t>(context));
        input.precision = Precision::bf16;
        input.reduce_precision = Precision::fp32;
        input.zero_stage = zero;
        const Plan plan = context_plan(input, {1, context, 4 / context, 1});
        const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
        // ZeRO 1 scatters sums in FP32 and gathers weights in BF16.
        CHECK(gradient_bytes(dag) == (zero == 0 ? 24 : 18) * parameters);
        CHECK(moved(dag, CollectiveKind::all_reduce).collectives == 0);
      }
    }
  }
}

TEST_CASE("context: every part has all positions, and their states as ZeRO divides them, by hand") {
  // Weights and gradients in BF16 and FP32, Adam's two states and a copy of the weights in FP32.
  const World world("gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96",
                    "star:4,device=v100-sxm2,rate=25GB/s");
  const std::int64_t all = 108'288;  // parameters, see above
  const auto use = [&](std::int32_t zero) {
    strategies::StrategyInput input = world.input(1);
    input.precision = Precision::bf16;
    input.reduce_precision = Precision::fp32;
    input.optimizer = Optimizer::adam;
    input.framework = Framework::megatron;
    input.zero_stage = zero;
    const Plan plan = context_plan(input, {1, 4, 1, 1});
    const LayerId wpe = find_layer(world.network, "wpe");
    CHECK(plan.layers[wpe.index()].token_parts == 4);
    return strategies::memory_use(input, plan)[3];
  };
  for (const std::int32_t zero : {0, 1, 3}) {
    CAPTURE(zero);
    const lowering::MemoryUse own = use(zero);
    const std::int64_t parts = zero > 0 ? 4 : 1, weight_parts = zero == 3 ? 4 : 1;
    CHECK(own.weights.value == 2 * all / weight_parts);
    CHECK(own.gradients.value == 4 * all / weight_parts);
    CHECK(own.optimizer_state.value == 12 * all / parts);
  }
}

TEST_CASE("context: parts of the tokens that a plan cannot have are refused") {
  const World world(tiny_llama(false), star_of(4, "25 GB/s", "1us"));
  strategies::StrategyInput input = world.input(2);
  const Plan plan = context_plan(input, {1, 2, 1, 1});
  const std::size_t scale = find_layer(world.network, "norm1.scale").index();
  REQUIRE(plan.layers[scale].token_parts == 2);
  const auto refused = [&](std::size_t layer, std::int32_t parts) {
    Plan other = plan;
    other.layers[layer].token_parts = parts;
    return refusal_of([&] { validate(other, world.network, world.cluster, "plan"); });
  };
  CHECK(refused(scale, 4).starts_with("plan: layer 'norm1.scale': 4 parts of the tokens; "));
  CHECK(refused(scale + 1, 2).starts_with("plan: layer 'norm1': 2 parts of the tokens; "));
  Plan moved_reader = plan;
  moved_reader.layers[scale + 1].devices = std::vector<DeviceId>{DeviceId{2}, DeviceId{3}};
  CHECK(refusal_of([&] { validate(moved_reader, world.network, world.cluster, "plan"); }) ==
        "plan: layer 'norm1.scale': 2 parts of the tokens, read by layer 'norm1'; a reader on the "
        "same devices, cut into as many parts along token or a multiple of that");
}

TEST_CASE("context: attention of tokens in zigzag order is attention of tokens in their own") {
  constexpr std::int64_t tokens = 12, width = 4;
  for (const std::int64_t window : {0, 5}) {
    CAPTURE(window);
    const LayerKind kind = Attention{2, 2, true, window};
    const Shape shape{{{Dim::token, tokens}, {Dim::channel, width}}};
    const std::vector<Shape> shapes(3, shape);
    const Region all = whole(shape, 1);
    const auto from = [&](const Block& block, std::int32_t ways) {
      Block out(all);
      for_each_index(all, [&](Index i) {
        const double value = block.at({i[0], zigzag_position(i[1], tokens, ways), i[2]});
        out.at(i) = value;
      });
      return out;
    };
    std::vector<Block> own;
    for (const std::int64_t operand : {0, 1, 2}) own.push_back(data_block(operand, shape, all, 0));
    const Block gradient = data_block(3, shape, all, 0);
    PartInput plain{kind, shapes, shape, {all, {}}, own, {}, 0, 1};
    const Block expected = forward(plain);
    const PartGradients back = backward(plain, gradient);
    for (const std::int32_t ways : {1, 2, 3, 6}) {
      CAPTURE(ways);
      PartInput input{kind, shapes, shape, {all, {}, ways}, {}, {}, 0, 1};
      for (const Block& operand : own) input.activations.push_back(from(operand, ways));
      CHECK(relative_error(forward(input), from(expected, ways)) < 1e-12);
      const PartGradients found = backward(input, from(gradient, ways));
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(relative_error(found.activations[i], from(back.activations[i], ways)) < 1e-12);
      }
    }
  }
}

TEST_CASE("context: parts in zigzag order have a window's pairs between them") {
  const Shape shape{{{Dim::token, 16}, {Dim::channel, 8}}};
  const std::vector<Shape> shapes(3, shape);
  for (const std::int64_t window : {1, 3, 5, 15, 16}) {
    CAPTURE(window);
    const LayerKind kind = Attention{2, 2, true, window};
    const auto pairs = [&](const Part& part) {
      return forward_flops(kind, shapes, shape, part).value / (2 * 2 * 8);
    };
    std::int64_t expected = 0;
    for (std::int64_t t = 0; t < 16; ++t) expected += std::min(t + 1, window);
    double sum = 0, rings = 0;
    for (std::int64_t begin = 0; begin < 16; begin += 4) {
      sum += pairs({{{0, 1}, {begin, begin + 4}, {0, 8}}, {}, 4});
      for (std::int64_t keys = 0; keys < 16; keys += 8) {
        rings += pairs({{{0, 1}, {begin, begin + 4}, {0, 8}}, {keys, keys + 8}, 4});
      }
    }
    CHECK(sum == static_cast<double>(expected));
    CHECK(rings == static_cast<double>(expected));
  }
}

TEST_CASE("context: zigzag order shares what a causal mask leaves evenly, by hand") {
  // Queries times keys of 16 tokens on 4 devices: 136 pairs of a query and a key not after it. In
  // the tokens' own order devices have 1+2+3+4 = 10, then 26, 42 and 58 of them.
  const Shape shape{{{Dim::token, 16}, {Dim::channel, 8}}};
  const std::vector<Shape> shapes(3, shape);
  const auto pairs = [&](std::int64_t device, std::int32_t zigzag, bool causal) {
    const Part part{{{0, 1}, {4 * device, 4 * device + 4}, {0, 8}}, {}, zigzag};
    const Flops flops = forward_flops(Attention{2, 2, causal}, shapes, shape, part);
    return flops.value / (2 * 2 * 8);
  };
  const double contiguous[] = {10, 26, 42, 58};
  for (const std::int64_t device : {0, 1, 2, 3}) {
    CHECK(pairs(device, 0, true) == contiguous[device]);
    CHECK(pairs(device, 4, true) == 136 / 4);
    CHECK(pairs(device, 4, false) == 16 * 4);
  }
}

TEST_CASE(
    "context: one step of a ring has half of the pairs, its own part a little more, by hand") {
  // 16 tokens on 2 devices, chunks of 4: device 0 has 0-3 and 12-15, device 1 4-7 and 8-11. Of the
  // other's keys, device 0's last chunk sees all, its first none; device 1's see the first chunk.
  const Shape shape{{{Dim::token, 16}, {Dim::channel, 8}}};
  const std::vector<Shape> shapes(3, shape);
  for (const std::int64_t device : {0, 1}) {
    for (const std::int64_t other : {0, 1}) {
      const Part part{
          {{0, 1}, {8 * device, 8 * device + 8}, {0, 8}}, {8 * other, 8 * other + 8}, 2};
      const Flops flops = forward_flops(Attention{2, 2, true}, shapes, shape, part);
      CHECK(flops.value / (2 * 2 * 8) == (device == other ? 36 : 32));
    }
  }
}

TEST_CASE("context: keys and values are gathered twice and their gradients scattered, by hand") {
  // Llama Team 2024, section 3.3.2: all-gather of keys and values. Two blocks, 3 samples of 32
  // tokens, keys and values of 4 of 8 heads of 8 channels, fp32.
  for (const std::int64_t n : {2, 4}) {
    CAPTURE(n);
    const World world("gpt:layers=2,hidden=64,heads=8,kv_heads=4,seq_length=32,vocab_size=96",
                      fmt::format("star:{},device=v100-sxm2,rate=25GB/s", n));
    const ExecDag dag = context_dag(world, 3, ContextExchange::all_gather);
    const std::int64_t whole = 3 * 32 * (4 * 8) * 4;
    const Moved gathered = moved(dag, CollectiveKind::all_gather);
    CHECK(gathered.collectives == 2 * 2 * 2);
    CHECK(gathered.values == 2 * 2 * 2 * (n - 1) * whole);
    const Moved scattered = moved(dag, CollectiveKind::reduce_scatter);
    CHECK(scattered.collectives == 2 * 2);
    CHECK(scattered.gradients == 2 * 2 * (n - 1) * whole);
    // And for the forward pass that is repeated: TransformerEngine's function gathers in both of
    // its passes.
    const ExecDag again =
        context_dag(world, 3, ContextExchange::all_gather, strategies::Recompute::full);
    CHECK(moved(again, CollectiveKind::all_gather).values == 3 * 2 * 2 * (n - 1) * whole);
    CHECK(moved(again, CollectiveKind::reduce_scatter).gradients == scattered.gradients);
  }
}

TEST_CASE("context: a ring sends keys and values N - 1 times, twice, and gradients as often") {
  // Liu et al. 2023, section 3: each host sends a block of keys and values to the next one in each
  // step. Two blocks, 3 samples of 32 tokens, keys and values of 4 of 8 heads of 8 channels, fp32.
  for (const std::int64_t n : {2, 4}) {
    CAPTURE(n);
    const World world("gpt:layers=2,hidden=64,heads=8,kv_heads=4,seq_length=32,vocab_size=96",
                      fmt::format("star:{},device=v100-sxm2,rate=25GB/s", n));
    const ExecDag dag = context_dag(world, 3, ContextExchange::p2p);
    std::int64_t count = 0, bytes = 0, kernels = 0;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const Op op = dag.op(OpId{i});
      if (const auto* compute = std::get_if<Compute>(&op)) {
        const Layer& layer = world.network[dag.work(compute->work).layer];
        if (layer.kind.as<Attention>() != nullptr) ++kernels;
      }
      if (!std::holds_alternative<Transfer>(op)) continue;
      ++count;
      bytes += bytes_received(dag, OpId{i}).value;
    }
    const std::int64_t block = 3 * (32 / n) * (4 * 8) * 4;
    CHECK(count == 2 * 3 * 2 * n * (n - 1));
    CHECK(bytes == count * block);
    CHECK(kernels == 2 * 2 * n * n);
  }
}

TEST_CASE("context: all-to-alls move 4 N h / P each way, as Jacobs et al. 2023 count them") {
  // DeepSpeed-Ulysses, section 3.2: of queries, keys and values 3 N h, of the output N h; every
  // device receives (P - 1) / P of its share of a P-th.
  for (const std::int64_t n : {4, 8}) {  // two parts send each other messages
    CAPTURE(n);
    const World world("gpt:layers=3,hidden=64,heads=8,seq_length=32,vocab_size=96",
                      fmt::format("star:{},device=v100-sxm2,rate=25GB/s", n));
    const ExecDag dag = context_dag(world, 1, ContextExchange::a2a);
    const Moved all = moved(dag, CollectiveKind::all_to_all);
    CHECK(all.collectives == 3 * 8);
    const std::int64_t of_device = 4 * (32 * 64 / n) * (n - 1) / n * 4;  // bytes of a layer
    CHECK(all.values == 3 * n * of_device);
    CHECK(all.gradients == 3 * n * of_device);
    // Blocks that are computed again exchange again, and keep nothing of it.
    const Moved again =
        moved(context_dag(world, 1, ContextExchange::a2a, strategies::Recompute::full),
              CollectiveKind::all_to_all);
    CHECK(again.collectives == 3 * 12);
    CHECK(again.values == 2 * all.values);
    CHECK(again.gradients == all.gradients);
  }
}

TEST_CASE("context: a device keeps its tokens' activations and all weights, by hand") {
  const auto use = [](int layers, std::size_t context, std::int32_t zero) {
    const World world(
        fmt::format("gpt:layers={},hidden=128,heads=8,seq_length=64,vocab_size=160", layers),
        "nvswitch:4,device=v100-sxm2,rate=130GB/s");
    strategies::StrategyInput input = world.input(1);
    input.precision = Precision::bf16;
    input.optimizer = Optimizer::adam;
    input.zero_stage = zero;
    input.context_exchange = ContextExchange::all_gather;
    return strategies::memory_use(input, context_plan(input, {1, context, 1, 1}))[0];
  };
  const auto block = [&](std::size_t context) {
    return use(5, context, 0).activations.value - use(3, context, 0).activations.value;
  };
  for (const std::size_t context : {2UL, 4UL}) {
    CAPTURE(context);
    CHECK(block(context) * static_cast<std::int64_t>(context) == block(1));
    const auto states = [&](int layers, std::int32_t zero) {
      return use(layers, context, zero).optimizer_state.value;
    };
    // ZeRO shards over the parts of the tokens as over replicas (Megatron-LM's data-parallel group
    // with context parallelism).
    CHECK(use(5, context, 0).weights.value - use(3, context, 0).weights.value ==
          use(5, 1, 0).weights.value - use(3, 1, 0).weights.value);
    CHECK((states(5, 1) - states(3, 1)) * static_cast<std::int64_t>(context) ==
          states(5, 0) - states(3, 0));
  }
}

TEST_CASE("context: a ring keeps two blocks of keys and values, and two of their gradients") {
  // A block is 2 samples of 16 tokens, keys and values of 4 heads of 8 channels, fp32.
  const World world("gpt:layers=2,hidden=64,heads=8,kv_heads=4,seq_length=64,vocab_size=96",
                    "star:4,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(2);
  input.framework = Framework::megatron;  // gradients are summed in place
  const Plan plan = context_plan(input, {1, 4, 1, 1});
  CHECK(strategies::memory_use(input, plan)[2].communication.value == 4 * 2 * (2 * 16 * 4 * 8) * 4);
}

TEST_CASE("context: searches try degrees of long sequences that heads and tokens allow") {
  const auto tried = [](const std::string& network, ContextExchange exchange) {
    const World world(network, "star:8,device=v100-sxm2,rate=25GB/s");
    strategies::StrategyInput input = world.input(8);
    input.context_exchange = exchange;
    return strategies::tensor::context_degrees(input, 8);
  };
  const std::string gpt = "gpt:layers=1,hidden=64,heads=4,vocab_size=96,seq_length=";
  using Found = std::vector<std::size_t>;
  CHECK(tried(gpt + "2048", ContextExchange::p2p) == Found{1});
  CHECK(tried(gpt + "8192", ContextExchange::p2p) == Found{1, 2, 4});
  CHECK(tried(gpt + "65536", ContextExchange::all_gather) == Found{1, 2, 4, 8});
  CHECK(tried(gpt + "8192,experts=4", ContextExchange::p2p) == Found{1, 2, 4});
  CHECK(tried("resnet50", ContextExchange::p2p) == Found{1});
}

TEST_CASE("context: a plan with a ring is refused where parts are unequal or nothing attends") {
  const World world("gpt:layers=1,hidden=64,heads=4,vocab_size=96,seq_length=16",
                    "star:4,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(1);
  const Plan plan = context_plan(input, {1, 2, 1, 1});
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    Plan other = plan;
    const bool attends = world.network.layers[l].kind.as<Attention>() != nullptr;
    if (attends) other.layers[l].cuts[0].sizes = {9, 7};
    other.layers[l].ring = true;
    CHECK(refusal_of([&] {
            validate(other, world.network, world.cluster, "plan");
          }).find("a ring") != std::string::npos);
    other = plan;
    other.layers[l].zigzag = attends ? 3 : 2;
    CHECK(refusal_of([&] {
            validate(other, world.network, world.cluster, "plan");
          }).find("in zigzag order") != std::string::npos);
  }
}

TEST_CASE("context: what cannot be divided is refused") {
  const auto refused = [](const std::string& network, std::int32_t context,
                          ContextExchange exchange = ContextExchange::all_gather) {
    const World world(network, "star:8,device=v100-sxm2,rate=25GB/s");
    strategies::StrategyInput input = world.input(8);
    input.context_parallel = context;
    input.context_exchange = exchange;
    input.micro_batches = 1;
    return refusal_of([&] { (void)strategies::plan_tensor(input); });
  };
  CHECK(refused("resnet50", 2) ==
        "--cp: 2 for 'resnet50', which has no attention; accepted: with a transformer");
  const std::string gpt = "gpt:layers=1,hidden=64,heads=4,vocab_size=96,seq_length=";
  CHECK(
      refused(gpt + "12", 4).find("which has 12 tokens; accepted: half a divisor of the tokens") !=
      std::string::npos);
  CHECK(refused(gpt + "16,attention=eager", 2).find("which stores attention scores") !=
        std::string::npos);
  CHECK(refused(gpt + "16,experts=5", 2)
            .find("which routes its tokens in 1 group; accepted: a divisor of the groups") !=
        std::string::npos);
  CHECK(refused(gpt + "16", 8, ContextExchange::a2a)
            .find("--tp times --cp divides the key/value heads") != std::string::npos);
  const std::string mistral =
      std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/mistral-7b.json";
  CHECK(refused(mistral, 2, ContextExchange::p2p)
            .ends_with("which has attention with a window of 4096 tokens; accepted: with --cp-comm "
                       "all_gather or a2a"));
  CHECK(refused(mistral, 2) == "accepted");
}

}  // namespace parsim::testing
