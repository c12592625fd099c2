// States split among replicas (ZeRO, Rajbhandari et al. 2020): memory by its formulas, traffic by
// its section 7, order, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

constexpr std::int64_t devices = 4;

/// Data parallelism with a bucket for every layer.
struct Zero {
  World world;
  explicit Zero(const std::string& network, std::int64_t count = devices)
      : world(network, star_of(static_cast<std::size_t>(count), "10 GB/s", "1us")) {}

  explicit Zero(Network network)
      : world(std::move(network), star_of(static_cast<std::size_t>(devices), "10 GB/s", "1us")) {}

  [[nodiscard]] strategies::StrategyInput input(std::int32_t stage) const {
    strategies::StrategyInput in = world.simulated(32);
    in.optimizer = Optimizer::adam;
    in.bucket = Bytes{0};
    in.zero_stage = stage;
    return in;
  }
  [[nodiscard]] Plan plan(std::int32_t stage) const {
    return strategies::with_memory_options(input(stage), strategies::plan_data(input(stage)));
  }
  [[nodiscard]] ExecDag dag(std::int32_t stage) const {
    return lowering::lower(world.network, world.cluster, plan(stage));
  }
  [[nodiscard]] std::vector<lowering::MemoryUse> memory(std::int32_t stage) const {
    return lowering::memory_use(world.network, world.cluster, plan(stage));
  }
};

/// Bytes of every layer's weights, last layer first.
std::vector<std::int64_t> units(const Network& network) {
  std::vector<std::int64_t> sizes;
  for (std::size_t l = network.layers.size(); l-- > 0;) {
    std::int64_t bytes = 0;
    for (const ParameterId id : network.layers[l].parameters) bytes += 4 * network[id].elements();
    if (bytes > 0) sizes.push_back(bytes);
  }
  return sizes;
}

TEST_CASE("zero: memory is that of the paper's figure 1, by stage") {
  const Zero zero("vgg16");
  const std::int64_t all = 4 * parameter_count(zero.world.network);
  const auto parts = [&](std::int32_t stage) { return zero.memory(stage)[0]; };
  const lowering::MemoryUse none = parts(0);
  CHECK(none.weights.value == all);
  CHECK(none.gradients.value == all);
  CHECK(none.optimizer_state.value == 2 * all);
  for (std::int32_t stage = 1; stage <= 3; ++stage) {
    const lowering::MemoryUse with = parts(stage);
    const auto is = [](Bytes bytes, std::int64_t wanted) {
      return std::abs(bytes.value - wanted) < 1000;  // an element for each layer
    };
    CHECK(is(with.optimizer_state, 2 * all / devices));
    CHECK(is(with.gradients, stage >= 2 ? all / devices : all));
    CHECK(is(with.weights, stage == 3 ? all / devices : all));
    CHECK(with.activations == none.activations);
  }
  // Two layers' weights are whole at a time.
  std::vector<std::int64_t> sizes = units(zero.world.network);
  std::sort(sizes.rbegin(), sizes.rend());
  CHECK(parts(3).communication.value - parts(1).communication.value == sizes[0] + sizes[1]);
}

TEST_CASE("zero: shares add up to the whole on all devices together") {
  const Zero zero("resnet18", 7);
  std::int64_t states = 0;
  for (const lowering::MemoryUse& use : zero.memory(1)) states += use.optimizer_state.value;
  CHECK(states == 8 * parameter_count(zero.world.network));
}

TEST_CASE("zero: stages 1 and 2 move what all-reduces do, stage 3 about half as much again") {
  const Zero zero("vgg16");
  const std::int64_t whole = 4 * parameter_count(zero.world.network);
  CHECK(bytes_moved(zero.dag(0)).value == 2 * (devices - 1) * whole);
  CHECK(bytes_moved(zero.dag(1)) == bytes_moved(zero.dag(0)));
  CHECK(bytes_moved(zero.dag(2)) == bytes_moved(zero.dag(0)));
  // The last layer need not be gathered again on the way back.
  const std::vector<std::int64_t> sizes = units(zero.world.network);
  CHECK(bytes_moved(zero.dag(3)).value == (devices - 1) * (3 * whole - sizes[0]));
}

