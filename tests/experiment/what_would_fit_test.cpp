// What is named where nothing fits, and whether its step is.
#include "experiment/what_would_fit.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "experiment/experiment.hpp"
#include "strategies/buckets.hpp"

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

// Two blocks of 201 million weights in 16 bits, and their gradients in 32, take 2.4 GB, two buckets
// a third.
TEST_CASE("what would fit: smaller buckets than blocks, where these are what does not fit") {
  const auto advice_with = [](const std::string& memory, std::optional<Bytes> bucket) {
    Request request;
    request.network = "gpt:layers=8,hidden=4096,heads=32,seq_length=128,vocab_size=1000";
    request.cluster = "nodes:2x8,device=a100-sxm4-80";
    request.overrides = {"devices.*.memory=" + memory};
    request.batch = 16;
    request.optimizer = Optimizer::adam;
    request.precision = Precision::bf16;
    request.bucket = bucket;
    return what_would_fit(Experiment(request), 1.0);
  };
  const std::string found = advice_with("3.75GiB", {});
  CHECK(found.starts_with("data would fit with --zero 3 --bucket 25MiB ("));
  CHECK(advice_with("4.5GiB", {}).starts_with("data would fit with --zero 3 ("));
  CHECK(
      advice_with("3.75GiB", strategies::ddp_bucket).starts_with("data would fit with --zero 3 ("));
}

}  // namespace
}  // namespace parsim::experiment
