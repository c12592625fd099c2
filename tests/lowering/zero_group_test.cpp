// Replicas that split states within groups (HSDP, MiCS): traffic and memory by hand, order, and
// what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/json.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "lowering/sync.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"
#include "tests/support/zero_groups.hpp"

namespace parsim::testing {
namespace {

constexpr std::int64_t ranks_of_all = 8;

/// Data parallelism over eight devices, with a bucket for each of three layers: 16 x 32, 32 x 64
/// and 64 x 24 weights with biases, 4,216 parameters, every tensor's a multiple of eight.
struct Grouped {
  World world{network_of("x: vector 16; dense 32; dense 64; dense 24; loss"),
              on_machines(star_of(ranks_of_all, "10 GB/s", "1us"), 4)};
  static constexpr std::int64_t first = 16 * 32 + 32, second = 32 * 64 + 64, third = 64 * 24 + 24;
  static constexpr std::int64_t parameters = first + second + third;

  [[nodiscard]] strategies::StrategyInput input(std::int32_t stage, ZeroGroup group) const {
    strategies::StrategyInput in = world.simulated(32);
    in.optimizer = Optimizer::adam;
    in.bucket = Bytes{0};
    in.zero_stage = stage;
    in.zero_group = group;
    return in;
  }
  [[nodiscard]] Plan plan(std::int32_t stage, ZeroGroup group,
                          std::int32_t micro_batches = 1) const {
    const strategies::StrategyInput in = input(stage, group);
    Plan made = strategies::with_memory_options(in, strategies::plan_data(in));
    made.schedule.micro_batches = micro_batches;
    for (RankList& list : made.schedule.rank_lists) {
      const std::vector<Slot> once = list.slots;
      for (std::int32_t m = 1; m < micro_batches; ++m) {
        for (Slot slot : once) {
          slot.micro_batch = m;
          list.slots.push_back(slot);
        }
      }
    }
    made.batch *= micro_batches;
    return made;
  }
  [[nodiscard]] ExecDag dag(std::int32_t stage, ZeroGroup group,
                            std::int32_t micro_batches = 1) const {
    return lowering::lower(world.network, world.cluster, plan(stage, group, micro_batches));
  }
};

/// Bytes that a device receives in collectives of a kind and a stream whose members have as many
/// bytes each.
double received(const ExecDag& dag, DeviceId device, CollectiveKind kind, Stream stream) {
  double bytes = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != kind || dag.stream(OpId{i}) != stream)
      continue;
    const std::vector<DeviceId>& group = dag.group(collective->group);
    if (std::find(group.begin(), group.end(), device) == group.end()) continue;
    bytes +=
        static_cast<double>(bytes_received(dag, OpId{i}).value) / static_cast<double>(group.size());
  }
  return bytes;
}

std::int64_t count(const ExecDag& dag, CollectiveKind kind, Stream stream) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    number += collective != nullptr && collective->kind == kind && dag.stream(OpId{i}) == stream;
  }
  return number;
}

}  // namespace

TEST_CASE("zero group: a rank's bytes are those of two hops, by hand") {
  const Grouped grouped;
  const double psi = 4 * Grouped::parameters;
  for (const std::int64_t n : {2, 4, 8}) {
    for (const std::int32_t stage : {1, 2, 3}) {
      CAPTURE(n);
      CAPTURE(stage);
      const ExecDag dag = grouped.dag(stage, {static_cast<std::int32_t>(n), false});
      const double part = static_cast<double>(n - 1) / static_cast<double>(n);
      // Of three layers, the last is still whole at the start of backward.
      const double gathers = stage < 3 ? psi : 2 * psi - 4 * Grouped::third;
      const double over = 2 * psi / static_cast<double>(n) *
                          static_cast<double>(ranks_of_all / n - 1) /
                          static_cast<double>(ranks_of_all / n);
      for (std::size_t d = 0; d < ranks_of_all; ++d) {
        const auto bytes = [&](CollectiveKind kind, Stream stream) {
          return received(dag, DeviceId{d}, kind, stream);
        };
        CHECK(bytes(CollectiveKind::reduce_scatter, Stream::gradient) == psi * part);
        CHECK(bytes(CollectiveKind::all_gather, Stream::gradient) == gathers * part);
        CHECK(bytes(CollectiveKind::all_reduce, Stream::replicas) == over);
        CHECK(bytes(CollectiveKind::all_reduce, Stream::gradient) == 0);
      }
      // Together what one ring of all moves: 2(D-1)psi, and with stage 3 what is gathered again.
      const double again = (gathers - psi) * part * ranks_of_all;
      CHECK(static_cast<double>(bytes_moved(dag).value) == 2 * (ranks_of_all - 1) * psi + again);
    }
  }
}

