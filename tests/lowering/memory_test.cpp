// What the backward pass keeps, against a published formula and by hand.
#include "lowering/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

/// Activations of one sample of a GPT-2 in 16 bits on one device.
std::int64_t activations(int layers, int width, int heads, int tokens,
                         strategies::Recompute recompute, const char* attention = "eager") {
  const TemporaryFolder folder;
  const std::string config =
      folder.write("config.json",
                   fmt::format(R"({{"model_type": "gpt2", "n_embd": {}, "n_head": {}, "n_layer": {},
        "n_positions": {}, "n_ctx": {}, "vocab_size": 100, "attn_implementation": "{}", "attn_pdrop": 0.1, "embd_pdrop": 0.1,
        "resid_pdrop": 0.1, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}})",
                               width, heads, layers, tokens, tokens, attention));
  const World world(networks::load_network(config, {}, "test"), star_of(1, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(1);
  input.precision = Precision::bf16;
  input.recompute = recompute;
  return strategies::memory_use(input, strategies::plan_data(input))[0].activations.value;
}

TEST_CASE("memory: a transformer layer keeps sbh (34 + 5 as/h) bytes (Korthikanti et al. 2022)") {
  for (const auto& [w, h, t] : {std::array{64, 4, 48}, {96, 2, 32}, {128, 8, 128}}) {
    CAPTURE(w);
    const auto layer = [width = w, heads = h, tokens = t](strategies::Recompute recompute) {
      return activations(5, width, heads, tokens, recompute) -
             activations(3, width, heads, tokens, recompute);
    };
    const std::int64_t linear = 34LL * t * w, scores = 5LL * h * t * t;
    CHECK(layer(strategies::Recompute::none) == 2 * (linear + scores));
    // Their section 5: without the maps.
    CHECK(layer(strategies::Recompute::selective) == 2 * linear);
    // Their section 5, footnote: only the input of every layer.
    CHECK(layer(strategies::Recompute::full) == 2 * 2LL * t * w);
    // One kernel makes them and keeps none.
    CHECK(activations(5, w, h, t, strategies::Recompute::none, "sdpa") -
              activations(3, w, h, t, strategies::Recompute::none, "sdpa") ==
          2 * linear);
  }
}

TEST_CASE("memory: PyTorch copies gradients and losses where Megatron-LM works in place, by hand") {
  // core/framework.hpp. Two devices, a sample of 512 tokens and 4,096 words each, bf16 with FP32
  // sums.
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=512,vocab_size=4096",
                    star_of(2, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(2);
  input.precision = Precision::bf16;
  input.bucket = Bytes{1 << 16};
  const auto use = [&](Framework framework, std::int32_t zero_stage) {
    input.framework = framework;
    input.zero_stage = zero_stage;
    return strategies::memory_use(
        input, strategies::with_memory_options(input, strategies::plan_data(input)))[0];
  };
  for (const std::int32_t stage : {0, 1, 2}) {
    CAPTURE(stage);
    // Scores in FP32 until the loss's gradient is there: 4 + 4 + 4 bytes of each, 4 + 2 + 2 in
    // place.
    CHECK(use(Framework::pytorch, stage).activations.value -
              use(Framework::megatron, stage).activations.value ==
          512 * 4096 * (2 * 4 - 2 * 2));
  }
  CHECK(use(Framework::pytorch, 0).communication.value == 4 * parameter_count(world.network));
  std::vector<std::int64_t> buckets;
  for (const std::vector<ParameterId>& bucket : strategies::plan_data(input).buckets) {
    std::int64_t elements = 0;
    for (const ParameterId id : bucket) elements += world.network[id].elements();
    buckets.push_back(4 * elements);
  }
  std::sort(buckets.rbegin(), buckets.rend());
  REQUIRE(buckets.size() > 2);
  CHECK(use(Framework::pytorch, 1).communication.value == buckets[0] + buckets[1]);
  for (const std::int32_t stage : {0, 1}) {
    CHECK(use(Framework::megatron, stage).communication.value == 0);
  }
}

TEST_CASE("memory: tensor parallelism keeps sbh (10 + (24 + 5 as/h)/t), with sequences all by t") {
  // Korthikanti et al. 2022, equations 2 and 4: what all devices keep whole is 10 of the 34.
  const auto kept = [](int layers, std::int32_t degree, bool sequence) {
    const World world(fmt::format("gpt:layers={},hidden=128,heads=8,seq_length=64,vocab_size=160,"
                                  "attention=eager",
                                  layers),
                      "nvswitch:4,device=v100-sxm2,rate=130GB/s");
    strategies::StrategyInput input = world.input(1);
    input.precision = Precision::bf16;
    input.tensor_parallel = degree;
    input.pipeline_parallel = input.data_parallel = input.micro_batches = 1;
    input.sequence_parallel = sequence;
    return strategies::memory_use(input, strategies::plan_tensor(input))[0].activations.value;
  };
  const std::int64_t whole = 10LL * 64 * 128, split = 24LL * 64 * 128 + 5LL * 8 * 64 * 64;
  for (const int degree : {2, 4}) {
    CAPTURE(degree);
    CHECK(kept(5, degree, false) - kept(3, degree, false) == 2 * (whole + split / degree));
    CHECK(kept(5, degree, true) - kept(3, degree, true) == 2 * (whole + split) / degree);
  }
}

/// Memory of one sample of a GPT of so many blocks of 64 channels and 48 tokens.
lowering::MemoryUse gpt_memory(int layers, const std::string& device, Precision precision,
                               int zero = 0, const std::string& attention = "eager") {
  const World world(
      fmt::format("gpt:layers={},hidden=64,heads=4,seq_length=48,vocab_size=100,attention={}",
                  layers, attention),
      "star:2,device=" + device + ",rate=10GB/s");
  strategies::StrategyInput input = world.input(2);
  input.precision = precision;
  input.zero_stage = zero;
  return strategies::memory_use(input, strategies::plan_data(input))[0];
}

TEST_CASE("memory: a block in FP8 keeps operands of its products as bytes, by hand") {
  const auto kept = [](Precision precision, const std::string& attention) {
    const auto of = [&](int layers) {
      return gpt_memory(layers, "h100-sxm5", precision, 0, attention).activations.value;
    };
    return (of(5) - of(3)) / 2;
  };
  constexpr std::int64_t sbh = 48 * 64, scores = 5LL * 4 * 48 * 48;
  const std::int64_t bf16 = kept(Precision::bf16, "eager");
  for (const Precision recipe :
       {Precision::fp8, Precision::fp8_delayed, Precision::fp8_blockwise}) {
    // Inputs of queries, keys and values, of the output's product, and both of the feed-forward
    // part: 2 + 2 + 2 + 8 in bf16, half of it in FP8.
    CHECK(bf16 - kept(recipe, "eager") == 7 * sbh);
    // Fused attention reads its output backward, which stays in bf16 as well.
    CHECK(kept(Precision::bf16, "fused") - kept(recipe, "fused") == (7 - 2) * sbh);
  }
  CHECK(bf16 > scores);
}

TEST_CASE(
    "memory: weights in FP8 are copies of those in bf16, transposed ones where needed, by hand") {
  constexpr std::int64_t products = 12LL * 64 * 64;  // weights of a block's products
  const auto more = [](const std::string& device, Precision recipe, int zero) {
    const auto of = [&](int layers) {
      const lowering::MemoryUse fp8 = gpt_memory(layers, device, recipe, zero),
                                bf16 = gpt_memory(layers, device, Precision::bf16, zero);
      CHECK(fp8.gradients == bf16.gradients);
      CHECK(fp8.optimizer_state == bf16.optimizer_state);
      return fp8.weights.value - bf16.weights.value;
    };
    return (of(5) - of(3)) / 2;
  };
  for (const int zero : {0, 1}) {
    CHECK(more("h100-sxm5", Precision::fp8, zero) == 2 * products);
    CHECK(more("h100-sxm5", Precision::fp8_delayed, zero) == 2 * products);
    CHECK(more("l40s", Precision::fp8_blockwise, zero) == 2 * products);
    CHECK(more("b200-sxm", Precision::fp8, zero) == products);
    CHECK(more("b200-sxm", Precision::fp8_blockwise, zero) == 2 * products);
  }
  // Split weights are cast when they are gathered, a few at a time.
  CHECK(more("h100-sxm5", Precision::fp8, 3) == 0);
  CHECK(gpt_memory(3, "h100-sxm5", Precision::fp8, 3).communication.value >
        gpt_memory(3, "h100-sxm5", Precision::bf16, 3).communication.value);
}

TEST_CASE("memory: sums and copies keep nothing, products what they read, by hand") {
  // Elements of one sample that stay, in fp32: a name, the network's end, and what is kept.
  Network net;
  const LayerId in = add_input(net, "in", vector_shape(4));
  const LayerId a = add_layer(net, "a", Dense{6}, {in});          // a sum reads it: nothing
  const LayerId b = add_layer(net, "b", Dense{6}, {in});          // a product reads it: kept
  const LayerId c = add_layer(net, "c", Combine{"add"}, {a, b});  // a product reads it: kept
  const LayerId d = add_layer(net, "d", Combine{"mul"}, {b, c});  // dropout: nothing
  const LayerId e = add_layer(net, "e", Dropout{0.5}, {d});       // its mask, and the next reads it
  const LayerId f = add_layer(net, "f", Dense{3}, {e});           // in place of it the function
  const LayerId g = add_layer(net, "g", Activation{"relu"}, {f});  // its output: kept
  const LayerId h = add_layer(net, "h", Concat{0}, {g, g});        // the loss reads it: kept
  (void)add_layer(net, "loss", Loss{}, {h});
  CHECK(lowering::kept_bytes(net, Precision::fp32) ==
        std::vector<std::int64_t>{4, 0, 4, 4, 0, 5, 4, 0, 4, 0});
}

/// Bytes a parameter of weights, gradients and states on each of two devices that sum gradients.
std::array<double, 3> bytes_each(Precision precision, Precision reduce, Optimizer optimizer) {
  const World world(network_of("x: vector 100; a: dense 50; b: dense 20; loss"),
                    star_of(2, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(4);
  input.precision = precision;
  input.reduce_precision = reduce;
  input.optimizer = optimizer;
  const lowering::MemoryUse use = strategies::memory_use(input, strategies::plan_data(input))[1];
  const double parameters = 100 * 50 + 50 + 50 * 20 + 20;
  const auto each = [&](Bytes bytes) { return static_cast<double>(bytes.value) / parameters; };
  // Its only bucket holds all gradients as they travel.
  CHECK(each(use.communication) == element_bytes(reduce));
  return {each(use.weights), each(use.gradients), each(use.optimizer_state)};
}

TEST_CASE("memory: bytes a parameter of each precision, sum and optimizer, by hand") {
  using P = Precision;
  using Each = std::array<double, 3>;
  // Weights, gradients, states. 16 bits keep a copy of the weights in fp32: 2 + 2 + 4·3 with Adam
  // (Rajbhandari et al. 2020), 2 + 4 + 4·3 = 18 with sums in fp32 (Megatron Core, "Distributed
  // Optimizer").
  CHECK(bytes_each(P::fp32, P::fp32, Optimizer::adam) == Each{4, 4, 8});
  CHECK(bytes_each(P::tf32, P::fp32, Optimizer::momentum) == Each{4, 4, 4});
  CHECK(bytes_each(P::fp32, P::fp32, Optimizer::sgd) == Each{4, 4, 0});
  for (const P half : {P::fp16, P::bf16}) {
    CHECK(bytes_each(half, half, Optimizer::adam) == Each{2, 2, 12});
    CHECK(bytes_each(half, P::fp32, Optimizer::adam) == Each{2, 4, 12});
    CHECK(bytes_each(half, half, Optimizer::momentum) == Each{2, 2, 8});
    CHECK(bytes_each(half, P::fp32, Optimizer::momentum) == Each{2, 4, 8});
    CHECK(bytes_each(half, half, Optimizer::sgd) == Each{2, 2, 4});
    CHECK(bytes_each(half, P::fp32, Optimizer::sgd) == Each{2, 4, 4});
  }
  // Gradients that travel shorter than they are.
  CHECK(bytes_each(P::fp32, P::bf16, Optimizer::adam) == Each{4, 4, 8});
}

TEST_CASE("memory: replicas that split states hold Megatron-LM's 6 + 12/d bytes a parameter") {
  const World world(network_of("x: vector 100; a: dense 48; b: dense 24; loss"),
                    star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.zero_stage = 1;
  const lowering::MemoryUse use = strategies::memory_use(input, strategies::plan_data(input))[0];
  const std::int64_t parameters = 100 * 48 + 48 + 48 * 24 + 24;
  CHECK((use.weights + use.gradients).value == 6 * parameters);
  CHECK(use.optimizer_state.value == 12 * parameters / 4);
}

TEST_CASE("memory: one bucket is summed by 500 million gradients, by hand") {
  // DeepSpeed, engine.py: buffered_allreduce_fallback.
  for (const int blocks : {2, 12}) {
    const World world("gpt:layers=" + std::to_string(blocks) + ",hidden=2048,heads=16",
                      star_of(2, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(2);
    input.bucket = Bytes{std::int64_t{1} << 40};
    const auto buffers = [&](Framework framework) {
      input.framework = framework;
      return strategies::memory_use(
                 input, strategies::with_memory_options(input, strategies::plan_data(input)))[0]
          .communication.value;
    };
    const std::int64_t parameters = parameter_count(world.network);
    CHECK((parameters > 500'000'000) == (blocks == 12));
    CHECK(buffers(Framework::pytorch) == 4 * std::min<std::int64_t>(parameters, 500'000'000));
    CHECK(buffers(Framework::megatron) == 0);
    input.zero_stage = 2;
    CHECK(buffers(Framework::pytorch) == 4 * std::min<std::int64_t>(parameters, 500'000'000));
  }
}

TEST_CASE("memory: one bucket is summed in place, with an embedding that stages share") {
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=16,vocab_size=128",
                    "star:4,device=v100-sxm2,rate=10GB/s");
  strategies::StrategyInput input = world.input(4);
  input.tensor_parallel = 1;
  input.pipeline_parallel = 2;
  input.micro_batches = 1;
  input.bucket = Bytes{std::int64_t{1} << 40};
  const auto buffers = [&] {
    std::int64_t most = 0;
    for (const lowering::MemoryUse& use :
         strategies::memory_use(input, strategies::plan_tensor(input))) {
      most = std::max(most, use.communication.value);
    }
    return most;
  };
  input.zero_stage = 1;
  const std::int64_t in_one = buffers();
  // Two buckets under way have copies.
  input.bucket = Bytes{1 << 16};
  CHECK(buffers() > in_one);
  // What is left is an output that arrives: of two samples.
  CHECK(in_one == 2 * 16 * 64 * 4);
}

/// By device: inputs and outputs of stages, 8 numbers each, that a chain of dense layers keeps.
std::vector<std::int64_t> kept_by_stages(int chunks, int micro_batches, Framework framework) {
  std::string text = "x: vector 8";
  for (int s = 0; s < 4 * chunks; ++s) text += "; d" + std::to_string(s) + ": dense 8";
  const World world(network_of(text + "; loss"), star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(micro_batches);
  input.micro_batches = micro_batches;
  input.framework = framework;
  std::vector<std::size_t> first{0};  // the input with the first dense layer
  for (std::size_t s = 1; s < 4 * static_cast<std::size_t>(chunks); ++s) first.push_back(s + 1);
  const strategies::Layout layout = strategies::even_layout(
      first, 1, 1, {DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}}, chunks);
  constexpr std::int64_t sample = 8 * 4;
  std::vector<std::int64_t> numbers;
  for (const lowering::MemoryUse& use :
       strategies::memory_use(input, strategies::plan_layout(input, layout))) {
    const std::int64_t gradients = 2 * sample;  // of an output and of what it is made from
    CHECK((use.activations.value - gradients) % sample == 0);
    numbers.push_back((use.activations.value - gradients) / sample);
  }
  return numbers;
}

// Every stage keeps of a sample what it reads and what it makes. Of 1F1B's p micro-batches the
// first device keeps 1 + (p - 1) / (p·v) as many when it is interleaved (Korthikanti et al. 2022,
// section 4.2.3): with four devices and two chunks 11 passes of the 8 that are a device's share of
// four micro-batches; each later device has two less.
TEST_CASE("memory: interleaved 1F1B keeps 1 + (p - 1) / (p·v) as much, by hand") {
  using Numbers = std::vector<std::int64_t>;
  const auto kept = [](int chunks, int micro_batches) {
    return kept_by_stages(chunks, micro_batches, Framework::pytorch);
  };
  CHECK(kept(1, 8) == Numbers{2 * 4, 2 * 3, 2 * 2, 2 * 1});
  CHECK(kept(2, 8) == Numbers{2 * 11, 2 * 9, 2 * 7, 2 * 5});
  CHECK(kept(3, 12) == Numbers{2 * 15, 2 * 13, 2 * 11, 2 * 9});
  CHECK(kept(2, 4) == Numbers{2 * 8, 2 * 8, 2 * 7, 2 * 5});  // no more than there are
}

// Korthikanti et al. 2022, appendix B: a stage frees its output once it has been sent, and keeps
// its input. Only the last stage reads its own output, of one micro-batch at a time.
TEST_CASE("memory: Megatron-LM's pipelines free what they have sent, by hand") {
  using Numbers = std::vector<std::int64_t>;
  const auto kept = [](int chunks, int micro_batches) {
    return kept_by_stages(chunks, micro_batches, Framework::megatron);
  };
  CHECK(kept(1, 8) == Numbers{4, 3, 2, 1 + 1});
  CHECK(kept(2, 8) == Numbers{11, 9, 7, 5 + 1});
  CHECK(kept(3, 12) == Numbers{15, 13, 11, 9 + 1});
  CHECK(kept(2, 4) == Numbers{8, 8, 7, 5 + 1});
}

// With full recomputation and a block for each chunk the first device keeps 2sbh bytes, the input
// of a block, for each chunk in flight: with four stages, of four micro-batches, or of 1F1B's
// 2 (p - 1) + (v - 1) p + 1 = 19 chunks where each has one of 4 blocks.
TEST_CASE("memory: Megatron-LM's pipelines keep a block's input once, by hand") {
  constexpr std::int32_t width = 64, tokens = 32, blocks = 16;
  for (const std::int32_t tensor : {1, 2}) {
    CAPTURE(tensor);
    const World world(fmt::format("gpt:layers={},hidden={},heads=4,seq_length={},vocab_size=8,"
                                  "dropout=0",
                                  blocks, width, tokens),
                      star_of(4 * static_cast<std::size_t>(tensor), "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(16);
    input.precision = Precision::bf16;
    input.recompute = strategies::Recompute::full;
    input.sequence_parallel = tensor > 1;
    const std::vector<std::size_t> begin = strategies::first_layers_of_blocks(world.network);
    std::vector<DeviceId> devices;
    for (std::int32_t d = 0; d < 4 * tensor; ++d) devices.emplace_back(d);
    /// Inputs or outputs of blocks that 16 micro-batches keep and `few` do not.
    const auto more = [&](Framework framework, std::int32_t chunks, std::int32_t few) {
      input.framework = framework;
      std::vector<std::size_t> first;
      for (std::int32_t s = 0; s < 4 * chunks; ++s) {
        first.push_back(begin[static_cast<std::size_t>(s * blocks / (4 * chunks))]);
      }
      const auto layout =
          strategies::even_layout(first, static_cast<std::size_t>(tensor), 1, devices, chunks);
      const auto of = [&](std::int32_t micro_batches) {
        input.batch = input.micro_batches.emplace(micro_batches);
        const Plan plan =
            strategies::with_memory_options(input, strategies::plan_layout(input, layout));
        return strategies::memory_use(input, plan)[0].activations.value;
      };
      // Beside them, two bytes a token of the first block's data.
      return (of(16) - of(few)) / (2 * tokens * width / tensor);
    };
    CHECK(more(Framework::megatron, 1, 1) == (4 - 1) * 4);
    CHECK(more(Framework::pytorch, 1, 1) == (4 - 1) * (4 + 1));
    CHECK(more(Framework::megatron, 4, 4) == 19 - 16);
    CHECK(more(Framework::pytorch, 4, 4) == (19 - 16) * 2);
  }
}

TEST_CASE("memory: what a stage reads itself stays after it has been sent, by hand") {
  // Stage 0 has x, makes a and b, and reads a; stage 1 reads both, and the loss what it makes.
  const World world(network_of("x: vector 4; a: dense 4; b: dense 4; c: dense 4 (a); "
                               "d: dense 4 (b); add (c d); loss"),
                    star_of(2, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(1);
  input.micro_batches = 1;
  const auto layout = strategies::even_layout({0, 3}, 1, 1, {DeviceId{0}, DeviceId{1}});
  const auto kept = [&](Framework framework, std::size_t stage) {
    input.framework = framework;
    const auto uses = strategies::memory_use(input, strategies::plan_layout(input, layout));
    return uses[stage].activations.value / (4 * 4) - 2;  // gradients: of an output and its input
  };
  CHECK(kept(Framework::pytorch, 0) == 3);
  CHECK(kept(Framework::megatron, 0) == 2);
  CHECK(kept(Framework::pytorch, 1) == 3);
  CHECK(kept(Framework::megatron, 1) == 3);
}

TEST_CASE("memory: a device receives of a gathered tensor what it does not have, by hand") {
  const World world(network_of("x: vector 8; a: dense 6; b: dense 4; loss"),
                    star_of(2, "10 GB/s", "1us"));
  Plan plan = single_device_plan(world.network, 4);
  const std::vector<DeviceId> both{DeviceId{0}, DeviceId{1}};
  plan.schedule.rank_lists[0].devices = both;
  for (const auto& [layer, channels] : {std::pair{1U, 3}, {2U, 2}}) {
    plan.layers[layer].cuts = {{Dim::channel, {channels, channels}}};
    plan.layers[layer].devices = both;
  }
  plan.layers[3].cuts = {{Dim::sample, {2, 2}}};
  plan.layers[3].devices = both;
  for (const lowering::MemoryUse& use : lowering::memory_use(world.network, world.cluster, plan)) {
    // Numbers kept: the input 4x8; half of a, and the other half, which b reads, 4x3 each; half of
    // b, 4x2, and of the other half two samples for the loss, 2x2. Then the gradients of a's half
    // and of what it is made from, each counted as a's half.
    CHECK(use.activations.value == 4 * (32 + 12 + 12 + 8 + 4 + 2 * 12));
    CHECK(use.communication.value == 4 * 12);  // the largest piece that is received
  }
}

TEST_CASE("memory: of sums that are reduce-scattered a device keeps its share, by hand") {
  const World world(network_of("x: vector 8; a: dense 6; b: dense 4; loss"),
                    star_of(2, "10 GB/s", "1us"));
  const auto kept = [&](const Cut& of_a) {
    Plan plan = single_device_plan(world.network, 4);
    const std::vector<DeviceId> both{DeviceId{0}, DeviceId{1}};
    plan.schedule.rank_lists[0].devices = both;
    const Cut samples{Dim::sample, {2, 2}};
    for (const auto& [layer, cut] : {std::pair{1U, of_a}, {2U, samples}, {3U, samples}}) {
      plan.layers[layer].cuts = {cut};
      plan.layers[layer].devices = both;
    }
    const auto uses = lowering::memory_use(world.network, world.cluster, plan);
    CHECK(uses[0].activations == uses[1].activations);
    return uses[0].activations.value / 4;
  };
  // Numbers kept of two samples: half of x, which is a's input, by samples or by channels, 16; of
  // a, which b reads, 2x6; of b, which the loss reads, 2x4. Then gradients of an output and of what
  // it is made from: of a's two samples, or, before they are scattered, of all four.
  CHECK(kept({Dim::sample, {2, 2}}) == 16 + 12 + 8 + 2 * 12);
  CHECK(kept({Dim::in_channel, {4, 4}}) == 16 + 12 + 8 + 2 * 24);
}

TEST_CASE("memory: a loss in 16 bits keeps its scores in four bytes") {
  Network net;
  const LayerId in = add_input(net, "in", vector_shape(4));
  (void)add_layer(net, "loss", Loss{}, {add_layer(net, "scores", Dense{6}, {in})});
  CHECK(lowering::kept_bytes(net, Precision::bf16) == std::vector<std::int64_t>{2, 4, 0});
}

}  // namespace
}  // namespace parsim::testing
