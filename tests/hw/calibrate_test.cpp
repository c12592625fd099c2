#include <doctest/doctest.h>

#include <cmath>

#include "core/errors.hpp"
#include "hw/hardware.hpp"
#include "hw/places.hpp"
#include "strategies/lower.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// Hardware whose operations take their place in the DAG in milliseconds; nothing sleeps.
hw::Hardware numbered(std::size_t& asked) {
  hw::Hardware hardware = hw::host_hardware({64, 32, 64});
  hardware.alone = [&asked](const ExecDag&, const std::vector<OpId>& ops, int samples) {
    std::vector<Spread> times;
    for (const OpId op : ops) {
      const Seconds time{1e-3 * (op.value + 1)};
      times.push_back({time, time, time, samples});
    }
    asked += ops.size();
    return times;
  };
  return hardware;
}

}  // namespace

TEST_CASE("calibrate: every kernel, copy and message is measured once, however often it occurs") {
  const Network network = tiny_network("residual");
  const ExecDag dag = lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 3));
  std::size_t once = 0;
  const Profile profile = hw::calibrate(numbered(once), {dag}, 5);
  std::size_t twice = 0;
  const Profile again = hw::calibrate(numbered(twice), {dag, dag}, 5);
  CHECK(once == twice);
  CHECK(again == profile);
  CHECK(once < dag.size());
  CHECK(profile.kernels.size() + profile.memory.size() + profile.messages.size() <= once);
  for (const KernelSample& sample : profile.kernels) CHECK(sample.time.samples == 5);
}

TEST_CASE("calibrate: the paced host's formula by hand") {
  const hw::Hardware host = hw::host_hardware({64, 32});
  const Network net = network_of("x: vector 1000; d: dense 500; loss");
  const ExecDag dag = lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 100));
  // Forward: 2 · 100 · 1000 · 500 = 1e8 FLOPs at 5 GFLOP/s are 20 ms, and 1 ms overhead.
  CHECK(hw::pace(dag, OpId{0}, host.machine).count() == doctest::Approx(0.021));
  const NotedDag noted = dag_of("a: transfer d0->d1 25MB; b: all-reduce d0,d1 25MB");
  // 25 MB at 250 MB/s are 100 ms; two links of 0.25 ms. A ring of two sends 2 halves.
  CHECK(hw::pace(noted.dag, OpId{0}, host.machine).count() == doctest::Approx(0.1005));
  CHECK(hw::pace(noted.dag, OpId{1}, host.machine).count() == doctest::Approx(0.101));
}

TEST_CASE("calibrate: more devices than there are, and more memory, are refused") {
  const hw::Hardware host = hw::host_hardware({64});
  const Network net = tiny_network("plain");
  const ExecDag wide = lower(net, star_of(4, "10 GB/s", "1us"), random_plan(net, 3, 8, 12));
  CHECK_THROWS_WITH_AS(hw::check_fits(wide, host.machine),
                       doctest::Contains("devices, paced host has 1"), hw::HardwareError);
  hw::Hardware small = hw::host_hardware({64});
  small.machine.cluster.devices[0].memory = Bytes{1000};
  const ExecDag dag = lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 8));
  CHECK_THROWS_AS(hw::check_fits(dag, small.machine), hw::MemoryError);
  const Measurements runs = hw::measure(small, {dag}, 1);
  REQUIRE(runs.runs.size() == 1);
  CHECK(runs.runs[0].fits == false);
  CHECK(runs.runs[0].error.starts_with("host0 needs "));
}

}  // namespace parsim::testing
