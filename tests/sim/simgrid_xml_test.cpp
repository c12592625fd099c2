// The platform files that parsim writes, loaded by SimGrid itself.
#include <doctest/doctest.h>
#include <simgrid/plugins/energy.h>
#include <xbt/log.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "core/routes.hpp"
#include "sim/child.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

/// Latency and slowest rate of the way between all pairs of devices, as SimGrid sees them.
struct Seen {
  std::vector<double> latencies, rates;
};

Seen loaded_by_simgrid(const Cluster& cluster) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.folder() + "/platform.xml";
  std::ofstream(path) << topologies::simgrid_xml(cluster, "test");
  const std::size_t count = cluster.devices.size();
  Seen seen{std::vector<double>(count * count), std::vector<double>(count * count)};
  const std::array results{bytes_of(seen.latencies), bytes_of(seen.rates)};
  run_in_child(
      [&] {
        xbt_log_control_set("root.thres:error");
        simgrid::s4u::Engine engine("test");
        engine.load_platform(path);
        for (std::size_t a = 0; a < count; ++a) {
          for (std::size_t b = 0; b < count; ++b) {
            if (a == b) continue;
            std::vector<simgrid::s4u::Link*> links;
            double latency = 0, rate = std::numeric_limits<double>::infinity();
            engine.host_by_name(cluster.devices[a].name)
                ->route_to(engine.host_by_name(cluster.devices[b].name), links, &latency);
            for (const simgrid::s4u::Link* link : links) {
              rate = std::min(rate, link->get_bandwidth());
            }
            seen.latencies[a * count + b] = latency;
            seen.rates[a * count + b] = rate;
          }
        }
      },
      results);
  return seen;
}

TEST_CASE("simgrid xml: SimGrid loads it and goes the same ways") {
  for (const std::string call :
       {"dgx-v100", "mixed-v100-t4", "nodes:2x4,device=t4,intra=100GB/s,inter=12GB/s",
        "torus:3x3,device=t4"}) {
    CAPTURE(call);
    const Cluster cluster = topologies::load_cluster(call, "test");
    const Seen seen = loaded_by_simgrid(cluster);
    Routes routes(cluster);
    const std::size_t count = cluster.devices.size();
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        if (a == b) continue;
        const Route& way = routes.between(DeviceId{a}, DeviceId{b});
        CHECK(seen.latencies[a * count + b] == testing::approx(way.latency.count()));
        CHECK(seen.rates[a * count + b] == testing::approx(way.rate.value));
      }
    }
  }
}

TEST_CASE("simgrid xml: SimGrid's link energy plugin knows the powers, by hand for one transfer") {
  Cluster cluster = topologies::load_cluster("star:3,device=t4,rate=1GB/s,latency=0s", "test");
  for (Link& link : cluster.links) link.power = {Watts{10}, Watts{2}};
  const testing::TemporaryFolder folder;
  const std::string path = folder.folder() + "/platform.xml";
  std::ofstream(path) << topologies::simgrid_xml(cluster, "test");
  std::vector<double> found(2);
  run_in_child(
      [&] {
        xbt_log_control_set("root.thres:error");
        simgrid::s4u::Engine engine("test");
        sg_link_energy_plugin_init();
        for (const std::string& setting : simgrid_settings()) engine.set_config(setting);
        engine.load_platform(path);
        const auto comm = simgrid::s4u::Comm::sendto_init();
        comm->set_payload_size(500'000'000);
        comm->set_source(engine.host_by_name(cluster.devices[0].name));
        comm->set_destination(engine.host_by_name(cluster.devices[2].name));
        engine.run();
        found[0] = engine.get_clock();
        for (const simgrid::s4u::Link* link : engine.get_all_links()) {
          if (link->get_property("wattage_range") != nullptr) {
            found[1] += sg_link_get_consumed_energy(link);
          }
        }
      },
      std::array{bytes_of(found)});
  // Half a second at 1 GB/s: six directions idle at 1 W, two of them carry at 5 W.
  CHECK(found[0] == testing::approx(0.5));
  CHECK(found[1] == testing::approx(0.5 * (4 * 1 + 2 * 5)));
}

TEST_CASE("simgrid xml: SimGrid reads hostile names as they are") {
  Cluster cluster = topologies::load_cluster("star:2,device=t4,rate=1GB/s,latency=1us", "test");
  cluster.devices[0].name = "<script>alert(\"1\")</script> & 'more'";
  cluster.devices[1].name = "Zürich ]]>";
  cluster.links[0].name = "a--b";
  const Seen seen = loaded_by_simgrid(cluster);
  CHECK(seen.rates[1] == 1e9);
  CHECK(seen.latencies[2] == testing::approx(2e-6));
}

}  // namespace
}  // namespace parsim::sim
