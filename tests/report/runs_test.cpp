// Tables of results, against numbers by hand.
#include "report/runs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace parsim::report {
namespace {

TEST_CASE("runs: a device's memory is in the columns that say so, by hand") {
  experiment::Request request;
  request.network = "lenet5";
  request.cluster = "star:2,device=v100-sxm2,rate=10GB/s";
  request.precision = Precision::bf16;
  request.reduce_precision = Precision::fp32;
  request.optimizer = Optimizer::adam;
  const experiment::Experiment experiment(request);
  const Document document = report_simulation(
      experiment,
      run_plan(experiment, make_plan(experiment, strategies::strategy("data", "test"))).result);
  const Table& devices = document.tables.at(1);
  const auto cell = [&](const std::string& key) {
    const auto column = std::find_if(devices.columns.begin(), devices.columns.end(),
                                     [&](const auto& known) { return known.key == key; });
    REQUIRE(column != devices.columns.end());
    return devices.rows.at(0).at(static_cast<std::size_t>(column - devices.columns.begin())).raw;
  };
  // LeNet-5 has 61,706 parameters (LeCun et al. 1998, with dense second convolution).
  constexpr int parameters = 61706;
  CHECK(cell("weights_bytes") == std::to_string(2 * parameters));
  CHECK(cell("gradients_bytes") == std::to_string(4 * parameters));
  CHECK(cell("optimizer_state_bytes") == std::to_string(12 * parameters));
}

}  // namespace
}  // namespace parsim::report
