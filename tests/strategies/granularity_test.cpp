// Where stages may begin: at blocks of a transformer, or at any layer.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "core/random.hpp"
#include "strategies/blocks.hpp"
#include "strategies/pipeline_cut.hpp"
#include "strategies/stages.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

const char* const transformer = "gpt:layers=6,hidden=128,heads=4,seq_length=64,vocab_size=512";
const char* const four_mixed = "star:4,device=v100-sxm2*2+t4*2,rate=10GB/s,latency=5us";

/// The first layers of the plan's stages.
std::vector<std::size_t> first_layers(const Plan& plan) {
  std::vector<std::size_t> first;
  for (std::size_t l = 0; l < plan.schedule.stage_of_layer.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_layer[l]);
    while (first.size() <= stage) first.push_back(l);
  }
  return first;
}

TEST_CASE("granularity: units are blocks with what is around them, or layers") {
  const World gpt(transformer, four_mixed), cnn("lenet5", four_mixed);
  const std::vector<std::size_t> blocks = units_of(gpt.network, {});
  CHECK(blocks.size() == 8);  // six, the embeddings, and the head
  CHECK(blocks[0] == 0);
  for (std::size_t b = 1; b < 7; ++b) {
    CHECK(block_of(gpt.network, LayerId{blocks[b]}) == std::int64_t(b - 1));
    CHECK(block_of(gpt.network, LayerId{blocks[b] - 1}) != std::int64_t(b - 1));
  }
  CHECK_FALSE(block_of(gpt.network, LayerId{blocks[7]}).has_value());
  CHECK(units_of(gpt.network, Granularity::layer).size() == gpt.network.layers.size());
  CHECK(units_of(cnn.network, {}).size() == cnn.network.layers.size());
}

TEST_CASE("granularity: stages of every strategy that cuts pipelines begin at blocks") {
  const World world(transformer, four_mixed);
  const std::vector<std::size_t> units = units_of(world.network, {});
  StrategyInput input = world.simulated(16);
  input.budget = 200;
  input.pipeline_parallel = 4;
  input.micro_batches = 8;
  StrategyInput parts = world.simulated(16);
  parts.budget = 200;
  parts.parts = 4;
  for (const Plan& plan : {plan_pipeline(input), plan_tensor(input), plan_hybrid(parts)}) {
    CAPTURE(plan.strategy);
    const std::vector<std::size_t> first = first_layers(plan);
    CHECK(first.size() == 4);
    for (const std::size_t layer : first) {
      CHECK(std::find(units.begin(), units.end(), layer) != units.end());
    }
  }
  const auto says = [](const Plan& plan, const char* words) {
    return std::any_of(plan.notes.begin(), plan.notes.end(), [&](const std::string& note) {
      return note.find(words) != std::string::npos;
    });
  };
  CHECK(says(plan_pipeline(input), "stages begin at blocks"));
  input.granularity = Granularity::layer;
  CHECK_FALSE(says(plan_pipeline(input), "stages begin at blocks"));
}

TEST_CASE("granularity: more stages than blocks are for cuts by layer") {
  const World world("gpt:layers=1,hidden=64,heads=2,seq_length=16,vocab_size=64",
                    "star:4,device=t4,rate=10GB/s,latency=5us");
  StrategyInput input = world.simulated(8);
  input.pipeline_parallel = 4;
  const std::string refused = testing::refusal_of([&] { return plan_pipeline(input); });
  CHECK(refused.find("4 stages for 4 devices and 3 blocks") != std::string::npos);
  CHECK(refused.find("more with --granularity layer") != std::string::npos);
  input.granularity = Granularity::layer;
  CHECK(first_layers(plan_pipeline(input)).size() == 4);
}

TEST_CASE("granularity: cuts at units are the best of all cuts at units") {
  Random random(3);
  for (int n = 0; n < 50; ++n) {
    const std::size_t layers = 6 + random.below(4), stages = 2 + random.below(2);
    std::vector<std::size_t> units{0};
    for (std::size_t l = 1; l < layers; ++l) {
      if (random.below(2) == 0 || layers - l + units.size() <= stages) units.push_back(l);
    }
    if (units.size() < stages) continue;
    ChainCosts costs;
    for (std::size_t s = 0; s < stages; ++s) {
      costs.until.emplace_back(1, 0.0);
      costs.hand_over.emplace_back(layers, 0.0);
      for (std::size_t l = 0; l < layers; ++l) {
        costs.until[s].push_back(costs.until[s].back() + 1 + static_cast<double>(random.below(9)));
      }
    }
    const auto most_of = [&](const std::vector<std::size_t>& first) {
      double most = 0;
      for (std::size_t s = 0; s < stages; ++s) {
        const std::size_t end = s + 1 < stages ? first[s + 1] : layers;
        most = std::max(most, costs.until[s][end] - costs.until[s][first[s]]);
      }
      return most;
    };
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 1; a < units.size(); ++a) {
      if (stages == 2) least = std::min(least, most_of({0, units[a]}));
      for (std::size_t b = a + 1; stages == 3 && b < units.size(); ++b) {
        least = std::min(least, most_of({0, units[a], units[b]}));
      }
    }
    const std::vector<double> free(layers, 0.0);
    const std::vector<std::size_t> split = chain_split(costs.until, free, 0, units);
    CHECK(most_of(split) == least);
    for (const std::size_t layer : pipeline_cut(costs, 64, units).first) {
      CHECK(std::find(units.begin(), units.end(), layer) != units.end());
    }
  }
}

}  // namespace
}  // namespace parsim::strategies
