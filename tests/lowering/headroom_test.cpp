// How much of a memory plans may fill, and that all callers use the same rule.
#include "lowering/headroom.hpp"

#include <doctest/doctest.h>

#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

TEST_CASE("headroom: a share or bytes stay free, tight is above 90 % of what is left, by hand") {
  const lowering::Headroom tenth{0.1, {}};
  CHECK(tenth.of(Bytes{1000}) == Bytes{100});
  CHECK(tenth.usable(Bytes{1000}) == Bytes{900});
  CHECK(tenth.verdict(Bytes{810}, Bytes{1000}) == lowering::Verdict::fits);
  CHECK(tenth.verdict(Bytes{811}, Bytes{1000}) == lowering::Verdict::tight);
  CHECK(tenth.verdict(Bytes{900}, Bytes{1000}) == lowering::Verdict::tight);
  CHECK(tenth.verdict(Bytes{901}, Bytes{1000}) == lowering::Verdict::over);
  const lowering::Headroom bytes{0, Bytes{300}};
  CHECK(bytes.usable(Bytes{1000}) == Bytes{700});
  CHECK(bytes.verdict(Bytes{630}, Bytes{1000}) == lowering::Verdict::fits);
  CHECK(bytes.verdict(Bytes{700}, Bytes{1000}) == lowering::Verdict::tight);
  // More than there is: a device that has nothing to do holds nothing.
  CHECK(bytes.usable(Bytes{200}) == Bytes{0});
  CHECK(bytes.verdict(Bytes{0}, Bytes{200}) == lowering::Verdict::fits);
  CHECK(bytes.verdict(Bytes{1}, Bytes{200}) == lowering::Verdict::over);
  CHECK(lowering::Headroom{}.of(Bytes{100}) == Bytes{6});
}

TEST_CASE("headroom: a plan fits if and only if what is left holds it") {
  World world("alexnet", "star:2,device=p100-sxm2,rate=10GB/s,latency=1us");
  strategies::StrategyInput input = world.input(64);
  const Plan plan = strategies::plan_data(input);
  const Bytes needed = strategies::memory_use(input, plan)[0].total();
  for (Device& device : world.cluster.devices) device.memory = needed + Bytes{1000};
  for (const std::int64_t free : {0, 1000}) {
    input.headroom.bytes = Bytes{free};
    CHECK(strategies::overcommit(input, plan) == 0);
  }
  input.headroom.bytes = Bytes{1001};
  CHECK(strategies::overcommit(input, plan) == 1);
  CHECK_FALSE(strategies::fits(input, plan));
}

}  // namespace
}  // namespace parsim::testing
