#include "experiment/collective.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

const std::vector<DeviceId> four = {DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}};

TEST_CASE("collective: bytes received, by hand for four devices and 1600 bytes") {
  const auto received = [](CollectiveKind kind) {
    return bytes_moved(collective_dag(kind, four, Bytes{1600})).value;
  };
  CHECK(received(CollectiveKind::all_reduce) == 2 * 3 * 1600);
  CHECK(received(CollectiveKind::broadcast) == 3 * 1600);
  // Everyone ends with 1600 bytes, of which 400 were its own.
  CHECK(received(CollectiveKind::all_gather) == 4 * 1200);
  CHECK(received(CollectiveKind::reduce_scatter) == 4 * 1200);
  // Everyone sends 400 bytes to each of three others.
  CHECK(received(CollectiveKind::all_to_all) == 4 * 3 * 400);
}

TEST_CASE("collective: on rails, by hand and with both engines") {
  // 4 machines of 8 GPUs, 50 GB/s a card, in 2 units; 1 GiB, 1 us a link, at most 8 links.
  //
  // all-gather   8 rings, one on each rail: 31/32 GiB over 400 GB/s, or with oversubscription 4
  //              over 8 uplinks of 2 * 50 / 4 = 25 GB/s; 31 steps of 8 us
  // all-to-all   out of a machine 8 * 24/32 GiB over 400 GB/s, after 6 us; or out of a unit
  //              16 * 16/32 GiB over 200 GB/s, after 8 us
  const std::string rails = "rail:4x8,device=t4,intra=400GB/s,inter=50GB/s,unit=2,latency=1us";
  const Bytes payload{std::int64_t{1} << 30};
  const auto bytes = static_cast<double>(payload.value);
  const auto time = [&](const std::string& call, CollectiveKind kind, sim::Engine engine) {
    const Cluster cluster = topologies::load_cluster(call, "test");
    const auto cost = sim::make_constant_efficiency(cluster);
    const auto executor = sim::make_simulator(cluster, *cost, {.engine = engine});
    const std::vector<DeviceId> group = devices_of(cluster, DeviceKind::gpu);
    return makespan(executor->run(collective_dag(kind, group, payload))).count();
  };
  for (const sim::Engine engine : {sim::Engine::simgrid, sim::Engine::fast}) {
    const auto gathered = [&](const std::string& call) {
      return time(call, CollectiveKind::all_gather, engine);
    };
    const auto exchanged = [&](const std::string& call) {
      return time(call, CollectiveKind::all_to_all, engine);
    };
    const std::string narrow = rails + ",oversubscription=4";
    CHECK(gathered(rails) == testing::approx(bytes * 31 / 32 / 400e9 + 31 * 8e-6).epsilon(1e-8));
    CHECK(gathered(narrow) == testing::approx(bytes * 31 / 32 / 200e9 + 31 * 8e-6).epsilon(1e-8));
    CHECK(exchanged(rails) == testing::approx(bytes * 6 / 400e9 + 6e-6).epsilon(1e-8));
    CHECK(exchanged(narrow) == testing::approx(bytes * 8 / 200e9 + 8e-6).epsilon(1e-8));
  }
}

TEST_CASE("collective: messages to the next go both ways of every link at once") {
  // 100 MB over 25 GB/s, in each direction: 4 ms, and the route's 2 us.
  const Cluster cluster =
      topologies::load_cluster("star:4,device=v100-sxm2,rate=25GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const auto executor = sim::make_simulator(cluster, *cost, {});
  const ExecDag dag = send_receive_dag(four, Bytes{100'000'000});
  CHECK(bytes_moved(dag).value == 4 * 100'000'000);
  const CollectiveTime row =
      time_collective(dag, Bytes{100'000'000}, 1, {cluster, *cost, *executor});
  CHECK(row.time.count() == testing::approx(4e-3 + 2e-6).epsilon(1e-9));
  CHECK(row.bus_rate.value == testing::approx(100e6 / (4e-3 + 2e-6)).epsilon(1e-9));
  CHECK_THROWS_AS((void)send_receive_dag(four, Bytes{6}), InputError);
}

TEST_CASE("collective: a size that is no whole number of elements is refused") {
  CHECK_THROWS_WITH_AS((void)collective_dag(CollectiveKind::all_reduce, four, Bytes{6}),
                       "--size: 6 B; accepted: a positive multiple of 4 B", InputError);
  // What four devices send is counted in 64 bits.
  const Bytes most{std::int64_t{1} << 59};
  CHECK_NOTHROW((void)collective_dag(CollectiveKind::all_reduce, four, most));
  CHECK_THROWS_WITH_AS((void)collective_dag(CollectiveKind::all_reduce, four, 2 * most),
                       "--size: 1152921504606846976 B on 4 devices; accepted: at most "
                       "576460752303423488 B",
                       InputError);
}

TEST_CASE("collective: two elements over four devices leave two without a share") {
  // all-to-all: every device sends element 0 to device 0 and element 1 to device 1, 4 bytes each,
  // and what it sends to itself does not travel.
  const auto received = [](CollectiveKind kind) {
    return bytes_moved(collective_dag(kind, four, Bytes{8})).value;
  };
  CHECK(received(CollectiveKind::all_to_all) == 2 * 3 * 4);
  CHECK(received(CollectiveKind::all_gather) == 3 * 8);
}

TEST_CASE("collective: a range of sizes doubles, and stops at the last") {
  CHECK(parse_sizes("8B..64B") == std::vector<Bytes>{{8}, {16}, {32}, {64}});
  CHECK(parse_sizes("12B..64B") == std::vector<Bytes>{{12}, {24}, {48}});
  CHECK(parse_sizes("1KiB..1KiB") == std::vector<Bytes>{{1024}});
  CHECK(parse_sizes("8B..8GiB").size() == 31);
}

}  // namespace
}  // namespace parsim::experiment
