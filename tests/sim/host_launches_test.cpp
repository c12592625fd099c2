#include "sim/host_launches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "core/csv.hpp"
#include "core/files.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

TEST_CASE("host launches: what comes along with a kernel") {
  Kernel kernel;
  CHECK(host_launches(kernel, 4) == 1);
  kernel.launches = 0;  // within another layer's
  CHECK(host_launches(kernel, 4) == 0);
  kernel.launches = 1;
  kernel.kind = KernelClass::backward_weights;
  CHECK(host_launches(kernel, 4) == 2);
  kernel.kind = KernelClass::memory;
  kernel.op = Operator::batch_norm;
  CHECK(host_launches(kernel, 4) == 3);
  CHECK(host_launches(kernel, 2) == 5);
  kernel.backwards = true;
  CHECK(host_launches(kernel, 2) == 3);
}

TEST_CASE("host launches: steps launch about as many kernels as in PyTorch") {
  struct Workload {
    std::string_view name, network;
    std::int64_t batch;
    Precision precision;
  };
  constexpr std::array workloads{
      Workload{"mobilenet_v2", "mobilenet_v2", 128, Precision::tf32},
      Workload{"googlenet", "googlenet", 128, Precision::tf32},
      Workload{"wide-resnet50", "wide_resnet50_2", 64, Precision::tf32},
      Workload{"resnet152", "resnet152", 32, Precision::tf32},
      Workload{"resnet18", "resnet18", 128, Precision::bf16},
      Workload{"vgg19", "vgg19", 32, Precision::bf16},
      Workload{"densenet121", "densenet121", 64, Precision::bf16},
      Workload{"gpt2-medium", "gpt:layers=24,hidden=1024,heads=16", 4, Precision::bf16}};
  // The fewest launches of a row: weights in 16 bits are not cast in every step.
  std::map<std::string, double> measured;
  const std::string path = PARSIM_SOURCE_DIR "/validation/records/h100-sxm5/pytorch.txt";
  const CsvTable table = read_csv(read_file(path, path), path);
  for (const CsvTable::Row& row : table.rows) {
    if (table.at(row, "launches").empty() || !table.at(row, "mode").starts_with("eager")) continue;
    const auto [entry, fresh] = measured.try_emplace(table.at(row, "workload"), 1e9);
    entry->second = std::min(entry->second, table.number(row, "launches"));
  }
  const Cluster cluster =
      topologies::load_cluster("star:1,device=h100-sxm5,rate=100GB/s,latency=5us", "test");
  const auto cost = make_tile_costs(cluster, {});
  for (const Workload& workload : workloads) {
    CAPTURE(workload.name);
    const Network network = networks::load_network(std::string(workload.network), {}, "test");
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = workload.batch;
    ExecDag dag = lowering::lower(network, cluster, strategies::plan_data(input));
    dag.precision = dag.reduce_precision = workload.precision;
    const double ours = launches(dag, *cost, 1).at(0);
    CHECK(std::abs(ours / measured.at(std::string(workload.name)) - 1) < 0.18);
  }
}

}  // namespace
}  // namespace parsim::sim
