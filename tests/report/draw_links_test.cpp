#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "report/page/drawings.hpp"
#include "topologies/topologies.hpp"

namespace parsim::report {
namespace {

TEST_CASE("links: the busiest link is named with the end that it sends to, by hand") {
  const Cluster cluster =
      topologies::load_cluster("star:3,device=t4,rate=10GB/s,latency=1us", "test");
  const auto table = [&](std::size_t hop) {
    std::vector<double> use(2 * cluster.links.size(), 0.1);
    use[hop] = 0.7;
    return link_table(cluster, use);
  };
  // Forwards the second link leaves its device, backwards it leads there.
  REQUIRE(cluster.links[1].a == Port::of(DeviceId{1}));
  CHECK(table(2).find("70.0\u00a0% (gpu1-switch to switch)<td>20.0") != std::string::npos);
  CHECK(table(3).find("70.0\u00a0% (gpu1-switch to gpu1)<td>20.0") != std::string::npos);
  CHECK(table(3).find("<td>3 x ") != std::string::npos);
}

}  // namespace
}  // namespace parsim::report