TEST_CASE("zero: stage 3 frees all weights when the backward pass of a micro-batch ends") {
  // Red before: the first two layers were still there in the next micro-batch.
  const Zero zero("vgg16");
  constexpr std::int64_t number = 4;
  strategies::StrategyInput input = zero.input(3);
  input.micro_batches = number;
  input.tensor_parallel = input.pipeline_parallel = 1;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
  const ExecDag dag = lowering::lower(zero.world.network, zero.world.cluster, plan);
  const std::int64_t whole = 4 * parameter_count(zero.world.network);
  const std::int64_t last = units(zero.world.network)[0];
  CHECK(bytes_moved(dag).value == (devices - 1) * number * (3 * whole - last));
}

/// Payloads of all-gathers, by unit of weights.
std::map<TensorId, std::vector<std::int64_t>> gathers(const ExecDag& dag) {
  std::map<TensorId, std::vector<std::int64_t>> found;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != CollectiveKind::all_gather) continue;
    found[collective->slice.tensor].push_back(dag.payload(OpId{i}).value);
  }
  return found;
}

TEST_CASE("zero: stage 3 gathers a tied table and recomputed blocks once a pass") {
  const Zero zero("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=512");
  for (const auto recompute : {strategies::Recompute::none, strategies::Recompute::full}) {
    CAPTURE(recompute);
    strategies::StrategyInput input = zero.input(3);
    input.recompute = recompute;
    const Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
    const ExecDag dag = lowering::lower(zero.world.network, zero.world.cluster, plan);
    std::int64_t gathered = 0, once = 0, whole = 0;
    for (const auto& [unit, payloads] : gathers(dag)) {
      CHECK(payloads.size() <= 2);  // forward and backward
      once += payloads.size() == 1;
      for (const std::int64_t payload : payloads) gathered += payload;
      whole += payloads.front();
    }
    // The head's unit, which is the tied table's, is there when the backward pass begins.
    CHECK(once == 1);
    CHECK(whole == 4 * parameter_count(zero.world.network));
    CHECK(bytes_moved(dag).value == (devices - 1) * (gathered + whole));
    CHECK(gathered + whole <= 3 * whole);
  }
}

TEST_CASE("zero: stage 3 gathers divided experts twice, those of the last block, too") {
  // Before, the last unit of experts stayed from the forward to the backward pass.
  const World world("gpt:layers=3,hidden=64,heads=4,seq_length=32,vocab_size=96,experts=4,top_k=2",
                    star_of(8, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(16);
  input.expert_parallel = 2;
  input.zero_stage = 3;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  std::int64_t once = 0;
  for (const auto& [unit, payloads] : gathers(dag)) once += payloads.size() == 1;
  CHECK(once == 1);  // the head's unit
}

/// The units of weights that an operation gathers or computes with.
std::vector<TensorId> gathered(const ExecDag& dag, OpId id) {
  const Op op = dag.op(id);
  const auto* collective = std::get_if<Collective>(&op);
  if (collective == nullptr || collective->kind != CollectiveKind::all_gather) return {};
  return {collective->slice.tensor};
}
std::vector<TensorId> computed_with(const ExecDag& dag, OpId id) {
  std::vector<TensorId> units;
  const Op op = dag.op(id);
  const auto* compute = std::get_if<Compute>(&op);
  if (compute == nullptr) return {};
  const std::vector<ParameterId>& used = dag.network[dag.work(compute->work).layer].parameters;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const TensorId unit : gathered(dag, OpId{i})) {
      for (const auto& [parameter, region] : dag.bucket_parts(dag.tensor(unit).index, {})) {
        const bool uses = std::count(used.begin(), used.end(), parameter) > 0;
        if (uses && std::count(units.begin(), units.end(), unit) == 0) units.push_back(unit);
      }
    }
  }
  return units;
}

