// Equal ranks of tensor- and expert-parallel groups in a folded DAG.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/plan_support.hpp"
#include "tests/lowering/compare_folded.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

std::unique_ptr<CostModel> with_slow_device(const World& world, std::size_t number) {
  std::vector<double> factors(world.cluster.devices.size(), 1);
  factors[number % factors.size()] = 1.5;
  return sim::make_slowed(*world.cost, factors);
}

/// Without biases, which the first rank alone adds.
Network without_biases(const TemporaryFolder& folder) {
  return networks::load_network(
      folder.write("config.json",
                   R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 8,
                       "num_key_value_heads": 8, "num_hidden_layers": 4, "intermediate_size": 512,
                       "vocab_size": 512, "max_position_embeddings": 64})"),
      {}, "test");
}

TEST_CASE("folded: ranks of tensor-parallel groups, operation by operation") {
  FoldedCounts counts, slow;  // with a device that is slower than the others
  FoldedCounts alone;         // without contention
  const TemporaryFolder folder;
  const Network llama = without_biases(folder);
  for (const char* fabric : {"nodes:2x8,device=v100-sxm2,nics=8", "nodes:4x4,device=v100-sxm2",
                             "nvswitch:8,device=v100-sxm2", "dgx-v100"}) {
    const World world(llama, topologies::load_cluster(fabric, "test"));
    for (const std::int32_t tensor : {2, 4}) {
      for (const std::int32_t stages : {1, 2}) {
        for (const std::int32_t zero : {0, 1, 3}) {
          if (zero == 3 && stages > 1) continue;
          strategies::StrategyInput input = world.input(64);
          input.tensor_parallel = tensor;
          input.pipeline_parallel = stages;
          input.zero_stage = zero;
          input.sequence_parallel = zero != 0;
          if (stages == 2 && zero == 1) input.virtual_pipeline = 2;
          if (stages == 1 && zero == 1) input.context_parallel = 2;
          const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
          CAPTURE(fabric);
          CAPTURE(tensor);
          CAPTURE(stages);
          CAPTURE(zero);
          compare_with_whole(world, *world.cost, plan, zero != 0, counts);
          const auto cost = with_slow_device(world, counts.plans * 5);
          compare_with_whole(world, *cost, plan, zero != 0, slow);
          compare_with_whole(world, *cost, plan, zero != 0, alone, {}, sim::Fidelity::analytic);
        }
      }
    }
  }
  MESSAGE(counts.plans << " plans, " << counts.run << " run, of them by ranks: " << counts.ranks);
  CHECK(counts.ranks > 30);
  MESSAGE("with a slow device: " << slow.run << " run, of them by ranks: " << slow.ranks
                                 << ", over any links: " << slow.any_links);
  CHECK(slow.ranks >= 15);
  CHECK(slow.any_links >= 15);
  CHECK(alone.ranks >= 15);
}

TEST_CASE("folded: ranks of groups with context parallelism, each with replicas of its own") {
  FoldedCounts counts;
  const TemporaryFolder folder;
  const World world(without_biases(folder),
                    topologies::load_cluster("nodes:2x8,device=v100-sxm2", "test"));
  for (const std::int32_t tensor : {2, 4}) {
    for (const std::int64_t micro_batches : {1, 2}) {
      strategies::StrategyInput input = world.input(16);
      input.tensor_parallel = tensor;
      input.context_parallel = 2;
      input.pipeline_parallel = 1;
      input.micro_batches = micro_batches;
      const Plan plan = strategies::plan_tensor(input);
      CAPTURE(tensor);
      CAPTURE(micro_batches);
      // Sums of norms pass between members of a ring alone first, then between replicas: groups of
      // the same ranks, in one unit and in all.
      const Fold fold =
          lowering::lower_folded(world.network, world.cluster, *world.cost, plan).dag.fold;
      CHECK(fold.units != nullptr);
      CHECK(fold.ranks != nullptr);
      compare_with_whole(world, *world.cost, plan, false, counts);
    }
  }
  CHECK(counts.ranks >= 2);
}

