// What ZeRO stage 3 gathers and reduces at once: a block, unless --bucket says another size.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lowering/memory.hpp"
#include "strategies/best/moves.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {

namespace {

using Buckets = std::vector<std::vector<ParameterId>>;

const std::string small_gpt = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";

/// Of the strategy's plan with the input's memory options.
Buckets buckets_of(const StrategyInput& input, const std::string& name) {
  return with_memory_options(input, strategy(name, "test").plan(input)).buckets;
}

}  // namespace

TEST_CASE("zero units: stage 3 has the last block first, and a unit around the blocks") {
  const testing::World world(small_gpt, "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput input = world.input(16);
  const Buckets plain = plan_data(input).buckets;
  CHECK(plain.size() == 1);  // 216 thousand gradients
  input.zero_stage = 3;
  const Buckets units = plan_data(input).buckets;
  REQUIRE(units.size() == 5);
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const ParameterId id : units[u]) {
      const std::string& name = world.network[id].name;
      CAPTURE(name);
      const std::string block = "block" + std::to_string(3 - static_cast<int>(u)) + ".";
      CHECK((u < 4 ? name.starts_with(block) : !name.starts_with("block")));
    }
  }
  for (const char* name : {"data", "tensor", "pipeline", "hybrid", "layer-wise", "best"}) {
    CAPTURE(name);
    CHECK(buckets_of(input, name) == units);
  }
  StrategyInput sized = input, stage_2 = input, served = input;
  sized.bucket = ddp_bucket;
  CHECK(buckets_of(sized, "data") == plain);
  stage_2.zero_stage = 2;
  CHECK(buckets_of(stage_2, "data") == plain);
  served.sync = Sync::Kind::server;  // one per layer
  CHECK(plan_data(served).buckets.size() > units.size());
}