TEST_CASE("zero: weights are gathered when those of the layer before last are out of use") {
  const Zero zero("vgg16");
  const ExecDag dag = zero.dag(3);
  const auto has = [](const std::vector<TensorId>& units, TensorId unit) {
    return std::count(units.begin(), units.end(), unit) > 0;
  };
  /// Whether a kernel uses the unit before it is gathered again.
  const auto stays = [&](TensorId unit, std::size_t from) {
    for (std::size_t i = from; i < dag.size(); ++i) {
      if (has(gathered(dag, OpId{i}), unit)) return false;
      if (has(computed_with(dag, OpId{i}), unit)) return true;
    }
    return false;
  };
  std::map<TensorId, std::map<DeviceId, OpId>> last_use;
  std::vector<TensorId> in_memory;
  int gathers = 0, again = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const TensorId unit : computed_with(dag, OpId{i})) {
      CHECK(has(in_memory, unit));
      last_use[unit][std::get<Compute>(dag.op(OpId{i})).device] = OpId{i};
    }
    for (const TensorId unit : gathered(dag, OpId{i})) {
      ++gathers;
      // Freed when the forward pass ended.
      const auto freed = std::find(in_memory.begin(), in_memory.end(), unit);
      again += freed != in_memory.end();
      if (freed != in_memory.end()) in_memory.erase(freed);
      if (in_memory.size() == 2) {
        const bool first = !stays(in_memory[0], i);
        CHECK(first != !stays(in_memory[1], i));
        const auto out = in_memory.begin() + (first ? 0 : 1);
        const auto before = dag.predecessors(OpId{i});
        CHECK(last_use[*out].size() == devices);
        for (const auto& [device, op] : last_use[*out]) {
          CHECK(std::count(before.begin(), before.end(), op) == 1);
        }
        in_memory.erase(out);
      }
      in_memory.push_back(unit);
    }
  }
  CHECK(gathers == 2 * 16 - 1);
  CHECK(again == 1);
}

/// A gather of the backward pass, the sum that its stream runs before it, and the first kernel that
/// reads the weights.
struct LateGather {
  Span sum, gather, kernel;
};
std::vector<LateGather> gathers_of_backward(const ExecDag& dag, const Timeline& timeline) {
  std::vector<LateGather> all;
  std::map<TensorId, std::size_t> waiting;  // until a kernel uses the unit
  std::optional<Span> sum;                  // the last one issued
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective != nullptr && collective->kind == CollectiveKind::reduce_scatter) {
      sum = timeline.spans[i];
    }
    if (!sum) continue;
    for (const TensorId unit : gathered(dag, OpId{i})) {
      waiting[unit] = all.size();
      all.push_back({*sum, timeline.spans[i], {}});
    }
    if (waiting.empty()) continue;
    for (const TensorId unit : computed_with(dag, OpId{i})) {
      const auto found = waiting.find(unit);
      if (found == waiting.end()) continue;
      all[found->second].kernel = timeline.spans[i];
      waiting.erase(found);
    }
  }
  return all;
}

ExecDag dag_of(const Zero& zero, const Plan& plan) {
  return lowering::lower(zero.world.network, zero.world.cluster, plan);
}

TEST_CASE("zero: late gathers begin when the layer before is summed, and kernels when they end") {
  // Of layers 6 to 0, the forward pass leaves the weights of 6. With late gathers G and sums S the
  // stream runs S6 G5 S5 G4 S4 G3 S3 G2 S2 G1 S1 G0 S0. S(i+1) waits for the kernels of layer i+1,
  // and those of i wait for G(i): there is no kernel left that overlaps with either.
  const Zero zero(
      network_of("x: vector 512; dense 512; dense 512; dense 512; dense 512; dense 512;"
                 " dense 512; dense 512; loss"));
  Plan plan = zero.plan(3);
  const auto step = [&] { return zero.world.simulator->run(dag_of(zero, plan)); };
  const Seconds early = makespan(step());
  plan.schedule.late_gathers = true;
  const std::vector<LateGather> late = gathers_of_backward(dag_of(zero, plan), step());
  CHECK(late.size() == 6);
  for (const LateGather& one : late) {
    CHECK(one.gather.start.count() == testing::approx(one.sum.end.count()));
    CHECK(one.kernel.start.count() == testing::approx(one.gather.end.count()));
  }
  CHECK(makespan(step()) > early);
}

