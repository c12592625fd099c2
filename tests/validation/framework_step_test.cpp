// Steps of training scripts: what is read, sent, added up and updated, where and after what.
#include "validation/framework_step.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/notation.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/published_training.hpp"

namespace parsim {
namespace {

ExecDag plain_step(const Network& network, const Cluster& cluster) {
  const auto cost = make_tile_costs(cluster);
  StrategyInput input{network, cluster, *cost};
  input.batch = 8 * static_cast<std::int64_t>(devices_of(cluster, DeviceKind::gpu).size());
  return lower(network, cluster, plan_data(input));
}

Cluster k80s(std::size_t gpus) {
  return first_gpus(load_cluster("k80-cloud", "test"), gpus, "test");
}

/// Who sends to whom, how often; who updates, how often.
struct Counted {
  std::map<std::pair<std::int32_t, std::int32_t>, int> reads, sends;  ///< weights, gradients
  std::map<std::int32_t, int> updates;
  int kernels = 0;
};

Counted counted(const ExecDag& dag) {
  Counted count;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (const auto* transfer = std::get_if<Transfer>(&op)) {
      auto& where = transfer->slice.role == Role::weight ? count.reads : count.sends;
      ++where[{transfer->from.value, transfer->to.value}];
    }
    if (const auto* update = std::get_if<Update>(&op)) ++count.updates[update->device.value];
    if (std::holds_alternative<Compute>(op)) ++count.kernels;
  }
  return count;
}

}  // namespace

TEST_CASE("framework step: one variable on the CPU is a chain, by hand") {
  const Network network = testing::network_of("image 1x4x4; flatten; dense 10; loss");
  const Cluster cluster = k80s(1);
  const ExecDag dag = with_exchange(plain_step(network, cluster), cluster, Exchange::host, "here");
  const auto cost = make_tile_costs(cluster);
  Seconds sum{};
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (const auto* transfer = std::get_if<Transfer>(&op)) {
      // The GPU's cable, the board's and the CPU's: 12 GB/s and 500 + 500 + 100 ns.
      sum += Seconds{static_cast<double>(dag.payload(OpId{i}).value) / 12e9 + 1.1e-6};
      CHECK((transfer->from == DeviceId{1}) == (transfer->slice.role == Role::weight));
      CHECK(dag.payload(OpId{i}).value == 4 * (16 * 10 + 10));
    } else {
      sum += device_time(dag, OpId{i}, *cost).time;
    }
  }
  const double step = makespan(make_simgrid_executor(cluster, *cost, {})->run(dag)).count();
  CHECK(step <= sum.count() * (1 + 1e-9));
  // Only layers without parameters need not wait for the variable.
  double others = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    const auto op = std::get<Compute>(dag.op(OpId{i}));
    const LayerId layer = dag.work(op.work).layer;
    if (op.pass == Pass::forward && dag.network[layer].parameters.empty()) {
      others += device_time(dag, OpId{i}, *cost).time.count();
    }
  }
  CHECK(step >= sum.count() - others - 1e-12);
}

TEST_CASE("framework step: servers on the CPU read, add up and update every variable once") {
  const Network network = load_network("lenet5", {}, "test");  // five layers with parameters
  const Cluster cluster = k80s(4);                             // the CPU is device 4
  const ExecDag plain = plain_step(network, cluster);
  const Counted count = counted(with_exchange(plain, cluster, Exchange::host, "here"));
  CHECK(count.kernels == counted(plain).kernels);
  for (std::int32_t gpu = 0; gpu < 4; ++gpu) {
    CHECK(count.reads.at({4, gpu}) == 5);
    CHECK(count.sends.at({gpu, 4}) == 5);
  }
  CHECK(count.reads.size() == 4);
  CHECK(count.updates == std::map<std::int32_t, int>{{4, 5}});
  const Cluster without_cpu = load_cluster("star:2,device=k80", "test");
  CHECK_THROWS_AS(static_cast<void>(with_exchange(plain_step(network, without_cpu), without_cpu,
                                                  Exchange::host, "here")),
                  InputError);
}

