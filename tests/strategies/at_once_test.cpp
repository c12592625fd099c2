// Parts of a search in other processes: what they hand back.
#include "strategies/at_once.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/packed_plan.hpp"
#include "strategies/out_of_time.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

using Ends = std::vector<std::string>;
using Work = std::function<std::string(std::size_t)>;

/// As other processes do it: all parts, in any order, and bytes back.
Ends all_of(std::size_t count, const Work& work) {
  Ends ends(count);
  for (std::size_t i = count; i-- > 0;) ends[i] = work(i);
  return ends;
}

}  // namespace

TEST_CASE("at once: a plan comes back as it was, and its layers share their lists of devices") {
  const World world("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=64",
                    "star:8,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  StrategyInput input = world.input(8);
  input.tensor_parallel = input.pipeline_parallel = input.data_parallel = 2;
  input.zero_stage = 1;
  const Plan plan = with_memory_options(input, plan_tensor(input));
  Packer packer;
  packer.put(plan).put(plan_data(input));
  const std::string text = std::move(packer).text();
  Unpacker unpacker(text);
  const Plan same = unpacker.get<Plan>();
  CHECK(same == plan);
  CHECK(unpacker.get<Plan>() == plan_data(input));
  const auto lists = [](const Plan& one) {
    std::vector<const void*> all;
    for (const LayerPlan& layer : one.layers) all.push_back(layer.devices.identity());
    std::sort(all.begin(), all.end());
    return std::unique(all.begin(), all.end()) - all.begin();
  };
  CHECK(lists(same) == lists(plan));
}

TEST_CASE("at once: an error is the one of this process, and that of the part that is taken") {
  const World world("lenet5", "star:2,device=t4,rate=12GB/s,latency=1us");
  StrategyInput input = world.input(8);
  const std::vector<std::function<void()>> acts{
      [] { throw InputError("--flag", "this", "accepted: that"); },
      [] { throw OutOfTime(); },
      [] { throw RefusedByMachine("no memory"); },
      [] { throw SimulationError("stuck"); },
      [] { throw BrokenInvariant("wrong"); },
      [] { throw std::bad_alloc(); },
      [] {}};
  input.at_once = all_of;
  AtOnce<int> parts(input, acts.size(), [&](const StrategyInput& own, std::size_t i) {
    CHECK_FALSE(own.at_once);
    acts[i]();
    return 7;
  });
  CHECK(parts.take(6) == 7);
  CHECK_THROWS_WITH_AS(static_cast<void>(parts.take(0)),
                       InputError("--flag", "this", "accepted: that").what(), InputError);
  CHECK_THROWS_AS(static_cast<void>(parts.take(1)), OutOfTime);
  CHECK_THROWS_WITH_AS(static_cast<void>(parts.take(2)), "no memory", RefusedByMachine);
  CHECK_THROWS_WITH_AS(static_cast<void>(parts.take(3)), "stuck", SimulationError);
  CHECK_THROWS_WITH_AS(static_cast<void>(parts.take(4)), "wrong", BrokenInvariant);
  CHECK_THROWS_WITH_AS(static_cast<void>(parts.take(5)), "out of memory", RefusedByMachine);
}

TEST_CASE("at once: without other processes only what is taken is made") {
  const World world("lenet5", "star:2,device=t4,rate=12GB/s,latency=1us");
  const StrategyInput input = world.input(8);
  std::vector<std::size_t> made;
  AtOnce<std::size_t> parts(input, 3, [&](const StrategyInput&, std::size_t i) {
    made.push_back(i);
    return i;
  });
  CHECK(parts.take(1) == 1);
  CHECK(made == std::vector<std::size_t>{1});
}

TEST_CASE("at once: best finds the plan that it finds alone, with the same notes") {
  for (const std::string devices : {"a100-sxm4-80", "a100-sxm4-80*2+v100-sxm2-32*2"}) {
    CAPTURE(devices);
    const World world("gpt:layers=4,hidden=256,heads=8,seq_length=128,vocab_size=1024",
                      "star:4,device=" + devices + ",rate=10GB/s,latency=5us");
    StrategyInput input = world.simulated(8);
    input.optimizer = Optimizer::adam;
    const Plan alone = plan_best(input);
    std::size_t divided = 0;
    input.at_once = [&](std::size_t count, const Work& work) {
      ++divided;
      return all_of(count, work);
    };
    CHECK(plan_best(input) == alone);
    CHECK(divided >= 3);  // strategies, changes, simulations
  }
}

}  // namespace parsim::strategies