/// Kernels that wait for a reduce-scatter.
std::size_t kernels_behind_scatters(const ExecDag& dag) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (std::get_if<Compute>(&op) == nullptr) continue;
    const auto before = dag.predecessors(OpId{i});
    count += std::any_of(before.begin(), before.end(), [&](OpId id) {
      const Op other = dag.op(id);
      const auto* collective = std::get_if<Collective>(&other);
      return collective != nullptr && collective->kind == CollectiveKind::reduce_scatter;
    });
  }
  return count;
}

TEST_CASE("zero: a pipeline's gradients stay whole, so that no kernel waits for their memory") {
  const Zero zero("vgg16");
  strategies::StrategyInput input = zero.input(2);
  input.micro_batches = 4;
  input.tensor_parallel = 1;
  for (const std::int32_t stages : {1, 2}) {
    input.pipeline_parallel = stages;
    const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
    const ExecDag dag = lowering::lower(zero.world.network, zero.world.cluster, plan);
    CHECK((kernels_behind_scatters(dag) > 0) == (stages == 1));
  }
}

TEST_CASE("zero: gradients are made when those of the layer before last are scattered") {
  const Zero zero("vgg16");
  const ExecDag dag = zero.dag(2);
  std::vector<OpId> scattered;
  std::map<DeviceId, std::size_t> layers;  // whose backward has begun
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (const auto* collective = std::get_if<Collective>(&op)) {
      if (collective->kind == CollectiveKind::reduce_scatter) scattered.push_back(OpId{i});
    }
    const auto* compute = std::get_if<Compute>(&op);
    if (compute == nullptr || compute->pass == Pass::forward) continue;
    const Layer& layer = dag.network[dag.work(compute->work).layer];
    // The first layer has no gradient to hand on, so that its one kernel comes first.
    const bool first_kernel = compute->pass == Pass::backward_data || scattered.size() == 15;
    if (layer.parameters.empty() || !first_kernel) continue;
    const std::size_t number = layers[compute->device]++;
    if (number < 2) continue;
    const auto before = dag.predecessors(OpId{i});
    CHECK(std::count(before.begin(), before.end(), scattered.at(number - 2)) == 1);
  }
  CHECK(layers.size() == devices);
  CHECK(scattered.size() == 16);
}

/// Replicas that go through a batch, of the same number of samples, several times.
Plan in_micro_batches(const strategies::StrategyInput& input, std::int32_t number) {
  Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
  plan.batch *= number;
  plan.schedule.micro_batches = number;
  for (RankList& list : plan.schedule.rank_lists) {
    const std::vector<Slot> once = list.slots;
    for (std::int32_t m = 1; m < number; ++m) {
      for (Slot slot : once) {
        slot.micro_batch = m;
        list.slots.push_back(slot);
      }
    }
  }
  return plan;
}

/// How often gradients of each bucket are scattered.
std::map<TensorId, int> scatters(const ExecDag& dag) {
  std::map<TensorId, int> times;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != CollectiveKind::reduce_scatter) continue;
    if (collective->slice.role == Role::weight_gradient) ++times[collective->slice.tensor];
  }
  return times;
}

TEST_CASE("zero: gradients that are split are scattered after every micro-batch") {
  const Zero zero("vgg16");
  for (const std::int32_t stage : {1, 2, 3}) {
    CAPTURE(stage);
    const Plan plan = in_micro_batches(zero.input(stage), 4);
    const auto times = scatters(lowering::lower(zero.world.network, zero.world.cluster, plan));
    CHECK(times.size() == 16);
    for (const auto& [bucket, number] : times) CHECK(number == (stage == 1 ? 1 : 4));
  }
}