TEST_CASE("framework step: variables live with the least loaded GPU, in the order of layers") {
  // 170 elements go to GPU 0, 1100 to GPU 1, 5050 to GPU 0, 510 to GPU 1: by hand.
  const Network network =
      testing::network_of("image 1x4x4; flatten; dense 10; dense 100; dense 50; dense 10; loss");
  const Cluster cluster = k80s(2);
  const ExecDag dag = with_exchange(plain_step(network, cluster), cluster, Exchange::gpus, "here");
  std::map<std::int32_t, std::vector<std::int64_t>> updated;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* update = std::get_if<Update>(&op);
    if (update != nullptr) updated[update->device.value].push_back(dag.elements(update->slice));
  }
  CHECK(updated ==
        std::map<std::int32_t, std::vector<std::int64_t>>{{0, {5050, 170}}, {1, {510, 1100}}});
  const Counted count = counted(dag);
  CHECK(count.reads == decltype(count.reads){{{0, 1}, 2}, {{1, 0}, 2}});
  CHECK(count.sends == decltype(count.sends){{{0, 1}, 2}, {{1, 0}, 2}});
}

TEST_CASE("framework step: GPUs take turns in adding up, by number of the parameter") {
  // Weights and biases: the layers' first parameters are 0, 2, 4, 6; of four GPUs 0 and 2 add up.
  const Network network =
      testing::network_of("image 1x4x4; flatten; dense 10; dense 100; dense 50; dense 10; loss");
  const Cluster cluster = k80s(4);
  const Counted count =
      counted(with_exchange(plain_step(network, cluster), cluster, Exchange::round_robin, "here"));
  CHECK(count.reads.empty());
  for (const std::int32_t adder : {0, 2}) {
    for (std::int32_t gpu = 0; gpu < 4; ++gpu) {
      if (gpu == adder) continue;
      // Two layers' gradients come and go; both directions are messages of gradients.
      const int between_adders = gpu % 2 == 0 ? 4 : 2;
      CHECK(count.sends.at({gpu, adder}) == between_adders);
      CHECK(count.sends.at({adder, gpu}) == between_adders);
    }
  }
  CHECK(count.updates == std::map<std::int32_t, int>{{0, 4}, {1, 4}, {2, 4}, {3, 4}});
}

TEST_CASE("framework step: servers on two machines get each machine's sum, and all read them") {
  const Network network =
      testing::network_of("image 1x4x4; flatten; dense 10; dense 100; dense 50; dense 10; loss");
  const Cluster cluster = load_cluster("k80-cloud-x2", "test");
  const auto cpus = devices_of(cluster, DeviceKind::cpu);
  const Counted count =
      counted(with_exchange(plain_step(network, cluster), cluster, Exchange::instances, "here"));
  // By bytes as above: two variables with each server. One sum and one variable cross for each.
  const std::int32_t a = cpus[0].value, b = cpus[1].value;
  CHECK(count.sends.at({a, b}) == 2);
  CHECK(count.sends.at({b, a}) == 2);
  CHECK(count.reads.at({a, b}) == 2);
  CHECK(count.reads.at({b, a}) == 2);
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    const bool first = cluster[gpu].node == cluster[cpus[0]].node;
    CHECK(count.reads.at({first ? a : b, gpu.value}) == 4);
  }
  CHECK(count.updates == std::map<std::int32_t, int>{{a, 4}, {b, 4}});  // two machines' sums each
}

TEST_CASE("framework step: TensorFlow's collectives wait for all kernels and use one ring") {
  const std::string header =
      "model,workload_detail,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,"
      "precision,framework,parallelism,value,unit\n";
  const auto row = [](const char* gpus) {
    return std::string("LeNet,SGD,64,Tesla P100-SXM2,NVIDIA DGX-1 (8x P100),1,") + gpus + "," +
           gpus + ",NVLink,FP32,tf_cnn_benchmarks,replicated + NCCL,1,images/s\n";
  };
  const auto claims = read_measurements(header + row("4") + row("8"), "t.csv", "t");
  const Training four(claims[0]), eight(claims[1]);
  const auto slowest = [](const Training& training) {
    double rate = 1e30;
    for (const Link& link : training.cluster().links) rate = std::min(rate, link.rate.value);
    return rate;
  };
  CHECK(slowest(four) == doctest::Approx(18e9));  // 0-1-2-3-0 is all cables
  CHECK(slowest(eight) == doctest::Approx(6e9));  // no cable from 3 to 4: over the sockets
  const ExecDag& dag = four.dag();
  CHECK(dag.optimizer == Optimizer::sgd);
  const auto cost = make_tile_costs(four.cluster());
  const Timeline timeline = make_simgrid_executor(four.cluster(), *cost, {})->run(dag);
  double kernels = 0, first = 1e30;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) == OpKind::compute) {
      kernels = std::max(kernels, timeline.spans[i].end.count());
    }
    if (dag.kind(OpId{i}) == OpKind::collective) {
      first = std::min(first, timeline.spans[i].start.count());
    }
  }
  CHECK(first >= kernels);
  CHECK(first < 1);
}

}  // namespace parsim