// torchtitan, models/llama3/infra/parallelize.py (apply_fsdp): the embedding, each block, and norm
// with head are units of their own; FSDP 1's root has what no block has.
TEST_CASE("zero units: head and embedding are apart unless they are tied, or of FSDP 1") {
  const testing::World world("llama-3-8b:layers=2", "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput input = world.input(4);
  input.zero_stage = 3;
  const auto layers = [&](const std::vector<ParameterId>& bucket) {
    std::set<std::string> names;
    for (const Layer& layer : world.network.layers) {
      for (const ParameterId id : layer.parameters) {
        if (std::find(bucket.begin(), bucket.end(), id) != bucket.end()) names.insert(layer.name);
      }
    }
    return names;
  };
  const Buckets apart = plan_data(input).buckets;
  REQUIRE(apart.size() == 4);
  CHECK(layers(apart[0]).size() == 2);
  CHECK(layers(apart[0]).contains("lm_head"));
  CHECK(layers(apart[1]).begin()->starts_with("block1."));
  CHECK(layers(apart[3]) == std::set<std::string>{"embed_tokens"});
  input.bucket = bucket_of_block_and_root;
  const Buckets with_root = plan_data(input).buckets;
  REQUIRE(with_root.size() == 3);
  CHECK(layers(with_root[2]).size() == 3);
}

TEST_CASE("zero units: networks without blocks have the buckets that they have without ZeRO") {
  const testing::World world("resnet50", "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput input = world.input(16);
  const Buckets plain = plan_data(input).buckets;
  CHECK(plain.size() > 2);
  input.zero_stage = 3;
  CHECK(buckets_of(input, "data") == plain);
  input.bucket = bucket_of_block;
  CHECK(buckets_of(input, "data") == plain);
}

TEST_CASE("zero units: numbers of blocks may be large") {
  testing::World world(small_gpt, "star:2,device=a100-sxm4-80,rate=25GB/s");
  for (Layer& layer : world.network.layers) {
    if (layer.name.starts_with("block3")) layer.name = "block1000000000" + layer.name.substr(6);
  }
  StrategyInput input = world.input(4);
  input.zero_stage = 3;
  CHECK(plan_data(input).buckets.size() == 5);
}

TEST_CASE("zero units: a plan's buckets follow its stage, also where another row has made it") {
  const testing::World world("gpt:layers=2,hidden=1024,heads=4,seq_length=32,vocab_size=256",
                             "star:4,device=a100-sxm4-80,rate=25GB/s");
  const StrategyInput input = world.input(16);
  const Plan plain = plan_data(input);
  CHECK(plain.buckets.size() > 3);
  StrategyInput sharding = input;
  sharding.zero_stage = 3;
  const std::vector<Plan> made{with_memory_options(sharding, plan_data(sharding))};
  CHECK(made[0].buckets.size() == 3);
  CHECK(with_memory_options(sharding, plain) == made[0]);
  StrategyInput after = input;
  after.known = made;
  CHECK(plan_of(after, strategy("data", "test")) == plain);
  sharding.zero_stage = 1;
  CHECK(with_memory_options(sharding, made[0]) == with_memory_options(sharding, plain));
}

// Weights, gradients and states of 38 million parameters take 577 MiB; with stage 2 253 MiB, with
// stage 3 144 MiB and 48 MiB of whole blocks.
TEST_CASE("zero units: best gathers blocks where it chooses stage 3 itself") {
  testing::World world("gpt:layers=12,hidden=512,heads=8,seq_length=64,vocab_size=256",
                       "star:4,device=a100-sxm4-80,rate=25GB/s");
  for (Device& device : world.cluster.devices) device.memory = Bytes{250 << 20};
  StrategyInput input = world.input(4);
  input.optimizer = Optimizer::adam;
  input.recompute = Recompute::none;
  input.budget = 100;
  input.tensor_parallel = input.pipeline_parallel = 1;
  const Plan plan = plan_best(input);
  CHECK(degrees_of(world.network, plan).zero == 3);
  CHECK(plan.buckets.size() == 13);
}

TEST_CASE("zero units: the local search leaves blocks together, and buckets of a given size") {
  const testing::World world(small_gpt, "star:4,device=a100-sxm4-80,rate=25GB/s");
  const StrategyInput input = world.input(16);
  const auto changes = [](const StrategyInput& asked) {
    Plan plan = with_memory_options(asked, plan_data(asked));
    const Buckets before = plan.buckets;
    Moves moves(asked, plan, {}, 7);
    int others = 0;
    for (std::size_t i = 0; i < moves.listed(); ++i) {
      if (!moves.propose(plan, i)) continue;
      others += plan.buckets != before ? 1 : 0;
      moves.take_back(plan);
    }
    return others;
  };
  CHECK(changes(input) > 0);
  StrategyInput gathering = input, sized = input;
  gathering.zero_stage = sized.zero_stage = 3;
  sized.bucket = ddp_bucket;
  CHECK(changes(gathering) == 0);
  CHECK(changes(sized) == 0);
}

TEST_CASE("zero units: the size of buckets is found in a plan, as --bucket reads it") {
  const testing::World world("gpt:layers=4,hidden=512,heads=8,seq_length=64,vocab_size=256",
                             "star:4,device=a100-sxm4-80,rate=25GB/s");
  const auto size = [&](std::int32_t stage, std::optional<Bytes> asked) {
    StrategyInput input = world.input(16);
    input.zero_stage = stage;
    input.bucket = asked;
    return bucket_size_of(world.network, with_memory_options(input, plan_data(input)));
  };
  for (const std::int32_t stage : {0, 3}) {
    CHECK(size(stage, {}) == std::nullopt);
    CHECK(size(stage, Bytes{0}) == Bytes{0});
    CHECK(size(stage, Bytes{10 * mebibyte}) == Bytes{10 * mebibyte});
  }
  CHECK(size(0, ddp_bucket) == std::nullopt);
  CHECK(size(3, ddp_bucket) == ddp_bucket);
  const testing::World large("gpt:layers=1,hidden=4096,heads=32,seq_length=64,vocab_size=8192",
                             "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput whole = large.input(4);  // whose matrices are larger than 50 MiB
  whole.zero_stage = 3;
  whole.bucket = ddp_bucket;
  const Plan sized = with_memory_options(whole, plan_data(whole));
  CHECK(bucket_size_of(large.network, sized) == ddp_bucket);
  StrategyInput odd = world.input(16);
  odd.bucket = Bytes{7'654'321};
  const Plan plan = plan_data(odd);
  odd.bucket = bucket_size_of(world.network, plan);
  REQUIRE(odd.bucket);
  CHECK(odd.bucket != Bytes{7'654'321});
  CHECK(plan_data(odd) == plan);
  CHECK(bucket_text(ddp_bucket) == "25MiB");
  CHECK(bucket_text(Bytes{0}) == "0B");
  CHECK(bucket_text(Bytes{7'654'321}) == "7654321B");
}

// Blocks of 50 MB: with two at once every other gather is saved.
TEST_CASE("zero units: best gathers in buckets of another size where that is faster and fits") {
  testing::World world("gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=8192",
                       "nodes:2x2,device=rtx-3090,intra=12GB/s,inter=1.25GB/s");
  StrategyInput input = world.simulated(16);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.zero_stage = 3;
  input.recompute = Recompute::full;
  input.tensor_parallel = input.pipeline_parallel = input.micro_batches = 1;
  input.data_parallel = 4;
  input.budget = 30;
  const auto price = [&](const Plan& plan) { return simulated_price(input, plan); };
  const Plan free = plan_best(input);
  const std::optional<Bytes> size = degrees_of(world.network, free).bucket;
  CHECK(short_text(degrees_of(world.network, free)).ends_with("bucket " + bucket_text(*size)));
  CHECK(price(free).step < 0.95 * price(plan_data(input)).step);
  for (const Bytes asked : bucket_sizes) {
    StrategyInput sized = input;
    sized.bucket = asked;
    CHECK(price(free).step <= 1.002 * price(plan_data(sized)).step);
  }
  for (Device& device : world.cluster.devices) device.memory = Bytes{600 << 20};
  const Plan small = plan_best(input);
  CHECK(price(small).fits());
  CHECK(degrees_of(world.network, small).bucket == std::nullopt);
}

TEST_CASE("zero units: best keeps the size of buckets that is given") {
  // Before, its local search changed it: 10 MiB for each of these.
  const testing::World world("gpt:layers=4,hidden=512,heads=8,seq_length=256,vocab_size=8000",
                             "nodes:2x2,device=a100-sxm4-40,intra=100GB/s,inter=5GB/s");
  StrategyInput input = world.simulated(16);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.zero_stage = 3;
  input.budget = 1000;
  for (const Bytes size : {Bytes{0}, Bytes{100 << 20}}) {
    input.bucket = size;
    CHECK(plan_best(input).buckets == gradient_buckets(input));
  }
}

// Two blocks of 50 million weights and gradients of FP32 take 806 MB, two buckets a third.
TEST_CASE("zero units: best gathers less than a block where two blocks do not fit") {
  testing::World world("gpt:layers=4,hidden=2048,heads=16,seq_length=64,vocab_size=256",
                       "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput input = world.input(4);
  input.zero_stage = 3;
  input.recompute = Recompute::none;
  input.tensor_parallel = input.pipeline_parallel = 1;
  input.budget = 30;
  const auto needs = [&](std::optional<Bytes> bucket) {
    StrategyInput asked = input;
    asked.bucket = bucket;
    return memory_use(asked, plan_data(asked))[0].total().value;
  };
  REQUIRE(needs(ddp_bucket) < 0.9 * static_cast<double>(needs({})));
  const Bytes memory{(needs(ddp_bucket) + needs({})) / 2};
  for (Device& device : world.cluster.devices) device.memory = memory;
  const Plan plan = plan_best(input);
  CHECK(fits(input, plan));
  CHECK(degrees_of(world.network, plan).bucket == ddp_bucket);
}

// The unit around the blocks begins and ends each pass, so it stays, next to the block that is
// being computed and the next one: weights and gradients of FP32.
TEST_CASE("zero units: two blocks, and what is around them, are whole at a time, by hand") {
  const testing::World world(small_gpt, "star:4,device=a100-sxm4-80,rate=25GB/s");
  StrategyInput input = world.input(16);
  input.zero_stage = 3;
  const Plan plan = with_memory_options(input, plan_data(input));
  std::vector<std::int64_t> elements;
  for (const std::vector<ParameterId>& unit : plan.buckets) {
    std::int64_t& sum = elements.emplace_back(0);
    for (const ParameterId id : unit) sum += world.network[id].elements();
  }
  CHECK(elements[0] == 12 * 64 * 64 + 13 * 64);
  CHECK(elements[4] == (256 + 32 + 2) * 64);
  CHECK(memory_use(input, plan)[0].communication == Bytes{8 * (2 * elements[0] + elements[4])});
}

}  // namespace parsim::strategies