TEST_CASE("zero group: memory is that of the group's size, to the byte") {
  const Grouped grouped;
  constexpr std::int64_t psi = 4 * Grouped::parameters;
  for (const std::int64_t n : {2, 4, 8}) {
    for (const std::int32_t stage : {1, 2, 3}) {
      for (const ZeroGroup group :
           {ZeroGroup{static_cast<std::int32_t>(n), false},
            n == 4 ? ZeroGroup{0, true} : ZeroGroup{std::int32_t(n), false}}) {
        CAPTURE(n);
        CAPTURE(stage);
        for (const lowering::MemoryUse& use : lowering::memory_use(
                 grouped.world.network, grouped.world.cluster, grouped.plan(stage, group))) {
          CHECK(use.optimizer_state.value == 2 * psi / n);
          CHECK(use.gradients.value == (stage >= 2 ? psi / n : psi));
          CHECK(use.weights.value == (stage == 3 ? psi / n : psi));
          // The two largest of several buckets with stage 1; whole gradients of two layers with
          // stage 2, and weights of two layers with stage 3.
          CHECK(use.communication.value ==
                (stage == 3 ? 2 : 1) * 4 * (Grouped::second + Grouped::third));
        }
      }
    }
  }
}

TEST_CASE("zero group: one group of all replicas is ZeRO as it was, groups of one are none") {
  const Grouped grouped;
  for (const std::int32_t stage : {1, 2, 3}) {
    for (const std::int32_t micro_batches : {1, 3}) {
      CAPTURE(stage);
      CAPTURE(micro_batches);
      CHECK(grouped.dag(stage, {ranks_of_all, false}, micro_batches) ==
            grouped.dag(stage, {}, micro_batches));
      CHECK(grouped.dag(stage, {1, false}, micro_batches) == grouped.dag(0, {}, micro_batches));
      CHECK(grouped.dag(stage, {4, false}, micro_batches) ==
            grouped.dag(stage, {0, true}, micro_batches));
    }
  }
  const auto memory = [&](std::int32_t stage, ZeroGroup group) {
    return lowering::memory_use(grouped.world.network, grouped.world.cluster,
                                grouped.plan(stage, group))[5]
        .total();
  };
  CHECK(memory(3, {1, false}) == memory(0, {}));
}

TEST_CASE("zero group: machines' devices need not follow one another") {
  Grouped grouped;
  for (std::size_t d = 0; d < ranks_of_all; ++d) {
    grouped.world.cluster.devices[d].node = NodeId{d % 2};
  }
  const ExecDag dag = grouped.dag(2, {0, true});
  std::set<std::vector<DeviceId>> within, over;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr) continue;
    (dag.stream(OpId{i}) == Stream::replicas ? over : within).insert(dag.group(collective->group));
  }
  const auto ids = [](std::initializer_list<std::int32_t> numbers) {
    std::vector<DeviceId> list;
    for (const std::int32_t number : numbers) list.emplace_back(number);
    return list;
  };
  CHECK(within == std::set{ids({0, 2, 4, 6}), ids({1, 3, 5, 7})});
  CHECK(over == std::set{ids({0, 1}), ids({2, 3}), ids({4, 5}), ids({6, 7})});
}

