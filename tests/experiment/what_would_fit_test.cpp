// What is named where nothing fits, and whether its step is.
#include "experiment/what_would_fit.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "experiment/experiment.hpp"

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

TEST_CASE("what would fit: with its step, also for thousands of GPUs") {
  for (const std::int64_t machines : {1, 512}) {
    const std::string found = advice(machines);
    CAPTURE(found);
    CHECK(found.starts_with("data would fit with --zero "));
    CHECK(found.find(" ms)") != std::string::npos);
  }
}

}  // namespace
}  // namespace parsim::experiment
