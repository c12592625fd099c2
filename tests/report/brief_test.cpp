// The first answers of a page, by hand.
#include "report/page/brief.hpp"

#include <doctest/doctest.h>

#include <string>

namespace parsim::report {
namespace {

experiment::DeviceResult gpu(const std::string& model, double compute, double exposed,
                             double idle) {
  experiment::DeviceResult device;
  device.kind = DeviceKind::gpu;
  device.model = model;
  device.use = {Seconds{compute}, Seconds{exposed}, Seconds{idle}};
  return device;
}

TEST_CASE("brief: what bounds a step is the type that computes most, and waits are in parts") {
  StrategySection section;
  section.result.step_time = Seconds{10};
  section.result.devices = {gpu("v100", 2, 3, 5), gpu("a100", 8, 1, 1), gpu("a100", 7, 1, 2),
                            gpu("a100", 0, 0, 10)};
  const auto part = [&](experiment::StepPart which) -> Seconds& {
    return section.parts[static_cast<std::size_t>(which)];
  };
  // Means of the three that compute: 17/30, 5/30, 8/30; the one without work is left out.
  part(experiment::StepPart::bubbles) = Seconds{0.92};
  part(experiment::StepPart::imbalance) = Seconds{1.75};
  CHECK(what_bounds(section) ==
        "Computing on the a100: they compute 75 % of the step, the v100 20 %; the others wait "
        "for them. The average GPU that takes part computes 57 %, communicates without computing "
        "17 % and waits 27 % (9.2 % pipeline bubbles, 18 % for GPUs with more work).");
  // Types that compute about as long bound it together.
  section.result.devices = {gpu("v100", 7.2, 1, 1.8), gpu("a100", 7.5, 1, 1.5)};
  CHECK(what_bounds(section).starts_with(
      "Computing on the GPUs: the a100 compute 75 % of the step, the v100 72 %. The average GPU "));
  section.result.devices = {gpu("a100", 2, 6, 2), gpu("a100", 2, 6, 2)};
  CHECK(what_bounds(section).starts_with("Communication. The average GPU that takes part"));
  section.result.devices = {gpu("a100", 2, 1, 7)};
  CHECK(what_bounds(section).starts_with("Waiting for other GPUs. "));
}

}  // namespace
}  // namespace parsim::report
