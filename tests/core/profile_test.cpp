#include "core/profile.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

Profile small_profile() {
  Profile profile;
  Machine& machine = profile.machine;
  machine.backend = "host";
  machine.name = "box";
  machine.versions = {{"driver", "1.2"}, {"library", "3"}};
  machine.clocks = "fixed";
  Cluster star = star_of({test_device("fast", "10 TFLOP/s"), test_device("slow", "4 TFLOP/s")},
                         "10 GB/s", "1us");
  machine.cluster.name = "box";
  machine.cluster.nodes = {{"node"}};
  for (std::size_t d = 0; d < 2; ++d) {
    DeviceModel model = star.models[d];
    model.provenance = {{"*", Label::guessed, "asked of the device by parsim-hw"}};
    machine.cluster.models.push_back(model);
    Device device = star.devices[d];
    device.node = NodeId{0};
    machine.cluster.devices.push_back(device);
  }
  connect_as_star(machine, {{BytesPerSecond{1e9}, 1us}, {BytesPerSecond{2e9}, 2us}});
  profile.launch = {5us, 4us, 6us, 9};
  const Conv conv{8, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 1, true};
  profile.kernels = {{"fast",
                      conv,
                      {image_shape(4, 6, 6)},
                      {Region{{0, 2}, {0, 8}, {0, 3}, {0, 6}}, {}},
                      Pass::backward_data,
                      Precision::bf16,
                      {1ms, 0.9ms, 1.1ms, 30}}};
  profile.memory = {{"slow", Bytes{4096}, {20us, 19us, 22us, 30}}};
  profile.messages = {
      {"all-reduce", {DeviceId{0}, DeviceId{1}}, Bytes{1 << 20}, {1ms, 1ms, 1ms, 3}}};
  return profile;
}

Part part_of_conv(std::int64_t from_row) {
  return {Region{{0, 2}, {0, 8}, {from_row, from_row + 2}, {0, 6}}, {}};
}

}  // namespace

TEST_CASE("profile: a file is read back equal") {
  const Profile profile = small_profile();
  CHECK(profile_from_json(to_json(profile), "p.json") == profile);
  CHECK(to_json(profile).find("interference") == std::string::npos);  // as it always was
  Profile with_interference = profile;
  with_interference.interference.set(Activity::tensor, Activity::communication, 1.25);
  with_interference.interference.set(Activity::communication, Activity::memory, 2);
  CHECK(profile_from_json(to_json(with_interference), "p.json") == with_interference);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = to_json(with_interference);
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    CHECK_THROWS_AS((void)profile_from_json(text.replace(at, from.size(), to), "p.json"),
                    InputError);
  };
  with_interference.interference_samples = {
      {"fast", 0, {1ms, 1ms, 1ms, 9}, {1.25ms, 1.25ms, 1.3ms, 9}},
      {"slow", 3, {1ms, 1ms, 1ms, 9}, {2ms, 2ms, 2ms, 9}}};
  with_interference.links = {{DeviceId{0}, DeviceId{1}, 5us, BytesPerSecond{1e9}, 0.02}};
  CHECK(profile_from_json(to_json(with_interference), "p.json") == with_interference);
  CHECK(interference_of(with_interference.interference_samples) == with_interference.interference);
  refused("\"pair\": \"communication/memory", "\"pair\": \"memory/tensor");
  refused("communication/memory", "memory/tensor");
  refused("1.25", "0.75");
  CHECK(machine_from_json(to_json(profile.machine), "m.json") == profile.machine);
  const Measurements measurements{profile.machine,
                                  {{"net",
                                    "data",
                                    "",
                                    true,
                                    {1ms, 1ms, 1ms, 9},
                                    {2ms, 2ms, 2ms, 9},
                                    {{{0us, 3us}}, {}},
                                    {4096, 0},
                                    "batch 8, fp32, adam"},
                                   {"net", "model", "gpu0 lacks memory", false, {}, {}, {}, {}}}};
  CHECK(measurements_from_json(to_json(measurements), "r.json") == measurements);
  Measurements timeless = measurements;
  for (const Seconds step : {Seconds{0}, Seconds{5e-324}}) {
    timeless.runs[0].step.median = step;
    CHECK(testing::refusal_of([&] {
            return measurements_from_json(to_json(timeless), "r.json");
          }).starts_with("r.json:/runs/0/step/median_s: "));
  }
}

TEST_CASE("profile: cards of compute capability 8.9 and newer multiply FP8 twice as fast as fp16") {
  for (const auto& [architecture, factor] :
       {std::pair{"8.0", 0}, std::pair{"8.9", 2}, std::pair{"9.0", 2}, std::pair{"10.0", 2},
        std::pair{"", 0}}) {
    Profile profile = small_profile();
    profile.machine.cluster.models[0].architecture = architecture;
    const Profile read = profile_from_json(to_json(profile), "p.json");
    const DeviceModel& model = read.machine.cluster.models[0];
    CAPTURE(architecture);
    CHECK(model.fp8_peak == factor * model.peak_at(Precision::fp16));
  }
}

