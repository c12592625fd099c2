#include "hw/host.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/price.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/host_difference.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

using namespace std::chrono_literals;

/// Of a step whose operations sleep for these durations, in virtual time.
std::vector<Span> virtual_spans(const ExecDag& dag, const std::vector<Seconds>& durations) {
  hw::Clock clock(hw::ClockKind::virtual_time);
  const auto sleep = [&](OpId op) { clock.sleep_for(durations[op.index()]); };
  return hw::run_on_threads(dag, hw::dispatch(dag), sleep, clock).spans;
}

/// What tests/hw/data has under this name.
ExecDag dag_for(const std::string& name) {
  const bool transformer = name == "transformer", llama = name == "llama";
  const Network network = transformer        ? tiny_transformer(1)
                          : llama            ? tiny_llama(true)
                          : name == "pooled" ? pooled_network()
                                             : tiny_network("residual");
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 6;
  if (name == "pipeline") input.micro_batches = 2;
  if (transformer || llama) input.tensor_parallel = 3;
  if (name == "server") input.sync = Sync::Kind::server;
  if (name == "server") input.server = DeviceId{0};
  const std::string strategy = name == "server" || name == "pooled" ? "data"
                               : transformer || llama               ? "tensor"
                                                                    : name;
  return lowering::lower(
      network, cluster, plan_on_all_devices(parsim::strategies::strategy(strategy, "test"), input));
}

}  // namespace

// tests/hw/tsan runs them without strategies or a simulator. PARSIM_REGENERATE=1 writes them anew.
TEST_CASE("host: saved DAG files compute what the float64 interpreter computes") {
  for (const std::string name :
       {"data", "model-even", "pipeline", "server", "transformer", "llama", "pooled"}) {
    const std::string path = std::string(PARSIM_SOURCE_DIR) + "/tests/hw/data/" + name + ".json";
    if (std::getenv("PARSIM_REGENERATE") != nullptr) std::ofstream(path) << to_json(dag_for(name));
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    CAPTURE(name);
    CHECK(host_difference(dag_from_json(text, path)) == "");
  }
}

TEST_CASE("host: any valid plan computes what the float64 interpreter computes") {
  const std::vector<Network> networks = runnable_networks();
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = 1 + seed / networks.size() % 4;
    const Plan plan = with_split_states(random_plan(network, gpus, 8, seed), seed);
    CAPTURE(network.name);
    CAPTURE(seed);
    CHECK(host_difference(lowering::lower(network, star_of(gpus + 1, "10 GB/s", "1us"), plan)) ==
          "");
  }
}

