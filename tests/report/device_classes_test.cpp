// Equal devices are listed once with their count, and others are not.
#include "report/device_classes.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace parsim::report {
namespace {

experiment::DeviceResult device(const std::string& name, double compute, std::int64_t weights) {
  experiment::DeviceResult one;
  one.name = name;
  one.model = "v100-sxm2";
  one.capacity = Bytes{16};
  one.use.compute = Seconds{compute};
  one.memory.weights = Bytes{weights};
  return one;
}

TEST_CASE("devices: equal ones are one class, by their first device") {
  const std::vector<experiment::DeviceResult> devices = {device("a", 1, 5), device("b", 2, 5),
                                                         device("c", 1 + 1e-13, 5),
                                                         device("d", 1, 6), device("e", 2, 5)};
  const std::vector<DeviceClass> classes = device_classes(devices);
  REQUIRE(classes.size() == 3);
  CHECK(classes[0].first.name == "a");
  CHECK(classes[0].count == 2);
  CHECK(classes[1].first.name == "b");
  CHECK(classes[1].count == 2);
  CHECK(classes[2].first.name == "d");
  CHECK(classes[2].count == 1);
}

TEST_CASE("devices: tables of more than 64 list classes, unless all are asked for") {
  experiment::RunResult result;
  for (int i = 0; i < 64; ++i) result.devices.push_back(device(std::to_string(i), 1, 5));
  CHECK(listed_devices(result).size() == 64);
  result.device_rows = experiment::DeviceRows::classes;
  CHECK(listed_devices(result).size() == 1);
  result.device_rows.reset();
  result.devices.push_back(device("64", 1, 5));
  REQUIRE(listed_devices(result).size() == 1);
  CHECK(listed_devices(result)[0].count == 65);
  result.device_rows = experiment::DeviceRows::all;
  CHECK(listed_devices(result).size() == 65);
}

}  // namespace
}  // namespace parsim::report
