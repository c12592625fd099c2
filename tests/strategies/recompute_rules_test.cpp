// What --recompute pointwise and op mark within blocks, and which blocks --recompute-every leaves.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>

#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "lowering/recompute.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

/// A decoder like Llama: hidden 64, 4 heads of 16 channels, 2 of keys, feed-forward 96, 8 tokens.
Network llama(int blocks) {
  const testing::TemporaryFolder folder;
  const std::string text =
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 32,
          "max_position_embeddings": 8, "hidden_act": "silu", "num_hidden_layers": )" +
      std::to_string(blocks) + "}";
  return networks::load_network(folder.write("llama.json", text), {}, "test");
}

std::set<std::string> dropped_of(const World& world, Recompute rule, const std::string& block,
                                 StrategyInput input) {
  input.recompute = rule;
  const Plan plan = with_memory_options(input, plan_tensor(input));
  std::set<std::string> names;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::string& name = world.network.layers[l].name;
    if (plan.layers[l].recompute && name.starts_with(block)) {
      names.insert(name.substr(block.size()));
    }
  }
  return names;
}

/// Bytes of activations that a block more keeps, of one sample on one device.
std::int64_t bytes_of_a_block(Recompute rule, std::int32_t every = 1) {
  std::int64_t bytes[2] = {};
  for (const int more : {0, 1}) {
    const World world(llama(4 + 2 * more), testing::star_of(1, "10 GB/s", "1us"));
    StrategyInput input = world.input(1);
    input.precision = Precision::bf16;
    input.recompute = rule;
    input.recompute_every = every;
    const Plan plan = with_memory_options(input, plan_data(input));
    bytes[more] = lowering::memory_use(world.network, world.cluster, plan)[0].activations.value;
  }
  return (bytes[1] - bytes[0]) / 2;
}

}  // namespace

TEST_CASE("recompute rules: op keeps attention and every other product, pointwise drops norms") {
  const World world(llama(2), testing::star_of(2, "10 GB/s", "1us"));
  StrategyInput input = world.input(2);
  input.tensor_parallel = 1;
  input.pipeline_parallel = 1;
  input.micro_batches = 1;
  const std::set<std::string> all = dropped_of(world, Recompute::full, "block1.", input);
  std::set<std::string> op = all;
  // q, (k), v, (out), up, (gate), down: torchtitan counts w1 before w3, which are of equal size.
  for (const char* kept :
       {"attention.query", "attention.value", "attention.fused", "mlp.up", "mlp.down"}) {
    CAPTURE(kept);
    CHECK(op.erase(kept) == 1);
  }
  CHECK(dropped_of(world, Recompute::op, "block1.", input) == op);
  CHECK(
      dropped_of(world, Recompute::pointwise, "block1.", input) ==
      std::set<std::string>{"norm1", "norm1.norm", "norm2", "norm2.norm", "mlp.act", "mlp.gated"});
  // Over a group the output of attention is a sum, of which torchtitan keeps the reduce-scatter.
  input.tensor_parallel = 2;
  input.sequence_parallel = true;
  CHECK(op.erase("attention.output") == 1);
  CHECK(dropped_of(world, Recompute::op, "block1.", input) == op);
}

TEST_CASE("recompute rules: bytes that a block keeps, by hand") {
  // Of 8 tokens in 2 bytes. full: the block's input, 64. op: also queries 64, values 32, the output
  // of attention 64, and the product that is gated, 96.
  CHECK(bytes_of_a_block(Recompute::full) == 2 * 8 * 64);
  CHECK(bytes_of_a_block(Recompute::op) == 2 * 8 * (64 + 64 + 32 + 64 + 96));
  // pointwise: less two norms' outputs before and after the scale, that of the activation function
  // and its product with the gate.
  CHECK(bytes_of_a_block(Recompute::none) - bytes_of_a_block(Recompute::pointwise) ==
        2 * 8 * (4 * 64 + 2 * 96));
  CHECK(2 * bytes_of_a_block(Recompute::full, 2) ==
        bytes_of_a_block(Recompute::full) + bytes_of_a_block(Recompute::none));
}

TEST_CASE("recompute rules: every second block is the second, the fourth, ...") {
  const World world(llama(5), testing::star_of(1, "10 GB/s", "1us"));
  Plan plan = plan_data(world.input(1));
  recompute(world.network, Recompute::full, plan, 2);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::string& name = world.network.layers[l].name;
    if (!plan.layers[l].recompute) continue;
    CAPTURE(name);
    CHECK((name.starts_with("block1.") || name.starts_with("block3.")));
  }
  CHECK(!degrees_of(world.network, plan).recompute);  // no rule marks all this
  for (const Recompute rule : {Recompute::pointwise, Recompute::op, Recompute::full}) {
    recompute(world.network, rule, plan);
    CHECK(degrees_of(world.network, plan).recompute == rule);
  }
}

TEST_CASE("recompute rules: the numbers stay those of the unsplit network") {
  std::mt19937_64 random(5);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  const std::string dense = "gpt:layers=3,hidden=8,heads=2,seq_length=4,vocab_size=12,dropout=0";
  for (int round = 0; round < 24; ++round) {
    const World world(round % 3 == 0 ? dense + ",experts=4,top_k=1" : dense,
                      testing::star_of(4, "10 GB/s", "1us"));
    StrategyInput input = world.input(8);
    input.recompute = one_of(Recompute::pointwise, Recompute::op);
    input.recompute_every = one_of(1, 2);
    input.tensor_parallel = one_of(1, 2, 4);
    input.pipeline_parallel = 1;
    input.micro_batches = one_of(1, 2);
    input.sequence_parallel = *input.tensor_parallel > 1 && one_of(false, true);
    input.zero_stage = one_of(0, 1, 3);
    const Plan plan = with_memory_options(input, plan_tensor(input));
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    CAPTURE(round);
    CHECK(testing::difference(plan, dag, random()) == "");
  }
}

}  // namespace parsim::strategies