TEST_CASE("zero group: gradients are scattered after every micro-batch, summed over groups once") {
  const Grouped grouped;
  for (const std::int32_t stage : {1, 2, 3}) {
    CAPTURE(stage);
    const ExecDag dag = grouped.dag(stage, {4, false}, 3);
    const std::int64_t times = stage == 1 ? 1 : 3;
    CHECK(count(dag, CollectiveKind::reduce_scatter, Stream::gradient) == 3 * 2 * times);
    CHECK(count(dag, CollectiveKind::all_reduce, Stream::replicas) == 3 * 4);
  }
}

TEST_CASE("zero group: every micro-batch's gradients may be summed, or those of the step") {
  const Grouped grouped;
  struct Case {
    ReduceEvery every;
    std::int32_t stage;
    std::int64_t scattered, summed;  ///< times a step
  };
  for (const Case& one : {Case{ReduceEvery::micro_batch, 0, 0, 3},
                          {ReduceEvery::micro_batch, 1, 3, 3},
                          {ReduceEvery::micro_batch, 3, 3, 3},
                          {ReduceEvery::step, 0, 0, 1},
                          {ReduceEvery::step, 1, 1, 1},
                          {ReduceEvery::step, 3, 1, 1}}) {
    CAPTURE(one.stage);
    Plan plan = grouped.plan(one.stage, {4, false}, 3);
    plan.schedule.reduce_every = one.every;
    const ExecDag dag = lowering::lower(grouped.world.network, grouped.world.cluster, plan);
    const bool whole = one.stage == 0;
    CHECK(count(dag, CollectiveKind::reduce_scatter, Stream::gradient) == 3 * 2 * one.scattered);
    CHECK(count(dag, CollectiveKind::all_reduce, whole ? Stream::gradient : Stream::replicas) ==
          (whole ? 3 : 3 * 4) * one.summed);
    CHECK(difference(plan, dag, 5) == "");
  }
}

TEST_CASE("zero group: FSDP that keeps weights after forward gathers them before each forward") {
  const Grouped grouped;
  const auto first = [](const ExecDag& dag, OpKind kind, const CollectiveKind* collective) {
    std::size_t i = 0;
    for (; i < dag.size(); ++i) {
      if (dag.kind(OpId{i}) != kind) continue;
      if (collective == nullptr) break;
      if (std::get<Collective>(dag.op(OpId{i})).kind == *collective) break;
    }
    return i;
  };
  constexpr CollectiveKind gather = CollectiveKind::all_gather;
  for (const std::int32_t micro_batches : {1, 3}) {
    for (const ReduceEvery every :
         {ReduceEvery::automatic, ReduceEvery::micro_batch, ReduceEvery::step}) {
      CAPTURE(micro_batches);
      CAPTURE(to_text(every));
      Plan plan = grouped.plan(2, {4, false}, micro_batches);
      plan.schedule.reduce_every = every;
      const ExecDag dag = lowering::lower(grouped.world.network, grouped.world.cluster, plan);
      const bool before = every != ReduceEvery::automatic;
      CHECK(count(dag, CollectiveKind::all_gather, Stream::gradient) ==
            3 * 2 * (before ? micro_batches : 1));
      CHECK((first(dag, OpKind::collective, &gather) < first(dag, OpKind::compute, nullptr)) ==
            before);
      CHECK(difference(plan, dag, 5) == "");
    }
  }
}

TEST_CASE("zero group: FSDP that keeps weights and gradients in no_sync gathers them once a step") {
  const Grouped grouped;
  Plan plan = grouped.plan(1, {4, false}, 3);
  plan.schedule.reduce_every = ReduceEvery::step;
  const ExecDag dag = lowering::lower(grouped.world.network, grouped.world.cluster, plan);
  CHECK(count(dag, CollectiveKind::all_gather, Stream::gradient) == 3 * 2);
  CHECK(std::get<Collective>(dag.op(OpId{0})).kind == CollectiveKind::all_gather);
  CHECK(difference(plan, dag, 5) == "");
}

