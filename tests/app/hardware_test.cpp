// --hw on the synthetic host: the whole way from calibration to measured columns, without a GPU.
#include <doctest/doctest.h>
#include <sys/stat.h>

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

Finished run_hardware(Words words) { return testing::run_program(PARSIM_PROGRAM, words); }

const Words on_host{"--hw", "--hw-backend", "host", "--hw-partition", "64,32"};

Words appended(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

// Its threads sleep in virtual time. Calibration, lookup, simulation and measurement must agree on
// every operation; SimGrid takes events less than 1 ns apart for one.
TEST_CASE("hardware: calibrated on the synthetic host, predicted steps are the measured ones") {
  const Words validate{"validate",   "--network", "lenet5",     "--batch",  "32",
                       "--strategy", "data",      "--strategy", "pipeline", "--json"};
  const Finished run = run_hardware(appended(validate, on_host));
  CAPTURE(run.err);
  REQUIRE(run.exit_code == 0);
  const json result = json::parse(run.out);
  REQUIRE(result["rows"].size() == 2);
  CHECK(result["sets"][0]["max_error"].get<double>() <= 1e-6);
  for (const json& row : result["rows"]) {
    CHECK(row["measured"] == row["expected"]);
    CHECK(row["samples"] == 9);
    CHECK(row["predicted"].get<double>() > 0.02);
  }
  CHECK(run_hardware(appended(validate, on_host)).out == run.out);
}

TEST_CASE(
    "hardware: a profile feeds the simulator, and compare shows measured columns beside predicted "
    "ones") {
  const testing::TemporaryFolder folder;
  const std::string profile = folder.path("profile.json");
  const Finished calibrated =
      run_hardware({"calibrate", "-o", profile, "--hw-backend", "host", "--hw-partition", "64,32",
                    "--network", "lenet5", "--batch", "32", "--strategy", "data", "--json"});
  CAPTURE(calibrated.err);
  REQUIRE(calibrated.exit_code == 0);
  CHECK(json::parse(calibrated.out)["kernels"].get<int>() > 20);

  const Finished compared =
      run_hardware(appended({"compare", "--network", "lenet5", "--batch", "32", "--strategy",
                             "data", "--profile", profile, "--json"},
                            on_host));
  CAPTURE(compared.err);
  REQUIRE(compared.exit_code == 0);
  const json result = json::parse(compared.out);
  CHECK(result["hardware"]["backend"] == "host");
  const json& row = result["results"][0];
  CHECK(row["cost_sources"]["measured"] == 1.0);
  const double measured = row["measured_step_time_s"];
  const double predicted = row["step_time_s"];
  CHECK(row["measured_error"] == testing::approx((predicted - measured) / measured));

  const Finished both = run_hardware(appended({"simulate", "--network", "lenet5", "--batch", "32",
                                               "--strategy", "data", "--profile", profile},
                                              on_host));
  CAPTURE(both.out);
  CHECK(both.out.starts_with("data: tp 1 x pp 1 x dp 2, "));
  CHECK(both.out.find("\n      measured: ") < both.out.find("\n\n"));  // in the answer

  const Finished simulated = run_hardware({"simulate", "--network", "lenet5", "--batch", "32",
                                           "--strategy", "data", "--profile", profile, "--json"});
  CHECK(json::parse(simulated.out)["step_time_s"] == row["step_time_s"]);

  // Hosts launch as fast as the profile says.
  json launching = json::parse(testing::read_text(profile));
  launching["launch"] = {{"median_s", 5e-6}, {"low_s", 5e-6}, {"high_s", 5e-6}, {"samples", 9}};
  const Words slowly{"simulate",  "--network",
                     "lenet5",    "--batch",
                     "32",        "--strategy",
                     "data",      "--json",
                     "--profile", folder.write("launching.json", launching.dump())};
  CHECK(json::parse(run_hardware(slowly).out)["inputs"]["launch_interval_s"] == 5e-6);

  // What kernels and messages cost each other, too: from the profile as if said by hand.
  const std::vector<std::string> step = {"simulate", "--network",  "lenet5",   "--batch",
                                         "32",       "--strategy", "data",     "--bucket",
                                         "0B",       "--json",     "--profile"};
  json holding = json::parse(testing::read_text(profile));
  REQUIRE(holding["interference"].empty());
  holding["interference"] = {{"tensor/communication", 3.0}, {"communication/memory", 2.0}};
  const auto step_time = [&](const std::vector<std::string>& more) {
    const Finished finished = run_hardware(appended(step, more));
    CAPTURE(finished.err);
    REQUIRE(finished.exit_code == 0);
    return json::parse(finished.out)["step_time_s"].get<double>();
  };
  const double held = step_time({folder.write("holding.json", holding.dump())});
  CHECK(held > step_time({profile}));
  CHECK(held == step_time({profile, "--interference", "tensor/communication=3", "--interference",
                           "communication/memory=2"}));

  std::string other = testing::read_text(profile);
  other.replace(other.find("\"version\": \"1\""), 14, "\"version\": \"0\"");
  const Finished refused =
      run_hardware(appended({"compare", "--network", "lenet5", "--strategy", "data", "--profile",
                             folder.write("other.json", other)},
                            on_host));
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("was measured with parsim-hw 0, here 1") != std::string::npos);
}