TEST_CASE("host: parts of the tokens read their rows of positions that they have whole") {
  const Cluster cluster = star_of(4, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  std::vector<Network> networks{
      tiny_llama(false),
      networks::load_network("gpt:layers=1,hidden=8,heads=4,seq_length=8,vocab_size=5,ffn_hidden=6",
                             {}, "test")};
  for (Network& network : networks) {
    // Tokens of causal attention are in zigzag order, which hw/ does not run.
    for (Layer& layer : network.layers) {
      auto* attention = std::get_if<Attention>(&layer.kind.value);
      if (attention != nullptr) attention->causal = false;
    }
    for (const std::int32_t zero : {0, 1, 3}) {
      strategies::StrategyInput input{network, cluster, *cost};
      input.batch = 4;
      input.tensor_parallel = input.pipeline_parallel = 1;
      input.context_parallel = 2;
      input.context_exchange = strategies::ContextExchange::all_gather;
      input.zero_stage = zero;
      const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
      CHECK(std::any_of(plan.layers.begin(), plan.layers.end(),
                        [](const LayerPlan& layer) { return layer.token_parts == 2; }));
      CAPTURE(network.name);
      CAPTURE(zero);
      CHECK(host_difference(lowering::lower(network, cluster, plan)) == "");
    }
  }
}

TEST_CASE("host: every strategy's step equals the interpreter's, from its DAG file") {
  const Cluster cluster =
      star_of({test_device("fast", "10 TFLOP/s"), test_device("slow", "4 TFLOP/s"),
               test_device("slower", "2 TFLOP/s")},
              "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  std::vector<Network> networks{tiny_llama(true), tiny_llama(false)};
  for (const std::string name : {"plain", "residual", "branches", "windows", "volume"}) {
    networks.push_back(tiny_network(name));
  }
  for (const Network& network : networks) {
    for (const strategies::Strategy& strategy : strategies::all()) {
      if (strategy.name == "best") continue;  // one of the others' plans with changes
      strategies::StrategyInput input{network, cluster, *cost};
      input.batch = 8;
      input.budget = 20;
      CAPTURE(network.name);
      CAPTURE(strategy.name);
      CHECK(host_difference(
                lowering::lower(network, cluster, plan_on_all_devices(strategy, input))) == "");
    }
  }
}

TEST_CASE("host: products in chunks compute what the float64 interpreter computes") {
  for (const Network& network : {tiny_transformer(1), tiny_llama(true)}) {
    const Cluster cluster = star_of(3, "10 GB/s", "1us");
    const auto cost = sim::make_constant_efficiency(cluster);
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = 4;
    input.tensor_parallel = 3;
    input.sequence_parallel = input.tensor_overlap = true;
    input.recompute = strategies::Recompute::full;
    const Plan plan = plan_on_all_devices(parsim::strategies::strategy("tensor", "test"), input);
    CAPTURE(network.name);
    CHECK(std::any_of(plan.layers.begin(), plan.layers.end(),
                      [](const LayerPlan& layer) { return layer.overlap; }));
    CHECK(host_difference(lowering::lower(network, cluster, plan)) == "");
  }
}

TEST_CASE("host: shares of several micro-batches' gradients add up") {
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = tiny_network("residual");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 12;
  input.parts = 1;
  input.micro_batches = 2;
  input.budget = 20;
  for (const std::int32_t stage : {2, 3}) {
    CAPTURE(stage);
    input.zero_stage = stage;
    CHECK(host_difference(lowering::lower(
              network, cluster,
              strategies::with_memory_options(input, strategies::plan_hybrid(input)))) == "");
  }
}

TEST_CASE("host: groups of replicas sum the shares of their gradients") {
  const Cluster cluster = star_of(4, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = tiny_network("residual");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 8;
  input.zero_group = {2, false};
  for (const std::int32_t stage : {1, 2, 3}) {
    CAPTURE(stage);
    input.zero_stage = stage;
    Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
    plan.batch = 16;
    plan.schedule.micro_batches = 2;
    for (RankList& list : plan.schedule.rank_lists) {
      list.slots.push_back({0, 1, Direction::forward});
      list.slots.push_back({0, 1, Direction::backward});
    }
    const ExecDag dag = lowering::lower(network, cluster, plan);
    bool over = false;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      over = over || dag.stream(OpId{i}) == Stream::replicas;
    }
    CHECK(over);
    CHECK(host_difference(dag) == "");
  }
}

TEST_CASE("host: a device holds the optimizer's states of what it updates") {
  const Network network = tiny_network("windows");
  const Cluster cluster = star_of(4, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 8;
  input.optimizer = Optimizer::adam;
  /// Elements of all devices' states.
  const auto states = [&](std::int32_t stage) {
    input.zero_stage = stage;
    const ExecDag dag = lowering::lower(
        network, cluster, strategies::with_memory_options(input, strategies::plan_data(input)));
    std::int64_t sum = 0;
    const hw::Stores stores = hw::stores(dag);
    for (const auto& [key, store] : stores.all) {
      if (key.role == Role::optimizer_state) sum += store.box.volume();
    }
    return sum;
  };
  const std::int64_t once = 2 * parameter_count(network);
  CHECK(states(0) == 4 * once);
  // Shares begin and end within rows, of which whole ones are held.
  CHECK(states(1) >= once);
  CHECK(states(1) < 2 * once);
}

TEST_CASE("host: Adam's first step by its formula, with the states that it keeps") {
  const Network network = tiny_llama(false);
  ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 4));
  dag.optimizer = Optimizer::adam;
  hw::HostNumbers numbers(dag);
  static_cast<void>(numbers.run(hw::dispatch(dag)));
  const std::vector<Block> before = initial_parameters(network);
  for (std::size_t p = 0; p < network.parameters.size(); ++p) {
    const Region box = box_of(network.parameters[p].extents);
    const auto found = [&](Role role, hw::StateKind kind) {
      const Tensor tensor{Tensor::Kind::parameter, static_cast<std::int32_t>(p), -1};
      return numbers.values({DeviceId{0}, tensor, role, static_cast<std::int32_t>(kind)}, box);
    };
    const std::vector<double> gradient = found(Role::weight_gradient, {});
    const std::vector<double> weight = found(Role::weight, {});
    const std::vector<double> mean = found(Role::optimizer_state, hw::StateKind::first);
    const std::vector<double> square = found(Role::optimizer_state, hw::StateKind::second);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i];
      CHECK(mean[i] == testing::approx(0.1 * g));
      CHECK(square[i] == testing::approx(0.001 * g * g));
      const double step = 0.1 * g / (std::sqrt(0.001) * std::abs(g) + hw::adam_epsilon);
      CHECK(weight[i] == testing::approx(before[p].values()[i] - learning_rate * step));
    }
  }
}