TEST_CASE("zero group: stages of FSDP gather weights that they keep before their first forward") {
  const World world(networks::load_network(
                        "gpt:layers=4,hidden=16,heads=2,seq_length=8,vocab_size=64", {}, "test"),
                    star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.optimizer = Optimizer::adam;
  input.micro_batches = 4;
  input.zero_stage = 2;
  input.pipeline_parallel = input.data_parallel = 2;
  input.tensor_parallel = 1;
  Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
  const auto gathers = [&] {
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    CHECK(difference(plan, dag, 5) == "");
    return count(dag, CollectiveKind::all_gather, Stream::gradient);
  };
  const std::int64_t once = gathers();
  CHECK(once > 0);
  plan.schedule.reduce_every = ReduceEvery::micro_batch;
  CHECK(gathers() == once);
}

TEST_CASE("zero group: whole gradients of stage 1 stay, however often they are summed") {
  const Grouped grouped;
  Plan plan = grouped.plan(1, {4, false}, 3);
  const auto gradients = [&] {
    return lowering::memory_use(grouped.world.network, grouped.world.cluster, plan)[0].gradients;
  };
  const Bytes once = gradients();
  plan.schedule.reduce_every = ReduceEvery::micro_batch;
  CHECK(gradients() == once);
}

TEST_CASE(
    "zero: tied embeddings of stages with unlike numbers of replicas stay whole, with a note") {
  const World world(networks::load_network(
                        "gpt:layers=2,hidden=16,heads=2,seq_length=8,vocab_size=64", {}, "test"),
                    star_of(6, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.optimizer = Optimizer::adam;
  input.micro_batches = 2;
  input.zero_stage = 1;
  strategies::Layout layout = strategies::even_layout(
      strategies::first_layers_of_blocks(world.network), 1, 3,
      {DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}, DeviceId{4}, DeviceId{5}});
  layout.stages[0].groups.pop_back();
  const Plan plan = strategies::with_memory_options(input, strategies::plan_layout(input, layout));
  const std::vector<std::string> notes =
      strategies::memory_option_notes(world.network, world.cluster, plan);
  REQUIRE(notes.size() == 1);
  CAPTURE(notes[0]);
  CHECK(
      notes[0].ends_with("% of the weights, the others have no replicas, or are tied between "
                         "stages with unlike numbers of replicas and stay whole"));
}

TEST_CASE("zero: tied embeddings are sharded within each stage and summed whole over stages") {
  // Stages of two replicas: 0 and 1 embed, 2 and 3 have the loss.
  const World world(networks::load_network(
                        "gpt:layers=2,hidden=16,heads=2,seq_length=8,vocab_size=64", {}, "test"),
                    star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.optimizer = Optimizer::adam;
  input.tensor_parallel = 1;
  input.pipeline_parallel = 2;
  input.data_parallel = 2;
  input.micro_batches = 2;
  input.zero_stage = 1;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
  const std::vector<lowering::SyncGroup> groups =
      lowering::sync_groups(world.network, world.cluster, plan);
  const auto tied = std::find_if(groups.begin(), groups.end(),
                                 [](const auto& group) { return !group.apart.empty(); });
  REQUIRE(tied != groups.end());
  constexpr std::int64_t table = 64 * 16;
  CHECK(tied->devices.size() == 4);
  CHECK(tied->zero_groups == tied->apart);
  CHECK(tied->zero_groups.size() == 2);
  CHECK(std::vector<std::int64_t>(tied->shards.begin(), tied->shards.end()) ==
        std::vector<std::int64_t>{table / 2, table / 2});
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  CHECK(difference(plan, dag, 3) == "");
  // Megatron-LM's all-reduce over first and last stage is of the whole table, for each replica.
  std::int64_t sums = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.stream(OpId{i}) != Stream::replicas) continue;
    ++sums;
    CHECK(dag.payload(OpId{i}) == Bytes{table * element_bytes(plan.reduce_precision)});
  }
  CHECK(sums == 2);
  // The optimizer has two numbers for each weight, and each replica has half of them.
  std::int64_t elements = 0;
  for (const lowering::SyncGroup& group : groups) {
    if (group.find(tied->devices[0]) < group.devices.size())
      elements += group.shard_of(tied->devices[0]);
  }
  const auto memory = lowering::memory_use(world.network, world.cluster, plan);
  CHECK(memory[tied->devices[0].index()].optimizer_state == Bytes{elements * 2 * 4});
}

TEST_CASE("sync: tied embeddings are summed within each stage, then over stages") {
  const World world(networks::load_network(
                        "gpt:layers=2,hidden=16,heads=2,seq_length=8,vocab_size=64", {}, "test"),
                    star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(8);
  input.tensor_parallel = 1;
  input.pipeline_parallel = 2;
  input.data_parallel = 2;
  input.micro_batches = 2;
  const Plan plan = strategies::plan_tensor(input);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  CHECK(difference(plan, dag, 3) == "");
  // Each replica's pair of stages sums the whole table, after the pair of replicas of each stage.
  CHECK(count(dag, CollectiveKind::all_reduce, Stream::replicas) == 2);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.stream(OpId{i}) != Stream::replicas) continue;
    CHECK(dag.payload(OpId{i}) == Bytes{64 * 16 * element_bytes(plan.reduce_precision)});
    CHECK(dag.predecessors(OpId{i}).size() == 2);
  }
}