TEST_CASE("folded: ranks that share experts, and those that hand parts to each other") {
  FoldedCounts counts, slow, alone;
  std::size_t larger = 0;
  const TemporaryFolder folder;
  const Network mixtral = networks::load_network(
      folder.write("config.json",
                   R"({"model_type": "mixtral", "hidden_size": 256, "num_attention_heads": 8,
                       "num_key_value_heads": 8, "num_hidden_layers": 4, "intermediate_size": 512,
                       "vocab_size": 512, "max_position_embeddings": 64, "num_local_experts": 8,
                       "num_experts_per_tok": 2})"),
      {}, "test");
  const World world(mixtral, topologies::load_cluster("nodes:4x4,device=v100-sxm2,nics=4", "test"));
  for (const std::int32_t tensor : {1, 2}) {
    for (const std::int32_t stages : {1, 2}) {
      for (const std::int32_t experts : {2, 4, 8}) {
        for (const bool overlap : {false, true}) {
          if (overlap && tensor == 1) continue;
          strategies::StrategyInput input = world.input(64);
          input.tensor_parallel = tensor;
          input.pipeline_parallel = stages;
          input.expert_parallel = experts;
          input.expert_tensor_parallel = 1;
          input.micro_batches = 2;
          input.sequence_parallel = tensor > 1;
          input.tensor_overlap = overlap;
          input.zero_stage = experts == 4 ? 1 : 0;
          const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
          CAPTURE(tensor);
          CAPTURE(stages);
          CAPTURE(experts);
          CAPTURE(overlap);
          compare_with_whole(world, *world.cost, plan, experts == 4, counts);
          const Fold fold =
              lowering::lower_folded(world.network, world.cluster, *world.cost, plan).dag.fold;
          if (fold.ranks != nullptr && fold.ranks->count() > static_cast<std::size_t>(tensor))
            ++larger;
          // Hosts launch messages between ranks one after another.
          if (overlap) compare_with_whole(world, *world.cost, plan, false, counts, Seconds{3e-5});
          const auto cost = with_slow_device(world, counts.plans * 5);
          compare_with_whole(world, *cost, plan, experts == 4, slow);
          compare_with_whole(world, *world.cost, plan, experts == 4, alone, {},
                             sim::Fidelity::analytic);
        }
      }
    }
  }
  MESSAGE(counts.plans << " plans, " << counts.run << " run, of them by ranks: " << counts.ranks
                       << ", with messages between ranks: " << counts.between_ranks
                       << "; folded by more than a tensor-parallel group: " << larger);
  MESSAGE("with a slow device: " << slow.run << " run, of them by ranks: " << slow.ranks);
  CHECK(counts.ranks >= 8);
  CHECK(counts.between_ranks >= 2);
  CHECK(larger >= 10);
  CHECK(slow.ranks >= 3);
  CHECK(alone.ranks >= 8);
  CHECK(alone.between_ranks >= 2);
}

TEST_CASE("lower: kernels of chunks and rings have the same works in all micro-batches") {
  const TemporaryFolder folder;
  const World world(without_biases(folder),
                    topologies::load_cluster("nodes:1x4,device=v100-sxm2", "test"));
  std::vector<std::size_t> works, kernels;
  for (const std::int32_t micro_batches : {4, 8}) {
    strategies::StrategyInput input = world.input(4 * micro_batches);
    input.tensor_parallel = 2;
    input.context_parallel = 2;
    input.sequence_parallel = input.tensor_overlap = true;
    input.micro_batches = micro_batches;
    const ExecDag::Tables tables =
        lowering::lower(world.network, world.cluster, strategies::plan_tensor(input)).tables();
    works.push_back(tables.works.size());
    kernels.push_back(static_cast<std::size_t>(
        std::ranges::count(tables.records, static_cast<std::uint8_t>(OpKind::compute),
                           [](const OpRecord& record) { return record.kind; })));
  }
  CHECK(kernels[1] == 2 * kernels[0]);
  CHECK(works[1] == works[0]);
}

}  // namespace
}  // namespace parsim::testing