TEST_CASE("host: an unsplit step equals the reference network's, weights after the update too") {
  const Network network = tiny_network("residual");
  const Plan plan = single_device_plan(network, 4);
  const ExecDag dag = lowering::lower(network, star_of(1, "10 GB/s", "1us"), plan);
  hw::HostNumbers numbers(dag);
  static_cast<void>(numbers.run(hw::dispatch(dag)));
  const Step step = train_step(network, 4, {}, initial_parameters(network));
  for (std::size_t p = 0; p < network.parameters.size(); ++p) {
    const Region box = box_of(network.parameters[p].extents);
    const Tensor tensor{Tensor::Kind::parameter, static_cast<std::int32_t>(p), -1};
    Block found(box);
    found.values() = numbers.values({DeviceId{0}, tensor, Role::weight, 0}, box);
    CHECK(relative_error(found, step.weights[p]) < 1e-12);
  }
}

TEST_CASE("host: a second step begins from the same numbers") {
  const Network network = tiny_network("plain");
  const ExecDag dag =
      lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 5));
  hw::HostNumbers numbers(dag);
  const hw::Dispatch order = hw::dispatch(dag);
  static_cast<void>(numbers.run(order));
  const hw::StoreKey key{DeviceId{0}, {Tensor::Kind::parameter, 0, -1}, Role::weight, 0};
  const Region box = hw::stores(dag).all.at(key).box;
  const std::vector<double> first = numbers.values(key, box);
  static_cast<void>(numbers.run(order));
  CHECK(numbers.values(key, box) == first);
}

TEST_CASE("host: where bits are few, rounding passes, a missing gradient and no number do not") {
  const Network network = tiny_network("plain");
  const ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 8));
  hw::HostNumbers expected(dag);
  static_cast<void>(expected.run(hw::dispatch(dag)));
  for (const auto& [victim, store] : expected.stores().all) {
    if (victim.role != Role::weight_gradient) continue;
    const auto found = [&](double factor) {
      return hw::worst_difference(expected, expected.stores(), Precision::tf32, 2e-2,
                                  [&](const hw::StoreKey& key, const Region& box) {
                                    std::vector<double> values = expected.values(key, box);
                                    for (std::size_t i = 0; i < values.size(); ++i) {
                                      values[i] *= i % 2 == 0 ? 1.001 : 0.999;
                                      if (key == victim) values[i] *= factor;
                                    }
                                    return values;
                                  });
    };
    CHECK(found(1) == "");
    CHECK(found(0).find("tensor kind 2 index " + std::to_string(victim.tensor.index) +
                        ", role 4") != std::string::npos);
    CHECK(found(NAN).find("error inf") != std::string::npos);
  }
}

TEST_CASE("host: states of weights that a device does not have are refused") {
  const Network network = tiny_network("windows");
  ExecDag dag =
      lowering::lower(network, star_of(2, "10 GB/s", "1us"), single_device_plan(network, 2));
  const Slice states{dag.intern(Tensor{Tensor::Kind::parameter, 0, -1}), Role::optimizer_state, 0,
                     dag.intern(Region{{0, 1}})};
  dag.add(Transfer{DeviceId{0}, DeviceId{1}, states, states, false}, Stream::gradient, {});
  CHECK_THROWS_WITH_AS((void)hw::stores(dag),
                       "device 1: has states of the optimizer for weights that it does not have; "
                       "accepted: DAGs as 'parsim plan --dag' writes them",
                       InputError);
}

TEST_CASE("host: a layer that cannot run is refused by name before anything starts") {
  const Network network = refused_network();
  const ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 2));
  CHECK_THROWS_WITH_AS(
      hw::HostNumbers{dag},
      "--hw: layer 'relu' (softplus); real hardware cannot run this yet; simulate it without --hw",
      InputError);
}

