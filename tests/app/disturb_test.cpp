#include "app/disturb.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

namespace parsim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

TEST_CASE("disturb: devices for a while, devices for good, and links") {
  const Cluster cluster = star_of(3, "1 GB/s", "1 us");
  const std::string device = cluster.devices[1].name, link = cluster.links[2].name;
  CHECK(parse_slow(cluster, {}).factors.empty());
  const Stragglers all = parse_slow(cluster, {cluster.devices[0].name + "=1.5", device + "=3@4ms",
                                              device + "=2@1e-3s-2ms", link + "=4"});
  CHECK(all.factors == std::vector<double>{1.5, 1, 1});
  CHECK(all.slow.of(DeviceId{0}).empty());
  constexpr auto ever = Seconds{std::numeric_limits<double>::infinity()};
  CHECK(all.slow.of(DeviceId{1}).periods() ==
        std::vector<SlowPeriod>{{1ms, 2ms, 2}, {4ms, ever, 3}});
  CHECK(all.slow.of(LinkId{2}).periods() == std::vector<SlowPeriod>{{0s, ever, 4}});
  CHECK(all.others ==
        std::vector<std::string>{device + "=3@4ms", device + "=2@1e-3s-2ms", link + "=4"});
}

TEST_CASE("disturb: a name that is a device and a link is refused") {
  Cluster cluster = star_of(2, "1 GB/s", "1 us");
  cluster.links[1].name = cluster.devices[0].name;
  CHECK_THROWS_AS((void)parse_slow(cluster, {cluster.devices[0].name + "=2"}), InputError);
}

}  // namespace
}  // namespace parsim