TEST_CASE("profile: memory that devices share is read back equal, and refused where it cannot be") {
  Profile profile = small_profile();
  const auto part = [](int device, Seconds alone, Seconds together) {
    return MemoryPart{
        DeviceId{device}, {alone, alone, alone, 9}, {together, together, together, 9}};
  };
  profile.common_memory = {{Bytes{6000}, {part(0, 1us, 1.5us), part(1, 2us, 3us)}}};
  const std::string text = to_json(profile);
  CHECK(profile_from_json(text, "p.json") == profile);
  CHECK(profile.common_memory[0].rate().value == testing::approx(6e9));
  CHECK(profile.common_memory[0].limits());
  CHECK_FALSE(CommonMemory{Bytes{6000}, {part(0, 1us, 1us), part(1, 2us, 2us)}}.limits());
  const auto refused = [&](const std::string& from, const std::string& to, const char* why) {
    const std::size_t at = text.find(from, text.find("common_memory"));
    REQUIRE(at != std::string::npos);
    std::string bad = text;
    CHECK_THROWS_WITH_AS((void)profile_from_json(bad.replace(at, from.size(), to), "p.json"),
                         doctest::Contains(why), InputError);
  };
  refused("\"device\": 1", "\"device\": 2", "parts/1/device: 2; accepted: 0 to 1");
  refused("\"device\": 1", "\"device\": 0", "parts/1/device: 0; accepted: each device once");
  refused("\"median_s\": 1e-06", "\"median_s\": 0", "alone/median_s: 0; accepted: a number");
  refused("6000", "0", "touched_bytes");
}

TEST_CASE("profile: a factor is the median of its samples, where quartiles do not overlap") {
  const auto sample = [](std::size_t pair, Seconds during, Seconds low) {
    return InterferenceSample{"fast", pair, {1ms, 0.9ms, 1.1ms, 9}, {during, low, during, 9}};
  };
  CHECK_FALSE(interference_of({}).any());
  // 1.2 with a quartile that lies among those of the time alone is no slowdown.
  CHECK_FALSE(interference_of({sample(1, 1.2ms, 1.05ms)}).any());
  CHECK_FALSE(interference_of({sample(1, 0.5ms, 0.5ms)}).any());
  Interference expected;
  expected.set(Activity::memory, Activity::communication, 1.5);
  expected.set(Activity::communication, Activity::tensor, 1.25);  // the middle of 1 and 1.5
  CHECK(interference_of({sample(1, 3ms, 3ms), sample(1, 1.5ms, 1.4ms), sample(1, 1.2ms, 1.05ms),
                         sample(2, 1.5ms, 1.4ms), sample(2, 1ms, 1ms)}) == expected);
}

TEST_CASE("profile: a part outside its layer is refused with its place") {
  std::string text = to_json(small_profile());
  text.replace(text.find("\"end\": 3"), 8, "\"end\": 9");
  CHECK_THROWS_WITH_AS(static_cast<void>(profile_from_json(text, "p.json")),
                       doctest::Contains("p.json:/kernels/0/out"), InputError);
}

TEST_CASE("profile: spreads are medians and quartiles, of few samples only the median") {
  const Spread three = spread_of({3s, 1s, 2s});
  CHECK(three == Spread{2s, 2s, 2s, 3});
  const Spread nine = spread_of({9s, 1s, 2s, 3s, 8s, 5s, 4s, 7s, 6s});
  CHECK(nine == Spread{5s, 3s, 7s, 9});
  CHECK(spread_of({1s, 2s, 3s, 5s}).median == 2.5s);
}

TEST_CASE("profile: a difference of backend, machine or library version is named") {
  const Machine here = small_profile().machine;
  CHECK(difference(here, here) == "");
  Machine other = here;
  other.versions[1].version = "4";
  CHECK(difference(other, here) == "library 4, here 3");
  other = here;
  other.name = "tower";
  CHECK(difference(other, here) == "tower, here box");
  other = here;
  other.backend = "cuda";
  CHECK(difference(other, here) == "backend cuda, here host");
}

TEST_CASE("profile: kernels are alike if their extents are, wherever they lie") {
  const LayerKind conv = Conv{8, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 1, true};
  const std::vector<Shape> inputs{image_shape(4, 12, 6)};
  const Shape out = output_shape(conv, inputs, "test");
  const auto of = [&](std::int64_t row, Pass pass, Precision precision) {
    return kernel_signature(conv, inputs, out, part_of_conv(row), pass, precision);
  };
  const auto middle = of(4, Pass::forward, Precision::fp32);
  CHECK(of(6, Pass::forward, Precision::fp32) == middle);
  CHECK(of(4, Pass::recompute, Precision::fp32) == middle);
  CHECK(of(0, Pass::forward, Precision::fp32) != middle);  // a row of padding is not read
  CHECK(of(4, Pass::backward, Precision::fp32) != middle);
  CHECK(of(4, Pass::forward, Precision::bf16) != middle);
}

}  // namespace parsim