TEST_CASE("hardware: without a GPU the result is complete and the exit code 3") {
  const std::string program = PARSIM_PROGRAM;
  const std::string beside = program.substr(0, program.rfind('/')) + "/parsim-hw";
  const Words environment{"PARSIM_HW=" + beside, "CUDA_VISIBLE_DEVICES="};
  const auto run = [&](const Words& words) {
    return testing::run_program(PARSIM_PROGRAM, words, {}, environment);
  };
  const Finished simulated = run({"simulate", "--hw", "--network", "lenet5", "--strategy", "data",
                                  "--cluster", "dgx-v100", "--json"});
  CHECK(simulated.exit_code == 3);
  const json one = json::parse(simulated.out);
  CHECK(one["step_time_s"].get<double>() > 0);
  CHECK(one["measured_step_time_s"] == nullptr);
  CHECK(one["hardware"]["reason"].get<std::string>() != "");

  const Finished validated = run({"validate", "--hw", "--json"});
  CHECK(validated.exit_code == 3);
  const json all = json::parse(validated.out);
  CHECK(all["rows"].empty());
  CHECK(all["unresolved"].size() > 5);

  const testing::TemporaryFolder folder;
  CHECK(run({"calibrate", "-o", folder.path("p.json")}).exit_code == 3);
  CHECK(folder.names().empty());
}

TEST_CASE("hardware: steps measured before stand in for running") {
  const testing::TemporaryFolder folder;
  const Words question{"compare", "--network", "lenet5", "--batch", "12", "--strategy", "data"};
  const std::string dag = folder.path("dag.json"), file = folder.path("measured.json");
  const std::string profile = folder.path("profile.json");
  REQUIRE(run_hardware({"calibrate", "-o", profile, "--hw-backend", "host", "--hw-partition",
                        "64,32", "--network", "lenet5", "--batch", "12", "--strategy", "data"})
              .exit_code == 0);
  const auto plan = [&](const std::string& strategy) {
    return run_hardware({"plan", "--network", "lenet5", "--batch", "12", "--strategy", strategy,
                         "--profile", profile, "--dag", dag});
  };
  REQUIRE(plan("data").exit_code == 0);
  const std::string program = PARSIM_PROGRAM;
  const std::string beside = program.substr(0, program.rfind('/')) + "/parsim-hw";
  REQUIRE(testing::run_program(beside, {"run", "--backend", "host", "--partition", "64,32",
                                        "--steps", "3", "--dag", dag, "-o", file})
              .exit_code == 0);
  const json step = json::parse(testing::read_text(file))["runs"][0]["step"]["median_s"];
  const Words again = appended(question, {"--hw", "--hw-measured", file, "--profile", profile,
                                          "--strategy", "owt", "--json"});
  const Finished compared = run_hardware(again);
  CAPTURE(compared.err);
  REQUIRE(compared.exit_code == 0);
  const json compared_rows = json::parse(compared.out)["results"];
  CHECK(compared_rows.size() == 2);
  for (const json& row : compared_rows) {
    if (row["strategy"] == "data") CHECK(row["measured_step_time_s"] == step);
    if (row["strategy"] == "owt") CHECK(row["measured_step_time_s"].is_null());
  }
  CHECK(compared.out.find("no row of " + file) != std::string::npos);
  const Finished other = run_hardware(appended(
      question, {"--hw", "--hw-measured", file, "--profile", profile, "--bucket", "0B", "--json"}));
  CHECK(other.out.find("measured another plan: ") != std::string::npos);
  for (const auto& [option, value, here] :
       {std::array<std::string, 3>{"--batch", "24", "batch 24, fp32, momentum"},
        {"--precision", "fp16", "batch 12, fp16, momentum"},
        {"--optimizer", "adam", "batch 12, fp32, adam"}}) {
    Words changed{"compare", "--network", "lenet5", "--strategy", "data", "--hw", "--hw-measured",
                  file,      "--profile", profile,  "--json",     option, value};
    if (option != "--batch") changed = appended(changed, {"--batch", "12"});
    CHECK(run_hardware(changed).out.find("measured batch 12, fp32, momentum, here it is " + here) !=
          std::string::npos);
  }

  const auto refusal = [](const Words& words) {
    const Finished finished = run_hardware(words);
    CHECK(finished.exit_code == 2);
    return finished.err;
  };
  CHECK(refusal(appended(question, {"--hw", "--hw-measured", file, "--hw-backend", "host"}))
            .find("--hw-backend: together with --hw-measured") != std::string::npos);
  CHECK(refusal({"validate", "--hw", "--hw-measured", file, "--network", "lenet5"})
            .find("--hw-measured: without the times of operations") != std::string::npos);
}

