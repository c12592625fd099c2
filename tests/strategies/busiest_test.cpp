// What the busiest device of an arrangement computes.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "strategies/shares.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "strategies/tensor/group_work.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

TEST_CASE("arrangement: the busiest device adds up its kernels, and no step is shorter") {
  const World world("gpt:layers=8,hidden=256,heads=4,seq_length=64,vocab_size=1000",
                    "nodes:2x2,device=v100-sxm2*2+p100-sxm2*2,intra=50GB/s,inter=10GB/s");
  const StrategyInput input = world.simulated(16);
  const lowering::GradientFlow flow = lowering::gradient_flow(world.network);
  tensor::Arranging arranging(input);
  std::mt19937 random(7);
  const std::vector<tensor::ParallelDegrees> all{
      {1, 4, 1, 4}, {1, 2, 2, 8}, {1, 2, 2, 2, 2}, {1, 4, 1, 8, 2}, {1, 1, 4, 2}};
  for (const tensor::ParallelDegrees& degrees : all) {
    tensor::Arrangement one =
        arranging.arrange(degrees, {DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}});
    for (int round = 0; round < 4; ++round) {
      // Another cut: each stage after the first begins elsewhere.
      std::vector<std::size_t>& first = one.cut.first;
      for (std::size_t s = 1; s < first.size() && round > 0; ++s) {
        const std::size_t end = s + 1 < first.size() ? first[s + 1] : world.network.layers.size();
        first[s] = first[s - 1] + 2 + random() % (end - first[s - 1] - 2);
      }
      const std::size_t each = degrees.data;
      std::map<DeviceId, double> work;
      for (std::size_t l = 0; l < world.network.layers.size(); ++l) {
        const auto after = std::upper_bound(first.begin(), first.end(), l);
        const auto stage = static_cast<std::size_t>(after - first.begin()) - 1;
        for (std::size_t r = 0; r < each; ++r) {
          if (one.shares[r] == 0) continue;
          const DeviceId device = one.devices[stage % degrees.pipeline * each + r];
          const Part part = tensor::part_of(world.network, LayerId{l}, {}, one.shares[r]);
          work[device] += layer_time(input, flow, LayerId{l}, part, device).count();
        }
      }
      double most = 0;
      for (const auto& [device, seconds] : work) most = std::max(most, seconds);
      CAPTURE(degrees.pipeline);
      CAPTURE(degrees.chunks);
      CAPTURE(round);
      const double busiest = arranging.busiest(one);
      CHECK(busiest == testing::approx(most * degrees.micro_batches));
      CHECK(input.simulate(arranging.plan_of(one)).count() >= busiest);
    }
  }
}
