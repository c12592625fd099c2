// Layers with thousands of operands are lowered in time that grows with their number.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <vector>

#include "core/network.hpp"
#include "lowering/lower.hpp"
#include "tests/support/random_plans.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

/// Processor time to lower a sum of so many operands; the least of three tries.
double seconds_for(std::size_t operands) {
  Network network;
  const LayerId x = add_input(network, "x", vector_shape(4));
  std::vector<LayerId> all;
  for (std::size_t i = 0; i < operands; ++i)
    all.push_back(add_layer(network, "r", Activation{"relu"}, {x}));
  add_layer(network, "sum", Combine{"add"}, all);
  const Cluster cluster = topologies::load_cluster("star:2,device=t4,rate=12GB/s", "test");
  const Plan plan = single_device_plan(network, 8);
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    CHECK(lowering::lower(network, cluster, plan).size() > operands);
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST_CASE("lowering: four times the operands of a sum take less than nine times as long") {
  const double few = seconds_for(1500), many = seconds_for(6000);
  CAPTURE(few);
  CAPTURE(many);
  CHECK(many < 9 * few);
}

}  // namespace
}  // namespace parsim::testing