TEST_CASE("zero: shares of several micro-batches add up to the unsplit network's gradients") {
  for (const Network& network : tiny_networks()) {
    for (const std::int32_t stage : {2, 3}) {
      for (const std::int32_t number : {2, 3}) {
        CAPTURE(network.name);
        CAPTURE(stage);
        CAPTURE(number);
        const World world(network, star_of(3, "10 GB/s", "1us"));
        strategies::StrategyInput input = world.input(6);
        input.zero_stage = stage;
        const Plan plan = in_micro_batches(input, number);
        CHECK(difference(plan, lowering::lower(world.network, world.cluster, plan), 5) == "");
      }
    }
  }
}

TEST_CASE("zero: what a micro-batch scattered is dropped before the next one's gradients") {
  const Zero zero("vgg16");
  const ExecDag dag =
      lowering::lower(zero.world.network, zero.world.cluster, in_micro_batches(zero.input(2), 3));
  std::map<TensorId, OpId> scattered;
  int dropped = 0, kept = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective != nullptr && collective->kind == CollectiveKind::reduce_scatter) {
      scattered[collective->slice.tensor] = OpId{i};
    }
    const auto* local = std::get_if<Local>(&op);
    if (local == nullptr) continue;
    ++(local->kind == LocalKind::drop ? dropped : kept);
    const auto before = dag.predecessors(OpId{i});
    CHECK(std::count(before.begin(), before.end(), scattered.at(local->to.tensor)) == 1);
  }
  CHECK(dropped == 2 * 16 * devices);
  CHECK(kept == 16 * devices);
}

TEST_CASE("zero: with micro-batches a share of gradients stays, and two layers' are whole") {
  const Zero zero("vgg16");
  const std::int64_t all = 4 * parameter_count(zero.world.network);
  const std::vector<std::int64_t> sizes = units(zero.world.network);
  std::int64_t two = 0;
  for (std::size_t k = 1; k < sizes.size(); ++k) two = std::max(two, sizes[k - 1] + sizes[k]);
  const Plan plan = in_micro_batches(zero.input(2), 4);
  for (const lowering::MemoryUse& use :
       lowering::memory_use(zero.world.network, zero.world.cluster, plan)) {
    CHECK(std::abs(use.gradients.value - all / devices) < 1000);
    CHECK(use.communication.value == two);
  }
}

TEST_CASE("zero: a pipeline's gradients stay whole until the last micro-batch") {
  const Zero zero("vgg16");
  strategies::StrategyInput input = zero.input(2);
  input.parts = 2;
  input.micro_batches = 4;
  input.budget = 20;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_hybrid(input));
  REQUIRE(plan.schedule.rank_lists.size() > 1);
  const auto times = scatters(lowering::lower(zero.world.network, zero.world.cluster, plan));
  CHECK(!times.empty());
  for (const auto& [bucket, number] : times) CHECK(number == 1);
  const std::string whole =
      "gradients are not sharded, because a pipeline's micro-batches accumulate in them";
  CHECK(strategies::memory_option_notes(zero.world.network, zero.world.cluster, plan)
            .at(0)
            .find(whole) != std::string::npos);
}

TEST_CASE("zero: weights that several stages use stay whole") {
  const Network network = networks::load_network(
      PARSIM_SOURCE_DIR "/tests/networks/data/hugging_face/gpt2.json", {{"seq_length", 8}}, "test");
  const World world(network, star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.simulated(8);
  input.zero_stage = 3;
  input.parts = 2;
  input.micro_batches = 2;
  input.budget = 50;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_hybrid(input));
  REQUIRE(plan.schedule.rank_lists.size() > 1);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const TensorId unit : gathered(dag, OpId{i})) {
      std::set<std::int32_t> stages;
      for (const auto& [parameter, region] : dag.bucket_parts(dag.tensor(unit).index, {})) {
        for (std::size_t l = 0; l < network.layers.size(); ++l) {
          const auto& used = network.layers[l].parameters;
          if (std::count(used.begin(), used.end(), parameter) > 0) {
            stages.insert(plan.schedule.stage_of_layer[l]);
          }
        }
      }
      const bool before_update = i < dag.size() / 2;
      if (before_update) CHECK(stages.size() == 1);
    }
  }
}