TEST_CASE("zero group: a unit's shares are summed while the next unit's gradients are scattered") {
  const Grouped grouped;
  const ExecDag dag = grouped.dag(2, {4, false});
  // No reduce-scatter waits for a sum over groups, whose stream is another.
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != CollectiveKind::reduce_scatter) continue;
    for (const OpId before : dag.predecessors(OpId{i})) {
      CHECK(dag.stream(before) != Stream::replicas);
    }
  }
}

TEST_CASE("zero group: any plan with random groups computes what the unsplit network computes") {
  const std::vector<Network> networks = tiny_networks();
  std::int64_t grouped = 0, later = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = seed % 3 == 0 ? 6 : 4;
    const Cluster cluster = on_machines(star_of(gpus + 1, "10 GB/s", "1us"), 1 + seed % 4);
    Plan plan = with_split_states(random_replicated_plan(network, gpus, 12, seed), seed);
    plan = with_zero_groups(std::move(plan), network, cluster, 7 * seed + 1);
    INFO(network.name, " on ", gpus, " devices, seed ", seed);
    CHECK_NOTHROW(validate(plan, network, cluster, "test"));
    CHECK(plan_from_json(to_json(plan), "test") == plan);
    const ExecDag dag = lowering::lower(network, cluster, plan);
    CHECK(difference(plan, dag, seed) == "");
    const bool over = count(dag, CollectiveKind::all_reduce, Stream::replicas) > 0;
    grouped += over;
    later += over && plan.schedule.micro_batches > 1;
  }
  CHECK(grouped > 60);
  CHECK(later > 25);
}

TEST_CASE("zero group: data parallelism in groups computes what the unsplit network computes") {
  std::size_t turns = 0;
  for (const Network& network : tiny_networks()) {
    for (const std::int32_t stage : {1, 2, 3}) {
      for (const std::int32_t ranks : {2, 3}) {
        for (const bool unequal : {false, true}) {
          if (++turns % 3 != 0 && !long_tests()) continue;
          CAPTURE(network.name);
          CAPTURE(stage);
          CAPTURE(ranks);
          const World world(network, star_of(6, "10 GB/s", "1us"));
          strategies::StrategyInput input = world.input(12);
          input.zero_stage = stage;
          input.zero_group = {ranks, false};
          Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
          for (LayerPlan& layer : plan.layers) {
            if (unequal) layer.zero.shares.assign(static_cast<std::size_t>(ranks - 1), 3);
            if (unequal) layer.zero.shares.push_back(0);
          }
          plan.schedule.micro_batches = 2;
          plan.batch *= 2;
          for (RankList& list : plan.schedule.rank_lists) {
            list.slots.push_back({0, 1, Direction::forward});
            list.slots.push_back({0, 1, Direction::backward});
          }
          const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
          CHECK(difference(plan, dag, 11) == "");
        }
      }
    }
  }
}

