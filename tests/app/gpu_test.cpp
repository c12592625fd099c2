// --hw on an emulated GPU: from calibration to the report and back, and what a GPU refuses. There
// is no waiting and no noise: what is predicted must be what is measured.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using testing::Finished;
using Words = std::vector<std::string>;

/// Kernels take their time and do nothing else.
Finished run_on_gpu(Words words, const Words& more, const Words& environment = {}) {
  Words variables{"PARSIM_HW=" PARSIM_EMULATED, "PARSIM_EMULATED_NUMBERS=0"};
  variables.insert(variables.end(), environment.begin(), environment.end());
  words.insert(words.end(), more.begin(), more.end());
  return testing::run_program(PARSIM_PROGRAM, words, {}, variables);
}

const Words on_parts{"--hw-backend", "cuda",   "--hw-partition", "64,32",
                     "--network",    "lenet5", "--batch",        "16"};
const Words plans{"--strategy", "data", "--strategy", "model-even", "--strategy", "pipeline"};

}  // namespace

TEST_CASE("gpu: calibrated on partitions, every strategy is predicted as it is measured") {
  Words question = on_parts;
  question.insert(question.end(), plans.begin(), plans.end());
  const Finished run = run_on_gpu({"validate", "--hw", "--json"}, question);
  CAPTURE(run.err);
  REQUIRE(run.exit_code == 0);
  const json result = json::parse(run.out);
  REQUIRE(result["rows"].size() == 3);
  for (const json& row : result["rows"]) {
    const double predicted = row["predicted"];
    const double measured = row["measured"];
    CAPTURE(predicted);
    // A profile has one time for kernels that clear what they add to in one plan and not in
    // another: one such kernel of model-even, 2 us.
    CHECK(std::abs(predicted - measured) < (row["case"] == "model-even" ? 2.5e-6 : 1e-6));
  }
  CHECK(result["sets"][0]["max_error"].get<double>() < 0.015);
}

TEST_CASE("gpu: parts that share memory are predicted as measured, and not without knowing") {
  // Weights, their gradients and sums of them are most of AlexNet's step with two samples; memory
  // is fast enough for half of the parts' multiprocessors.
  const testing::TemporaryFolder folder;
  const std::string profile = folder.path("profile.json");
  const Words question{"--hw-backend", "cuda",    "--hw-partition", "64,32",
                       "--network",    "alexnet", "--batch",        "2"};
  const Words scarce{"PARSIM_EMULATED_MEMORY_FOR=48", "PARSIM_EMULATED_MEMORY=150000000000"};
  const Finished calibrated = run_on_gpu({"calibrate", "-o", profile}, question, scarce);
  CAPTURE(calibrated.err);
  REQUIRE(calibrated.exit_code == 0);
  json known = json::parse(testing::read_text(profile));
  REQUIRE(known["common_memory"][0]["parts"].size() == 2);
  // The larger part alone wants more than there is, too.
  const auto factor = [&](std::size_t part) {
    const json& times = known["common_memory"][0]["parts"][part];
    return times["together"]["median_s"].get<double>() / times["alone"]["median_s"].get<double>();
  };
  CHECK(factor(0) == testing::approx(2 / (64. / 48)).epsilon(0.01));
  CHECK(factor(1) == testing::approx(2).epsilon(0.01));
  const auto errors = [&](const std::string& with) {
    const Finished run =
        run_on_gpu({"validate", "--hw", "--strategy", "data", "--strategy", "model-even",
                    "--strategy", "layer-wise", "--profile", with, "--json"},
                   question, scarce);
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    std::vector<double> list;
    const json result = json::parse(run.out);
    for (const json& row : result["rows"]) list.push_back(row["error"]);
    REQUIRE(list.size() == 3);
    return list;
  };
  const std::vector<double> aware = errors(profile);
  // There, a sum's threads take no longer than an update's, but touch more.
  CHECK(std::abs(aware[0]) < 0.08);
  CHECK(std::abs(aware[1]) < 0.02);
  CHECK(std::abs(aware[2]) < 0.02);
  known.erase("common_memory");
  const std::vector<double> unaware = errors(folder.write("unaware.json", known.dump()));
  CHECK(unaware[0] < -0.1);
  CHECK(unaware[1] < -0.1);
  CHECK(unaware[2] < -0.03);  // gives the smaller part little to do
}

TEST_CASE("gpu: a profile of other parts, another driver or less memory is not used in silence") {
  const testing::TemporaryFolder folder;
  const std::string profile = folder.path("profile.json");
  REQUIRE(run_on_gpu({"calibrate", "-o", profile}, on_parts).exit_code == 0);
  const Words compare{"compare", "--hw", "--strategy", "data", "--profile", profile};
  const Finished own = run_on_gpu(compare, on_parts);
  CHECK(own.exit_code == 0);
  CHECK(own.out.find("between parts of one GPU kernels carry messages, not NCCL") !=
        std::string::npos);
  const Finished driver = run_on_gpu(compare, on_parts, {"PARSIM_EMULATED_DRIVER=13010"});
  CHECK(driver.exit_code == 2);
  CHECK(driver.err.find("driver CUDA 13.0.0, here 13.1.0") != std::string::npos);

  const Words small{"PARSIM_EMULATED_MEMORY=1000000"};
  const Finished memory = run_on_gpu({"compare", "--hw", "--strategy", "data"}, on_parts, small);
  CHECK(memory.exit_code == 5);
  const Finished nothing = run_on_gpu({"calibrate", "-o", folder.path("no.json")}, on_parts, small);
  CHECK(nothing.exit_code == 5);
  CHECK(nothing.out.find(" and has ") != std::string::npos);
  CHECK(folder.names() == Words{"profile.json"});
}

TEST_CASE("gpu: what a GPU cannot give is a sentence and exit code 3") {
  const auto refusal = [](const std::string& parts, const Words& environment) {
    const Finished run =
        run_on_gpu({"simulate", "--hw", "--strategy", "data", "--hw-backend", "cuda", "--network",
                    "lenet5", "--hw-partition", parts, "--cluster",
                    "star:2,device=h200-sxm,rate=100GB/s,latency=5us", "--json"},
                   {}, environment);
    CHECK(run.exit_code == 3);
    return json::parse(run.out)["hardware"]["reason"].get<std::string>();
  };
  CHECK(refusal("64,12", {}).find("12; this GPU gives multiples of 8, 128 in all") !=
        std::string::npos);
  CHECK(refusal("128,8", {}).find("0 multiprocessors are left, 8 are asked for") !=
        std::string::npos);
  CHECK(refusal("64", {}) == "the plan uses 2 devices, Emulated GPU has 1");
  CHECK(refusal("64,64", {"PARSIM_EMULATED_DRIVER=0"}).find("no NVIDIA driver") !=
        std::string::npos);
  CHECK(refusal("64,64", {"PARSIM_EMULATED_DRIVER=12040"}).find("is older than") !=
        std::string::npos);
}

}  // namespace parsim::app
