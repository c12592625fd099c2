// Layer times in other planners' files, by hand.
#include "experiment/planner_times.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

using What = LayerTime::What;

const PlannerSetting setting{"v100-sxm2", Precision::fp16, 32};

void check_time(const LayerTime& time, What what, std::int64_t samples, std::size_t group,
                double forward, double backward) {
  CHECK(time.what == what);
  CHECK(time.samples == samples);
  CHECK(time.group == group);
  CHECK(time.forward.count() == testing::approx(forward));
  CHECK(time.backward.count() == testing::approx(backward));
  CHECK(time.device == "v100-sxm2");
  CHECK(time.precision == Precision::fp16);
}

/// Four layers, of which two are blocks; "10" comes after "9" as a number, not as a text.
constexpr const char* sailor = R"({"2": {"4": {
  "0": [0.001, 0.002, 0.1], "9": [0.010, 0.020, 0.1], "10": [0.030, 0.040, 0.1],
  "11": [0.003, 0.005, 0.1]}}})";

TEST_CASE("planner times: Sailor's samples, groups and layers") {
  const auto times = read_planner_times(sailor, "s.json", setting);
  REQUIRE(times.size() == 3);
  check_time(times[0], What::before, 2, 4, 0.001, 0.002);
  check_time(times[1], What::block, 2, 4, 0.020, 0.030);
  check_time(times[2], What::after, 2, 4, 0.003, 0.005);
}

TEST_CASE("planner times: Metis' milliseconds, forward and backward together") {
  const std::string text =
      R"({"model": {"num_layers": 4}, "execution_time": {"total_time_ms": 99,
          "layer_compute_total_ms": [3, 30, 60, 6]}})";
  const auto times = read_planner_times(text, "a/DeviceType.V100_tp2_bs16.json", setting);
  REQUIRE(times.size() == 3);
  check_time(times[0], What::before, 16, 2, 0.001, 0.002);
  check_time(times[1], What::block, 16, 2, 0.015, 0.030);
  check_time(times[2], What::after, 16, 2, 0.002, 0.004);
  CHECK(testing::refusal_of([&] { return read_planner_times(text, "mine.json", setting); }) ==
        "mine.json: a profile of Metis without '_tpN' in its name; accepted: its own names, as in "
        "DeviceType.A100_tp2_bs1.json");
}

TEST_CASE("planner times: Galvatron's milliseconds a sample, of one length") {
  const std::string text =
      R"({"layernum[2]_bsz8_seq32": 9, "layertype_0_bsz8_seq32": 0.5, "layertype_0_bsz8_seq64": 7,
          "layertype_other_bsz8_seq32": 0.25})";
  const auto times = read_planner_times(text, "g.json", setting);
  REQUIRE(times.size() == 2);
  check_time(times[0], What::block, 8, 1, 0.004, 0.008);
  check_time(times[1], What::around, 8, 1, 0.002, 0.004);
  PlannerSetting longer = setting;
  longer.tokens = 128;
  CHECK(testing::refusal_of([&] {
          return read_planner_times(text, "g.json", longer);
        }).starts_with("g.json: no layer times for samples of 128 tokens; accepted: "));
}

TEST_CASE("planner times: other JSON is refused") {
  CHECK(is_planner_times(sailor));
  CHECK_FALSE(is_planner_times(""));
  CHECK_FALSE(is_planner_times(R"({"devices": {"2": 3}, "format": "parsim profile"})"));
  for (const char* text : {"{}", "[1]", R"({"a": 1})"}) {
    CHECK(testing::refusal_of([&] {
            return read_planner_times(text, "o.json", setting);
          }).starts_with("o.json: no profile that is known; accepted: "));
  }
  CHECK(testing::refusal_of([&] {
          return read_planner_times(R"({"2": {"1": {"0": [1, 2, 3]}}})", "s.json", setting);
        }).starts_with("s.json: 1 layers; accepted: "));
}

