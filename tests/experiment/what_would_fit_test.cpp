// What is named where nothing fits, and whether its step is.
#include "experiment/what_would_fit.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "experiment/experiment.hpp"
#include "tests/support/long_tests.hpp"

namespace parsim::experiment {
namespace {

std::string advice(std::int64_t machines) {
  Request request;
  request.network = "resnet50";
  request.cluster = "nodes:" + std::to_string(machines) + "x8,device=v100-sxm2";
  request.overrides = {"devices.*.memory=400MiB"};
  request.batch = 8 * machines;
  return what_would_fit(Experiment(request), 1.0);
}

TEST_CASE("what would fit: with its step, but for so many shards that it might take minutes") {
  CHECK(advice(1).starts_with("data would fit with --zero "));
  CHECK(advice(1).find(" ms)") != std::string::npos);
  if (!testing::long_tests()) return;
  // 161 parameters on 32,768 GPUs.
  CHECK(advice(4096).starts_with("data would fit with --zero "));
  CHECK(advice(4096).find('(') == std::string::npos);
}

}  // namespace
}  // namespace parsim::experiment
