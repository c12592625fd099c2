#include "core/ids.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <unordered_set>

using namespace parsim;

TEST_CASE("ids: a default id names nothing, others index their vector") {
  CHECK_FALSE(LayerId{}.valid());
  CHECK(LayerId{0}.valid());
  CHECK(DeviceId{std::size_t{7}}.index() == 7);
  CHECK(DeviceId{std::size_t{7}} == DeviceId{7});
  CHECK(DeviceId{3} < DeviceId{4});
}

TEST_CASE("ids: ids of different things do not mix") {
  CHECK_FALSE(std::is_convertible_v<LayerId, DeviceId>);
  CHECK_FALSE(std::is_constructible_v<LayerId, DeviceId>);
  CHECK_FALSE(std::is_convertible_v<int, LayerId>);
}

TEST_CASE("ids: equal ids hash alike") {
  const std::unordered_set<OpId> seen{OpId{1}, OpId{2}, OpId{1}};
  CHECK(seen.size() == 2);
  CHECK(seen.contains(OpId{std::size_t{2}}));
}