TEST_CASE("host: what an operation throws reaches the caller, and all threads end") {
  const NotedDag noted =
      dag_of("a: compute d0 1us; b: all-reduce d0,d1 4MiB after a; c: compute d1 1us after b");
  const hw::Dispatch order = hw::dispatch(noted.dag);
  const auto fail = [&](OpId op) {
    if (op == noted["b"]) throw std::runtime_error("no");
  };
  for (const hw::ClockKind kind : {hw::ClockKind::wall, hw::ClockKind::virtual_time}) {
    hw::Clock clock(kind);
    CHECK_THROWS_AS(static_cast<void>(hw::run_on_threads(noted.dag, order, fail, clock)),
                    std::runtime_error);
  }
}

TEST_CASE("host: by the wall clock operations take their time and keep the order of the DAG") {
  const NotedDag noted = dag_of(
      "a: compute d0 3us; b: transfer d0->d1 1MB after a; c: compute d0 1us; d: compute d1 1us "
      "after b c; e: all-reduce d0,d1 1MB after d");
  const std::vector<Seconds> durations{2ms, 3ms, 1ms, 2ms, 1ms};
  hw::Clock clock(hw::ClockKind::wall);
  const auto sleep = [&](OpId op) { clock.sleep_for(durations[op.index()]); };
  const Timeline timeline = hw::run_on_threads(noted.dag, hw::dispatch(noted.dag), sleep, clock);
  const std::vector<Span> planned = virtual_spans(noted.dag, durations);
  for (std::size_t i = 0; i < durations.size(); ++i) {
    CHECK(timeline.spans[i].end - timeline.spans[i].start >= durations[i]);
    CHECK(timeline.spans[i].start >= planned[i].start);  // never early
    for (const OpId before : noted.dag.predecessors(OpId{i})) {
      CHECK(timeline.spans[i].start >= timeline.spans[before.index()].end);
    }
  }
}

TEST_CASE("host: in virtual time threads keep the list scheduler's times exactly") {
  const std::vector<Network> networks = runnable_networks();
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const std::size_t gpus = 2 + seed % 4;
    const ExecDag dag = lowering::lower(
        networks[seed % networks.size()], star_of(gpus + 1, "10 GB/s", "1us"),
        with_split_states(random_plan(networks[seed % networks.size()], gpus, 8, seed), seed));
    std::vector<Seconds> durations;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      // Whole seconds, and none for some: sums are exact in whatever order.
      durations.push_back(Seconds{static_cast<double>((i * 7919 + seed) % 97)});
    }
    CAPTURE(seed);
    CHECK(virtual_spans(dag, durations) == list_schedule(dag, durations));
  }
}

TEST_CASE("host: work is repeated until each kind has its samples, also work that takes no time") {
  hw::Clock clock(hw::ClockKind::virtual_time);
  const auto times = hw::repeat_together(
      {[&] { clock.sleep_for(2ms); }, [&] { clock.sleep_for(5ms); }, [] {}}, 3, clock);
  CHECK(times == std::vector<std::vector<Seconds>>{{2ms, 2ms, 2ms}, {5ms, 5ms, 5ms}, {0s, 0s, 0s}});
}

TEST_CASE("host: the simulator's spans are those of threads in virtual time, given its durations") {
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  const auto simulator = sim::make_simgrid_executor(cluster, *cost, {});
  const Network network = tiny_network("residual");
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const ExecDag dag = lowering::lower(network, cluster,
                                        with_split_states(random_plan(network, 2, 8, seed), seed));
    const Timeline simulated = simulator->run(dag);
    std::vector<Seconds> durations;
    // Virtual time is in nanoseconds: a million times the microseconds.
    for (const Span& span : simulated.spans) durations.push_back(1e6 * (span.end - span.start));
    const std::vector<Span> threads = virtual_spans(dag, durations);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      CAPTURE(seed);
      CAPTURE(i);
      CHECK(threads[i].start.count() / 1e6 ==
            testing::approx(simulated.spans[i].start.count()).epsilon(1e-9));
      CHECK(threads[i].end.count() / 1e6 ==
            testing::approx(simulated.spans[i].end.count()).epsilon(1e-9));
    }
  }
}

}  // namespace parsim::testing
