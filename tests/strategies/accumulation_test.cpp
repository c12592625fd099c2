// Steps of several micro-batches against steps of one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <optional>
#include <random>
#include <string>

#include "core/errors.hpp"
#include "strategies/price.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

struct Accumulated {
  std::string network, cluster;
  std::int32_t tensor = 1, context = 1, experts = 1, zero = 0, number = 2;
  Recompute recompute = Recompute::none;
  ReduceEvery every = ReduceEvery::automatic;
  bool shared = false, late = false;
  std::optional<Bytes> bucket{};
};

Accumulated accumulated(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t most) { return static_cast<std::int32_t>(random() % most); };
  Accumulated one;
  const bool gpt = below(4) > 0, mixture = gpt && below(4) == 0;
  one.network =
      gpt ? fmt::format("gpt:layers={},hidden=256,heads=4,seq_length=128,vocab_size=512{}",
                        2 + below(3), mixture ? ",experts=4,top_k=2" : "")
          : "alexnet";
  one.cluster =
      fmt::format("nodes:2x4,device={},intra={},inter={}", below(2) == 0 ? "a100-sxm4-40" : "t4",
                  below(2) == 0 ? "100GB/s" : "12GB/s", below(2) == 0 ? "25GB/s" : "1.25GB/s");
  if (gpt) one.tensor = 1 << below(3);
  if (gpt && !mixture && one.tensor < 4 && below(3) == 0) one.context = 2;
  if (mixture && one.tensor < 4) one.experts = 1 << below(2);
  one.zero = below(4);
  one.number = 2 + below(4);
  one.recompute = below(2) == 0 ? Recompute::none : Recompute::full;
  one.every = static_cast<ReduceEvery>(below(3));
  one.shared = one.tensor > 1 && below(2) == 0;
  one.late = below(3) == 0;
  if (below(2) == 0) one.bucket = Bytes{below(2) == 0 ? 0 : 4 << 20};
  return one;
}

Seconds step_of(const Accumulated& one, std::int32_t number) {
  const World world(one.network, one.cluster);
  StrategyInput input = world.simulated(16 * number);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.tensor_parallel = one.tensor;
  input.pipeline_parallel = 1;
  input.data_parallel = 8 / one.tensor / one.context;
  input.context_parallel = one.context;
  input.expert_parallel = one.experts;
  input.sequence_parallel = one.shared;
  input.micro_batches = number;
  input.zero_stage = one.zero;
  input.recompute = one.recompute;
  input.bucket = one.bucket;
  Plan plan = with_memory_options(input, plan_tensor(input));
  plan.schedule.reduce_every = one.every;
  plan.schedule.late_gathers = one.late;
  return simulated_price(input, plan).step;
}

}  // namespace

// A step of one has all that each of m micro-batches has, and waits for its own sums and update.
TEST_CASE("accumulation: m micro-batches take no longer than m steps of one") {
  const std::uint64_t cases = testing::long_tests() ? 1000 : 40;
  std::size_t tried = 0;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    const Accumulated one = accumulated(seed);
    CAPTURE(seed);
    CAPTURE(one.network);
    CAPTURE(one.cluster);
    const std::string settings =
        fmt::format("tp {} cp {} ep {}, zero {}, {} micro-batches, every {}", one.tensor,
                    one.context, one.experts, one.zero, one.number, to_text(one.every));
    CAPTURE(settings);
    Seconds whole{}, single{};
    try {
      whole = step_of(one, one.number);
      single = step_of(one, 1);
    } catch (const InputError&) {  // no such plan
      continue;
    }
    ++tried;
    // Stage 1 that is summed so often is stage 2, whose weights are gathered before forward passes.
    const bool others = one.every == ReduceEvery::micro_batch && one.zero == 1;
    CHECK(whole <= one.number * single * (others ? 1.1 : 1 + 1e-9));
  }
  CHECK(2 * tried > cases);
}

}  // namespace parsim::strategies