TEST_CASE("zero group: what makes no groups is refused") {
  Grouped grouped;
  const auto refusal = [&](ZeroSharding zero) {
    Plan plan = grouped.plan(2, {});
    for (LayerPlan& layer : plan.layers) layer.zero = zero;
    try {
      static_cast<void>(lowering::lower(grouped.world.network, grouped.world.cluster, plan));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(refusal({2, {}, {4, false}}) == "nothing");
  CHECK(refusal({2, {}, {3, false}})
            .ends_with("': groups of 3 among 8 devices that sum its gradient; a number that "
                       "divides 8, or node"));
  CHECK(refusal({2, {}, {16, false}})
            .ends_with("groups of 16 among 8 devices that sum its gradient; a number that divides "
                       "8, or node"));
  CHECK(refusal({2, {1, 1, 1}, {4, false}})
            .ends_with("3 shares of its states; 4, one for each device of a ZeRO group"));
  CHECK(refusal({0, {}, {4, false}})
            .ends_with("a ZeRO group of replicated states; one of sharded states only"));
  CHECK(refusal({1, {}, {-1, false}})
            .ends_with("ZeRO groups of -1 devices; 1 or more; 0: all that sum a gradient"));
  grouped.world.cluster.devices[3].node = NodeId{1};
  CHECK(refusal({2, {}, {0, true}})
            .ends_with("machines with 3 and 5 of the 8 devices that sum its gradient; a number "
                       "that divides 8, or as many devices on every machine"));
}

TEST_CASE("zero group: a search prefers replicas that make groups to others") {
  const World world(networks::load_network(
                        "gpt:layers=4,hidden=64,heads=8,seq_length=32,vocab_size=96", {}, "test"),
                    on_machines(star_of(8, "10 GB/s", "1us"), 4));
  strategies::StrategyInput input = world.simulated(32);
  input.zero_stage = 2;
  input.zero_group = {4, false};
  const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
  CHECK(plan.layers[0].zero.group == input.zero_group);
  CHECK_NOTHROW(strategies::check_zero_group(input, plan, "--zero-group"));
  // A plan of replicas in pairs is worse than any.
  strategies::StrategyInput pairs = input;
  pairs.tensor_parallel = 4;
  pairs.pipeline_parallel = 1;
  const Plan other = strategies::plan_tensor(pairs);
  CHECK(strategies::simulated_price(input, plan)
            .better_than(strategies::simulated_price(input, other)));
  lowering::Estimator estimator(input.step());
  CHECK(strategies::estimated_price(input, estimator, plan)
            .better_than(strategies::estimated_price(input, estimator, other)));
  CHECK_THROWS_WITH_AS(strategies::check_zero_group(input, other, "--zero-group"),
                       doctest::Contains("groups of 4 among 2 devices that sum its gradient; "
                                         "accepted: a number that divides 2, or node"),
                       InputError);
  // First and last stage sum the gradient of the table that they share among eight devices, all
  // others among four.
  strategies::StrategyInput stages = world.input(32);
  stages.zero_stage = 1;
  stages.zero_group = {3, false};
  stages.tensor_parallel = 1;
  stages.pipeline_parallel = 2;
  CHECK_THROWS_WITH_AS(
      strategies::check_zero_group(stages, strategies::plan_tensor(stages), "--zero-group"),
      "--zero-group: parameter 'wte.table': groups of 3 among 8 devices that sum its gradient; "
      "accepted: a number that divides 4, or node",
      InputError);
}

}  // namespace parsim::testing