TEST_CASE("hardware: options of plans count in validate, each for the strategies that read it") {
  const auto rows = [](const Words& options) {
    const Finished run =
        run_hardware(appended(appended({"validate", "--network", "lenet5", "--batch", "8",
                                        "--strategy", "data", "--strategy", "pipeline", "--json"},
                                       options),
                              on_host));
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    return json::parse(run.out)["rows"];
  };
  const json plain = rows({}), again = rows({"--recompute", "optimal", "--pp", "1"});
  REQUIRE(plain.size() == 2);
  REQUIRE(again.size() == 2);
  const auto predicted = [](const json& row) { return row["predicted"].get<double>(); };
  CHECK(predicted(again[0]) > 1.02 * predicted(plain[0]));  // also read by data
  // With one stage the pipeline is one device.
  CHECK(predicted(again[1]) > 1.02 * predicted(plain[1]));
}

TEST_CASE("hardware: what the machine cannot give is refused with a sentence") {
  const Finished devices =
      run_hardware({"simulate", "--hw", "--hw-backend", "host", "--hw-partition", "64", "--network",
                    "lenet5", "--strategy", "data", "--cluster", "dgx-v100", "--json"});
  CHECK(devices.exit_code == 3);
  CHECK(json::parse(devices.out)["hardware"]["reason"] ==
        "the plan uses 8 devices, synthetic host has 1");
  // parsim-hw itself: what one DAG is refused does not keep the other from running.
  const testing::TemporaryFolder folder;
  Words run{"run", "--backend", "host", "--steps", "1", "--partition", "64,64"};
  for (const std::string cluster : {"dgx-v100", "star:2,device=t4,rate=10GB/s,latency=1us"}) {
    const std::string dag = folder.path(cluster.substr(0, 4) + ".json");
    REQUIRE(run_hardware({"plan", "--network", "lenet5", "--strategy", "data", "--batch", "16",
                          "--cluster", cluster, "--dag", dag})
                .exit_code == 0);
    run.insert(run.end(), {"--dag", dag});
  }
  const std::string program = PARSIM_PROGRAM;
  const std::string beside = program.substr(0, program.rfind('/')) + "/parsim-hw";
  const Finished both = testing::run_program(beside, run);
  CHECK(both.exit_code == 3);
  CHECK(both.err == "parsim-hw: lenet5 data: the plan uses 8 devices, synthetic host has 2\n");
  const json rows = json::parse(both.out)["runs"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["error"] == "the plan uses 8 devices, synthetic host has 2");
  CHECK(rows[1]["error"] == "");
  CHECK(rows[1]["step"]["median_s"].get<double>() > 0.01);
  const Finished many =
      testing::run_program(beside, {"run", "--backend", "host", "--dag", folder.path("star.json")},
                           {}, {"RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=0"});
  CHECK(many.exit_code == 2);
  CHECK(many.err.find("torchrun: started 4 processes, and MPI does not connect them") !=
        std::string::npos);

  const Finished words =
      run_hardware(appended({"compare", "--network", "lenet5", "--strategy", "data"},
                            {"--hw", "--hw-backend", "host", "--hw-partition", "64,x"}));
  CHECK(words.exit_code == 2);
  CHECK(words.err.find("--hw-partition: 'x'; accepted: a whole number") != std::string::npos);
  const Finished alone = run_hardware(
      {"compare", "--network", "lenet5", "--cluster", "dgx-v100", "--hw-backend", "host"});
  CHECK(alone.exit_code == 2);
  CHECK(alone.err.find("--hw-backend: unused without --hw") != std::string::npos);
}

}  // namespace parsim::app
