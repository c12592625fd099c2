// How surely a plan is the fastest, in words.
#include "report/page/certainty.hpp"

#include <doctest/doctest.h>

#include <string>

#include "report/context.hpp"

namespace parsim::report {
namespace {

/// A pipeline of two stages that uses so much of 100 bytes.
experiment::RunResult pipeline(const std::string& name, double step, double probability,
                               std::int32_t zero, std::int64_t used) {
  experiment::RunResult result;
  result.strategy = name;
  result.step_time = Seconds{step};
  result.interval = {0.8, 1.4};
  result.probability_fastest = probability;
  result.degrees.zero = zero;
  result.stages.resize(2);
  result.stages[0].devices = {DeviceId{0}};
  result.stages[1].devices = {DeviceId{1}};
  experiment::DeviceResult device;
  device.kind = DeviceKind::gpu;
  device.capacity = Bytes{100};
  device.memory.weights = Bytes{used};
  result.devices = {device};
  return result;
}

TEST_CASE("certainty: pipelines with the same stages are one answer, ZeRO another") {
  const experiment::RunResult best = pipeline("best", 7.40, 0.53, 1, 58);
  const experiment::RunResult tensor = pipeline("tensor", 7.41, 0.47, 0, 89);
  experiment::RunResult hybrid = pipeline("hybrid", 9.86, 0.0, 0, 30);
  hybrid.stages[1].devices = {DeviceId{2}};
  CHECK(who_is_fastest({&best, &tensor}) ==
        "This split into stages is 100 % likely to be the fastest of these plans. With these "
        "stages, ZeRO 1 (53 %) or no ZeRO (47 %) is a tie in time. Of a GPU's memory, ZeRO 1 needs "
        "58 %, no ZeRO needs 89 %. ");
  // 9.86 s x 0.8 is less than 7.40 s x 1.4.
  CHECK(who_is_fastest({&best, &tensor, &hybrid})
            .ends_with("Intervals of other plans overlap, but plans share most of the error: their "
                       "order is surer than their times. "));
  CHECK(who_is_fastest({&best}).empty());
  CHECK(same_stages(best, tensor) == " (the same stages without ZeRO)");
  CHECK(same_stages(tensor, best) == " (the same stages with ZeRO 1)");
  CHECK(same_stages(best, hybrid).empty());
}

TEST_CASE("certainty: other stages are rivals, and a difference that can be measured is open") {
  const experiment::RunResult best = pipeline("best", 7.0, 0.5, 1, 58);
  const experiment::RunResult tensor = pipeline("tensor", 7.1, 0.3, 0, 89);
  experiment::RunResult hybrid = pipeline("hybrid", 7.2, 0.2, 1, 30);
  hybrid.stages[1].devices = {DeviceId{2}};
  const std::string words = who_is_fastest({&best, &tensor, &hybrid});
  CHECK(
      words.starts_with("This split into stages is 80 % likely to be the fastest of these plans; "
                        "it may also be hybrid (20 %). "));
  CHECK(words.find("ZeRO 1 (50 %) or no ZeRO (30 %) is open") != std::string::npos);
  CHECK(words.find("overlap") == std::string::npos);
  // Without pipelines no stages are compared.
  experiment::RunResult one = best, other = tensor;
  one.stages.resize(1);
  other.stages.resize(1);
  CHECK(who_is_fastest({&one, &other}) ==
        "50 % likely to be the fastest of these plans; it may also be tensor (30 %). ");
}

}  // namespace
}  // namespace parsim::report