TEST_CASE("zero: where links cost nothing but bytes, stages 1 and 2 take as long as all-reduces") {
  const Zero zero("vgg16");
  const auto step = [&](std::int32_t stage) {
    return strategies::simulated_price(zero.input(stage), zero.plan(stage)).step.count();
  };
  // A reduction half as long, the other half after the updates, which are shorter.
  CHECK(std::abs(step(1) / step(0) - 1) < 0.25);
  // Gradients without room make kernels wait.
  CHECK(step(2) >= step(1));
  CHECK(step(3) > step(2) * 0.5);
}

TEST_CASE("zero: m micro-batches that are summed one by one take no longer than m steps") {
  // Before, each sum kept all later kernels of its own backward pass waiting, too.
  const Zero zero("vgg16");
  const auto step = [&](std::int32_t stage, std::int32_t number) {
    strategies::StrategyInput input = zero.input(stage);
    input.batch = 32 * number;
    input.micro_batches = number;
    input.tensor_parallel = input.pipeline_parallel = 1;
    Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
    plan.schedule.reduce_every = ReduceEvery::micro_batch;
    return strategies::simulated_price(input, plan).step.count();
  };
  for (const std::int32_t stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    CHECK(step(stage, 4) <= 4 * step(stage, 1) * (1 + 1e-9));
  }
}

TEST_CASE("zero: unequal shares, as for devices of unequal memory") {
  for (const Network& network : tiny_networks()) {
    CAPTURE(network.name);
    const World world(network, star_of(3, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(6);
    input.zero_stage = 3;
    Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
    for (LayerPlan& layer : plan.layers) {
      layer.zero.shares = {5, 0, 2};
    }
    CHECK(difference(plan, lowering::lower(world.network, world.cluster, plan), 3) == "");
    const std::vector<lowering::MemoryUse> memory =
        lowering::memory_use(world.network, world.cluster, plan);
    CHECK(memory[1].weights.value == 0);
    CHECK(memory[0].weights.value + memory[2].weights.value == 4 * parameter_count(world.network));
  }
}

TEST_CASE("zero: what cannot be split so is refused") {
  const Zero zero("lenet5");
  const auto refusal = [&](const std::function<void(LayerPlan&)>& change) {
    Plan plan = zero.plan(2);
    for (LayerPlan& layer : plan.layers) change(layer);
    try {
      static_cast<void>(lowering::lower(zero.world.network, zero.world.cluster, plan));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(refusal([](LayerPlan&) {}) == "nothing");
  CHECK(refusal([](LayerPlan& layer) { layer.zero.stage = 4; }).ends_with("ZeRO stage 4; 0 to 3"));
  CHECK(refusal([](LayerPlan& layer) {
          layer.zero.shares = {1, 2};
        }).ends_with("2 shares of its states; 4, one for each device that sums its gradient"));
  CHECK(refusal([](LayerPlan& layer) {
          layer.zero.shares = {0, 0, 0, 0};
        }).ends_with("0 to 1000000000, not all zero"));
  CHECK(refusal([](LayerPlan& layer) {
          layer.zero = {0, {1, 1, 1, 1}};
        }).ends_with("shares of replicated states; shares of sharded states only"));
  CHECK(refusal([](LayerPlan& layer) {
          layer.sync = {Sync::Kind::server, DeviceId{0}};
        }).ends_with("which holds them alone; one of the two"));
}

}  // namespace
}  // namespace parsim::testing