TEST_CASE("planner times: numbers beyond those of a table are refused") {
  const auto refusal = [](const std::string& text, const std::string& file) {
    return testing::refusal_of([&] { return read_planner_times(text, file, setting); });
  };
  const std::string accepted = "; accepted: 0, or a number of 1e-18 to 1e+24";
  CHECK(refusal(testing::with(sailor, "0.040", "1e300"), "s.json") ==
        "s.json:2:2/4/10/1: 1.e+300" + accepted);
  CHECK(refusal(testing::with(sailor, "0.001", "1e-300"), "s.json").ends_with(accepted));
  CHECK(refusal(R"({"execution_time": {"layer_compute_total_ms": [1, 1e99, 1]}})", "_tp1_bs1.json")
            .ends_with(accepted));
  CHECK(refusal(R"({"layertype_0_bsz8_seq32": 1e25})", "g.json").ends_with(accepted));
  CHECK(refusal(R"({"layertype_0_bsz8_seq32": 0})", "g.json") == "accepted");
}

TEST_CASE("planner times: --profile reads a file once, and no endless one") {
  const testing::TemporaryFolder folder;
  const std::string simulate =
      "timeout 20 " PARSIM_PROGRAM
      " simulate --network gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=100"
      " --cluster star:1,device=v100-sxm2 --strategy data --batch 2 --quiet --profile x.json";
  const auto shell = [&](const std::string& before) {
    return testing::run_program("/bin/sh", {"-c", before + simulate}, folder.folder());
  };
  const testing::Finished endless = shell("ln -s /dev/zero x.json; ");
  CHECK(endless.exit_code == 2);
  CHECK(endless.err ==
        "parsim: --profile: cannot read 'x.json': it is larger than 256 MiB; accepted: a readable "
        "file\n");
  const testing::Finished pipe = shell(
      "rm x.json; mkfifo x.json; "
      "echo '{\"2\": {\"1\": {\"0\": [1, 1, 0], \"1\": [1, 2, 0], \"2\": [1, 2, 0], \"3\": "
      "[1, 2, 0]}}}' > x.json & ");
  CHECK(pipe.exit_code == 0);
}

TEST_CASE("planner times: another GPU in a file's name, and groups that no machine has, are said") {
  const auto warnings = [](const std::string& file, std::size_t group, const std::string& cluster) {
    LayerTime time;
    time.device = "v100-sxm2";
    time.precision = Precision::fp16;
    time.group = group;
    return layer_times_warnings({time}, file, topologies::load_cluster(cluster, "test"),
                                Precision::fp16);
  };
  const std::string two = "nodes:1x2,device=v100-sxm2";
  CHECK(warnings("DeviceType.V100_tp1_bs1.json", 1, two).empty());
  CHECK(warnings("mine.json", 2, two).empty());
  CHECK(warnings("x/DeviceType.A100_tp1_bs1.json", 1, two) ==
        std::vector<std::string>{"x/DeviceType.A100_tp1_bs1.json: times of A100 by its name count "
                                 "as those of v100-sxm2"});
  CHECK(warnings("mine.json", 2, "nodes:2x1,device=v100-sxm2,inter=10GB/s") ==
        std::vector<std::string>{"mine.json: times of groups of 2 v100-sxm2 are left out: no "
                                 "machine has as many"});
}

TEST_CASE("planner times: --profile prices blocks by them, of the only type of GPU") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write(
      "s.json",
      R"({"2": {"1": {"0": [0.01, 0.01, 0], "1": [1, 2, 0], "2": [1, 2, 0], "3": [0.01, 0.02, 0]}}})");
  const auto run = [&](const std::string& cluster) {
    return testing::run_program(
        PARSIM_PROGRAM,
        {"simulate", "--network",
         "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=100,attention=eager", "--cluster",
         cluster, "--strategy", "data", "--batch", "2", "--profile", file, "--json"});
  };
  const testing::Finished one = run("star:1,device=v100-sxm2");
  REQUIRE(one.exit_code == 0);
  // Two blocks, what is before and after them, and an update that takes next to nothing.
  const double step = nlohmann::json::parse(one.out)["step_time_s"];
  CHECK(step == testing::approx(0.02 + 2 * 3 + 0.03).epsilon(0.001));
  const testing::Finished two = run("star:2,device=v100-sxm2*1+t4*1");
  CHECK(two.exit_code == 2);
  CHECK(two.err.find("GPUs of 2 types") != std::string::npos);
}

}  // namespace
}  // namespace parsim::experiment
